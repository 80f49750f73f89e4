//! Message formats 0 and 1, written before Kafka 0.11 and by brokers told to keep to them; read only.
//!
//! A message is a record with its own checksum. A compressed one is a wrapper: its value is a set of messages. In
//! format 0 those carry their own offsets; in format 1 they count from 0, and the wrapper has the offset of the last.
//!
//! # Source
//! Kafka 4.3 `LegacyRecord` and `AbstractLegacyRecordBatch`; KIP-31 (relative offsets), KIP-32 (timestamps).

use bytes::Bytes;

use crate::codec::{self, Compression};
use crate::header::{LENGTH_AT, MAGIC_AT, NO_TIMESTAMP, OVERHEAD_BYTES, TimestampType};
use crate::records::{Headers, Record, Times};
use crate::wire::{array, i32_at, i64_at, u32_at};

const CRC_AT: usize = OVERHEAD_BYTES;
const ATTRIBUTES_AT: usize = MAGIC_AT + 1;
const BODY_AT: usize = ATTRIBUTES_AT + 1;
const TIMESTAMP_BYTES: usize = 8;
const COMPRESSION_BITS: u8 = 0x07;
const APPEND_TIME_BIT: u8 = 0x08;

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes make no message.
    #[error("message at offset {offset} is damaged: {what}")]
    Damaged {
        /// As written; 0 if not even that is there.
        offset: i64,
        /// What is wrong.
        what: &'static str,
    },
    /// The bytes are not those that were written.
    #[error(
        "message at offset {offset} is damaged: checksum {said:#010x} in it, {computed:#010x} of it"
    )]
    Checksum {
        /// As written.
        offset: i64,
        /// CRC-32 as written.
        said: u32,
        /// CRC-32 of the bytes.
        computed: u32,
    },
    /// The messages inside do not unfold.
    #[error("message at offset {offset} cannot be opened")]
    Codec {
        /// As written.
        offset: i64,
        /// Why.
        source: codec::Error,
    },
}

/// The fields of a message, borrowed.
#[derive(Debug, Clone, Copy)]
struct Fields<'a> {
    offset: i64,
    magic: u8,
    compression: Compression,
    timestamp_type: TimestampType,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Takes one message off the front of `bytes`.
    fn take(bytes: &mut &'a [u8]) -> Result<Self, Error> {
        let offset = i64_at(bytes, 0).unwrap_or(0);
        Self::read(offset, bytes).map_err(|what| Error::Damaged { offset, what })
    }

    fn read(offset: i64, bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let length = i32_at(bytes, LENGTH_AT).ok_or("length is cut off")?;
        let length = usize::try_from(length).map_err(|_| "length is negative")?;
        let size = OVERHEAD_BYTES
            .checked_add(length)
            .ok_or("length is too large")?;
        let (message, rest) = bytes
            .split_at_checked(size)
            .ok_or("length reaches beyond what is there")?;
        let [magic] = array(message, MAGIC_AT).ok_or("magic is cut off")?;
        let [attributes] = array(message, ATTRIBUTES_AT).ok_or("attributes are cut off")?;
        let compression = match Compression::from_code(attributes & COMPRESSION_BITS) {
            Some(Compression::Zstd) | None => return Err("compression is unknown"),
            Some(known) => known,
        };
        let mut body = message.get(BODY_AT..).ok_or("body is cut off")?;
        let mut timestamp = NO_TIMESTAMP;
        let mut timestamp_type = TimestampType::CreateTime;
        match magic {
            0 => {}
            1 => {
                timestamp = i64_at(body, 0).ok_or("timestamp is cut off")?;
                body = body.get(TIMESTAMP_BYTES..).ok_or("timestamp is cut off")?;
                if attributes & APPEND_TIME_BIT != 0 {
                    timestamp_type = TimestampType::LogAppendTime;
                }
            }
            _ => return Err("format version is neither 0 nor 1"),
        }
        let key = nullable(&mut body).ok_or("key is cut off")?;
        let value = nullable(&mut body).ok_or("value is cut off")?;
        if !body.is_empty() {
            return Err("bytes follow its value");
        }
        if offset < 0 {
            return Err("offset is negative");
        }
        *bytes = rest;
        Ok(Self {
            offset,
            magic,
            compression,
            timestamp_type,
            timestamp,
            key,
            value,
        })
    }
}

/// Takes bytes behind their length; −1 is null. `None` if cut off.
fn nullable<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let size = i32_at(bytes, 0)?;
    let rest = bytes.get(4..)?;
    let (taken, rest) = match size {
        -1 => (None, rest),
        size => {
            let (taken, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
            (Some(taken), rest)
        }
    };
    *bytes = rest;
    Some(taken)
}

/// One message as it is in the log, perhaps with others inside; shares memory with the answer it came in.
///
/// # Invariants
/// `bytes` is exactly one well-formed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    bytes: Bytes,
    offset: i64,
    magic: u8,
    compression: Compression,
}

