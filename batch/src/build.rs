//! Records into one version 2 batch.

use crate::batch::Batch;
use crate::codec::{self, Compression, Levels};
use crate::header::{
    Attributes, BatchHeader, CHECKED_FROM, CRC_AT, HEADER_BYTES, NO_LEADER_EPOCH, NO_TIMESTAMP,
    OVERHEAD_BYTES, Producer, TimestampType,
};
use crate::records::Record;
use crate::records::encoding::{body_bytes, put_record};
use crate::varint;

/// Most bytes of a batch that its length field can say.
const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// Why no batch can be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Offset deltas must grow from record to record, from 0 on.
    #[error("offset delta {delta} does not come after {last}")]
    DeltaOrder {
        /// The one that was given.
        delta: i32,
        /// The one before it; −1 if there was none.
        last: i32,
    },
    /// The last offset of the batch would not fit 63 bits, or its base offset is negative.
    #[error("no room for offset delta {delta} after base offset {base_offset}")]
    Offsets {
        /// Base offset in the settings.
        base_offset: i64,
        /// The delta that was given.
        delta: i32,
    },
    /// The codec refused.
    #[error(transparent)]
    Codec(#[from] codec::Error),
    /// Compression made the batch longer than its length field can say.
    #[error("batch of {bytes} bytes is too long for its length field; make it of fewer records")]
    TooLong {
        /// Size of the batch.
        bytes: usize,
    },
}

/// How a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Codec, timestamp type and the transactional and control bits.
    pub attributes: Attributes,
    /// The maximum timestamp of an append-time batch, milliseconds since 1970; unused for other batches.
    pub append_time: i64,
    /// How hard the codec tries.
    pub levels: Levels,
    /// Limit on the size of the batch *before* compression, header included; at most 2 GiB − 1 are ever used.
    pub bytes_max: usize,
    /// Offset of delta 0, `≥ 0`; 0 for a batch that is sent to a broker.
    pub base_offset: i64,
    /// Who writes the batch.
    pub producer: Producer,
}

impl Settings {
    /// A batch for a broker, of records that carry their own timestamps.
    pub fn new(compression: Compression, bytes_max: usize) -> Self {
        Self {
            attributes: Attributes::new(compression, TimestampType::CreateTime),
            append_time: NO_TIMESTAMP,
            levels: Levels::default(),
            bytes_max,
            base_offset: 0,
            producer: Producer::NONE,
        }
    }
}

/// Whether a record went in.
#[must_use = "a record that was not added must go into another batch"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// It is in the batch.
    Added,
    /// It is not: it would take the batch beyond its limit. Finish this one and push again.
    Full,
}

/// Gathers records until the limit, then writes them as one batch; then it is empty and starts anew.
///
/// The first record of a batch is taken whatever its size (compression may still make it fit, and the caller never
/// stands still); it is refused only when no batch could hold it.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    settings: Settings,
    plain: Vec<u8>,
    record_count: i32,
    last_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

