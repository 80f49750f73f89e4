//! What a control batch says: how a transaction ended.
//!
//! # Source
//! Kafka 4.3 `ControlRecordType` and `EndTransactionMarker`; KIP-98.

use crate::batch::Batch;
use crate::records::{self, Unpacked};
use crate::wire::{i16_at, i32_at};

/// More than any marker takes; control batches are written uncompressed.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Why a control batch cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The batch holds data.
    #[error("batch at offset {base_offset} is no control batch")]
    NotControl {
        /// Base offset of the batch.
        base_offset: i64,
    },
    /// Its record cannot be read.
    #[error("control batch cannot be read")]
    Records(#[from] records::Error),
    /// Its record has no type.
    #[error("control batch at offset {base_offset} has no record with a type")]
    Untyped {
        /// Base offset of the batch.
        base_offset: i64,
    },
}

/// What the record of a control batch means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The producer's transaction was given up: none of its records may be seen.
    Abort {
        /// Epoch of the transaction coordinator that wrote the marker; `None` where the value does not hold it.
        coordinator_epoch: Option<i32>,
    },
    /// The producer's transaction was committed.
    Commit {
        /// As for an abort.
        coordinator_epoch: Option<i32>,
    },
    /// Another kind, which is none of a mirror's business (the log of the controllers has some).
    Other {
        /// The type as written.
        code: i16,
    },
}

/// Reads the first record of a control batch; there is never a second.
///
/// # Errors
/// When `batch` is no control batch or cannot be read.
pub fn parse(batch: &Batch) -> Result<Control, Error> {
    let base_offset = batch.header().base_offset;
    if !batch.shape().is_control() {
        return Err(Error::NotControl { base_offset });
    }
    let unpacked = Unpacked::open(batch, CONTROL_BYTES_MAX)?;
    let record = unpacked
        .records()
        .next()
        .ok_or(Error::Untyped { base_offset })??;
    // Key: version and type. A newer version may add to it, but keeps what is there.
    let code = record
        .key
        .and_then(|key| i16_at(key, 2))
        .ok_or(Error::Untyped { base_offset })?;
    // Value: version, then the coordinator's epoch.
    let coordinator_epoch = record.value.and_then(|value| i32_at(value, 2));
    Ok(match code {
        0 => Control::Abort { coordinator_epoch },
        1 => Control::Commit { coordinator_epoch },
        code => Control::Other { code },
    })
}
