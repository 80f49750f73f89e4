//! Documents as recorded, documents that do not add up.

use proptest::prelude::*;

use super::*;
use crate::{
    dump::{
        bucket::Pattern,
        ledger::{ENTRIES_MAX, Reason},
    },
    ids::{OwnerEpoch, WorkerId},
};

fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: Some("Wt3bIzIhTUOgCV5ypOSKPQ".to_owned()),
        partition: Partition(3),
    }
}

fn attempt() -> AttemptName {
    AttemptName::parse("worker-0+12+00000000000000ab+1").expect("legal")
}

const NINE: i64 = 1_796_029_200_000;

fn file(first: i64, last: i64, records: u64, timestamp: i64) -> DataFile {
    let pattern = Pattern::default();
    let source = source();
    let bucket = pattern.unit().bucket(UnixMillis(timestamp));
    let name = DataName::new(&source.topic, source.partition, Offset(first), Offset(last));
    let directory = pattern.directory(&source.topic, bucket).expect("short");
    DataFile {
        path: directory.join(name.to_string()).expect("short"),
        bucket,
        records,
        first: Offset(first),
        last: Offset(last),
        bytes: 4321,
        timestamps: (UnixMillis(timestamp), UnixMillis(timestamp + 5)),
        digest: Digest(0xfeed),
    }
}

fn left_out(why: Reason, from: i64, to: i64, count: u64) -> LeftOut {
    let (from, to) = (Offset(from), Offset(to));
    LeftOut {
        why,
        from,
        to,
        count,
    }
}

/// 100 offsets: 60 in one file, 30 in another, three markers, seven holes somewhere.
fn manifest() -> Manifest {
    Manifest {
        source: source(),
        attempt: attempt(),
        from: Offset(100),
        to: Offset(200),
        previous: Some(Offset(40)),
        watermark: Some(UnixMillis(NINE + 5)),
        written_at: UnixMillis(NINE + 1000),
        files: vec![file(100, 190, 60, NINE), file(101, 150, 30, -1)],
        left_out: vec![
            left_out(Reason::Hole, 102, 180, 7),
            left_out(Reason::Control, 197, 200, 3),
        ],
    }
}

/// Stored by released software: this text is never changed, and is read for ever.
const RECORDED: &str = include_str!("golden/manifest_1.json");
const RECORDED_BEGIN: &str = include_str!("golden/begin_1.json");

#[test]
fn version_1_is_written_and_read_as_recorded() {
    let written = manifest().to_json().expect("it adds up");
    assert_eq!(String::from_utf8(written).expect("text"), RECORDED);
    assert_eq!(Manifest::from_json(RECORDED.as_bytes()), Ok(manifest()));
    let begin = Begin {
        source: source(),
        attempt: attempt(),
        at: Offset(40),
        written_at: UnixMillis(NINE),
    };
    let written = begin.to_json().expect("legal");
    assert_eq!(String::from_utf8(written).expect("text"), RECORDED_BEGIN);
    assert_eq!(Begin::from_json(RECORDED_BEGIN.as_bytes()), Ok(begin));
}

#[test]
fn fields_added_later_are_passed_over_and_newer_versions_are_not_guessed_at() {
    let added = RECORDED.replacen('{', "{\"later\": [1],", 1);
    assert_eq!(Manifest::from_json(added.as_bytes()), Ok(manifest()));
    let newer = RECORDED.replacen("\"version\": 1", "\"version\": 2", 1);
    let fault = Manifest::from_json(newer.as_bytes());
    assert_eq!(fault, Err(Fault::Newer { version: 2 }));
    for text in [
        "",
        "{}",
        "[]",
        "null",
        "{\"version\": 0}",
        "{\"version\": 1}",
        "{\"version\": -1}",
    ] {
        let fault = Manifest::from_json(text.as_bytes());
        assert!(
            matches!(fault, Err(Fault::Unreadable(_))),
            "{text:?}: {fault:?}"
        );
    }
    let long = format!("{RECORDED}{}", " ".repeat(BYTES_MAX));
    assert!(matches!(
        Manifest::from_json(long.as_bytes()),
        Err(Fault::TooLong { .. })
    ));
}

