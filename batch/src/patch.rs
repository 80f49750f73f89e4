//! A new header for a payload that is passed on unopened.
//!
//! The target must see base offset 0, no leader epoch, none of the source's producer fields and no bit but the
//! codec's. All that is in the header; the checksum covers header and payload together, but since a CRC is linear,
//! the change of the header's part alone gives the new one. The payload is not read, and if it was damaged on its
//! way, the new checksum is as wrong as the old one was, so that the target still refuses it.
//!
//! # Source
//! Kafka 4.3 `LogValidator` and `UnifiedLog.analyzeAndValidateRecords`: what a broker refuses.

use bytes::Bytes;

use crate::batch::Batch;
use crate::header::{
    ATTRIBUTES_AT, Attributes, BASE_SEQUENCE_AT, CHECKED_FROM, CRC_AT, HEADER_BYTES,
    LEADER_EPOCH_AT, NO_LEADER_EPOCH, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, Producer,
};

/// Why a batch cannot be passed on as data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Without its control bit a marker would become a record.
    #[error("batch at offset {base_offset} is a control batch; drop it, do not send it")]
    Control {
        /// Base offset of the batch.
        base_offset: i64,
    },
}

/// A batch to send: a new header in front of the payload as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// The header to send.
    pub header: [u8; HEADER_BYTES],
    /// What follows it; shares memory with the source batch.
    pub payload: Bytes,
}

impl Patched {
    /// Bytes of header and payload.
    pub fn size_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// Header and payload in one piece, copied.
    pub fn to_bytes(&self) -> Bytes {
        [&self.header[..], &self.payload].concat().into()
    }
}

/// The batch as `producer` sends it to another cluster, at `base_offset` (0 for a broker).
///
/// Attributes other than the codec are cleared: timestamps become the producer's own (the records' deltas count from
/// the base timestamp whatever the type), transaction and delete horizon stay behind.
///
/// # Errors
/// [`Error::Control`] for a control batch.
pub fn patch(batch: &Batch, base_offset: i64, producer: Producer) -> Result<Patched, Error> {
    let shape = batch.shape();
    if shape.is_control() {
        return Err(Error::Control {
            base_offset: batch.header().base_offset,
        });
    }
    let old = batch
        .bytes()
        .first_chunk::<HEADER_BYTES>()
        .expect("a batch is longer than its header");
    let mut header = *old;
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &base_offset.to_be_bytes());
    put(LEADER_EPOCH_AT, &NO_LEADER_EPOCH.to_be_bytes());
    let bits = shape.attributes.bits() & Attributes::COMPRESSION;
    put(ATTRIBUTES_AT, &bits.to_be_bytes());
    put(PRODUCER_ID_AT, &producer.id.to_be_bytes());
    put(PRODUCER_EPOCH_AT, &producer.epoch.to_be_bytes());
    put(BASE_SEQUENCE_AT, &producer.base_sequence.to_be_bytes());

    let payload = batch.payload();
    let crc = moved_checksum(batch.header().crc, old, &header, payload.len());
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    Ok(Patched { header, payload })
}

/// The checksum of `new` in front of the payload of which `crc` is the checksum together with `old`.
///
/// With `s` = "shifted by the payload's length", `crc = s(crc(old)) ^ crc(payload)`; `s` is linear, so the new one
/// is `crc ^ s(crc(old) ^ crc(new))`.
fn moved_checksum(
    crc: u32,
    old: &[u8; HEADER_BYTES],
    new: &[u8; HEADER_BYTES],
    payload_bytes: usize,
) -> u32 {
    let change = crc32c::crc32c(&old[CHECKED_FROM..]) ^ crc32c::crc32c(&new[CHECKED_FROM..]);
    crc ^ crc32c::crc32c_combine(change, 0, payload_bytes)
}

#[cfg(test)]
mod tests;
