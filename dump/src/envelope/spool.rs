//! Finished bytes of a file, until they are taken.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};

/// Length of a block, in bytes; what is written at once and is longer is a block of its own.
const BLOCK_BYTES: usize = 256 << 10;

/// Collects bytes in blocks, so that nothing is moved as it grows.
#[derive(Debug, Default)]
pub(super) struct Spool {
    finished: Vec<Bytes>,
    current: BytesMut,
}

impl Spool {
    /// Everything so far.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.end_block();
        std::mem::take(&mut self.finished)
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.finished.iter().map(Bytes::len).sum::<usize>() + self.current.capacity()
    }

    fn end_block(&mut self) {
        if !self.current.is_empty() {
            let block = std::mem::take(&mut self.current);
            self.finished.push(block.freeze());
        }
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() >= BLOCK_BYTES {
            self.end_block();
            self.finished.push(Bytes::copy_from_slice(bytes));
            return Ok(bytes.len());
        }
        if self.current.len() + bytes.len() > BLOCK_BYTES {
            self.end_block();
        }
        self.current.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
