//! The store's content in memory and the rules by which it changes. No clock, no disk: `now` is an
//! argument and a [`Delta`] is what has to be written.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::history::{Batch, History};
use crate::api::{
    Compare, Entry, Error, Key, LeaseId, Op, Outcome, Result, Revision, Snapshot, Txn, WatchEvent,
};

/// What a store holds at rest.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) revision: Revision,
    pub(super) entries: BTreeMap<Key, Entry>,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            // As in an empty etcd.
            revision: Revision(1),
            entries: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }
}

/// A granted lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) ttl: Duration,
    pub(super) ends_at: Instant,
}

/// A change, to be written as a whole and then applied.
#[derive(Debug, Default)]
pub(super) struct Delta {
    /// In order, all of revision `revision`; empty: the revision stays.
    pub(super) events: Vec<WatchEvent>,
    pub(super) granted: Option<(LeaseId, Lease)>,
    pub(super) ended: Vec<LeaseId>,
}

/// The answer to a request, and the change it takes, if any.
#[derive(Debug)]
pub(super) struct Effect<T> {
    pub(super) answer: T,
    pub(super) delta: Option<Delta>,
}

/// The content.
#[derive(Debug)]
pub(super) struct State {
    stored: Stored,
    keys_of: BTreeMap<LeaseId, BTreeSet<Key>>,
    /// Leases whose end is being written: they cannot be renewed or used any more.
    ending: BTreeSet<LeaseId>,
    history: History,
}

