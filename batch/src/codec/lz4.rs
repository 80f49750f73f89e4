//! LZ4 frames with independent blocks, the only ones that Kafka's Java reader takes.
//!
//! Producers of message format 0 computed the frame header's checksum over the magic number too; such payloads are
//! read by putting the right checksum in its place.
//!
//! # Source
//! The LZ4 frame format 1.6; Kafka's `Lz4BlockInputStream` and `Lz4BlockOutputStream` (KIP-57).

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::{Failure, read_bounded};

const MAGIC_BYTES: usize = 4;
const FLAG_CONTENT_SIZE: u8 = 1 << 3;
const FLAG_DICTIONARY: u8 = 1;

pub(super) fn decompress(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    read_bounded(FrameDecoder::new(payload), payload.len(), bytes_max)
}

/// As [`super::decompress`], for the payload of a message of format 0, whatever its header checksum.
pub(crate) fn decompress_magic_0(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let flags = *payload.get(MAGIC_BYTES).ok_or_else(cut_off)?;
    let optional_bytes = if flags & FLAG_CONTENT_SIZE == 0 { 0 } else { 8 }
        + if flags & FLAG_DICTIONARY == 0 { 0 } else { 4 };
    let checksum_at = MAGIC_BYTES + 2 + optional_bytes;
    let (header, blocks) = payload
        .split_at_checked(checksum_at + 1)
        .ok_or_else(cut_off)?;
    let mut mended = header.to_vec();
    let checksum = XxHash32::oneshot(0, &header[MAGIC_BYTES..checksum_at]);
    mended[checksum_at] = checksum.to_be_bytes()[2];
    read_bounded(
        FrameDecoder::new((&mended[..]).chain(blocks)),
        payload.len(),
        bytes_max,
    )
}

fn cut_off() -> Failure {
    Failure::damaged("frame header is cut off")
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    // Blocks of 64 KiB as the Java producer writes them: every reader has memory for those.
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB)
        .content_checksum(false);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(plain)?;
    encoder.finish().map_err(io::Error::other)?;
    Ok(())
}
