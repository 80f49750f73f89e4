//! Comparisons by example, (in `timeless`) without times, and (in `properties`) against brute force.

mod properties;
mod timeless;

use super::*;

/// A record that is known by one letter.
fn print(letter: char) -> Fingerprint {
    Fingerprint {
        key: u128::from(u32::from(letter)),
        value: u128::from(u32::from(letter)),
        headers: 1,
        timestamp: i64::from(u32::from(letter)),
    }
}

fn entries(letters: &str, first: i64) -> Vec<Entry> {
    (first..)
        .zip(letters.chars())
        .map(|(offset, letter)| Entry {
            offset: Offset(offset),
            print: print(letter),
        })
        .collect()
}

fn settings() -> Settings {
    Settings {
        source_end: Offset(i64::MAX),
        target_end: Offset(i64::MAX),
        target_lead_allowed: false,
        source_lead_allowed: false,
        source_compacted: false,
        target_compacted: false,
        limits: Limits::default(),
    }
}

/// Compares whole streams; target offsets begin at 100.
fn compare(settings: Settings, source: &str, target: &str) -> (Tally, Vec<Finding>) {
    let mut aligner = Aligner::new(settings);
    aligner.push(Side::Source, &entries(source, 0));
    aligner.push(Side::Target, &entries(target, 100));
    let (tally, findings, left_out) = aligner.finish();
    assert_eq!(left_out, 0);
    (tally, findings)
}

/// `kind source-offset target-offset ×records parts`, one a line.
fn told(findings: &[Finding]) -> Vec<String> {
    let offset =
        |offset: Option<Offset>| offset.map_or("-".to_owned(), |offset| offset.to_string());
    findings
        .iter()
        .map(|finding| {
            let Finding {
                kind,
                source,
                target,
                records,
                parts,
            } = finding;
            let text = format!(
                "{} {} {} x{records} {parts}",
                kind.name(),
                offset(*source),
                offset(*target)
            );
            text.trim_end().to_owned()
        })
        .collect()
}

#[test]
fn the_same_records_are_equal_whatever_their_offsets() {
    let (tally, findings) = compare(settings(), "abcde", "abcde");
    let expected = Tally {
        equal: 5,
        ..Tally::default()
    };
    assert_eq!((tally, findings), (expected, Vec::new()));
    assert_eq!(compare(settings(), "", "").0, Tally::default());
}

#[test]
fn one_difference_does_not_make_others() {
    for (source, target, expected) in [
        ("abcdef", "abdef", "missing 2 - x1"),
        ("abcdef", "abdxef", "missing 2 - x1|extra - 103 x1"),
        ("abcdef", "abxcdef", "extra - 102 x1"),
        ("abcdef", "abccdef", "doubled - 103 x1"),
        ("abcdef", "abcdefdef", "doubled - 106 x3"),
        ("abcdef", "abcdbcdef", "doubled - 104 x3"),
        ("abcdef", "abxdef", "altered 2 102 x1 key, value, timestamp"),
        ("abcdef", "abcedf", "reordered 3 104 x1"),
        ("abcdef", "bcdefa", "reordered 0 105 x1"),
        ("abcdef", "abcd", "missing 4 - x2"),
        ("abcdef", "cdef", "missing 0 - x2"),
    ] {
        let (tally, findings) = compare(settings(), source, target);
        let told = told(&findings).join("|");
        assert_eq!(told, expected, "{source} {target}: {tally:?}");
    }
}

#[test]
fn the_altered_part_is_named_and_a_loss_beside_it_does_not_take_the_blame() {
    for (part, change) in [
        ("key", (|print| print.key = 0) as fn(&mut Fingerprint)),
        ("value", |print| print.value = 0),
        ("headers", |print| print.headers = 2),
        ("timestamp", |print| print.timestamp += 1),
    ] {
        let mut aligner = Aligner::new(settings());
        aligner.push(Side::Source, &entries("abcdef", 0));
        // c is lost, d is altered.
        let mut target = entries("abdef", 100);
        change(&mut target[2].print);
        aligner.push(Side::Target, &target);
        let (_, findings, _) = aligner.finish();
        let expected = [
            "missing 2 - x1".to_owned(),
            format!("altered 3 102 x1 {part}"),
        ];
        assert_eq!(told(&findings), expected);
    }
}

#[test]
fn what_is_missing_at_the_end_may_only_be_late() {
    let (tally, _) = compare(settings(), "abcdef", "acd");
    assert_eq!((tally.missing, tally.missing_at_end), (3, 2));
    let (tally, _) = compare(settings(), "abcdef", "");
    assert_eq!((tally.missing, tally.missing_at_end), (6, 6));
    let (tally, _) = compare(settings(), "abcdef", "abdef");
    assert_eq!((tally.missing, tally.missing_at_end), (1, 0));
}

#[test]
fn records_beyond_the_ends_only_help_to_find_the_place() {
    let ends = |source_end, target_end| Settings {
        source_end: Offset(source_end),
        target_end: Offset(target_end),
        ..settings()
    };
    // d and e came later; c is lost.
    let (tally, findings) = compare(ends(3, 102), "abcde", "abde");
    assert_eq!(told(&findings), ["missing 2 - x1"]);
    assert_eq!(
        (tally.equal, tally.missing_at_end),
        (2, 0),
        "others followed"
    );
    // The source was not read on: what the target has later is not extra.
    let (tally, _) = compare(ends(3, 103), "abc", "abcde");
    assert_eq!(tally.differences(false), 0);
    // But what it had then is.
    let (tally, _) = compare(ends(3, 105), "abc", "abcxy");
    assert_eq!(tally.extra, 2);
    // Extra before the last record in question, whenever it came.
    let (tally, _) = compare(ends(3, 101), "abcd", "abxcd");
    assert_eq!((tally.extra, tally.equal), (1, 3));
}

