//! What the encoder says it holds is what the process holds (C095). The only test of its binary, since it asks the system how
//! much memory the whole process has.

use std::{fs, sync::Arc};

use kreplicator_dump::{
    envelope::{Rows, Settings, Writer},
    record::{Record, TimestampType},
};
use kreplicator_model::{
    dump::manifest::Source,
    ids::{ClusterId, LinkId, Offset, Partition, TopicName, UnixMillis},
};

const FILES: usize = 150;
const VALUE_BYTES: usize = 32 << 10;
const LARGE_BYTES: usize = 64 << 20;
/// What an allocator may keep for later.
const SLACK_BYTES: usize = 24 << 20;

/// A line of the system's report on this process, in bytes.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: usize = kib.expect("a number").parse().expect("a number");
    kib << 10
}

/// Bytes that do not compress.
fn noise(state: &mut u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn rows(first: usize, values: &[Vec<u8>]) -> Rows {
    let mut rows = Rows::default();
    for (index, value) in values.iter().enumerate() {
        rows.push(&Record {
            offset: Offset(i64::try_from(first + index).expect("small")),
            timestamp: UnixMillis(1_796_029_200_000),
            timestamp_type: TimestampType::Create,
            key: Some(b"key"),
            value: Some(value),
            headers: &[],
        });
    }
    rows
}

fn writer() -> Writer {
    let source = Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: None,
        partition: Partition(0),
    };
    Writer::new(Arc::new(source), &Settings::default()).expect("legal")
}

#[test]
fn c095_what_is_counted_is_what_the_process_holds() {
    let mut state = 7;
    // Of a large record there is at most four times its size at once, while it is encoded.
    let before = memory("VmRSS");
    let record = rows(0, &[noise(&mut state, LARGE_BYTES)]);
    let mut large = writer();
    large.write(record).expect("written");
    let peak = memory("VmHWM") - before;
    assert!(
        (2 * LARGE_BYTES..=4 * LARGE_BYTES + SLACK_BYTES).contains(&peak),
        "{peak} bytes for a record of {LARGE_BYTES}"
    );
    drop(large);

    // Files in the middle of a row group, whose values have had a page.
    let values: Vec<Vec<u8>> = (0..24).map(|_| noise(&mut state, VALUE_BYTES)).collect();
    let before = memory("VmRSS");
    let files = (0..FILES).map(|_| {
        let mut file = writer();
        for piece in 0..2 {
            file.write(rows(piece * values.len(), &values))
                .expect("written");
        }
        file
    });
    let files: Vec<Writer> = files.collect();
    let real = memory("VmRSS") - before;
    let counted: usize = files.iter().map(Writer::held).sum();
    assert!(
        real <= counted + counted / 5 + SLACK_BYTES,
        "{real} bytes are held, {counted} are counted"
    );
    // So that nobody waits for memory that is free.
    assert!(
        counted <= 3 * real,
        "{real} bytes are held, {counted} are counted"
    );
}
