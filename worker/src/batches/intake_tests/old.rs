//! Message formats 0 and 1, and transactions, as real producers wrote them.

use std::{fs, path::PathBuf};

use super::*;
use crate::batches::testkit::PLENTY;
use kreplicator_batch::records::{Record, Times, Unpacked};

const OLD: [&str; 17] = [
    "old-append1-lz4",
    "old-java0-gzip",
    "old-java0-lz4",
    "old-java0-none",
    "old-java0-snappy",
    "old-java1-gzip",
    "old-java1-lz4",
    "old-java1-none",
    "old-java1-snappy",
    "rdkafka-old0-gzip",
    "rdkafka-old0-lz4",
    "rdkafka-old0-none",
    "rdkafka-old0-snappy",
    "rdkafka-old1-gzip",
    "rdkafka-old1-lz4",
    "rdkafka-old1-none",
    "rdkafka-old1-snappy",
];

type Seen = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn corpus(file: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../batch/tests/corpus");
    fs::read(folder.join(file)).expect("a file of the corpus")
}

fn seen(record: &Record<'_>) -> Seen {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    (record.timestamp, owned(record.key), owned(record.value))
}

/// Offset and content of each record, in order.
fn read(name: &str) -> (Bytes, Vec<(i64, Seen)>) {
    let bytes = Bytes::from(corpus(&format!("{name}.batches")));
    let mut records = Vec::new();
    for entry in split::entries(bytes.clone()) {
        let Ok(Entry::Message(message)) = entry else {
            panic!("{name} holds {entry:?}");
        };
        let unpacked = message.open(PLENTY).expect("sound");
        for record in unpacked.records(Times::Shown) {
            let record = record.expect("sound");
            records.push((record.offset, seen(&record)));
        }
    }
    (bytes, records)
}

fn content(taken: &Taken) -> Vec<Seen> {
    let mut records = Vec::new();
    for ready in &taken.ready {
        ready.batch.verify().expect("right checksum");
        let unpacked = Unpacked::open(&ready.batch, PLENTY).expect("sound");
        records.extend(
            unpacked
                .records()
                .map(|record| seen(&record.expect("sound"))),
        );
    }
    records
}

#[test]
fn c020_old_messages_are_written_anew_from_any_place_on() {
    for name in OLD {
        let (bytes, records) = read(name);
        let end = records.last().map_or(0, |(offset, _)| offset + 1);
        for position in [0, 1, end / 2, end - 1] {
            for skip in [0, 1, records.len() / 3] {
                let mut intake = begin(position, skip as u64);
                let mut taken = Taken::default();
                intake
                    .take(bytes.clone(), Vec::new(), &mut taken)
                    .expect("sound");
                let left = records
                    .iter()
                    .filter(|(offset, _)| *offset >= position)
                    .skip(skip);
                let expected: Vec<Seen> = left.clone().map(|(_, seen)| seen.clone()).collect();
                assert_eq!(
                    content(&taken),
                    expected,
                    "{name} from {position} without {skip}"
                );
                let first = left.clone().next().map(|(offset, _)| *offset);
                assert_eq!(taken.ready.first().map(|ready| ready.first.0), first);
                for ready in &taken.ready {
                    assert_eq!(ready.path, rewritten(Why::OldFormat), "{name}");
                }
                assert_eq!(intake.position(), Offset(end), "{name}");
            }
        }
    }
}

#[test]
fn c031_a_large_old_message_is_split() {
    let (bytes, records) = read("old-java1-gzip");
    let limits = up_to(400);
    let mut intake = Intake::new(Offset(0), 0, limits, None);
    let mut taken = Taken::default();
    intake.take(bytes, Vec::new(), &mut taken).expect("sound");
    let expected: Vec<Seen> = records.iter().map(|(_, seen)| seen.clone()).collect();
    assert_eq!(content(&taken), expected);
    let mut offsets = records.iter().map(|(offset, _)| *offset);
    for ready in &taken.ready {
        assert!(ready.batch.size_bytes() <= 400 || ready.records == 1);
        assert_eq!(Some(ready.first.0), offsets.next());
        let last = offsets
            .by_ref()
            .nth((ready.records as usize).saturating_sub(2));
        if ready.records > 1 {
            assert!(last.is_some_and(|last| last < ready.to.0));
        }
    }
}

#[test]
fn c024_a_damaged_old_message_is_named() {
    let (bytes, _) = read("old-java1-none");
    let first = split::entries(bytes.clone())
        .next()
        .expect("some")
        .expect("sound");
    let Entry::Message(first) = first else {
        panic!("{first:?}");
    };
    let at = first.bytes().len();
    let mut bytes = bytes.to_vec();
    let next = first.next_offset();
    // The last byte of the second message's value.
    let second = i32::from_be_bytes(bytes[at + 8..at + 12].try_into().expect("four"));
    let last = at + 12 + usize::try_from(second).expect("positive") - 1;
    bytes[last] ^= 1;
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    let fault = intake
        .take(bytes.into(), Vec::new(), &mut taken)
        .expect_err("the checksum is wrong");
    let named = format!("source offset {next} cannot be read");
    assert!(fault.cause.contains(&named), "{fault}");
    assert_eq!(taken.ready.len(), 1);
    assert_eq!(intake.position(), Offset(next));
}

#[test]
fn c016_real_transactions_leave_what_a_consumer_of_committed_records_reads() {
    let told: serde_json::Value =
        serde_json::from_slice(&corpus("java-transactions.json")).expect("valid");
    let committed: Vec<i64> = told["committed_offsets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|offset| offset.as_i64().expect("an offset"))
        .collect();
    let index = corpus("java-transactions.txnindex");
    let number =
        |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().expect("eight"));
    let aborted: Vec<AbortedTransaction> = index
        .chunks(34)
        .map(|entry| AbortedTransaction {
            producer_id: number(entry, 2),
            first_offset: number(entry, 10),
        })
        .collect();
    let bytes = Bytes::from(corpus("java-transactions.batches"));
    let mut intake = begin(0, 0);
    let mut taken = Taken::default();
    intake.take(bytes, aborted, &mut taken).expect("sound");
    let found: Vec<i64> = taken
        .ready
        .iter()
        .flat_map(|ready| {
            assert_eq!(ready.path, Path::Passed);
            ready.first.0..ready.first.0 + i64::from(ready.records)
        })
        .collect();
    assert_eq!(found, committed);
}