#[test]
fn a_lead_is_not_comparable_where_it_is_allowed() {
    let leads = |source, target| Settings {
        source_lead_allowed: source,
        target_lead_allowed: target,
        ..settings()
    };
    let (tally, _) = compare(leads(false, true), "cdef", "abcdef");
    assert_eq!((tally.lead_of_target, tally.differences(false)), (2, 0));
    let (tally, _) = compare(leads(true, false), "abcdef", "cdef");
    assert_eq!((tally.lead_of_source, tally.differences(false)), (2, 0));
    let (tally, _) = compare(leads(true, false), "cdef", "abcdef");
    assert_eq!((tally.extra, tally.equal), (2, 4));
    // The first common record is altered.
    let (tally, findings) = compare(leads(true, true), "abcdef", "xdef");
    assert_eq!((tally.lead_of_source, tally.altered), (2, 1));
    assert_eq!(findings[0].source, Some(Offset(2)));
    // A hole after the beginning is none.
    let (tally, _) = compare(leads(true, true), "abcdef", "abef");
    assert_eq!(tally.missing, 2);
}

#[test]
fn compacted_records_are_told_apart() {
    let compacted = |source_compacted, target_compacted| Settings {
        source_compacted,
        target_compacted,
        ..settings()
    };
    let (tally, _) = compare(compacted(false, true), "abcdef", "adf");
    assert_eq!((tally.compacted_on_target, tally.missing), (3, 0));
    let (tally, _) = compare(compacted(true, false), "adf", "abcdef");
    assert_eq!((tally.compacted_on_source, tally.extra), (3, 0));
    // Different neighbours survived on both sides.
    let (tally, _) = compare(compacted(true, true), "abdf", "acdf");
    assert_eq!((tally.altered, tally.differences(false)), (0, 0));
    // Records without a key stay for ever.
    let mut aligner = Aligner::new(compacted(true, true));
    let mut source = entries("abc", 0);
    source[1].print.key = 0;
    aligner.push(Side::Source, &source);
    aligner.push(Side::Target, &entries("ac", 100));
    assert_eq!(aligner.finish().0.missing, 1);
}

#[test]
fn a_target_that_is_behind_is_waited_for() {
    let limits = Limits {
        window: 4,
        look_ahead: 2,
        resync: 2,
        findings: 20,
    };
    let mut aligner = Aligner::new(Settings {
        limits,
        ..settings()
    });
    aligner.push(Side::Target, &entries("ax", 100));
    aligner.at_end(Side::Target);
    aligner.push(Side::Source, &entries("abcdefghij", 0));
    assert!(!aligner.wants(Side::Source), "it holds a window");
    assert!(aligner.wants(Side::Target));
    assert_eq!(aligner.tally().missing, 0);
    assert!(!aligner.is_settled(Side::Source));
    aligner.push(Side::Target, &entries("bcdefghij", 102));
    assert!(aligner.is_settled(Side::Source) && aligner.wants(Side::Source));
    let (tally, findings, _) = aligner.finish();
    assert_eq!(told(&findings), ["extra - 101 x1"]);
    assert_eq!(tally.equal, 10);
}

#[test]
fn a_hole_larger_than_the_window_is_crossed_and_said() {
    let limits = Limits {
        window: 8,
        look_ahead: 4,
        resync: 2,
        findings: 2,
    };
    let letters: String = ('a'..='z').chain('A'..='Z').collect();
    let rest: String = letters.chars().skip(40).collect();
    let run = |source: &str, target: &str| {
        let mut aligner = Aligner::new(Settings {
            limits,
            ..settings()
        });
        let mut source = entries(source, 0);
        let mut target = entries(target, 100);
        // Times rise.
        let at = |print: &Fingerprint| {
            let letter = char::from_u32(u32::try_from(print.key).expect("a letter")).expect("one");
            i64::try_from(letters.find(letter).expect("one of them")).expect("small")
        };
        for entry in source.iter_mut().chain(&mut target) {
            entry.print.timestamp = at(&entry.print);
        }
        for (source, target) in source.chunks(3).zip(target.chunks(3)) {
            aligner.push(Side::Source, source);
            aligner.push(Side::Target, target);
        }
        let chunks = source.len().min(target.len()).div_ceil(3);
        aligner.push(Side::Source, source.get(chunks * 3..).unwrap_or_default());
        aligner.push(Side::Target, target.get(chunks * 3..).unwrap_or_default());
        aligner.finish()
    };
    let (tally, findings, left_out) = run(&letters, &rest);
    assert_eq!((tally.missing, tally.equal), (40, 12), "{findings:?}");
    assert!(tally.window_exceeded && tally.extra == 0);
    let shown: u64 = findings.iter().map(|finding| finding.records).sum();
    assert_eq!(shown + left_out, 40);
    assert!(findings.len() <= 2);
    let (tally, ..) = run(&rest, &letters);
    assert_eq!((tally.extra, tally.equal), (40, 12));
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let limits = Limits {
        findings: 1,
        ..Limits::default()
    };
    let mut aligner = Aligner::new(Settings {
        limits,
        ..settings()
    });
    aligner.push(Side::Source, &entries("abcdef", 0));
    aligner.push(Side::Target, &entries("acf", 100));
    let (tally, findings, left_out) = aligner.finish();
    assert_eq!(tally.missing, 3);
    assert_eq!(told(&findings), ["missing 1 - x1"]);
    assert_eq!(left_out, 2);
}
