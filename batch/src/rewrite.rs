//! Batch in, batch out: where records must go, be parted or be joined, without a change to what stays.
//!
//! What comes out is a batch for a broker: base offset 0, offsets without holes, no producer, each record with its
//! own timestamp, the codec of what went in. [`crate::patch`] gives it a producer.
//!
//! The checksum is not looked at on the way in, and what comes out has a fresh one: call
//! [`Batch::verify`](crate::Batch::verify) first, or damage is passed on as good data.

use crate::BatchBuilder;
use crate::batch::Batch;
use crate::build::{self, Push, Settings};
use crate::codec::{Compression, Levels};
use crate::legacy;
use crate::records::{self, Record, Times, Unpacked};

mod join;
mod split;

pub use join::{Joined, coalesce, upgrade};
pub use split::{Part, split_to_fit};

/// Why a batch cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It holds a marker, no data.
    #[error("batch at offset {base_offset} is a control batch; drop it, do not rewrite it")]
    Control {
        /// Base offset of the batch.
        base_offset: i64,
    },
    /// Its records cannot be read.
    #[error(transparent)]
    Records(#[from] records::Error),
    /// A message of format 0 or 1 cannot be read.
    #[error(transparent)]
    Legacy(#[from] legacy::Error),
    /// No batch can be written.
    #[error("cannot write the batch anew")]
    Build(#[from] build::Error),
    /// A record does not fit even alone.
    #[error(
        "record at offset {offset} makes a batch of {batch_bytes} bytes, limit {bytes_max}; raise the target's max.message.bytes"
    )]
    RecordTooLarge {
        /// Offset of the record at the source.
        offset: i64,
        /// Size of a batch with it alone, compressed.
        batch_bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

/// How batches are opened and written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Limit on the records of one opened batch, bytes.
    pub plain_bytes_max: usize,
    /// How hard codecs try.
    pub levels: Levels,
    /// Which timestamps records of append-time batches get.
    pub times: Times,
}

impl Options {
    /// Kafka's own levels, and the timestamps that consumers see.
    pub fn new(plain_bytes_max: usize) -> Self {
        Self {
            plain_bytes_max,
            levels: Levels::default(),
            times: Times::Shown,
        }
    }

    fn open(&self, batch: &Batch) -> Result<Unpacked, Error> {
        if batch.shape().is_control() {
            return Err(Error::Control {
                base_offset: batch.header().base_offset,
            });
        }
        Ok(Unpacked::open(batch, self.plain_bytes_max)?.with_times(self.times))
    }

    fn builder(&self, compression: Compression, bytes_max: usize) -> BatchBuilder {
        BatchBuilder::new(Settings {
            levels: self.levels,
            ..Settings::new(compression, bytes_max)
        })
    }
}

/// The batch with only the records for which `keep` says so, in their order; `None` if that is none.
///
/// # Errors
/// When `batch` is a control batch, cannot be read, or cannot be written.
pub fn keep(
    batch: &Batch,
    options: &Options,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<Option<Batch>, Error> {
    let unpacked = options.open(batch)?;
    let mut builder = options.builder(batch.header().attributes.compression(), usize::MAX);
    for record in unpacked.records() {
        let record = record?;
        if keep(&record) {
            add(&mut builder, &record)?;
        }
    }
    Ok(builder.finish()?)
}

/// Which records at the beginning of a batch are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// So many.
    Records(usize),
    /// Those with a smaller offset than this.
    Below(i64),
}

/// The batch without its first records; `None` if none are left.
///
/// # Errors
/// As [`keep()`].
pub fn skip_first(batch: &Batch, skip: Skip, options: &Options) -> Result<Option<Batch>, Error> {
    let mut seen = 0;
    keep(batch, options, |record| match skip {
        Skip::Records(count) => {
            seen += 1;
            seen > count
        }
        Skip::Below(offset) => record.offset >= offset,
    })
}

/// Adds a record to a builder without a limit of its own; only what no batch can hold is refused.
fn add(builder: &mut BatchBuilder, record: &Record<'_>) -> Result<(), Error> {
    match builder.push(record)? {
        Push::Added => Ok(()),
        Push::Full => Err(build::Error::TooLong {
            bytes: builder.plain_batch_bytes(),
        }
        .into()),
    }
}

/// The limit before compression to try next, after `plain_bytes` became `batch_bytes`: what would have met the limit
/// at the same ratio, and a little less.
fn next_limit(plain_bytes: usize, batch_bytes: usize, bytes_max: usize) -> usize {
    let scaled = plain_bytes as f64 * bytes_max as f64 / batch_bytes.max(1) as f64;
    (scaled * 0.95) as usize
}

#[cfg(test)]
mod tests;
