//! Which way batches take. Random sequences are in `random`, joining in `joining`, and the corpus of
//! old formats in `old`.

use bytes::Bytes;
use kreplicator_batch::{Compression, aborted::AbortedTransaction, rewrite, split};

use super::{
    join::{JOINED_PLAIN_BYTES_MAX, TINY_BYTES},
    *,
};
use crate::batches::testkit::{
    APPEND_TIME, Made, answer, damaged as damage, inflating, offsets_of, records_of, time_of,
};

#[path = "intake_tests/joining.rs"]
mod joining;
#[path = "intake_tests/old.rs"]
mod old;
#[path = "intake_tests/random.rs"]
mod random;

const NO_LIMITS: TargetLimits = TargetLimits {
    max_message_bytes: None,
    timestamp_before_max: None,
    timestamp_after_max: None,
    compacted: false,
    log_append_time: false,
};

fn up_to(bytes: usize) -> TargetLimits {
    TargetLimits {
        max_message_bytes: Some(bytes as u64),
        ..NO_LIMITS
    }
}

fn begin(position: i64, skip_records: u64) -> Intake {
    Intake::new(Offset(position), skip_records, NO_LIMITS, None)
}

impl Intake {
    /// Takes an answer as a lane does, with memory enough.
    fn take(
        &mut self,
        records: Bytes,
        aborted: Vec<AbortedTransaction>,
        taken: &mut Taken,
    ) -> Result<(), Fault> {
        let mut unread = Unread::new(records, aborted);
        loop {
            self.pass(&mut unread, taken)?;
            let Some(closed) = unread.closed() else {
                assert!(unread.is_over());
                return Ok(());
            };
            let mut after = self.clone();
            let mut opened = Taken::default();
            match after.open(closed, PLAIN_BYTES_MAX, &mut opened) {
                Ok(()) => *self = after,
                Err(Unopened::TooLarge) => return Err(self.unfolds_too_far()),
                Err(Unopened::Damaged(fault)) => return Err(fault),
            }
            taken.ready.append(&mut opened.ready);
            unread.opened();
        }
    }
}

fn options() -> rewrite::Options {
    open::options(PLAIN_BYTES_MAX)
}

/// Takes an answer in which nothing is wrong.
fn take(intake: &mut Intake, batches: &[Batch]) -> Taken {
    take_with(intake, batches, &[])
}

fn take_with(intake: &mut Intake, batches: &[Batch], aborted: &[(i64, i64)]) -> Taken {
    let aborted = aborted
        .iter()
        .map(|(producer_id, first_offset)| AbortedTransaction {
            producer_id: *producer_id,
            first_offset: *first_offset,
        });
    let mut taken = Taken::default();
    intake
        .take(answer(batches), aborted.collect(), &mut taken)
        .expect("nothing is wrong");
    taken
}

/// Records, end and way of each batch.
fn shown(taken: &Taken) -> Vec<(Vec<i64>, i64, Path)> {
    taken.ready.iter().map(show).collect()
}

fn show(ready: &Ready) -> (Vec<i64>, i64, Path) {
    ready.batch.verify().expect("right checksum");
    let records = offsets_of(&ready.batch);
    assert_eq!(records.first(), Some(&ready.first.0));
    assert_eq!(records.len(), ready.records as usize);
    let latest = records_of(&ready.batch).iter().map(|(_, time)| *time).max();
    assert_eq!(Some(ready.timestamp_max.0), latest);
    (records, ready.to.0, ready.path)
}

fn rewritten(why: Why) -> Path {
    Path::Rewritten(why)
}

#[test]
fn nothing_comes_of_nothing() {
    let mut intake = begin(5, 0);
    let taken = take(&mut intake, &[]);
    assert!(taken.ready.is_empty());
    assert_eq!(intake.position(), Offset(5));
    assert_eq!(intake.leader_epoch(), None);
}

#[test]
fn dense_batches_pass_as_they_are() {
    for compression in Compression::ALL {
        let batches = [
            Made::dense(5, 3).compressed(compression).batch(),
            Made::dense(8, 1).compressed(compression).batch(),
        ];
        let mut intake = begin(5, 0);
        let taken = take(&mut intake, &batches);
        let expected = [(vec![5, 6, 7], 8, Path::Passed), (vec![8], 9, Path::Passed)];
        assert_eq!(shown(&taken), expected);
        for (ready, source) in taken.ready.iter().zip(&batches) {
            assert_eq!(ready.batch.bytes(), source.bytes());
        }
        assert_eq!(intake.position(), Offset(9));
        assert_eq!(intake.leader_epoch(), Some(7));
    }
}

