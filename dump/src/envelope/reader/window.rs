//! A part of a file that is in memory, at its place.

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};

/// The bytes of a file from `at` on; nothing else of it can be read.
#[derive(Debug, Clone)]
pub(super) struct Window {
    at: u64,
    bytes: Bytes,
    file_bytes: u64,
}

impl Window {
    pub(super) fn new(at: u64, bytes: Bytes, file_bytes: u64) -> Self {
        Self {
            at,
            bytes,
            file_bytes,
        }
    }

    fn from(&self, start: u64) -> Result<Bytes> {
        let at = start.checked_sub(self.at);
        let at = at.and_then(|at| usize::try_from(at).ok());
        match at.filter(|at| *at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF(format!(
                "byte {start} is not in this row group"
            ))),
        }
    }
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Window {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            let text = format!("{length} bytes at {start} are not in this row group");
            return Err(ParquetError::EOF(text));
        }
        Ok(bytes.slice(..length))
    }
}
