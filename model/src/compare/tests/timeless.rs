//! Streams whose beginnings differ by more than the window, without times to tell which one leads.

use std::ops::Range;

use super::*;

const WINDOW: usize = 8;

/// Records by number, whose times are left out (0) or missing (-1).
fn timeless(numbers: Range<u32>, timestamp: i64) -> Vec<Entry> {
    let entries = (0..).zip(numbers).map(|(offset, number)| Entry {
        offset: Offset(offset),
        print: Fingerprint {
            key: 0,
            value: u128::from(number) + 1,
            headers: 1,
            timestamp,
        },
    });
    entries.collect()
}

/// Compares streams that may have more at the beginning: the source, the target.
fn compare(leads: (bool, bool), source: &[Entry], target: &[Entry]) -> Tally {
    let mut aligner = Aligner::new(Settings {
        source_lead_allowed: leads.0,
        target_lead_allowed: leads.1,
        limits: Limits {
            window: WINDOW,
            resync: 4,
            ..Limits::default()
        },
        ..settings()
    });
    aligner.push(Side::Source, source);
    aligner.push(Side::Target, target);
    aligner.finish().0
}

#[test]
fn the_side_that_may_lead_is_given_up_alone() {
    for timestamp in [0, -1] {
        let (all, last) = (timeless(0..150, timestamp), timeless(100..150, timestamp));
        let led = Tally {
            equal: 50,
            lead_of_target: 100,
            ..Tally::default()
        };
        assert_eq!(compare((false, true), &last, &all), led);
        let led = Tally {
            equal: 50,
            lead_of_source: 100,
            ..Tally::default()
        };
        assert_eq!(compare((true, false), &all, &last), led);
    }
}

#[test]
fn where_either_side_may_lead_nothing_is_called_a_difference() {
    let (all, last) = (timeless(0..150, 0), timeless(100..150, 0));
    for (source, target) in [(&last, &all), (&all, &last)] {
        let tally = compare((true, true), source, target);
        assert_eq!((tally.differences(false), tally.equal), (0, 0), "{tally:?}");
        assert_eq!(tally.lead_of_source, source.len() as u64);
        assert_eq!(tally.lead_of_target, target.len() as u64);
        assert!(tally.window_exceeded);
    }
}

#[test]
fn records_that_are_gone_are_still_missing_where_no_lead_is_allowed() {
    let (all, last) = (timeless(0..150, 0), timeless(100..150, 0));
    let tally = compare((false, false), &all, &last);
    assert!(
        tally.differences(false) >= 100 && tally.window_exceeded,
        "{tally:?}"
    );
    let tally = compare((false, true), &all, &last);
    assert!(tally.missing >= 100, "the target leads nowhere: {tally:?}");
}

#[test]
fn times_that_tell_decide_before_what_is_allowed() {
    // All values are other ones, at the same times: altered, not a beginning of either side.
    let timed = |entries: Vec<Entry>| {
        let timed = (1000..).zip(entries).map(|(time, mut entry)| {
            entry.print.timestamp = time;
            entry
        });
        timed.collect::<Vec<_>>()
    };
    let (source, target) = (timed(timeless(0..50, 0)), timed(timeless(50..100, 0)));
    let tally = compare((true, true), &source, &target);
    assert!(tally.altered > 40, "{tally:?}");
}