#[test]
fn a_gap_between_batches_belongs_to_neither() {
    let mut intake = begin(5, 0);
    let taken = take(
        &mut intake,
        &[Made::dense(5, 1).batch(), Made::dense(100, 2).batch()],
    );
    let expected = [
        (vec![5], 6, Path::Passed),
        (vec![100, 101], 102, Path::Passed),
    ];
    assert_eq!(shown(&taken), expected);
}

#[test]
fn what_lies_before_the_position_is_left_out() {
    let batches = [
        Made::dense(0, 4).batch(),
        Made::dense(4, 4).compressed(Compression::Lz4).batch(),
        Made::dense(8, 2).batch(),
    ];
    let mut intake = begin(6, 0);
    let taken = take(&mut intake, &batches);
    let expected = [
        (vec![6, 7], 8, rewritten(Why::Resumed)),
        (vec![8, 9], 10, Path::Passed),
    ];
    assert_eq!(shown(&taken), expected);
    let codec = taken.ready[0].batch.header().attributes.compression();
    assert_eq!(codec, Compression::Lz4);
}

#[test]
fn delivered_records_are_passed_over_across_batches_and_inside_one() {
    let batches = [
        Made::dense(0, 4).batch(),
        Made::with_holes(4, &[1, 3], 5).batch(),
        Made::dense(10, 3).batch(),
        Made::dense(13, 2).batch(),
    ];
    // Two from inside the first batch, two of the second, one of the third.
    let mut intake = begin(2, 5);
    let taken = take(&mut intake, &batches);
    let expected = [
        (vec![11, 12], 13, rewritten(Why::Resumed)),
        (vec![13, 14], 15, Path::Passed),
    ];
    assert_eq!(shown(&taken), expected);

    // Exactly to the end of a batch: nothing is opened.
    let mut intake = begin(0, 6);
    let taken = take(&mut intake, &batches);
    let expected = [
        (vec![10, 11, 12], 13, Path::Passed),
        (vec![13, 14], 15, Path::Passed),
    ];
    assert_eq!(shown(&taken), expected);

    // More than there is: the rest is passed over in the next answer.
    let mut intake = begin(0, 12);
    assert!(take(&mut intake, &batches).ready.is_empty());
    assert_eq!(intake.position(), Offset(15));
    let taken = take(&mut intake, &[Made::dense(15, 3).batch()]);
    let expected = [(vec![16, 17], 18, rewritten(Why::Resumed))];
    assert_eq!(shown(&taken), expected);
}

#[test]
fn c018_a_batch_with_holes_is_written_anew_and_stands_for_all_its_offsets() {
    let mut intake = begin(0, 0);
    let taken = take(&mut intake, &[Made::with_holes(0, &[2, 5], 9).batch()]);
    let expected = [(vec![2, 5], 10, rewritten(Why::Holes))];
    assert_eq!(shown(&taken), expected);
    assert!(taken.ready[0].batch.shape().is_dense());
    assert_eq!(intake.position(), Offset(10));
}

#[test]
fn c018_batches_without_records_move_the_position() {
    let mut intake = begin(0, 0);
    let emptied = Made::with_holes(0, &[], 99).batch();
    let taken = take(&mut intake, &[emptied]);
    assert!(taken.ready.is_empty());
    assert_eq!(taken.dropped, 1);
    assert_eq!(intake.position(), Offset(100));
}

#[test]
fn c016_markers_and_aborted_records_are_dropped_and_their_offsets_accounted_for() {
    const ABORT: i16 = 0;
    const COMMIT: i16 = 1;
    let batches = [
        Made::dense(0, 2).in_transaction(11).batch(),
        Made::dense(2, 2).in_transaction(12).batch(),
        Made::marker(4, 11, ABORT),
        Made::dense(5, 1).in_transaction(11).batch(),
        Made::marker(6, 12, COMMIT),
        Made::marker(7, 11, COMMIT),
    ];
    let mut intake = begin(0, 0);
    let taken = take_with(&mut intake, &batches, &[(11, 0)]);
    let expected = [(vec![2, 3], 4, Path::Passed), (vec![5], 6, Path::Passed)];
    assert_eq!(shown(&taken), expected);
    assert_eq!(taken.dropped, 4);
    assert_eq!(intake.position(), Offset(8));
}

