//! A reader of the history.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch as channel;

use super::Inner;
use crate::api::{Error, Result, Revision, Watch, WatchEvent};

/// A place in the history, and the signal that it grew.
#[derive(Debug)]
pub(super) struct EmbeddedWatch {
    inner: Arc<Inner>,
    prefix: String,
    next: Revision,
    revision: channel::Receiver<Revision>,
}

impl EmbeddedWatch {
    pub(super) fn open(inner: Arc<Inner>, prefix: &str, from: Revision) -> Result<Self> {
        let mut watch = Self {
            revision: inner.revision.subscribe(),
            inner,
            prefix: prefix.to_owned(),
            next: from.max(Revision(1)),
        };
        // Refuses a revision that is gone; what is found stays in the history for `next`.
        watch.inner.read().since(watch.next, &watch.prefix)?;
        watch.revision.mark_changed();
        Ok(watch)
    }
}

#[async_trait]
impl Watch for EmbeddedWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        loop {
            self.revision
                .changed()
                .await
                .map_err(|_| Error::Unavailable("the embedded store was closed".to_owned()))?;
            let batch = self.inner.read().since(self.next, &self.prefix)?;
            self.next = batch.next;
            if !batch.events.is_empty() {
                // More may wait beyond this batch.
                self.revision.mark_changed();
                return Ok(batch.events);
            }
        }
    }
}
