//! Everything under a prefix, kept up to date: a snapshot at one revision, then a watch from the next,
//! and a full read again after any error, after compaction, when the revision went back and, to be
//! safe from events that never came, on a timer (C051 to C055).
//!
//! A background task follows the store; the consumer takes differences with [`View::next`] at its own
//! pace. What waits for it is merged key by key, so it holds each changed key once, however slow the
//! consumer is.

mod follow;
mod pending;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    api::{Entry, Key, MetaStore, Revision},
    backoff::Backoff,
};
use follow::Follower;
use pending::{Pending, Shared};

/// How a view is kept true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewOptions {
    /// Time between full reads that check the view; each wait differs by up to a tenth.
    pub resync_interval: Duration,
    /// How long the watch may take to catch up with such a read before a difference counts as drift.
    pub drift_grace: Duration,
    /// Waits between attempts while the store is away.
    pub backoff: Backoff,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self {
            resync_interval: Duration::from_secs(300),
            drift_grace: Duration::from_secs(2),
            backoff: Backoff::default(),
        }
    }
}

/// One key that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// What the view held; None: nothing.
    pub before: Option<Entry>,
    /// What it holds now; None: deleted.
    pub after: Option<Entry>,
}

/// What changed since the delta before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The view was read in full: steps in between may have been missed, so events that a watch
    /// would have shown (a key deleted and made again) may be merged into one change.
    pub reset: bool,
    /// Real differences only, in the order of their keys. Empty only when `reset` is set.
    pub changes: Vec<Change>,
}

/// Whether a view follows the store.
#[derive(Debug, Clone)]
pub struct Health {
    /// The watch runs.
    pub synced: bool,
    /// The last error since it ran; None while it runs.
    pub error: Option<String>,
    /// When `synced` last changed.
    pub since: Instant,
}

/// A prefix of the store, followed. Dropping it ends its task.
#[derive(Debug)]
pub struct View {
    entries: BTreeMap<Key, Entry>,
    revision: Revision,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

impl View {
    /// Starts to follow `prefix`. Returns at once; the first [`View::next`] gives the first snapshot.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn open(
        store: Arc<dyn MetaStore>,
        prefix: impl Into<String>,
        options: ViewOptions,
        cancel: CancellationToken,
    ) -> Self {
        let shared = Arc::new(Shared::new());
        let follower = Follower::new(store, prefix.into(), options, Arc::clone(&shared));
        let task = tokio::spawn(async move {
            cancel.run_until_cancelled(follower.run()).await;
        });
        Self {
            entries: BTreeMap::new(),
            revision: Revision::default(),
            shared,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// The next differences, already applied to [`View::entries`]. The first delta is the first
    /// snapshot, also when it is empty. Waits for ever once the view is cancelled. Cancel safe.
    pub async fn next(&mut self) -> Delta {
        let shared = Arc::clone(&self.shared);
        loop {
            let changed = shared.changed();
            if let Some(delta) = self.take() {
                return delta;
            }
            changed.await;
        }
    }

    /// The entries as of the last delta taken.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<Key, Entry> {
        &self.entries
    }

    /// The revision of the last delta taken.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether a snapshot was read and the watch behind it runs.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.shared.health().synced
    }

    /// Whether the view follows the store, and what is wrong if not.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Keys that a full read found to differ though the watch ran.
    #[must_use]
    pub fn drift_total(&self) -> u64 {
        self.shared.drift_total()
    }

    /// Takes what waits; None when nothing differs.
    fn take(&mut self) -> Option<Delta> {
        let (pending, revision) = self.shared.take();
        self.revision = self.revision.max(revision);
        match pending {
            Pending::Nothing => None,
            Pending::Changes(changed) => {
                let changes: Vec<Change> = changed
                    .into_iter()
                    .filter_map(|(key, newest)| self.apply(key, newest.entry))
                    .collect();
                (!changes.is_empty()).then_some(Delta {
                    reset: false,
                    changes,
                })
            }
            Pending::Snapshot(snapshot) => {
                // A restored store may have gone back.
                self.revision = revision;
                let gone: Vec<Key> = self
                    .entries
                    .keys()
                    .filter(|key| !snapshot.contains_key(*key))
                    .cloned()
                    .collect();
                let target = snapshot.into_iter().map(|(key, entry)| (key, Some(entry)));
                let mut changes: Vec<Change> = gone
                    .into_iter()
                    .map(|key| (key, None))
                    .chain(target)
                    .filter_map(|(key, after)| self.apply(key, after))
                    .collect();
                changes.sort_by(|a, b| a.key.cmp(&b.key));
                Some(Delta {
                    reset: true,
                    changes,
                })
            }
        }
    }

    /// Brings one key to `after`; None when it was there already.
    fn apply(&mut self, key: Key, after: Option<Entry>) -> Option<Change> {
        let before = match &after {
            Some(entry) if self.entries.get(&key) == Some(entry) => return None,
            Some(entry) => self.entries.insert(key.clone(), entry.clone()),
            None => Some(self.entries.remove(&key)?),
        };
        Some(Change { key, before, after })
    }
}