#[test]
fn c018_an_answer_of_aborted_records_alone_moves_the_position() {
    let mut intake = begin(0, 0);
    for base in (0..1_000).step_by(100) {
        let batch = Made::dense(base, 100).in_transaction(11).batch();
        let taken = take_with(&mut intake, &[batch], &[(11, 0)]);
        assert!(taken.ready.is_empty());
        assert_eq!(intake.position(), Offset(base + 100));
    }
}

#[test]
fn c016_an_aborted_transaction_that_began_before_the_position_stays_aborted() {
    let batches = [
        Made::dense(0, 4).in_transaction(11).batch(),
        Made::dense(4, 4).in_transaction(11).batch(),
    ];
    let mut intake = begin(2, 0);
    let taken = take_with(&mut intake, &batches, &[(11, 0)]);
    assert!(taken.ready.is_empty());
    assert_eq!(intake.position(), Offset(8));
}

#[test]
fn append_times_become_the_records_own_unless_the_target_sets_its_own() {
    let source = Made::dense(0, 2).append_time().batch();
    let mut intake = begin(0, 0);
    let taken = take(&mut intake, std::slice::from_ref(&source));
    let expected = [(vec![0, 1], 2, rewritten(Why::AppendTime))];
    assert_eq!(shown(&taken), expected);
    let records = records_of(&taken.ready[0].batch);
    assert_eq!(records, [(0, APPEND_TIME), (1, APPEND_TIME)]);

    let limits = TargetLimits {
        log_append_time: true,
        ..NO_LIMITS
    };
    let mut intake = Intake::new(Offset(0), 0, limits, None);
    let taken = take(&mut intake, std::slice::from_ref(&source));
    assert_eq!(shown(&taken), [(vec![0, 1], 2, Path::Passed)]);
    assert_eq!(taken.ready[0].batch.bytes(), source.bytes());
}

/// Two records fit a batch with some room, three do not.
fn limit_of_two(bytes: usize) -> usize {
    Made::dense(1_000, 2).values_of(bytes).batch().size_bytes() + bytes / 3
}

#[test]
fn c031_a_batch_that_is_too_large_is_split_and_each_part_stands_for_its_own_offsets() {
    let limits = up_to(limit_of_two(300));
    for compression in [Compression::None, Compression::Lz4] {
        let source = Made::dense(10, 5)
            .values_of(300)
            .compressed(compression)
            .batch();
        let mut intake = Intake::new(Offset(10), 0, limits, None);
        let taken = take(&mut intake, &[source]);
        let oversize = rewritten(Why::Oversize);
        let expected = [
            (vec![10, 11], 12, oversize),
            (vec![12, 13], 14, oversize),
            (vec![14], 15, oversize),
        ];
        assert_eq!(shown(&taken), expected, "{compression}");
        let limit = limit_of_two(300);
        assert!(
            taken
                .ready
                .iter()
                .all(|ready| ready.batch.size_bytes() <= limit)
        );
    }
}

#[test]
fn c031_a_split_batch_with_holes_stands_for_the_offsets_at_the_source() {
    let source = Made::with_holes(10, &[1, 4, 6, 9], 20)
        .values_of(300)
        .batch();
    let mut intake = Intake::new(Offset(10), 1, up_to(limit_of_two(300)), None);
    let taken = take(&mut intake, &[source]);
    let oversize = rewritten(Why::Oversize);
    let expected = [(vec![14, 16], 17, oversize), (vec![19], 31, oversize)];
    assert_eq!(shown(&taken), expected);
    assert_eq!(intake.position(), Offset(31));
}

/// Opening it would take several times its memory for nothing.
#[test]
fn c031_a_record_over_the_limit_is_not_opened() {
    let alone = Made::dense(3, 1).values_of(1_000).batch();
    let mut intake = Intake::new(Offset(3), 0, up_to(limit_of_two(100)), None);
    let mut unread = Unread::new(answer(&[alone]), Vec::new());
    let mut taken = Taken::default();
    let passed = intake.pass(&mut unread, &mut taken);
    passed.expect("nothing is wrong");
    assert!(unread.is_over());
    assert_eq!(shown(&taken), [(vec![3], 4, Path::Passed)]);
}

