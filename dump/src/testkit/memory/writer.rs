//! A file being written.

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_model::dump::path::StorePath;

use super::{MemoryStore, Node, State, error, pause};
use crate::store::{FileWriter, Kind, Result};

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) store: MemoryStore,
    pub(super) path: StorePath,
    pub(super) bytes: Vec<u8>,
    pub(super) crashes: u64,
}

impl Writer {
    /// Shows what was written so far; false: the file is gone, or the store has forgotten who writes it.
    fn show(&self, state: &mut State) -> bool {
        let changed = state.now;
        let is_ours = state.crashes == self.crashes;
        match state.live.get_mut(self.path.as_str()) {
            Some(file @ Node::File { .. }) if is_ours => {
                let bytes = Bytes::from(self.bytes.clone());
                *file = Node::File { bytes, changed };
                state.changes += 1;
                true
            }
            _ => false,
        }
    }
}

#[async_trait]
impl FileWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        pause().await;
        let mut state = self.store.state();
        let torn = state.faults.torn;
        let is_torn = state.random.below(1000) < torn;
        let length = if is_torn {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        self.bytes.extend_from_slice(&bytes[..length]);
        if let Some(kind) = state.refusal {
            return Err(error(kind, &self.path));
        }
        // Copying all of it for each write would take long for large files.
        let is_small = self.bytes.len() < 1 << 20;
        if is_torn || (is_small && !self.show(&mut state)) {
            return Err(error(Kind::Other, &self.path));
        }
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<u64> {
        let (store, path) = (self.store.clone(), self.path.clone());
        store
            .changing("close", &path, None, |state| {
                if self.show(state) {
                    Ok(self.bytes.len() as u64)
                } else {
                    Err(error(Kind::Missing, &self.path))
                }
            })
            .await
    }
}
