//! A file being written.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use hdfs_native::file::FileWriter as Inner;
use kreplicator_model::dump::path::StorePath;

use super::{
    super::{FileWriter, Kind, Result},
    Shared,
    fault::{Cause, Effect, Fault},
    file_length,
    link::guarded,
};

/// What is handed to the library at once, each with a deadline of its own: so that a large write over a slow network
/// is not cut off while it goes on.
const PIECE_BYTES: usize = 4 << 20;

/// A file of HDFS. The library holds up to 13 MB of it that DataNodes have not acknowledged.
pub(super) struct HdfsWriter {
    shared: Arc<Shared>,
    path: StorePath,
    /// None: it was closed, or was given up.
    inner: Option<Inner>,
    /// Whether the NameNode takes it for open, as far as we know.
    is_open: bool,
    /// Bytes taken so far.
    written: u64,
}

impl fmt::Debug for HdfsWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HdfsWriter")
            .field("path", &self.path)
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}

impl HdfsWriter {
    pub(super) fn new(shared: Arc<Shared>, path: StorePath, inner: Inner) -> Self {
        Self {
            shared,
            path,
            inner: Some(inner),
            is_open: true,
            written: 0,
        }
    }

    /// Where a call fails or is cut off, what was taken is dropped, and so it is given up.
    fn take(&mut self) -> Result<Inner> {
        self.inner.take().ok_or_else(|| {
            self.shared.error(
                Some(&self.path),
                Fault {
                    kind: Kind::Other,
                    cause: Cause::Other,
                    text: "an earlier write has failed; another file has to be written".to_owned(),
                },
            )
        })
    }

    fn give_up(&mut self) {
        let inner = self.inner.take();
        if std::mem::take(&mut self.is_open) {
            self.shared.abandon(&self.path, inner);
        }
    }
}

/// Bytes that still fit into the last block of a file of `written` bytes, at least one.
fn room(written: u64, block_bytes: u64) -> usize {
    match block_bytes {
        0 => PIECE_BYTES,
        block => usize::try_from(block - written % block).unwrap_or(PIECE_BYTES),
    }
}

impl HdfsWriter {
    async fn append(&mut self, inner: &mut Inner, mut bytes: Bytes) -> Result<(), Fault> {
        let deadline = self.shared.settings.data_deadline;
        while !bytes.is_empty() {
            let block_bytes = self.shared.block_bytes.load(Ordering::Relaxed);
            let room = room(self.written, block_bytes).min(PIECE_BYTES);
            let piece = bytes.split_to(bytes.len().min(room));
            self.written += u64::try_from(piece.len()).expect("a piece is small");
            let writing = Box::pin(inner.write_bytes(piece));
            guarded(deadline, Effect::Change, writing).await?;
            if block_bytes > 0 && self.written.is_multiple_of(block_bytes) {
                self.sync(inner).await?;
            }
        }
        Ok(())
    }

    /// Has the DataNodes bring the block that is being written to their disks. They do not do that for a file that is
    /// closed (`dfs.datanode.synconclose`), so that a power failure would take what a checkpoint has passed.
    ///
    /// Under the shorter deadline: where a DataNode fails while it is waited for, the library waits for ever
    /// (`Pipeline::shutdown`: for a task that waits for packets, whose sender it holds).
    async fn sync(&self, inner: &mut Inner) -> Result<(), Fault> {
        let deadline = self.shared.settings.deadline;
        let syncing = Box::pin(inner.hsync());
        match guarded(deadline, Effect::Change, syncing).await {
            // The library cannot do it for erasure-coded files.
            Err(fault) if fault.text.contains("erasure-coded") => Ok(()),
            done => done,
        }
    }

    async fn finish(&mut self, inner: &mut Inner) -> Result<(), Fault> {
        if self.written > 0 {
            self.sync(inner).await?;
        }
        let deadline = self.shared.settings.data_deadline;
        let closing = Box::pin(inner.close());
        guarded(deadline, Effect::Change, closing).await
    }
}

#[async_trait]
impl FileWriter for HdfsWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let mut inner = self.take()?;
        if let Err(fault) = self.append(&mut inner, bytes).await {
            drop(inner);
            self.give_up();
            return Err(self.shared.error(Some(&self.path), fault));
        }
        self.inner = Some(inner);
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<u64> {
        let mut inner = self.take()?;
        let closed = self.finish(&mut inner).await;
        drop(inner);
        if let Err(fault) = closed {
            self.give_up();
            return Err(self.shared.error(Some(&self.path), fault));
        }
        self.is_open = false;
        let status = self.shared.status(&self.path).await;
        let status = status.map_err(|fault| self.shared.error(Some(&self.path), fault))?;
        if let Some(status) = &status {
            // Changed by being closed, just now.
            self.shared.clock.learn(status.modification_time);
            let block_bytes = status.blocksize.unwrap_or(0);
            self.shared
                .block_bytes
                .store(block_bytes, Ordering::Relaxed);
        }
        status.as_ref().and_then(file_length).ok_or_else(|| {
            self.shared.error(
                Some(&self.path),
                Fault {
                    kind: Kind::Missing,
                    cause: Cause::Absent,
                    text: "was closed and is not there; has somebody deleted it?".to_owned(),
                },
            )
        })
    }
}

impl Drop for HdfsWriter {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_blocks_do() {
        assert_eq!(room(0, 0), PIECE_BYTES, "not known yet");
        assert_eq!(room(0, 1_000), 1_000);
        assert_eq!(room(999, 1_000), 1);
        assert_eq!(room(1_000, 1_000), 1_000);
        assert_eq!(room(2_500, 1_000), 500);
    }
}