#[test]
fn c031_a_record_over_the_limit_goes_alone_and_its_neighbours_go_around_it() {
    let limits = up_to(limit_of_two(100));
    let alone = Made::dense(3, 1).values_of(1_000).batch();
    let mut intake = Intake::new(Offset(3), 0, limits, None);
    // Only the target knows whether it still has this limit.
    assert_eq!(
        shown(&take(&mut intake, &[alone])),
        [(vec![3], 4, Path::Passed)]
    );

    let source = mixed(0, &[100, 100, 100, 1_000, 2_000, 100]);
    let mut intake = Intake::new(Offset(0), 0, limits, None);
    let taken = take(&mut intake, &[source]);
    let oversize = rewritten(Why::Oversize);
    let parts: Vec<_> = shown(&taken);
    let ways: Vec<_> = parts.iter().map(|(_, _, path)| *path).collect();
    assert_eq!(ways, vec![oversize; parts.len()]);
    let records: Vec<_> = parts.iter().map(|(records, ..)| records.clone()).collect();
    assert!(
        records.contains(&vec![3]) && records.contains(&vec![4]),
        "{records:?}"
    );
    assert_eq!(records.concat(), [0, 1, 2, 3, 4, 5]);
    for (ready, (records, to, _)) in taken.ready.iter().zip(&parts) {
        assert_eq!(records.last().map(|last| last + 1), Some(*to));
        let fits = limits.max_message_bytes >= Some(ready.batch.size_bytes() as u64);
        assert!(fits || records.len() == 1, "{records:?}");
    }
}

/// A batch whose records have values of these lengths.
fn mixed(base: i64, lengths: &[usize]) -> Batch {
    let parts: Vec<Batch> = (base..)
        .zip(lengths)
        .map(|(offset, bytes)| Made::dense(offset, 1).values_of(*bytes).batch())
        .collect();
    let joined = rewrite::coalesce(&parts, usize::MAX, &options()).expect("sound");
    let batch = joined.batch.expect("not empty");
    let header = kreplicator_batch::BatchHeader {
        base_offset: base,
        ..*batch.header()
    };
    // The base offset is not under the checksum.
    let bytes = [&header.encode()[..], &batch.payload()].concat();
    Batch::parse(bytes.into()).expect("whole")
}

fn doubting(position: i64, doubt: Doubt) -> Intake {
    Intake::new(Offset(position), 0, NO_LIMITS, Some(doubt))
}

fn doubt(from: i64, to: i64, refused: Option<i64>) -> Doubt {
    Doubt {
        from: Offset(from),
        to: Offset(to),
        refused: refused.map(Offset),
    }
}

#[test]
fn c012_a_record_that_the_target_named_goes_alone() {
    let batches = [
        Made::dense(0, 4).batch(),
        Made::dense(4, 4).compressed(Compression::Zstd).batch(),
        Made::dense(8, 4).batch(),
    ];
    let mut intake = doubting(0, doubt(4, 8, Some(5)));
    let isolated = rewritten(Why::Isolated);
    let expected = [
        (vec![0, 1, 2, 3], 4, Path::Passed),
        (vec![4], 5, isolated),
        (vec![5], 6, isolated),
        (vec![6, 7], 8, isolated),
        (vec![8, 9, 10, 11], 12, Path::Passed),
    ];
    assert_eq!(shown(&take(&mut intake, &batches)), expected);
}

/// Plays the target: refuses every batch that holds a bad record, and tells nothing more. Gives the
/// records that were delivered before a record was refused alone, and that record.
fn bisect(batches: &[Batch], bad: &[i64]) -> (Vec<i64>, Option<i64>) {
    let mut delivered: Vec<i64> = Vec::new();
    let mut position = 0;
    let mut known = None;
    'again: for _ in 0..100 {
        let mut intake = Intake::new(Offset(position), 0, NO_LIMITS, known);
        let mut ready = take(&mut intake, batches).ready;
        // As the lane does it: what follows without a record belongs to the last batch.
        if let Some(last) = ready.last_mut() {
            last.to = intake.position();
        }
        for ready in ready {
            let records = offsets_of(&ready.batch);
            if records.iter().any(|record| bad.contains(record)) {
                if records.len() == 1 {
                    return (delivered, records.first().copied());
                }
                known = Some(doubt(ready.first.0, ready.to.0, None));
                continue 'again;
            }
            delivered.extend(records);
            position = ready.to.0;
        }
        return (delivered, None);
    }
    panic!("{bad:?} were never isolated: doubt is {known:?}");
}

#[test]
fn c012_bisecting_ends_at_the_record_alone() {
    let batches = [Made::dense(0, 3).batch(), Made::dense(3, 9).batch()];
    for bad in 0..12 {
        let before: Vec<i64> = (0..bad).collect();
        assert_eq!(bisect(&batches, &[bad]), (before, Some(bad)));
    }
    assert_eq!(bisect(&batches, &[4, 8]), (vec![0, 1, 2, 3], Some(4)));
}

