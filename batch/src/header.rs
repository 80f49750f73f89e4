//! The 61 bytes in front of a version 2 batch, from which most decisions can be made.
//!
//! # Source
//! Kafka 4.3 `DefaultRecordBatch`; KIP-98 (producer fields, control batches), KIP-534 (delete horizon).

use crate::codec::Compression;

mod attributes;

pub use attributes::{Attributes, TimestampType};

/// Size of the header of a version 2 batch, bytes.
pub const HEADER_BYTES: usize = 61;
/// Bytes of base offset and length in front of what the length counts; the same in every format.
pub const OVERHEAD_BYTES: usize = 12;
/// Position of the first byte that the checksum covers (the attributes); it covers all bytes to the batch's end.
pub const CHECKED_FROM: usize = 21;
/// Timestamp of a record or batch that has none.
pub const NO_TIMESTAMP: i64 = -1;
/// Leader epoch of a batch that no broker has written yet.
pub const NO_LEADER_EPOCH: i32 = -1;
/// Least size of a record: its length, attributes, two deltas, no key, no value, no headers; one byte each.
pub const RECORD_BYTES_MIN: usize = 7;

pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
pub(crate) const ATTRIBUTES_AT: usize = CHECKED_FROM;
const LAST_OFFSET_DELTA_AT: usize = 23;
const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
pub(crate) const PRODUCER_ID_AT: usize = 43;
pub(crate) const PRODUCER_EPOCH_AT: usize = 51;
pub(crate) const BASE_SEQUENCE_AT: usize = 53;
const COUNT_AT: usize = 57;

/// Why bytes are not the header of a version 2 batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer than [`HEADER_BYTES`].
    #[error("batch header needs {HEADER_BYTES} bytes, has {have}")]
    Short {
        /// Bytes there are.
        have: usize,
    },
    /// The base offset is negative, or the last offset does not fit 63 bits.
    #[error(
        "batch at offset {base_offset} with last offset delta {last_offset_delta} has impossible offsets"
    )]
    Offsets {
        /// As written.
        base_offset: i64,
        /// As written.
        last_offset_delta: i32,
    },
    /// The length does not even hold the header.
    #[error("batch at offset {base_offset} has impossible length {length}")]
    Length {
        /// As written.
        base_offset: i64,
        /// As written: bytes after the length field.
        length: i32,
    },
    /// Another format than version 2.
    #[error("batch at offset {base_offset} has format version {magic}, not 2")]
    Magic {
        /// As written.
        base_offset: i64,
        /// As written.
        magic: i8,
    },
    /// A codec that this crate does not know.
    #[error("batch at offset {base_offset} has unknown compression {code}")]
    Compression {
        /// As written.
        base_offset: i64,
        /// The low three bits of the attributes: 5, 6 or 7.
        code: u8,
    },
    /// A negative number of records, more than there are offsets, or more than the bytes can hold.
    #[error(
        "batch at offset {base_offset} says {record_count} records for last offset delta {last_offset_delta}"
    )]
    Count {
        /// As written.
        base_offset: i64,
        /// As written.
        record_count: i32,
        /// As written.
        last_offset_delta: i32,
    },
}

/// Who wrote a batch, and as which one of its records the batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Producer {
    /// Producer id that the broker gave; −1 for a producer that is not idempotent.
    pub id: i64,
    /// Epoch of that id; −1 for none.
    pub epoch: i16,
    /// Sequence of the first record in `[0, 2^31)`; −1 for none.
    pub base_sequence: i32,
}

impl Producer {
    /// A producer that is not idempotent.
    pub const NONE: Self = Self {
        id: -1,
        epoch: -1,
        base_sequence: -1,
    };

    /// Whether the broker keeps count of this producer.
    pub fn is_some(self) -> bool {
        self.id >= 0
    }
}

/// What a header tells about the way its batch can take, without a look at the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Records in the batch.
    pub record_count: i32,
    /// Offset of the last record that was in the batch when it was written, from the base offset.
    pub last_offset_delta: i32,
    /// The attribute bits.
    pub attributes: Attributes,
}

impl Shape {
    /// Whether every offset of the batch still has its record: compaction leaves holes.
    pub fn is_dense(self) -> bool {
        i64::from(self.record_count) == i64::from(self.last_offset_delta) + 1
    }

    /// Whether compaction has removed every record; such a batch stands for its offsets only.
    pub fn is_empty(self) -> bool {
        self.record_count == 0
    }

    /// Whether the batch holds a control record instead of data.
    pub fn is_control(self) -> bool {
        self.attributes.is_control()
    }

    /// Whether the batch was written in a transaction (or marks the end of one).
    pub fn is_transactional(self) -> bool {
        self.attributes.is_transactional()
    }
}