#[test]
fn what_does_not_add_up_is_refused() {
    type Damage = fn(&mut Manifest);
    let damages: &[(&str, Damage)] = &[
        ("no range", |m| m.to = m.from),
        ("negative", |m| m.from = Offset(-1)),
        ("previous above", |m| m.previous = Some(m.from)),
        ("a record too few", |m| m.files[0].records -= 1),
        ("a record too many", |m| m.files[1].records += 1),
        ("more records than offsets", |m| m.files[1].records = 51),
        ("a count that overflows", |m| m.left_out[0].count = u64::MAX),
        ("an empty count", |m| m.left_out[0].count = 0),
        ("a file outside", |m| m.files[0].last = m.to),
        ("first above last", |m| m.files[0].first = Offset(191)),
        ("an empty file", |m| m.files[0].bytes = 0),
        ("a shared offset", |m| m.files[1] = file(100, 150, 30, -1)),
        ("one path twice", |m| m.files[1] = m.files[0].clone()),
        ("left out and there", |m| {
            m.left_out[1] = left_out(Reason::Lost, 188, 191, 3)
        }),
        ("left out twice", |m| {
            m.left_out = vec![
                left_out(Reason::Hole, 191, 197, 6),
                left_out(Reason::Control, 196, 200, 4),
            ];
        }),
        ("left out outside", |m| {
            m.left_out[1] = left_out(Reason::Control, 198, 201, 3)
        }),
        ("hidden", |m| {
            let path = format!("_tmp/{}", m.files[0].path);
            m.files[0].path = StorePath::new(path).expect("legal");
        }),
        ("another name", |m| {
            m.files[0].path = StorePath::new("orders/x.parquet").expect("legal")
        }),
        ("times the wrong way round", |m| {
            m.files[0].timestamps.1 = UnixMillis(0)
        }),
        ("older than its bucket", |m| {
            m.files[0].timestamps.0 = UnixMillis(NINE - 1)
        }),
    ];
    assert_eq!(manifest().check(), Ok(()));
    for (name, damage) in damages {
        let mut damaged = manifest();
        damage(&mut damaged);
        assert!(matches!(damaged.check(), Err(Fault::Wrong(_))), "{name}");
        assert!(damaged.to_json().is_err(), "{name}");
    }
}

#[test]
fn paths_that_lead_out_of_the_root_are_not_read() {
    for path in ["../../etc/x", "/etc/x", "a//b", "a/./b"] {
        let bad = RECORDED.replacen("orders/dt=2026-11-30/hour=09", path, 1);
        assert_ne!(bad, RECORDED);
        assert!(
            matches!(
                Manifest::from_json(bad.as_bytes()),
                Err(Fault::Unreadable(_))
            ),
            "{path}"
        );
    }
    let bad = RECORDED.replacen("worker-0+12", "../+12", 1);
    assert!(Manifest::from_json(bad.as_bytes()).is_err());
}

#[test]
fn c002_another_topic_of_the_same_name_is_told_apart() {
    let mut other = source();
    assert_eq!(source().difference(&other), None);
    other.topic_id = None;
    assert_eq!(source().difference(&other), None);
    other.topic_id = Some("other".to_owned());
    assert_eq!(
        source().difference(&other),
        Some("another topic of the same name")
    );
    other.link = LinkId::new("other").expect("legal");
    assert_eq!(source().difference(&other), Some("another link"));
}

/// The longest names and the most of everything: it can still be written.
#[test]
fn the_largest_manifest_fits() {
    let topic = TopicName::new(format!("_{}", "x".repeat(248))).expect("legal");
    let pattern = Pattern::new(&format!("{{topic}}/{}YYYY-MM-DD-HH", "d".repeat(170)));
    let pattern = pattern.expect("legal");
    let worker = WorkerId::new("w".repeat(253)).expect("legal");
    let mut names = super::super::names::AttemptNames::new(&worker, OwnerEpoch(u64::MAX), u64::MAX);
    let base = i64::MAX - 10_000;
    let files: Vec<DataFile> = (0..FILES_MAX as i64)
        .map(|index| {
            let (first, last) = (Offset(base + 2 * index), Offset(base + 2 * index + 1));
            let name = DataName::new(&topic, Partition(i32::MAX), first, last);
            let bucket = pattern.unit().bucket(UnixMillis(253_402_300_799_999));
            let directory = pattern.directory(&topic, bucket).expect("short");
            DataFile {
                path: directory.join(name.to_string()).expect("short"),
                bucket,
                records: 2,
                first,
                last,
                bytes: u64::MAX,
                timestamps: (UnixMillis(i64::MAX), UnixMillis(i64::MAX)),
                digest: Digest(u128::MAX),
            }
        })
        .collect();
    let rest = base + 2 * FILES_MAX as i64;
    let left_out: Vec<LeftOut> = (0..ENTRIES_MAX as i64)
        .map(|index| left_out(Reason::Unreadable, rest + index, rest + index + 1, 1))
        .collect();
    let manifest = Manifest {
        source: Source {
            topic,
            partition: Partition(i32::MAX),
            ..source()
        },
        attempt: names.next_name(),
        from: Offset(base),
        to: Offset(rest + ENTRIES_MAX as i64),
        files,
        left_out,
        ..manifest()
    };
    let bytes = manifest.to_json().expect("it fits");
    assert_eq!(Manifest::from_json(&bytes), Ok(manifest));
}

proptest! {
    /// Whatever was done to the text, what is read adds up and is written as it was read.
    #[test]
    fn hostile_documents_are_refused_or_add_up(
        cuts in proptest::collection::vec((0..RECORDED.len(), "[0-9\"{}\\[\\],:a-z/.-]{0,3}"), 1..4),
    ) {
        let mut text = RECORDED.as_bytes().to_vec();
        for (at, with) in cuts {
            let at = at.min(text.len().saturating_sub(1));
            text.splice(at..=at, with.bytes());
        }
        if let Ok(read) = Manifest::from_json(&text) {
            prop_assert_eq!(read.check(), Ok(()));
            let written = read.to_json().expect("it was read");
            prop_assert_eq!(Manifest::from_json(&written), Ok(read));
        }
    }
}
