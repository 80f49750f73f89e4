//! A Fetch answer into whole batches, each a slice of it.
//!
//! A broker cuts its answer at a number of bytes, so the last batch is often not whole: that is reported with the
//! size it needs, for the next request. A damaged header is an error that says where, and whether the walk can go on
//! behind it.
//!
//! # Source
//! Kafka 4.3 `ByteBufferLogInputStream.nextBatch`; all formats share offset, length and the place of the magic byte.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::batch::{self, Batch};
use crate::header::{LENGTH_AT, MAGIC_AT, OVERHEAD_BYTES};
use crate::legacy::{self, Message};
use crate::wire::{array, i32_at, i64_at};

/// What stands next in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A whole batch of format 2.
    Batch(Batch),
    /// A whole message of format 0 or 1, perhaps one with others inside.
    Message(Message),
    /// The cut-off rest; nothing follows.
    Partial(Partial),
}

/// A batch that the answer holds only the beginning of: normal at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes there are, `≥ 1`.
    pub bytes_have: usize,
    /// Bytes of the whole batch, if the answer reaches that far; up to 2 GiB, so compare with a limit before asking.
    pub bytes_needed: Option<usize>,
}

/// Why an entry cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The length is smaller than any batch: where the next one begins is unknown.
    #[error(
        "entry at offset {offset} (byte {position}) has impossible length {length}; the rest cannot be read"
    )]
    Length {
        /// First eight bytes of the entry.
        offset: i64,
        /// Where in the answer the entry begins.
        position: usize,
        /// Its length field.
        length: i32,
    },
    /// The batch is wrong; the walk goes on behind it.
    #[error("unreadable batch of {bytes} bytes at byte {position}")]
    Batch {
        /// Where in the answer it begins.
        position: usize,
        /// Its size.
        bytes: usize,
        /// What is wrong.
        source: batch::Error,
    },
    /// The message is wrong; the walk goes on behind it.
    #[error("unreadable message of {bytes} bytes at byte {position}")]
    Message {
        /// Where in the answer it begins.
        position: usize,
        /// Its size.
        bytes: usize,
        /// What is wrong.
        source: legacy::Error,
    },
}

/// Least length of any format: checksum, magic, attributes, key and value of an empty message of format 0.
const LENGTH_MIN: i32 = 14;

/// Walks the entries of an answer.
#[derive(Debug, Clone)]
pub struct Entries {
    rest: Bytes,
    position: usize,
}

/// The entries of `answer`, in order; none of their bytes is copied.
pub fn entries(answer: Bytes) -> Entries {
    Entries {
        rest: answer,
        position: 0,
    }
}

impl Entries {
    fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    fn partial(&mut self, bytes_needed: Option<usize>) -> Entry {
        let bytes_have = self.end().len();
        Entry::Partial(Partial {
            bytes_have,
            bytes_needed,
        })
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (Some(offset), Some(length)) = (i64_at(&self.rest, 0), i32_at(&self.rest, LENGTH_AT))
        else {
            return Some(Ok(self.partial(None)));
        };
        let position = self.position;
        let length_bytes = match usize::try_from(length) {
            Ok(bytes) if length >= LENGTH_MIN => bytes,
            _ => {
                self.end();
                return Some(Err(Error::Length {
                    offset,
                    position,
                    length,
                }));
            }
        };
        let bytes = OVERHEAD_BYTES + length_bytes;
        if self.rest.len() < bytes {
            return Some(Ok(self.partial(Some(bytes))));
        }
        let entry = self.rest.split_to(bytes);
        self.position += bytes;
        let [magic] = array(&entry, MAGIC_AT).unwrap_or([0]);
        if matches!(magic, 0 | 1) {
            let message = Message::parse(entry);
            let fail = |source| Error::Message {
                position,
                bytes,
                source,
            };
            return Some(message.map(Entry::Message).map_err(fail));
        }
        let fail = |source| Error::Batch {
            position,
            bytes,
            source,
        };
        Some(Batch::parse(entry).map(Entry::Batch).map_err(fail))
    }
}

impl FusedIterator for Entries {}

#[cfg(test)]
mod tests;