/// The header of a version 2 batch.
///
/// # Invariants
/// As [`BatchHeader::parse`] returns it, `length`, offsets and count are consistent with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch's first place, `≥ 0`.
    pub base_offset: i64,
    /// Bytes of the batch after this field, `≥ 49`; the batch is this and [`OVERHEAD_BYTES`] long.
    pub length: i32,
    /// Epoch of the leader that appended the batch; −1 when a producer sends it.
    pub leader_epoch: i32,
    /// CRC32C of all bytes from [`CHECKED_FROM`] to the end, as written; not yet checked.
    pub crc: u32,
    /// The attribute bits.
    pub attributes: Attributes,
    /// Offset of the last record from the base offset, `≥ 0`; compaction leaves it as it is.
    pub last_offset_delta: i32,
    /// Milliseconds since 1970 that the records' deltas count from; the delete horizon where that bit is set.
    pub base_timestamp: i64,
    /// Greatest timestamp of the records, or the append time, in milliseconds since 1970; −1 for none.
    pub max_timestamp: i64,
    /// Who wrote the batch.
    pub producer: Producer,
    /// Records in the batch, `0..=last_offset_delta + 1`.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    /// When bytes are missing or contradict each other. The checksum is not checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let raw: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(Error::Short { have: bytes.len() })?;
        let base_offset = i64::from_be_bytes(field(raw, 0));
        let [magic] = field(raw, MAGIC_AT).map(|byte: u8| byte as i8);
        if magic != 2 {
            return Err(Error::Magic { base_offset, magic });
        }
        let bits = i16::from_be_bytes(field(raw, ATTRIBUTES_AT));
        let code = (bits & Attributes::COMPRESSION) as u8;
        let attributes =
            Attributes::from_bits(bits).ok_or(Error::Compression { base_offset, code })?;
        let header = Self {
            base_offset,
            length: i32::from_be_bytes(field(raw, LENGTH_AT)),
            leader_epoch: i32::from_be_bytes(field(raw, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(field(raw, CRC_AT)),
            attributes,
            last_offset_delta: i32::from_be_bytes(field(raw, LAST_OFFSET_DELTA_AT)),
            base_timestamp: i64::from_be_bytes(field(raw, BASE_TIMESTAMP_AT)),
            max_timestamp: i64::from_be_bytes(field(raw, MAX_TIMESTAMP_AT)),
            producer: Producer {
                id: i64::from_be_bytes(field(raw, PRODUCER_ID_AT)),
                epoch: i16::from_be_bytes(field(raw, PRODUCER_EPOCH_AT)),
                base_sequence: i32::from_be_bytes(field(raw, BASE_SEQUENCE_AT)),
            },
            record_count: i32::from_be_bytes(field(raw, COUNT_AT)),
        };
        header.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        let Self {
            base_offset,
            length,
            last_offset_delta,
            record_count,
            ..
        } = self;
        let size = i64::from(length) + OVERHEAD_BYTES as i64;
        let payload = size - HEADER_BYTES as i64;
        if payload < 0 {
            return Err(Error::Length {
                base_offset,
                length,
            });
        }
        let next_offset = base_offset.checked_add(i64::from(last_offset_delta) + 1);
        if base_offset < 0 || last_offset_delta < 0 || next_offset.is_none() {
            return Err(Error::Offsets {
                base_offset,
                last_offset_delta,
            });
        }
        let count = i64::from(record_count);
        let plain = self.attributes.compression() == Compression::None;
        let too_many_for_bytes = plain && count * RECORD_BYTES_MIN as i64 > payload;
        if count < 0 || count > i64::from(last_offset_delta) + 1 || too_many_for_bytes {
            return Err(Error::Count {
                base_offset,
                record_count,
                last_offset_delta,
            });
        }
        Ok(self)
    }

    /// Bytes of the whole batch, this header included.
    pub fn size_bytes(&self) -> usize {
        // `parse` refuses a negative length; a hand-made header with one counts as empty.
        OVERHEAD_BYTES + usize::try_from(self.length).unwrap_or(0)
    }

    /// Offset of the batch's last place, whether or not it still has a record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// Offset at which the log goes on after this batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// What the header tells about the way the batch can take.
    pub fn shape(&self) -> Shape {
        Shape {
            record_count: self.record_count,
            last_offset_delta: self.last_offset_delta,
            attributes: self.attributes,
        }
    }

    /// The header as it is written, with the checksum it carries.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.base_offset.to_be_bytes());
        put(LENGTH_AT, &self.length.to_be_bytes());
        put(LEADER_EPOCH_AT, &self.leader_epoch.to_be_bytes());
        put(MAGIC_AT, &[2]);
        put(CRC_AT, &self.crc.to_be_bytes());
        put(ATTRIBUTES_AT, &self.attributes.bits().to_be_bytes());
        put(LAST_OFFSET_DELTA_AT, &self.last_offset_delta.to_be_bytes());
        put(BASE_TIMESTAMP_AT, &self.base_timestamp.to_be_bytes());
        put(MAX_TIMESTAMP_AT, &self.max_timestamp.to_be_bytes());
        put(PRODUCER_ID_AT, &self.producer.id.to_be_bytes());
        put(PRODUCER_EPOCH_AT, &self.producer.epoch.to_be_bytes());
        put(BASE_SEQUENCE_AT, &self.producer.base_sequence.to_be_bytes());
        put(COUNT_AT, &self.record_count.to_be_bytes());
        raw
    }
}

/// The `N` bytes at one of the places above.
fn field<const N: usize>(raw: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    raw[at..]
        .first_chunk()
        .copied()
        .expect("every field lies within the header")
}

#[cfg(test)]
mod tests;
