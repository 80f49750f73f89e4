//! One batch that is too large for the target into several that are not.

use super::{Error, Options, next_limit};
use crate::batch::Batch;
use crate::build::{self, Push};
use crate::codec::Compression;
use crate::header::HEADER_BYTES;
use crate::records::Records;
use crate::records::encoding::body_bytes;

/// A piece of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The batch to send.
    pub batch: Batch,
    /// Source offset below which all is accounted for once this and the pieces before it are delivered.
    pub next_offset: i64,
}

/// The records of `batch` in as many batches as it takes for each to have at most `bytes_max` bytes, compressed.
/// Empty if the batch has no records.
///
/// # Errors
/// [`Error::RecordTooLarge`] names the first record that does not fit alone; otherwise as [`super::keep`].
pub fn split_to_fit(
    batch: &Batch,
    bytes_max: usize,
    options: &Options,
) -> Result<Vec<Part>, Error> {
    let unpacked = options.open(batch)?;
    let compression = batch.header().attributes.compression();
    let mut plain_max = next_limit(unpacked.plain_bytes(), batch.size_bytes(), bytes_max);
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = unpacked.records();
    loop {
        let from = rest.clone();
        let Some(piece) = take(&mut rest, compression, plain_max, options)? else {
            break;
        };
        let batch_bytes = piece.batch.size_bytes();
        let fits = batch_bytes <= bytes_max;
        if !fits && piece.batch.header().record_count == 1 {
            let offset = piece.last_offset;
            return Err(Error::RecordTooLarge {
                offset,
                batch_bytes,
                bytes_max,
            });
        }
        plain_max = next_limit(piece.plain_bytes, batch_bytes, bytes_max);
        if fits {
            parts.push(Part {
                batch: piece.batch,
                next_offset: piece.last_offset + 1,
            });
        } else {
            // At least halved, so that this ends however badly the ratio misleads.
            plain_max = plain_max.min(piece.plain_bytes / 2);
            rest = from;
        }
    }
    if let Some(last) = parts.last_mut() {
        last.next_offset = batch.header().next_offset();
    }
    Ok(parts)
}

struct Piece {
    batch: Batch,
    plain_bytes: usize,
    last_offset: i64,
}

/// Writes records from `rest` until their batch would have more than `plain_max` bytes uncompressed, but at least one;
/// `None` if none are left.
fn take(
    rest: &mut Records<'_>,
    compression: Compression,
    plain_max: usize,
    options: &Options,
) -> Result<Option<Piece>, Error> {
    let mut builder = options.builder(compression, plain_max);
    let mut last_offset = 0;
    loop {
        let before = rest.clone();
        let Some(record) = rest.next().transpose()? else {
            break;
        };
        match builder.push(&record)? {
            Push::Added => last_offset = record.offset,
            Push::Full if builder.is_empty() => {
                let bytes = HEADER_BYTES.saturating_add(body_bytes(&record, 0, 0));
                return Err(build::Error::TooLong { bytes }.into());
            }
            Push::Full => {
                *rest = before;
                break;
            }
        }
    }
    let plain_bytes = builder.plain_batch_bytes();
    let batch = builder.finish()?;
    Ok(batch.map(|batch| Piece {
        batch,
        plain_bytes,
        last_offset,
    }))
}