#[test]
fn c012_bisecting_ends_where_offsets_without_records_follow() {
    let batches = [
        Made::with_holes(0, &[1, 2, 700], 999).batch(),
        Made::dense(1_000, 2).batch(),
        Made::with_holes(1_002, &[], 5_000).batch(),
    ];
    for bad in [1, 2, 700, 1_000, 1_001] {
        let all = [1, 2, 700, 1_000, 1_001];
        let before: Vec<i64> = all.into_iter().filter(|offset| *offset < bad).collect();
        assert_eq!(bisect(&batches, &[bad]), (before, Some(bad)));
    }
}

#[test]
fn c024_a_damaged_batch_is_named_and_what_came_before_it_counts() {
    let good = Made::dense(0, 2).batch();
    let holes = Made::with_holes(2, &[1], 3).batch();
    let damaged_bytes = damage(&holes);
    let bytes = [&good.bytes()[..], &damaged_bytes].concat();
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    let fault = intake
        .take(bytes.into(), Vec::new(), &mut taken)
        .expect_err("the checksum is wrong");
    assert_eq!(fault.kind, Kind::Source);
    assert!(
        fault.cause.contains("source offset 2 cannot be read"),
        "{fault}"
    );
    assert!(fault.cause.contains("checksum"), "{fault}");
    assert_eq!(shown(&taken), [(vec![0, 1], 2, Path::Passed)]);
    assert_eq!(intake.position(), Offset(2));
}

#[test]
fn c024_a_header_that_makes_no_sense_is_named() {
    let good = Made::dense(0, 2).batch();
    let mut bytes = [&good.bytes()[..], &Made::dense(2, 2).batch().bytes()[..]].concat();
    // An unknown codec in the second batch.
    bytes[good.size_bytes() + 22] = 7;
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    let fault = intake
        .take(bytes.into(), Vec::new(), &mut taken)
        .expect_err("nobody knows codec 7");
    assert!(
        fault.cause.contains("source offset 2 cannot be read"),
        "{fault}"
    );
    assert!(fault.cause.contains("unknown compression 7"), "{fault}");
    assert_eq!(taken.ready.len(), 1);
}

#[test]
fn c024_a_damaged_batch_that_would_pass_is_left_to_the_target() {
    // Its payload is not read here; the checksum that the target sees is wrong as well.
    let bytes = damage(&Made::dense(0, 2).batch());
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    intake
        .take(bytes, Vec::new(), &mut taken)
        .expect("not looked at");
    assert_eq!(taken.ready[0].path, Path::Passed);
    assert!(taken.ready[0].batch.verify().is_err());
}

#[test]
fn the_cut_off_end_is_left_for_the_next_answer() {
    let (first, second) = (Made::dense(0, 2).batch(), Made::dense(2, 2).batch());
    let whole = answer([&first, &second]);
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    let cut = whole.slice(..whole.len() - 1);
    intake
        .take(cut, Vec::new(), &mut taken)
        .expect("nothing is wrong");
    assert_eq!(shown(&taken), [(vec![0, 1], 2, Path::Passed)]);
    assert_eq!(taken.bytes_needed, None);

    let mut taken = Taken::default();
    let cut = second.bytes().slice(..30);
    intake
        .take(cut, Vec::new(), &mut taken)
        .expect("nothing is wrong");
    assert!(taken.ready.is_empty());
    assert_eq!(taken.bytes_needed, Some(second.size_bytes()));
    assert_eq!(intake.position(), Offset(2));
}

#[test]
fn timestamps_stay_as_they_are() {
    let mut intake = begin(1, 0);
    let taken = take(&mut intake, &[Made::dense(0, 3).batch()]);
    let records = records_of(&taken.ready[0].batch);
    assert_eq!(records, [(1, time_of(1)), (2, time_of(2))]);
}

#[test]
fn a_header_that_claims_billions_of_records_costs_no_memory() {
    let batch = Made::boasting(0, i32::MAX);
    let mut intake = Intake::new(Offset(0), 0, up_to(70), None);
    let mut taken = Taken::default();
    let outcome = intake.take(answer([&batch]), Vec::new(), &mut taken);
    let fault = outcome.expect_err("it has one");
    assert!(fault.cause.contains("source offset 0"), "{fault}");
    assert!(taken.ready.is_empty());
}
