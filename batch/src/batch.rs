//! One whole batch: a slice of the answer it came in, with its header read once.

use bytes::Bytes;

use crate::header::{self, BatchHeader, CHECKED_FROM, HEADER_BYTES, Shape};

/// Why bytes are not one whole, undamaged batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header is wrong.
    #[error(transparent)]
    Header(#[from] header::Error),
    /// The header says another size than the bytes have.
    #[error("batch at offset {base_offset} says {said} bytes, has {have}")]
    Size {
        /// Base offset of the batch.
        base_offset: i64,
        /// Size by its header, bytes.
        said: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The batch was damaged on its way or at rest.
    #[error(
        "batch at offsets [{base_offset}, {next_offset}) is damaged: checksum {said:#010x} in it, {computed:#010x} of it"
    )]
    Checksum {
        /// First offset of the damaged range.
        base_offset: i64,
        /// End of the damaged range, exclusive; only as good as the damaged header.
        next_offset: i64,
        /// CRC32C as written in the header.
        said: u32,
        /// CRC32C of the bytes.
        computed: u32,
    },
}

/// A version 2 batch: header and payload in one slice of shared memory.
///
/// # Invariants
/// `bytes` is exactly as long as the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// Takes `bytes` as exactly one batch.
    ///
    /// # Errors
    /// When the header is wrong or says another size. The checksum is left to [`Batch::verify`].
    pub fn parse(bytes: Bytes) -> Result<Self, Error> {
        let header = BatchHeader::parse(&bytes)?;
        if header.size_bytes() != bytes.len() {
            return Err(Error::Size {
                base_offset: header.base_offset,
                said: header.size_bytes(),
                have: bytes.len(),
            });
        }
        Ok(Self { header, bytes })
    }

    /// A batch that was just written, whose header is known to fit its bytes.
    pub(crate) fn assemble(header: BatchHeader, bytes: Bytes) -> Self {
        assert_eq!(
            header.size_bytes(),
            bytes.len(),
            "header and bytes of {header:?}"
        );
        Self { header, bytes }
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// What the header tells about the way the batch can take.
    pub fn shape(&self) -> Shape {
        self.header.shape()
    }

    /// The whole batch as it is in the log.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of the whole batch.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What follows the header: the records, compressed or not. Shares memory with the batch.
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }

    /// Checks the CRC32C over everything that it covers, reading the whole payload.
    ///
    /// # Errors
    /// [`Error::Checksum`] when the bytes are not those that were written.
    pub fn verify(&self) -> Result<(), Error> {
        let computed = checksum(&self.bytes);
        if computed == self.header.crc {
            return Ok(());
        }
        Err(Error::Checksum {
            base_offset: self.header.base_offset,
            next_offset: self.header.next_offset(),
            said: self.header.crc,
            computed,
        })
    }
}

/// CRC32C of a batch's bytes from the attributes to the end.
pub(crate) fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(CHECKED_FROM..).unwrap_or_default())
}
