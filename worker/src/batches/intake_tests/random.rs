//! Any sequence of batches, from any place on.

use proptest::prelude::*;

use super::*;

/// What stands next in a log.
#[derive(Debug, Clone)]
enum Piece {
    Dense(i32, usize),
    Holes(Vec<bool>),
    Empty(i32),
    Marker,
    Aborted(i32),
    AppendTime(i32),
    /// Offsets that no batch has.
    Gap(i64),
}

const ABORTER: i64 = 77;

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => (1..9_i32, prop_oneof![Just(10_usize), Just(200), Just(900)])
            .prop_map(|(count, bytes)| Piece::Dense(count, bytes)),
        2 => proptest::collection::vec(any::<bool>(), 1..9).prop_map(Piece::Holes),
        1 => (1..5_i32).prop_map(Piece::Empty),
        1 => Just(Piece::Marker),
        1 => (1..5_i32).prop_map(Piece::Aborted),
        1 => (1..5_i32).prop_map(Piece::AppendTime),
        1 => (1..5_i64).prop_map(Piece::Gap),
    ]
}

/// A log, the offsets of its records that are to be copied, and its end.
fn log(pieces: &[Piece], codecs: &[u8]) -> (Vec<Batch>, Vec<i64>, i64) {
    let mut batches = Vec::new();
    let mut records = Vec::new();
    let mut next = 0_i64;
    for (piece, codec) in pieces.iter().zip(codecs.iter().cycle()) {
        let codec = Compression::from_code(*codec).unwrap_or(Compression::None);
        let base = next;
        let mut add = |batch: Batch, is_copied: bool| {
            next = batch.header().next_offset();
            if is_copied {
                records.extend(offsets_of(&batch));
            }
            batches.push(batch);
        };
        match piece {
            Piece::Dense(count, bytes) => {
                let made = Made::dense(base, *count).values_of(*bytes);
                add(made.compressed(codec).batch(), true);
            }
            Piece::Holes(kept) => {
                let last = i32::try_from(kept.len()).unwrap_or(0) - 1;
                let deltas: Vec<i32> = (0..)
                    .zip(kept)
                    .filter(|(_, kept)| **kept)
                    .map(|(delta, _)| delta)
                    .collect();
                let made = Made::with_holes(base, &deltas, last);
                add(made.compressed(codec).batch(), true);
            }
            Piece::Empty(count) => add(Made::with_holes(base, &[], *count).batch(), false),
            Piece::Marker => add(Made::marker(base, 5, 1), false),
            Piece::Aborted(count) => {
                add(
                    Made::dense(base, *count).in_transaction(ABORTER).batch(),
                    false,
                );
            }
            Piece::AppendTime(count) => {
                let made = Made::dense(base, *count).compressed(codec);
                add(made.append_time().batch(), true);
            }
            Piece::Gap(offsets) => next += offsets,
        }
    }
    (batches, records, next)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_record_to_be_copied_comes_once_in_order(
        pieces in proptest::collection::vec(piece(), 1..12),
        codecs in proptest::collection::vec(0_u8..5, 1..4),
        position in 0_i64..40,
        skip_records in 0_u64..20,
        limit in proptest::option::of(150_usize..1_200),
        doubt_at in proptest::option::of((0_i64..40, 1_i64..20, proptest::option::of(0_i64..20))),
        answers in 1_usize..5,
    ) {
        let (batches, records, end) = log(&pieces, &codecs);
        let limits = limit.map_or(NO_LIMITS, up_to);
        let known = doubt_at.map(|(from, length, refused)| {
            doubt(from, from + length, refused.map(|refused| from + refused))
        });
        let mut intake = Intake::new(Offset(position), skip_records, limits, known);

        let mut ready = Vec::new();
        let length = batches.len().div_ceil(answers).max(1);
        for part in batches.chunks(length) {
            ready.extend(take_with(&mut intake, part, &[(ABORTER, 0)]).ready);
        }

        let skip = usize::try_from(skip_records).unwrap_or(usize::MAX);
        let wanted = records.iter().copied().filter(|offset| *offset >= position);
        let expected: Vec<i64> = wanted.clone().skip(skip).collect();
        let found: Vec<i64> = ready.iter().flat_map(|one| show(one).0).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(
            usize::try_from(intake.skip_records).unwrap_or(usize::MAX),
            skip.saturating_sub(wanted.count())
        );

        // Offsets are accounted for in order, and never before their record.
        let mut accounted = position;
        for one in &ready {
            let (records, to, path) = show(one);
            prop_assert!(accounted <= records[0], "{records:?} after {accounted}");
            prop_assert!(records.last().is_some_and(|last| *last < to), "{records:?} to {to}");
            accounted = to;
            let fits = limit.is_none_or(|limit| one.batch.size_bytes() <= limit);
            prop_assert!(fits || one.records == 1, "{records:?}");
            if path == Path::Passed {
                prop_assert!(batches.contains(&one.batch));
            }
        }
        // Offsets in no batch are not seen.
        let last = batches.last().map_or(0, |batch| batch.header().next_offset());
        prop_assert!(last <= end);
        prop_assert_eq!(intake.position(), Offset(last.max(position)));
    }
}
