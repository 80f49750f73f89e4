//! Records with a life of their own, and ways to make random ones and batches of them.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::build::{Push, Settings};
use crate::codec::Compression;
use crate::records::{Header, Headers, Record, Unpacked};
use crate::rewrite::Options;
use crate::{Batch, BatchBuilder};

/// More than any test writes.
pub(crate) const PLENTY: usize = 1 << 24;

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Owned {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: owned(record.key),
            value: owned(record.value),
            headers: record
                .headers
                .iter()
                .map(|header| (header.key.to_vec(), owned(header.value)))
                .collect(),
        }
    }

    /// A record with a text as value.
    pub(crate) fn text(offset: i64, value: &str) -> Self {
        let value = Some(value.as_bytes().to_vec());
        Self {
            offset,
            timestamp: 1000 + offset,
            key: None,
            value,
            headers: Vec::new(),
        }
    }

    /// Hands out a view of it.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&Record<'_>) -> T) -> T {
        let headers: Vec<Header<'_>> = self
            .headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        use_it(&Record {
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: Headers::new(&headers),
        })
    }

    /// The same at another offset.
    pub(crate) fn at(&self, offset: i64) -> Self {
        Self {
            offset,
            ..self.clone()
        }
    }
}

pub(crate) fn options() -> Options {
    Options::new(PLENTY)
}

/// A batch of `records` at their own offsets.
pub(crate) fn batch_with(settings: Settings, records: &[Owned]) -> Batch {
    let mut builder = BatchBuilder::new(settings);
    for owned in records {
        let delta = i32::try_from(owned.offset - settings.base_offset).unwrap();
        let pushed = owned.with(|record| builder.push_at(delta, record)).unwrap();
        assert_eq!(pushed, Push::Added);
    }
    let batch = builder.finish().unwrap().unwrap();
    // What was built must be what a reader takes.
    assert_eq!(Batch::parse(batch.bytes().clone()), Ok(batch.clone()));
    batch.verify().unwrap();
    batch
}

/// As [`batch_with`]; the base offset is that of the first record.
pub(crate) fn batch_of(compression: Compression, records: &[Owned]) -> Batch {
    let base_offset = records[0].offset;
    batch_with(
        Settings {
            base_offset,
            ..Settings::new(compression, PLENTY)
        },
        records,
    )
}

/// The records of a batch, read.
pub(crate) fn read(batch: &Batch) -> Vec<Owned> {
    let unpacked = Unpacked::open(batch, PLENTY).unwrap();
    unpacked
        .records()
        .map(|record| Owned::of(&record.unwrap()))
        .collect()
}

/// `records` as they are at a target that had `next` records before: without holes.
pub(crate) fn renumbered(records: &[Owned], next: i64) -> Vec<Owned> {
    (next..)
        .zip(records)
        .map(|(offset, record)| record.at(offset))
        .collect()
}

/// The batch with some bytes overwritten, as far as its header still allows it to be one.
pub(crate) fn damaged(batch: &Batch, at: usize, xor: u8) -> Bytes {
    let mut bytes = batch.bytes().to_vec();
    bytes[at] ^= xor;
    bytes.into()
}

pub(crate) fn any_compression() -> impl Strategy<Value = Compression> {
    (0_u8..5).prop_map(|code| Compression::from_code(code).unwrap())
}

fn any_bytes(bytes_max: usize) -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(prop_oneof![
        vec(any::<u8>(), 0..bytes_max),
        (any::<u8>(), 0..bytes_max * 20).prop_map(|(byte, count)| vec![byte; count]),
    ])
}

/// Up to 40 records from a random offset on, with holes between them, each kind of null and empty, and repeated
/// header keys.
pub(crate) fn any_records() -> impl Strategy<Value = Vec<Owned>> {
    let timestamp = prop_oneof![
        any::<i64>(),
        1_700_000_000_000_i64..1_700_000_100_000,
        Just(-1)
    ];
    let headers = vec((vec(97_u8..100, 0..3), any_bytes(10)), 0..5);
    let record = (1_i64..4, timestamp, any_bytes(20), any_bytes(100), headers);
    (0_i64..1 << 50, vec(record, 1..40)).prop_map(|(mut offset, records)| {
        records
            .into_iter()
            .map(|(step, timestamp, key, value, headers)| {
                offset += step;
                Owned {
                    offset,
                    timestamp,
                    key,
                    value,
                    headers,
                }
            })
            .collect()
    })
}
