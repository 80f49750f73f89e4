//! Against brute force on short streams over few different records, so that repetitions are many.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;

/// The number of records in both, and of a longest common subsequence, by the definitions.
fn brute_force(source: &[Entry], target: &[Entry]) -> (u64, u64) {
    let count = |entries: &[Entry]| {
        let mut counts: BTreeMap<Fingerprint, u64> = BTreeMap::new();
        for entry in entries {
            *counts.entry(entry.print).or_default() += 1;
        }
        counts
    };
    let (in_source, in_target) = (count(source), count(target));
    let common = in_source
        .iter()
        .map(|(print, count)| *count.min(in_target.get(print).unwrap_or(&0)))
        .sum();
    let mut longest = vec![vec![0_u64; target.len() + 1]; source.len() + 1];
    for i in 0..source.len() {
        for j in 0..target.len() {
            longest[i + 1][j + 1] = if source[i].print == target[j].print {
                longest[i][j] + 1
            } else {
                longest[i][j + 1].max(longest[i + 1][j])
            };
        }
    }
    (common, longest[source.len()][target.len()])
}

/// Streams where one is the other with some changes, or which have nothing to do with each other.
fn streams() -> impl Strategy<Value = (Vec<Entry>, Vec<Entry>)> {
    let letters = |range| vec(0_u8..6, range);
    let edits = vec((0_usize..40, 0_u8..4, 0_u8..8), 0..5);
    let edited = (letters(0..40), edits).prop_map(|(source, edits)| {
        let mut target = source.clone();
        for (at, what, letter) in edits {
            let at = at.min(target.len());
            match what {
                0 if at < target.len() => drop(target.remove(at)),
                1 if at < target.len() => target[at] = letter,
                2 if at + 1 < target.len() => target.swap(at, at + 1),
                _ => target.insert(at, letter),
            }
        }
        (source, target)
    });
    let unrelated = (letters(0..12), letters(0..12));
    prop_oneof![edited, unrelated].prop_map(|(source, target)| {
        let text = |letters: Vec<u8>| {
            letters
                .into_iter()
                .map(|at| char::from(b'a' + at))
                .collect::<String>()
        };
        (entries(&text(source), 0), entries(&text(target), 100))
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (1_usize..12, 1_usize..6, 1_usize..4).prop_map(|(window, look_ahead, resync)| Limits {
        window,
        look_ahead,
        resync,
        findings: 1_000,
    })
}

/// Pushes in chunks of the given sizes, as long as a side is wanted.
fn run(
    settings: Settings,
    source: &[Entry],
    target: &[Entry],
    chunks: &[usize],
) -> (Tally, Vec<Finding>) {
    let mut aligner = Aligner::new(settings);
    let mut left = [(Side::Source, source), (Side::Target, target)];
    let mut sizes = chunks.iter().copied().cycle();
    loop {
        let mut moved = false;
        for (side, left) in &mut left {
            if aligner.wants(*side) && !left.is_empty() {
                let size = sizes.next().unwrap_or(1).min(left.len());
                let (now, later) = left.split_at(size);
                aligner.push(*side, now);
                *left = later;
                moved = true;
                if left.is_empty() {
                    aligner.finish_side(*side);
                }
            }
        }
        if !moved {
            break;
        }
    }
    // A stream that was empty from the start was never finished.
    for (side, left) in left {
        assert!(left.is_empty() || source.is_empty() || target.is_empty());
        aligner.push(side, left);
    }
    let (tally, findings, left_out) = aligner.finish();
    assert_eq!(left_out, 0);
    (tally, findings)
}

fn sums(tally: &Tally) -> (u64, u64) {
    let common = tally.equal + tally.reordered + tally.altered;
    (common + tally.missing, common + tally.extra + tally.doubled)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn numbers_are_exact_within_the_window((source, target) in streams()) {
        let (tally, findings) = run(settings(), &source, &target, &[1_000]);
        let (common, longest) = brute_force(&source, &target);
        let (in_source, in_target) = (source.len() as u64, target.len() as u64);
        prop_assert_eq!(tally.equal, longest);
        prop_assert_eq!(tally.reordered, common - longest);
        prop_assert_eq!(tally.missing + tally.altered, in_source - common);
        prop_assert_eq!(tally.extra + tally.doubled + tally.altered, in_target - common);
        prop_assert!(!tally.window_exceeded);
        // What is doubled is like a record of the source, what is extra is like none.
        for finding in findings {
            let known = match finding.kind {
                Kind::Doubled => true,
                Kind::Extra => false,
                Kind::Missing | Kind::Altered | Kind::Reordered => continue,
            };
            let first = usize::try_from(finding.target.expect("of the target").0 - 100).expect("ours");
            let last = first + usize::try_from(finding.records).expect("few");
            for entry in &target[first..last] {
                prop_assert_eq!(source.iter().any(|other| other.print == entry.print), known);
            }
        }
    }

    #[test]
    fn streams_are_the_same_if_and_only_if_nothing_is_found(
        (source, target) in streams(), limits in limits(), chunks in vec(1_usize..5, 1..5)
    ) {
        let settings = Settings { limits, ..settings() };
        let (tally, findings) = run(settings, &source, &target, &chunks);
        let prints = |entries: &[Entry]| entries.iter().map(|entry| entry.print).collect::<Vec<_>>();
        let is_same = prints(&source) == prints(&target);
        prop_assert_eq!(tally.differences(false) == 0, is_same);
        prop_assert_eq!(findings.is_empty(), is_same);
    }

    #[test]
    fn every_record_is_counted_once_however_small_the_window(
        (source, target) in streams(), limits in limits(), chunks in vec(1_usize..5, 1..5)
    ) {
        let settings = Settings { limits, ..settings() };
        let (tally, findings) = run(settings, &source, &target, &chunks);
        prop_assert_eq!(sums(&tally), (source.len() as u64, target.len() as u64));
        let (common, longest) = brute_force(&source, &target);
        prop_assert!(tally.equal <= longest && tally.equal + tally.reordered <= common);
        let shown: u64 = findings.iter().map(|finding| finding.records).sum();
        prop_assert_eq!(shown, tally.differences(false));
        prop_assert!(tally.missing_at_end <= tally.missing);
    }

    #[test]
    fn chunks_do_not_matter(
        (source, target) in streams(), limits in limits(),
        one in vec(1_usize..5, 1..5), other in vec(1_usize..9, 1..5)
    ) {
        let settings = Settings { limits, ..settings() };
        let first = run(settings.clone(), &source, &target, &one);
        let second = run(settings, &source, &target, &other);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn single_changes_of_distinct_records_are_named(
        length in 1_usize..200, at in 0_usize..200, to in 0_usize..200, what in 0_u8..4,
    ) {
        let record = |at: usize| Fingerprint { key: 1, value: at as u128 + 1, headers: 1, timestamp: 7 };
        let source: Vec<Entry> = (0..length)
            .map(|at| Entry { offset: Offset(at as i64), print: record(at) })
            .collect();
        let (at, to) = (at % length, to % length);
        let mut prints: Vec<Fingerprint> = source.iter().map(|entry| entry.print).collect();
        let expected = match what {
            0 => {
                prints.remove(at);
                (1, 0, 0, 0)
            }
            1 => {
                let doubled = prints[at];
                prints.insert(to, doubled);
                (0, 1, 0, 0)
            }
            2 => {
                prints[at].value = 0;
                (0, 0, 1, 0)
            }
            _ => {
                let moved = prints.remove(at);
                prints.insert(to, moved);
                (0, 0, 0, u64::from(at != to))
            }
        };
        let target: Vec<Entry> = (0..)
            .zip(prints)
            .map(|(at, print)| Entry { offset: Offset(at), print })
            .collect();
        let (tally, _) = run(settings(), &source, &target, &[16]);
        prop_assert_eq!((tally.missing, tally.doubled, tally.altered, tally.reordered), expected);
        prop_assert_eq!(tally.extra, 0);
    }
}