/// A builder's state at a moment, without the bytes before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    plain_bytes: usize,
    record_count: i32,
    last_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty one.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            plain: Vec::new(),
            record_count: 0,
            last_delta: -1,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
        }
    }

    /// Adds `record` at the next free offset delta, whatever its own offset: this closes holes.
    ///
    /// # Errors
    /// As [`BatchBuilder::push_at`], when offsets run out.
    pub fn push(&mut self, record: &Record<'_>) -> Result<Push, Error> {
        match self.last_delta.checked_add(1) {
            Some(delta) => self.push_at(delta, record),
            None => Ok(Push::Full),
        }
    }

    /// Adds `record` at this offset delta; its own offset plays no part.
    ///
    /// # Errors
    /// When the delta does not come after the last one, or reaches beyond the last possible offset.
    pub fn push_at(&mut self, delta: i32, record: &Record<'_>) -> Result<Push, Error> {
        if delta <= self.last_delta {
            return Err(Error::DeltaOrder {
                delta,
                last: self.last_delta,
            });
        }
        let base_offset = self.settings.base_offset;
        let next_offset = base_offset.checked_add(i64::from(delta) + 1);
        if base_offset < 0 || next_offset.is_none() {
            return Err(Error::Offsets { base_offset, delta });
        }
        let base_timestamp = if self.is_empty() {
            record.timestamp
        } else {
            self.base_timestamp
        };
        let timestamp_delta = record.timestamp.wrapping_sub(base_timestamp);
        let body_bytes = body_bytes(record, timestamp_delta, delta);
        let record_bytes = varint::size(body_bytes as i64).saturating_add(body_bytes);
        let batch_bytes = self.plain_batch_bytes().saturating_add(record_bytes);
        let bytes_max = if self.is_empty() {
            BATCH_BYTES_MAX
        } else {
            self.settings.bytes_max
        };
        if batch_bytes > bytes_max.min(BATCH_BYTES_MAX) {
            return Ok(Push::Full);
        }
        put_record(&mut self.plain, record, timestamp_delta, delta, body_bytes);
        self.max_timestamp = if self.is_empty() {
            record.timestamp
        } else {
            self.max_timestamp.max(record.timestamp)
        };
        self.base_timestamp = base_timestamp;
        self.last_delta = delta;
        self.record_count += 1;
        Ok(Push::Added)
    }

    /// Records in it.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Whether no record is in it.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Size of the batch if it is not compressed, header included: what [`Settings::bytes_max`] limits. A codec makes
    /// it smaller, or larger by less than a hundredth and 64 bytes where it finds nothing to gain.
    pub fn plain_batch_bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.plain.len())
    }

    /// Where it stands, to come back to by [`BatchBuilder::roll_back`].
    pub(crate) fn mark(&self) -> Mark {
        let Self {
            record_count,
            last_delta,
            base_timestamp,
            max_timestamp,
            ..
        } = *self;
        let plain_bytes = self.plain.len();
        Mark {
            plain_bytes,
            record_count,
            last_delta,
            base_timestamp,
            max_timestamp,
        }
    }

    /// Takes out the records that were added since `mark`, if no batch was finished since.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        self.plain.truncate(mark.plain_bytes);
        self.record_count = mark.record_count;
        self.last_delta = mark.last_delta;
        self.base_timestamp = mark.base_timestamp;
        self.max_timestamp = mark.max_timestamp;
    }

    /// Writes what was gathered as one batch; `None` if that is nothing.
    ///
    /// # Errors
    /// When the codec refuses its level or the result is too long. What was gathered is gone then too.
    pub fn finish(&mut self) -> Result<Option<Batch>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let written = self.write();
        self.plain.clear();
        self.record_count = 0;
        self.last_delta = -1;
        written.map(Some)
    }

    fn write(&self) -> Result<Batch, Error> {
        let Settings {
            attributes,
            append_time,
            levels,
            base_offset,
            producer,
            ..
        } = self.settings;
        let mut out = vec![0; HEADER_BYTES];
        codec::compress(attributes.compression(), levels, &self.plain, &mut out)?;
        let bytes = out.len();
        let length = i32::try_from(bytes - OVERHEAD_BYTES).map_err(|_| Error::TooLong { bytes })?;
        let max_timestamp = match attributes.timestamp_type() {
            TimestampType::CreateTime => self.max_timestamp,
            TimestampType::LogAppendTime => append_time,
        };
        let header = BatchHeader {
            base_offset,
            length,
            leader_epoch: NO_LEADER_EPOCH,
            crc: 0,
            attributes,
            last_offset_delta: self.last_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp,
            producer,
            record_count: self.record_count,
        };
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        let crc = crc32c::crc32c(&out[CHECKED_FROM..]);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        Ok(Batch::assemble(BatchHeader { crc, ..header }, out.into()))
    }
}

#[cfg(test)]
mod tests;
