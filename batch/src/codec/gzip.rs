//! Gzip, with one member or several behind each other (as Java's reader allows).

use std::io::{self, Read};

use flate2::bufread::{GzEncoder, MultiGzDecoder};

use super::{Failure, read_bounded};

pub(super) fn decompress(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    read_bounded(MultiGzDecoder::new(payload), payload.len(), bytes_max)
}

pub(super) fn compress(plain: &[u8], level: u32, out: &mut Vec<u8>) -> io::Result<()> {
    if level > 9 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "gzip level is not in 0..=9",
        ));
    }
    GzEncoder::new(plain, flate2::Compression::new(level)).read_to_end(out)?;
    Ok(())
}