impl State {
    pub(super) fn new(stored: Stored, history_bytes_max: usize) -> Self {
        let mut keys_of: BTreeMap<LeaseId, BTreeSet<Key>> = BTreeMap::new();
        for (key, entry) in &stored.entries {
            if let Some(lease) = entry.lease {
                keys_of.entry(lease).or_default().insert(key.clone());
            }
        }
        Self {
            history: History::new(stored.revision.next(), history_bytes_max),
            stored,
            keys_of,
            ending: BTreeSet::new(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.stored.revision
    }

    pub(super) fn stored(&self) -> Stored {
        self.stored.clone()
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        self.stored.entries.get(key).cloned()
    }

    pub(super) fn list(&self, prefix: &str) -> Snapshot {
        Snapshot {
            revision: self.stored.revision,
            entries: self
                .under(prefix)
                .map(|(key, entry)| (key.clone(), entry.clone()))
                .collect(),
        }
    }

    pub(super) fn since(&self, from: Revision, prefix: &str) -> Result<Batch> {
        self.history.since(from, prefix)
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a Key, &'a Entry)> {
        self.stored
            .entries
            .range::<str, _>((
                std::ops::Bound::Included(prefix),
                std::ops::Bound::Unbounded,
            ))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// What `txn` does; the checks of [`crate::check`] are done.
    pub(super) fn plan_txn(&self, txn: &Txn, now: Instant) -> Result<Effect<Outcome>> {
        if !txn.compares.iter().all(|compare| self.holds(compare)) {
            return Ok(Effect {
                answer: Outcome::Conflict,
                delta: None,
            });
        }
        let revision = self.stored.revision.next();
        let mut events = Vec::new();
        let mut deleted = BTreeSet::new();
        for op in &txn.ops {
            match op {
                Op::Put { key, value, lease } => {
                    if let Some(lease) = *lease {
                        self.live(lease, now)?;
                    }
                    let before = self.stored.entries.get(key);
                    let entry = Entry {
                        value: value.clone(),
                        create_revision: before.map_or(revision, |entry| entry.create_revision),
                        mod_revision: revision,
                        lease: *lease,
                    };
                    events.push(event(key, Some(entry), revision));
                }
                Op::Delete(key) => {
                    if self.stored.entries.contains_key(key) && deleted.insert(key.clone()) {
                        events.push(event(key, None, revision));
                    }
                }
                Op::DeletePrefix(prefix) => {
                    for (key, _) in self.under(prefix) {
                        if deleted.insert(key.clone()) {
                            events.push(event(key, None, revision));
                        }
                    }
                }
            }
        }
        if events.is_empty() {
            return Ok(Effect {
                answer: Outcome::Committed(self.stored.revision),
                delta: None,
            });
        }
        Ok(Effect {
            answer: Outcome::Committed(revision),
            delta: Some(Delta {
                events,
                ..Delta::default()
            }),
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = |key: &Key| self.stored.entries.get(key);
        match compare {
            Compare::Absent(key) => entry(key).is_none(),
            Compare::CreatedAt(key, at) => entry(key).is_some_and(|e| e.create_revision == *at),
            Compare::ModifiedAt(key, at) => entry(key).is_some_and(|e| e.mod_revision == *at),
        }
    }

    fn live(&self, id: LeaseId, now: Instant) -> Result<&Lease> {
        self.stored
            .leases
            .get(&id)
            .filter(|lease| now < lease.ends_at && !self.ending.contains(&id))
            .ok_or(Error::LeaseGone(id))
    }

    pub(super) fn plan_grant(&self, id: LeaseId, ttl: Duration, now: Instant) -> Effect<LeaseId> {
        assert!(
            !self.stored.leases.contains_key(&id),
            "lease {id:?} drawn twice"
        );
        let lease = Lease {
            ttl,
            ends_at: now + ttl,
        };
        Effect {
            answer: id,
            delta: Some(Delta {
                granted: Some((id, lease)),
                ..Delta::default()
            }),
        }
    }

    /// Renews a lease; nothing of it is written.
    pub(super) fn renew(&mut self, id: LeaseId, now: Instant) -> Result<Duration> {
        let ttl = self.live(id, now)?.ttl;
        if let Some(lease) = self.stored.leases.get_mut(&id) {
            lease.ends_at = now + ttl;
        }
        Ok(ttl)
    }

    pub(super) fn plan_revoke(&mut self, id: LeaseId) -> Effect<()> {
        let known = self.stored.leases.contains_key(&id);
        Effect {
            answer: (),
            delta: known.then(|| self.plan_end(vec![id])),
        }
    }

    /// Ends every lease whose time is over.
    pub(super) fn plan_expiry(&mut self, now: Instant) -> Effect<()> {
        let over: Vec<LeaseId> = self
            .stored
            .leases
            .iter()
            .filter(|(_, lease)| lease.ends_at <= now)
            .map(|(id, _)| *id)
            .collect();
        Effect {
            answer: (),
            delta: (!over.is_empty()).then(|| self.plan_end(over)),
        }
    }

    fn plan_end(&mut self, ended: Vec<LeaseId>) -> Delta {
        let revision = self.stored.revision.next();
        let keys = ended.iter().filter_map(|id| self.keys_of.get(id)).flatten();
        let events = keys.map(|key| event(key, None, revision)).collect();
        self.ending.extend(&ended);
        Delta {
            events,
            ended,
            granted: None,
        }
    }

    /// When the next lease ends.
    pub(super) fn next_lease_end(&self) -> Option<Instant> {
        self.stored.leases.values().map(|lease| lease.ends_at).min()
    }

    /// Applies a change that was planned on this very state.
    pub(super) fn apply(&mut self, delta: Delta) {
        if let Some(first) = delta.events.first() {
            let revision = self.stored.revision.next();
            assert_eq!(
                first.revision, revision,
                "a change planned on another state"
            );
            self.stored.revision = revision;
            for event in &delta.events {
                self.set(&event.key, event.entry.clone());
            }
            self.history.push(revision, delta.events);
        }
        if let Some((id, lease)) = delta.granted {
            self.stored.leases.insert(id, lease);
        }
        for id in delta.ended {
            self.stored.leases.remove(&id);
            self.keys_of.remove(&id);
            self.ending.remove(&id);
        }
    }

    fn set(&mut self, key: &Key, entry: Option<Entry>) {
        let lease = entry.as_ref().and_then(|entry| entry.lease);
        let before = match entry {
            Some(entry) => self.stored.entries.insert(key.clone(), entry),
            None => self.stored.entries.remove(key),
        };
        if let Some(old) = before.and_then(|entry| entry.lease)
            && let Some(keys) = self.keys_of.get_mut(&old)
        {
            keys.remove(key);
        }
        if let Some(lease) = lease {
            self.keys_of.entry(lease).or_default().insert(key.clone());
        }
    }
}

fn event(key: &Key, entry: Option<Entry>, revision: Revision) -> WatchEvent {
    WatchEvent {
        key: key.clone(),
        entry,
        revision,
    }
}
