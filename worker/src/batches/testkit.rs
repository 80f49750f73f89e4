//! Source batches made as a test wants them, and what is in those that come out.
//!
//! Every record tells its own source offset in its value, so that a test sees which records came
//! through, in which order, whatever was done to their batches.

mod broker;
mod rig;

use bytes::Bytes;
use kreplicator_batch::{
    Attributes, Batch, BatchBuilder, BatchHeader, Compression, Headers, Producer, Record,
    TimestampType,
    build::{Push, Settings},
    header::{CHECKED_FROM, HEADER_BYTES},
    records::Unpacked,
};

pub(super) use broker::FakeBroker;
pub(super) use rig::{BASE_TIME, Made as RigMade, PRODUCER, Rig, Shutter, open};

/// More than any test writes.
pub(super) const PLENTY: usize = 1 << 24;
/// When a broker appended an append-time batch.
pub(super) const APPEND_TIME: i64 = 9_000_000;
const CRC_AT: usize = 17;

/// A source batch in the making.
#[derive(Debug, Clone)]
pub(super) struct Made {
    base: i64,
    deltas: Vec<i32>,
    last_delta: i32,
    attributes: Attributes,
    producer: Producer,
    leader_epoch: i32,
    value_bytes: usize,
}

impl Made {
    /// Records at offsets `[base, base + count)`.
    pub(super) fn dense(base: i64, count: i32) -> Self {
        Self::with_holes(base, &(0..count).collect::<Vec<_>>(), count - 1)
    }

    /// Records at these offsets from `base`, in a batch that once reached to `last_delta`.
    pub(super) fn with_holes(base: i64, deltas: &[i32], last_delta: i32) -> Self {
        Self {
            base,
            deltas: deltas.to_vec(),
            last_delta,
            attributes: Attributes::new(Compression::None, TimestampType::CreateTime),
            producer: Producer::NONE,
            leader_epoch: 7,
            value_bytes: 10,
        }
    }

    /// One record under a header that claims so many.
    pub(super) fn boasting(base: i64, records: i32) -> Batch {
        let made = Self::dense(base, 1).compressed(Compression::Lz4);
        let one = made.batch();
        let header = BatchHeader {
            record_count: records,
            ..*one.header()
        };
        let made = Self {
            last_delta: records - 1,
            ..made
        };
        made.stored(header, &one.payload())
    }

    /// The end of a transaction.
    pub(super) fn marker(offset: i64, producer_id: i64, code: i16) -> Batch {
        let made = Self::dense(offset, 1).in_transaction(producer_id);
        let key = [0_i16.to_be_bytes(), code.to_be_bytes()].concat();
        let value = [&0_i16.to_be_bytes()[..], &1_i32.to_be_bytes()].concat();
        let mut builder = made.builder(made.attributes.control());
        let record = Record {
            offset,
            timestamp: time_of(offset),
            key: Some(&key),
            value: Some(&value),
            headers: Headers::EMPTY,
        };
        assert_eq!(builder.push(&record).expect("legal"), Push::Added);
        builder.finish().expect("legal").expect("not empty")
    }

    pub(super) fn compressed(mut self, compression: Compression) -> Self {
        let time = self.attributes.timestamp_type();
        self.attributes = Attributes::new(compression, time);
        self
    }

    pub(super) fn append_time(mut self) -> Self {
        let compression = self.attributes.compression();
        self.attributes = Attributes::new(compression, TimestampType::LogAppendTime);
        self
    }

    pub(super) fn in_transaction(mut self, producer_id: i64) -> Self {
        self.attributes = self.attributes.transactional();
        self.producer = Producer {
            id: producer_id,
            epoch: 0,
            base_sequence: 0,
        };
        self
    }

    /// Length of each value, as far as it is not longer by itself.
    pub(super) fn values_of(mut self, bytes: usize) -> Self {
        self.value_bytes = bytes;
        self
    }

