//! The compressions of Kafka, each with a limit on what comes out.
//!
//! A small payload can unfold to gigabytes, so every decoder counts while it inflates and stops at the limit; none
//! believes a size that the payload states before it has been compared with that limit.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::fmt;
use std::io::{self, Read};

pub(crate) use lz4::decompress_magic_0 as decompress_lz4_magic_0;

/// Why bytes cannot be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More comes out than is allowed.
    #[error(
        "{compression} payload of {payload_bytes} bytes unfolds to more than {bytes_max} bytes"
    )]
    TooLarge {
        /// How it is compressed.
        compression: Compression,
        /// Compressed size.
        payload_bytes: usize,
        /// The limit, inclusive.
        bytes_max: usize,
    },
    /// The payload is not what its codec writes.
    #[error("{compression} payload of {payload_bytes} bytes is damaged")]
    Damaged {
        /// How it says it is compressed.
        compression: Compression,
        /// Compressed size.
        payload_bytes: usize,
        /// What the codec found.
        source: io::Error,
    },
    /// The codec refused to compress.
    #[error("cannot compress {plain_bytes} bytes with {compression}; check its level")]
    Compress {
        /// The codec.
        compression: Compression,
        /// Size of what was to be compressed.
        plain_bytes: usize,
        /// What the codec said.
        source: io::Error,
    },
}

/// How a payload is compressed.
///
/// # Source
/// Kafka's `CompressionType`; the codes are the low three bits of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks in the frames of xerial's `snappy-java`; one bare block is read too.
    Snappy,
    /// LZ4 frames with independent blocks.
    Lz4,
    /// RFC 8878; only in version 2 batches.
    Zstd,
}

impl Compression {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The compression with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The code in the attributes, `0..=4`.
    pub fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// How hard the codecs that have levels try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// 0 (stored), 1 (fast) to 9 (small).
    pub gzip: u32,
    /// 1 (fast) to 22 (small); negative ones are faster still.
    pub zstd: i32,
}

impl Default for Levels {
    /// What Kafka's producer takes when nothing is set: gzip 6, zstd 3.
    fn default() -> Self {
        Self { gzip: 6, zstd: 3 }
    }
}

/// What `payload` unfolds to, at most `bytes_max` bytes.
///
/// Takes memory for what comes out and at most as much again while it grows, beside the codec's own window (lz4: up
/// to 8 MiB, zstd: up to 128 MiB of address space).
///
/// # Errors
/// When the payload is damaged or unfolds to more.
pub fn decompress(
    compression: Compression,
    payload: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, Error> {
    let outcome = match compression {
        Compression::None if payload.len() > bytes_max => Err(Failure::TooLarge),
        Compression::None => Ok(payload.to_vec()),
        Compression::Gzip => gzip::decompress(payload, bytes_max),
        Compression::Snappy => snappy::decompress(payload, bytes_max),
        Compression::Lz4 => lz4::decompress(payload, bytes_max),
        Compression::Zstd => zstd::decompress(payload, bytes_max),
    };
    outcome.map_err(|failure| failure.on(compression, payload.len(), bytes_max))
}

/// Appends `plain`, compressed, to `out`.
///
/// # Errors
/// When the codec does not know the level.
pub fn compress(
    compression: Compression,
    levels: Levels,
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let outcome = match compression {
        Compression::None => {
            out.extend_from_slice(plain);
            Ok(())
        }
        Compression::Gzip => gzip::compress(plain, levels.gzip, out),
        Compression::Snappy => snappy::compress(plain, out),
        Compression::Lz4 => lz4::compress(plain, out),
        Compression::Zstd => zstd::compress(plain, levels.zstd, out),
    };
    let plain_bytes = plain.len();
    outcome.map_err(|source| Error::Compress {
        compression,
        plain_bytes,
        source,
    })
}

/// What a single codec reports; [`Failure::on`] adds the rest.
#[derive(Debug)]
pub(crate) enum Failure {
    TooLarge,
    Damaged(io::Error),
}

impl Failure {
    fn damaged(what: &'static str) -> Self {
        Self::Damaged(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    pub(crate) fn on(
        self,
        compression: Compression,
        payload_bytes: usize,
        bytes_max: usize,
    ) -> Error {
        match self {
            Self::TooLarge => Error::TooLarge {
                compression,
                payload_bytes,
                bytes_max,
            },
            Self::Damaged(source) => Error::Damaged {
                compression,
                payload_bytes,
                source,
            },
        }
    }
}

/// Reads to the end, but not beyond `bytes_max`. `payload_bytes` only guesses how much will come.
fn read_bounded(
    reader: impl Read,
    payload_bytes: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, Failure> {
    let guess = payload_bytes
        .saturating_mul(3)
        .clamp(512, 1 << 20)
        .min(bytes_max);
    let mut out = Vec::with_capacity(guess);
    // One byte more than allowed tells "at the limit" from "beyond it".
    let limit = u64::try_from(bytes_max)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut out)
        .map_err(Failure::Damaged)?;
    if out.len() > bytes_max {
        return Err(Failure::TooLarge);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
