//! Zstandard frames.

use std::io;

use super::{Failure, read_bounded};

/// Largest window that is accepted, as a power of two: 128 MiB, what every level up to 22 stays within and what the
/// reference decoder and Kafka's accept by default.
const WINDOW_LOG_MAX: u32 = 27;

pub(super) fn decompress(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut decoder =
        zstd::stream::read::Decoder::with_buffer(payload).map_err(Failure::Damaged)?;
    decoder
        .window_log_max(WINDOW_LOG_MAX)
        .map_err(Failure::Damaged)?;
    read_bounded(decoder, payload.len(), bytes_max)
}

pub(super) fn compress(plain: &[u8], level: i32, out: &mut Vec<u8>) -> io::Result<()> {
    if !zstd::compression_level_range().contains(&level) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "zstd level is out of range",
        ));
    }
    out.extend_from_slice(&zstd::bulk::compress(plain, level)?);
    Ok(())
}