    pub(super) fn batch(&self) -> Batch {
        let mut builder = self.builder(self.attributes);
        for delta in &self.deltas {
            let offset = self.base + i64::from(*delta);
            let value = value_of(offset, self.value_bytes);
            let record = Record {
                offset,
                timestamp: time_of(offset),
                key: None,
                value: Some(&value),
                headers: Headers::EMPTY,
            };
            let pushed = builder.push_at(*delta, &record).expect("legal");
            assert_eq!(pushed, Push::Added);
        }
        match builder.finish().expect("legal") {
            Some(batch) => self.stored(*batch.header(), &batch.payload()),
            // What compaction leaves of a batch whose records are all gone.
            None => {
                let one = Self::dense(self.base, 1).batch();
                let header = BatchHeader {
                    record_count: 0,
                    attributes: self.attributes,
                    ..*one.header()
                };
                self.stored(header, &[])
            }
        }
    }

    fn builder(&self, attributes: Attributes) -> BatchBuilder {
        BatchBuilder::new(Settings {
            attributes,
            append_time: APPEND_TIME,
            base_offset: self.base,
            producer: self.producer,
            ..Settings::new(attributes.compression(), PLENTY)
        })
    }

    /// As a broker has it in its log.
    fn stored(&self, header: BatchHeader, payload: &[u8]) -> Batch {
        let header = BatchHeader {
            last_offset_delta: self.last_delta,
            leader_epoch: self.leader_epoch,
            length: i32::try_from(HEADER_BYTES + payload.len() - 12).expect("small"),
            ..header
        };
        let mut bytes = [&header.encode()[..], payload].concat();
        let crc = crc32c::crc32c(&bytes[CHECKED_FROM..]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        let batch = Batch::parse(bytes.into()).expect("whole");
        batch.verify().expect("sound");
        batch
    }
}

/// One record of so many bytes, which hardly take any while it is compressed.
pub(super) fn inflating(base: i64, plain_bytes: usize, time: TimestampType) -> Batch {
    let mut builder = BatchBuilder::new(Settings {
        attributes: Attributes::new(Compression::Zstd, time),
        append_time: BASE_TIME,
        base_offset: base,
        ..Settings::new(Compression::Zstd, PLENTY)
    });
    let value = [format!("{base}:").into_bytes(), vec![0; plain_bytes]].concat();
    let record = Record {
        offset: base,
        timestamp: BASE_TIME,
        key: None,
        value: Some(&value),
        headers: Headers::EMPTY,
    };
    assert_eq!(builder.push(&record).expect("legal"), Push::Added);
    builder.finish().expect("legal").expect("not empty")
}

/// The timestamp of the record at a source offset.
pub(super) fn time_of(offset: i64) -> i64 {
    BASE_TIME + offset
}

/// Begins with the offset; the rest does not compress.
fn value_of(offset: i64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{offset}:").into_bytes();
    let mut random = u64::from_ne_bytes(offset.to_ne_bytes()) ^ 0x9E37_79B9_7F4A_7C15;
    while value.len() < bytes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        value.push(random.to_le_bytes()[3]);
    }
    value
}

/// Batches as a broker answers with them.
pub(super) fn answer<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Bytes {
    let mut bytes = Vec::new();
    for batch in batches {
        bytes.extend_from_slice(batch.bytes());
    }
    bytes.into()
}

/// Source offsets of the records in a batch, as their values tell, with their timestamps.
pub(super) fn records_of(batch: &Batch) -> Vec<(i64, i64)> {
    let unpacked = Unpacked::open(batch, PLENTY).expect("sound");
    let records = unpacked.records().map(|record| {
        let record = record.expect("sound");
        let value = record.value.expect("a value");
        let digits = value.split(|byte| *byte == b':').next().unwrap_or_default();
        let text = str::from_utf8(digits).expect("digits");
        (text.parse().expect("a number"), record.timestamp)
    });
    records.collect()
}

/// The same without timestamps.
pub(super) fn offsets_of(batch: &Batch) -> Vec<i64> {
    records_of(batch)
        .into_iter()
        .map(|(offset, _)| offset)
        .collect()
}

/// A batch with one byte of its payload changed.
pub(super) fn damaged(batch: &Batch) -> Bytes {
    let mut bytes = batch.bytes().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x40;
    bytes.into()
}
