//! The records of an opened batch, one after the other, borrowed from its bytes.
//!
//! [`Unpacked`] holds a batch's payload decompressed; [`Records`] walks it lazily and checks each record before it
//! hands it out. [`Record`] is also what [`crate::build`] takes, so that what was read can be written.
//!
//! # Source
//! Kafka 4.3 `DefaultRecord.readFrom`; the length of a record counts what follows it.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::batch::Batch;
use crate::codec::{self, Compression};
use crate::header::{BatchHeader, TimestampType};
use crate::varint;

pub(crate) mod encoding;
mod headers;

pub use headers::{Header, HeaderIter, Headers};

/// Why the records of a batch cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The payload does not unfold.
    #[error("batch at offset {base_offset} cannot be opened")]
    Codec {
        /// Base offset of the batch.
        base_offset: i64,
        /// Why.
        source: codec::Error,
    },
    /// The bytes of a record make no sense.
    #[error("record {index} of batch at offset {base_offset} is damaged: {what}")]
    Record {
        /// Base offset of the batch.
        base_offset: i64,
        /// Place among the records of the batch, from 0.
        index: i32,
        /// What is wrong.
        what: &'static str,
    },
    /// Bytes follow the last record.
    #[error("batch at offset {base_offset} has {bytes} bytes after its last record")]
    Trailing {
        /// Base offset of the batch.
        base_offset: i64,
        /// How many.
        bytes: usize,
    },
}

/// One record, borrowed from where it lies. Null and empty differ, for key, value and header values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset in its partition.
    pub offset: i64,
    /// Milliseconds since 1970; −1 for none.
    pub timestamp: i64,
    /// The key, `None` if null.
    pub key: Option<&'a [u8]>,
    /// The value, `None` if null (a tombstone in a compacted topic).
    pub value: Option<&'a [u8]>,
    /// The headers in order.
    pub headers: Headers<'a>,
}

/// Which timestamps the records of an append-time batch are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// What a consumer sees: the batch's append time for each record.
    #[default]
    Shown,
    /// What the producer wrote, as a batch passed on unopened shows them at the target.
    Written,
}

/// A version 2 batch with its payload decompressed.
#[derive(Debug, Clone)]
pub struct Unpacked {
    header: BatchHeader,
    plain: Bytes,
    times: Times,
}

impl Unpacked {
    /// Opens `batch`; an uncompressed one shares its memory. The checksum is not checked.
    ///
    /// # Errors
    /// When the payload is damaged or unfolds to more than `bytes_max`.
    pub fn open(batch: &Batch, bytes_max: usize) -> Result<Self, Error> {
        let header = *batch.header();
        let payload = batch.payload();
        let base_offset = header.base_offset;
        let compression = header.attributes.compression();
        let is_plain = compression == Compression::None && payload.len() <= bytes_max;
        // An emptied batch may name a codec and has nothing that it wrote.
        let plain = if is_plain || payload.is_empty() {
            payload
        } else {
            codec::decompress(compression, &payload, bytes_max)
                .map_err(|source| Error::Codec {
                    base_offset,
                    source,
                })?
                .into()
        };
        Ok(Self {
            header,
            plain,
            times: Times::Shown,
        })
    }

    /// With the timestamps asked for; [`Times::Shown`] unless set.
    pub fn with_times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// The header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of the records, uncompressed.
    pub fn plain_bytes(&self) -> usize {
        self.plain.len()
    }

    /// The records from the first on.
    pub fn records(&self) -> Records<'_> {
        Records {
            header: &self.header,
            times: self.times,
            rest: &self.plain,
            index: 0,
            last_delta: -1,
            ended: false,
        }
    }
}

/// Walks the records of a batch. After an error nothing follows.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    header: &'a BatchHeader,
    times: Times,
    rest: &'a [u8],
    index: i32,
    last_delta: i32,
    ended: bool,
}

impl<'a> Records<'a> {
    fn record(&mut self) -> Result<Record<'a>, &'static str> {
        let body_bytes = varint::take_i32(&mut self.rest).ok_or("length is cut off")?;
        let body_bytes = usize::try_from(body_bytes).map_err(|_| "length is negative")?;
        let (mut body, rest) = self
            .rest
            .split_at_checked(body_bytes)
            .ok_or("length reaches beyond the batch")?;
        self.rest = rest;
        let (_attributes, after) = body.split_first().ok_or("attributes are cut off")?;
        body = after;
        let timestamp_delta =
            varint::take_i64(&mut body).ok_or("timestamp delta does not fit or is cut off")?;
        let offset_delta =
            varint::take_i32(&mut body).ok_or("offset delta does not fit or is cut off")?;
        if offset_delta <= self.last_delta {
            return Err("offset delta does not grow");
        }
        if offset_delta > self.header.last_offset_delta {
            return Err("offset delta is beyond the batch's last");
        }
        self.last_delta = offset_delta;
        let key = nullable(&mut body).ok_or("key is cut off")?;
        let value = nullable(&mut body).ok_or("value is cut off")?;
        let headers = Headers::take(&mut body)?;
        if !body.is_empty() {
            return Err("bytes follow its headers");
        }
        let appended = self.header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        let timestamp = if appended && self.times == Times::Shown {
            self.header.max_timestamp
        } else {
            // Wraps as in Java, so that every pair of timestamps has a delta.
            self.header.base_timestamp.wrapping_add(timestamp_delta)
        };
        let offset = self
            .header
            .base_offset
            .saturating_add(i64::from(offset_delta));
        Ok(Record {
            offset,
            timestamp,
            key,
            value,
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let base_offset = self.header.base_offset;
        if self.index >= self.header.record_count {
            self.ended = true;
            let bytes = self.rest.len();
            return (bytes > 0).then_some(Err(Error::Trailing { base_offset, bytes }));
        }
        let index = self.index;
        self.index += 1;
        let record = self.record().map_err(|what| Error::Record {
            base_offset,
            index,
            what,
        });
        self.ended = record.is_err();
        Some(record)
    }
}

impl FusedIterator for Records<'_> {}

/// Takes bytes behind their length; any negative length is null, as for Kafka's reader. `None` if cut off.
pub(crate) fn nullable<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let Ok(size) = usize::try_from(varint::take_i32(bytes)?) else {
        return Some(None);
    };
    let (taken, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(Some(taken))
}

#[cfg(test)]
mod tests;