impl Message {
    /// Takes `bytes` as exactly one message.
    ///
    /// # Errors
    /// When they are not. The checksum is left to [`Message::verify`].
    pub fn parse(bytes: Bytes) -> Result<Self, Error> {
        let mut rest = &bytes[..];
        let Fields {
            offset,
            magic,
            compression,
            ..
        } = Fields::take(&mut rest)?;
        if !rest.is_empty() {
            return Err(Error::Damaged {
                offset,
                what: "bytes follow it",
            });
        }
        Ok(Self {
            offset,
            magic,
            compression,
            bytes,
        })
    }

    /// Its offset; that of the last message inside, if there are any.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Offset at which the log goes on after it.
    pub fn next_offset(&self) -> i64 {
        self.offset.saturating_add(1)
    }

    /// Its format: 0 or 1.
    pub fn magic(&self) -> u8 {
        self.magic
    }

    /// How the messages inside are compressed; [`Compression::None`] if it is a single one.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The message as it is in the log.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of the message.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Checks the CRC-32 over everything that it covers; that includes the messages inside.
    ///
    /// # Errors
    /// [`Error::Checksum`] when the bytes are not those that were written.
    pub fn verify(&self) -> Result<(), Error> {
        let said = u32_at(&self.bytes, CRC_AT).unwrap_or_default();
        let mut crc = flate2::Crc::new();
        crc.update(self.bytes.get(MAGIC_AT..).unwrap_or_default());
        let computed = crc.sum();
        if said == computed {
            return Ok(());
        }
        Err(Error::Checksum {
            offset: self.offset,
            said,
            computed,
        })
    }

    /// Its record, or those of the messages inside it.
    ///
    /// # Errors
    /// When the inside is damaged, unfolds to more than `bytes_max`, or is itself compressed.
    pub fn open(&self, bytes_max: usize) -> Result<Unpacked, Error> {
        let offset = self.offset;
        let outer = Fields::take(&mut &self.bytes[..])?;
        if outer.compression == Compression::None {
            let plain = self.bytes.clone();
            return Ok(Unpacked {
                plain,
                base_offset: 0,
                append_time: None,
            });
        }
        let payload = outer.value.ok_or(Error::Damaged {
            offset,
            what: "nothing is inside",
        })?;
        let plain =
            unfold(&outer, payload, bytes_max).map_err(|source| Error::Codec { offset, source })?;
        let last_inner = check_inner(&outer, &plain)?;
        let base_offset = match outer.magic {
            0 => 0,
            // Some versions of librdkafka left the wrapper's offset at 0.
            _ if offset == 0 => 0,
            _ if offset < last_inner => {
                return Err(Error::Damaged {
                    offset,
                    what: "more is inside than its offset allows",
                });
            }
            _ => offset - last_inner,
        };
        let append_time = match outer.timestamp_type {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(outer.timestamp),
        };
        Ok(Unpacked {
            plain: plain.into(),
            base_offset,
            append_time,
        })
    }
}

fn unfold(outer: &Fields<'_>, payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, codec::Error> {
    let compression = outer.compression;
    if outer.magic == 0 && compression == Compression::Lz4 {
        codec::decompress_lz4_magic_0(payload, bytes_max)
            .map_err(|failure| failure.on(compression, payload.len(), bytes_max))
    } else {
        codec::decompress(compression, payload, bytes_max)
    }
}

/// Checks the messages inside a wrapper; the offset that the last of them carries.
fn check_inner(outer: &Fields<'_>, plain: &[u8]) -> Result<i64, Error> {
    let offset = outer.offset;
    let damaged = |what| Error::Damaged { offset, what };
    let mut rest = plain;
    let mut last = None;
    while !rest.is_empty() {
        let inner = Fields::take(&mut rest)?;
        if inner.compression != Compression::None {
            return Err(damaged("a message inside is compressed again"));
        }
        if inner.magic != outer.magic {
            return Err(damaged("a message inside has another format"));
        }
        if last.is_some_and(|last| inner.offset <= last) {
            return Err(damaged("offsets inside do not grow"));
        }
        last = Some(inner.offset);
    }
    last.ok_or_else(|| damaged("nothing is inside"))
}

/// The records of one message of the log.
///
/// # Invariants
/// `plain` is a set of well-formed, uncompressed messages.
#[derive(Debug, Clone)]
pub struct Unpacked {
    plain: Bytes,
    /// What is added to each message's own offset.
    base_offset: i64,
    /// The wrapper's time, where the broker set it.
    append_time: Option<i64>,
}

impl Unpacked {
    /// The records in order; with [`Times::Written`], those inside an append-time wrapper have their producer's times.
    pub fn records(&self, times: Times) -> Records<'_> {
        let append_time = self.append_time.filter(|_| times == Times::Shown);
        Records {
            rest: &self.plain,
            base_offset: self.base_offset,
            append_time,
        }
    }
}

/// Walks the records of a message. After an error nothing follows.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    base_offset: i64,
    append_time: Option<i64>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let fields = match Fields::take(&mut self.rest) {
            Ok(fields) => fields,
            Err(error) => {
                self.rest = &[];
                return Some(Err(error));
            }
        };
        Some(Ok(Record {
            offset: self.base_offset.saturating_add(fields.offset),
            timestamp: self.append_time.unwrap_or(fields.timestamp),
            key: fields.key,
            value: fields.value,
            headers: Headers::EMPTY,
        }))
    }
}

#[cfg(test)]
mod tests;
