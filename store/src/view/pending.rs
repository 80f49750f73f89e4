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
    Changes(BTreeMap<Key, Newest>),
    /// The whole prefix, newest values.
    Snapshot(BTreeMap<Key, Entry>),
}

impl Pending {
    fn merge(&mut self, key: Key, entry: Option<Entry>, existed: bool) {
        match self {
            Self::Snapshot(entries) => match entry {
                Some(entry) => drop(entries.insert(key, entry)),
                None => drop(entries.remove(&key)),
            },
            Self::Changes(changes) => match changes.get_mut(&key) {
                // Came and went unseen: nothing to tell, and nothing to keep.
                Some(newest) if !newest.known && entry.is_none() => drop(changes.remove(&key)),
                Some(newest) => newest.entry = entry,
                None => {
                    let known = existed;
                    changes.insert(key, Newest { known, entry });
                }
            },
            Self::Nothing => {
                *self = Self::Changes(BTreeMap::new());
                self.merge(key, entry, existed);
            }
        }
    }
}

/// What became of a key since the consumer last took it.
#[derive(Debug)]
pub(super) struct Newest {
    /// Whether the consumer has the key.
    known: bool,
    /// Its value; None: deleted.
    pub(super) entry: Option<Entry>,
}

/// An event, and whether the key existed before it.
pub(super) type Known = (WatchEvent, bool);

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
    pub(super) fn put_events(&self, events: Vec<Known>) {
        let mut state = self.state();
        for (event, existed) in events {
            state.revision = state.revision.max(event.revision);
            state.pending.merge(event.key, event.entry, existed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_and_go_unseen_leave_nothing_behind() {
        let shared = Shared::new();
        let entry = Entry {
            value: Vec::new(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: None,
        };
        let event = |key: &str, entry: Option<&Entry>| WatchEvent {
            key: key.to_owned(),
            entry: entry.cloned(),
            revision: Revision(1),
        };
        for n in 0..1_000 {
            let key = format!("request/{n}");
            shared.put_events(vec![(event(&key, Some(&entry)), false)]);
            shared.put_events(vec![(event(&key, None), true)]);
        }
        // A known key that is deleted, made again and deleted is still deleted.
        for (entry, existed) in [(None, true), (Some(&entry), false), (None, true)] {
            shared.put_events(vec![(event("known", entry), existed)]);
        }
        let (Pending::Changes(changes), _) = shared.take() else {
            panic!("no changes");
        };
        assert_eq!(changes.keys().collect::<Vec<_>>(), ["known"]);
        assert_eq!(changes["known"].entry, None);
    }
}
