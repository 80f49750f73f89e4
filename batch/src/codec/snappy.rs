//! Snappy in the two shapes that Kafka's clients write: blocks framed by xerial's `snappy-java`, or one bare block.
//!
//! # Source
//! `SnappyOutputStream` and `SnappyInputStream` of snappy-java: a header of 16 bytes (magic, version 1, compatible
//! version 1), then blocks, each behind its size as a big-endian `i32`. Streams joined to one repeat the header.

use std::io;

use super::Failure;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
/// The writer's block size in snappy-java; readers take any.
const BLOCK_BYTES: usize = 32 * 1024;

pub(super) fn decompress(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    if !payload.starts_with(&MAGIC) {
        block(payload, bytes_max, &mut out)?;
        return Ok(out);
    }
    let mut rest = payload;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest = rest.get(HEADER_BYTES..).ok_or_else(cut_off)?;
            continue;
        }
        let (size, after) = rest.split_first_chunk().ok_or_else(cut_off)?;
        let size = usize::try_from(i32::from_be_bytes(*size))
            .map_err(|_| Failure::damaged("negative block size"))?;
        let (compressed, after) = after.split_at_checked(size).ok_or_else(cut_off)?;
        block(compressed, bytes_max, &mut out)?;
        rest = after;
    }
    Ok(out)
}

/// Appends what one bare block unfolds to.
fn block(compressed: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let damaged = |error: snap::Error| Failure::Damaged(error.into());
    let size = snap::raw::decompress_len(compressed).map_err(damaged)?;
    // The densest snappy can do is 64 bytes from three, so a larger size is a lie and no reason to take memory.
    if size > compressed.len().saturating_mul(22) {
        return Err(Failure::damaged(
            "stated size is beyond what snappy can reach",
        ));
    }
    let from = out.len();
    let to = from.saturating_add(size);
    if to > bytes_max {
        return Err(Failure::TooLarge);
    }
    out.resize(to, 0);
    let written = snap::raw::Decoder::new().decompress(compressed, &mut out[from..]);
    out.truncate(from + written.map_err(damaged)?);
    Ok(())
}

fn cut_off() -> Failure {
    Failure::damaged("block is cut off")
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for chunk in plain.chunks(BLOCK_BYTES) {
        let size_at = out.len();
        let from = size_at + 4;
        out.resize(from + snap::raw::max_compress_len(chunk.len()), 0);
        let written = encoder.compress(chunk, &mut out[from..])?;
        out.truncate(from + written);
        let size = i32::try_from(written).map_err(io::Error::other)?;
        out[size_at..from].copy_from_slice(&size.to_be_bytes());
    }
    Ok(())
}
