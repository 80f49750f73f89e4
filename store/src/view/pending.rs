//! What a view's task hands to its consumer: the differences not yet taken, merged, and the health.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

use super::Health;
use crate::api::{Entry, Key, Revision, Snapshot, WatchEvent};

/// Differences that wait for the consumer.
#[derive(Debug, Default)]
pub(super) enum Pending {
    /// None.
    #[default]
    Nothing,
    /// The newest value of each key that changed.
    Changes(BTreeMap<Key, Option<Entry>>),
    /// The whole prefix, newest values.
    Snapshot(BTreeMap<Key, Entry>),
}

/// Between the task and the consumer.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Notify,
    drift: AtomicU64,
}

#[derive(Debug)]
struct State {
    pending: Pending,
    revision: Revision,
    health: Health,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                pending: Pending::Nothing,
                revision: Revision::default(),
                health: Health {
                    synced: false,
                    error: None,
                    since: Instant::now(),
                },
            }),
            changed: Notify::new(),
            drift: AtomicU64::new(0),
        }
    }

    // Every critical section below leaves the state whole, so a panic elsewhere cannot tear it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when something was added since it was last awaited.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Hands over what waits and the revision that it is true for.
    pub(super) fn take(&self) -> (Pending, Revision) {
        let mut state = self.state();
        (std::mem::take(&mut state.pending), state.revision)
    }

    /// Replaces whatever waits by a snapshot.
    pub(super) fn put_snapshot(&self, snapshot: Snapshot) {
        let mut state = self.state();
        state.revision = snapshot.revision;
        state.pending = Pending::Snapshot(snapshot.entries);
        drop(state);
        self.changed.notify_one();
    }

    /// Merges events into what waits.
    pub(super) fn put_events(&self, events: Vec<WatchEvent>) {
        let mut state = self.state();
        for event in events {
            state.revision = state.revision.max(event.revision);
            match &mut state.pending {
                Pending::Snapshot(entries) => match event.entry {
                    Some(entry) => drop(entries.insert(event.key, entry)),
                    None => drop(entries.remove(&event.key)),
                },
                Pending::Changes(changes) => drop(changes.insert(event.key, event.entry)),
                Pending::Nothing => {
                    let first = BTreeMap::from([(event.key, event.entry)]);
                    state.pending = Pending::Changes(first);
                }
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn health(&self) -> Health {
        self.state().health.clone()
    }

    /// Whether this changed anything.
    pub(super) fn set_synced(&self) -> bool {
        let mut state = self.state();
        let changed = !state.health.synced;
        if changed {
            state.health = Health {
                synced: true,
                error: None,
                since: Instant::now(),
            };
        }
        changed
    }

    /// Whether the view was in step until now.
    pub(super) fn set_failed(&self, error: String) -> bool {
        let mut state = self.state();
        let was_synced = std::mem::replace(&mut state.health.synced, false);
        if was_synced {
            state.health.since = Instant::now();
        }
        state.health.error = Some(error);
        was_synced
    }

    pub(super) fn add_drift(&self, keys: u64) {
        self.drift.fetch_add(keys, Ordering::Relaxed);
    }

    pub(super) fn drift_total(&self) -> u64 {
        self.drift.load(Ordering::Relaxed)
    }
}
