//! What the store says, read and checked, kept up to date change by change.
//!
//! The leader's own writes are entered when they are committed. The views bring them again later, so
//! news that is older than what the book holds is passed over.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    desired::Desired,
    ids::{LinkId, LinkTopic, PlanGeneration, TopicName, WorkerId},
    ownership::{AssignedChunk, Ledger, OwnedChunk},
    resolve::TopicRecord,
};
use kreplicator_proto::{
    assignment::{Assignment, Ownership},
    stored::{Stored, Unreadable, message},
    subscription_record::SubscriptionRecord,
    v1,
};
use kreplicator_store::{
    api::{Entry, Key, Revision},
    keys,
    view::Change,
};
use tracing::error;

use super::plan_book::PlanBook;
use crate::config_entry::{self, Item, Place};

/// What the store says.
#[derive(Debug)]
pub(crate) struct Book {
    /// What operators asked for.
    pub(crate) desired: Desired,
    /// Subscriptions as stored, with the revision that wrote them.
    pub(crate) subscriptions: BTreeMap<(LinkId, String), (SubscriptionRecord, Revision)>,
    /// What was learned about topics.
    pub(crate) records: BTreeMap<LinkTopic, TopicRecord>,
    /// Revisions that wrote `records`.
    pub(crate) record_revisions: BTreeMap<LinkTopic, Revision>,
    /// Workers with a lease.
    pub(crate) workers: BTreeMap<WorkerId, LiveWorker>,
    /// Workers that operators want empty.
    pub(crate) drains: BTreeSet<WorkerId>,
    /// The plan as published.
    pub(crate) plan: PlanBook,
    /// Who may run what.
    pub(crate) ledger: Ledger,
    /// Values that cannot be read, with the reason.
    pub(crate) unreadable: BTreeMap<Key, String>,
}

/// A worker's registration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveWorker {
    /// Changes when it registers anew.
    pub(crate) created: Revision,
    /// What it says of itself.
    pub(crate) live: v1::WorkerLive,
}

/// Everything that a leader reads when it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshots<'a> {
    pub(crate) config: &'a BTreeMap<Key, Entry>,
    pub(crate) workers: &'a BTreeMap<Key, Entry>,
    pub(crate) records: &'a BTreeMap<Key, Entry>,
    /// Read after this leader was elected.
    pub(crate) plan: &'a BTreeMap<Key, Entry>,
    pub(crate) plan_revision: Revision,
    pub(crate) owned: &'a BTreeMap<Key, Entry>,
}

impl Book {
    /// The book of a fresh leader.
    pub(crate) fn load(from: &Snapshots<'_>) -> Self {
        let mut unreadable = BTreeMap::new();
        let plan = PlanBook::load(from.plan, from.plan_revision, &mut unreadable);
        let assigned = plan.chunks().map(|((worker, chunk), entry)| AssignedChunk {
            worker: worker.clone(),
            chunk: *chunk,
            mod_revision: entry.revision.0,
            tasks: entry.assignment.tasks(),
        });
        let mut owned = Vec::new();
        for (key, entry) in from.owned {
            let Some((worker, chunk)) = chunk_key(key, keys::OWNED) else {
                continue;
            };
            match Ownership::decode(key, &entry.value) {
                Ok(claims) => owned.push(OwnedChunk {
                    worker,
                    chunk,
                    applied_revision: claims.applied_revision,
                    tasks: claims.tasks,
                }),
                Err(fault) => note_unreadable(&mut unreadable, fault),
            }
        }
        let ledger = Ledger::load(keys::chunk_of, assigned, owned);
        let mut book = Self {
            desired: Desired::default(),
            subscriptions: BTreeMap::new(),
            records: BTreeMap::new(),
            record_revisions: BTreeMap::new(),
            workers: BTreeMap::new(),
            drains: BTreeSet::new(),
            plan,
            ledger,
            unreadable,
        };
        for (key, entry) in from.config {
            book.config_changed(key, Some(entry));
        }
        for (key, entry) in from.workers {
            book.worker_changed(key, Some(entry));
        }
        for (key, entry) in from.records {
            book.record_changed(key, Some(entry));
        }
        book
    }

    /// Takes in a change under `config/`.
    pub(crate) fn config_changed(&mut self, key: &str, after: Option<&Entry>) {
        if let Err(fault) = self.take_config(key, after) {
            note_unreadable(&mut self.unreadable, fault);
        } else {
            self.unreadable.remove(key);
        }
    }

    fn take_config(&mut self, key: &str, after: Option<&Entry>) -> Result<(), Unreadable> {
        let Some(entry) = after else {
            match config_entry::place(key) {
                Some(Place::Cluster(id)) => drop(self.desired.clusters.remove(&id)),
                Some(Place::Link(id)) => drop(self.desired.links.remove(&id)),
                Some(Place::Subscription(link, id)) => {
                    self.desired
                        .subscriptions
                        .remove(&(link.clone(), id.clone()));
                    self.subscriptions.remove(&(link, id));
                }
                None => {}
            }
            return Ok(());
        };
        match config_entry::read(key, &entry.value)? {
            Some(Item::Cluster(cluster)) => {
                self.desired.clusters.insert(cluster.id.clone(), cluster);
            }
            Some(Item::Link(link)) => {
                self.desired.links.insert(link.id.clone(), link);
            }
            Some(Item::Subscription(record)) => {
                let subscription = record.subscription.clone();
                let id = (subscription.link.clone(), subscription.selector.id());
                let known = self.subscriptions.get(&id);
                if known.is_some_and(|(_, revision)| *revision >= entry.mod_revision) {
                    return Ok(());
                }
                self.desired.subscriptions.insert(id.clone(), subscription);
                self.subscriptions.insert(id, (record, entry.mod_revision));
            }
            None => {}
        }
        Ok(())
    }

    /// Enters that a subscription's first discovery pass is over, as written at `revision`.
    pub(crate) fn baseline_written(&mut self, id: &(LinkId, String), revision: Revision) {
        if let Some((record, written)) = self.subscriptions.get_mut(id) {
            record.baseline = true;
            *written = revision;
        }
    }

    /// Subscriptions whose first discovery pass is over.
    pub(crate) fn baseline(&self) -> BTreeSet<(LinkId, String)> {
        let subscriptions = self.subscriptions.iter();
        subscriptions
            .filter(|(_, (record, _))| record.baseline)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Takes in a change under `worker/`.
    pub(crate) fn worker_changed(&mut self, key: &str, after: Option<&Entry>) {
        if let Some(worker) = named(key, keys::WORKERS_DRAIN) {
            if after.is_some() {
                self.drains.insert(worker);
            } else {
                self.drains.remove(&worker);
            }
            return;
        }
        let Some(worker) = named(key, keys::WORKERS_LIVE) else {
            return;
        };
        self.unreadable.remove(key);
        let Some(entry) = after else {
            self.workers.remove(&worker);
            return;
        };
        // Whatever it says, it lives.
        let live = message(key, &entry.value).unwrap_or_else(|fault| {
            note_unreadable(&mut self.unreadable, fault);
            v1::WorkerLive::default()
        });
        let created = entry.create_revision;
        self.workers.insert(worker, LiveWorker { created, live });
    }

    /// Takes in a change under `owned/`.
    pub(crate) fn owned_changed(&mut self, key: &str, after: Option<&Entry>) {
        let Some((worker, chunk)) = chunk_key(key, keys::OWNED) else {
            return;
        };
        let Some(entry) = after else {
            self.unreadable.remove(key);
            self.ledger.clear_owned_chunk(&worker, chunk);
            return;
        };
        match Ownership::decode(key, &entry.value) {
            Ok(claims) => {
                self.unreadable.remove(key);
                self.ledger
                    .set_owned(&worker, chunk, claims.applied_revision, claims.tasks);
            }
            // What the worker said before stands: it released nothing that we know of.
            Err(fault) => note_unreadable(&mut self.unreadable, fault),
        }
    }

    /// Takes in a change under `task/`.
    pub(crate) fn record_changed(&mut self, key: &str, after: Option<&Entry>) {
        let Some(topic) = record_key(key) else {
            return;
        };
        let Some(entry) = after else {
            self.unreadable.remove(key);
            self.records.remove(&topic);
            self.record_revisions.remove(&topic);
            return;
        };
        let known = self.record_revisions.get(&topic);
        if known.is_some_and(|known| *known >= entry.mod_revision) {
            return;
        }
        match TopicRecord::decode(key, &entry.value) {
            Ok(record) => {
                self.unreadable.remove(key);
                self.records.insert(topic.clone(), record);
                self.record_revisions.insert(topic, entry.mod_revision);
            }
            Err(fault) => note_unreadable(&mut self.unreadable, fault),
        }
    }

    /// Enters a record as written at `revision`.
    pub(crate) fn record_written(
        &mut self,
        topic: &LinkTopic,
        record: TopicRecord,
        revision: Revision,
    ) {
        self.records.insert(topic.clone(), record);
        self.record_revisions.insert(topic.clone(), revision);
    }

    /// Takes in a change under `plan/`, from a view that has come to `revision`.
    pub(crate) fn plan_changed(&mut self, change: &Change, revision: Revision) {
        let after = change.after.as_ref();
        let changed = self
            .plan
            .changed(&change.key, after, revision, &mut self.unreadable);
        if let Some((worker, chunk)) = changed {
            self.enter_chunk(&worker, chunk, revision);
        }
    }

    /// Takes in the whole of `plan/` as read at `revision`: after a write whose outcome is not
    /// known, and when somebody else wrote.
    pub(crate) fn plan_read(&mut self, entries: &BTreeMap<Key, Entry>, revision: Revision) {
        for (worker, chunk) in self.plan.replace(entries, revision, &mut self.unreadable) {
            self.enter_chunk(&worker, chunk, revision);
        }
    }

    /// Tells the ledger of a chunk that has changed; `gone` is when it was seen to be deleted.
    fn enter_chunk(&mut self, worker: &WorkerId, chunk: u32, gone: Revision) {
        let (revision, tasks) = match self.plan.chunk(worker, chunk) {
            Some(entry) => (entry.revision, entry.assignment.tasks()),
            None => (gone, BTreeMap::new()),
        };
        self.ledger.set_assigned(worker, chunk, revision.0, tasks);
    }

    /// Enters a generation as published at `revision`.
    pub(crate) fn published(&mut self, generation: PlanGeneration, revision: Revision) {
        self.plan.published(generation, revision);
    }

    /// Enters a chunk as written at `revision`.
    pub(crate) fn chunk_written(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        assignment: Assignment,
        revision: Revision,
    ) {
        let tasks = assignment.tasks();
        self.ledger.set_assigned(worker, chunk, revision.0, tasks);
        self.plan.written(worker, chunk, assignment, revision);
    }

    /// Enters that a lost worker's chunk was deleted at `revision`.
    pub(crate) fn chunk_deleted(&mut self, worker: &WorkerId, chunk: u32, revision: Revision) {
        self.plan.deleted(worker, chunk, revision);
        self.ledger
            .set_assigned(worker, chunk, revision.0, BTreeMap::new());
        if self.plan.of_worker(worker).next().is_none() {
            self.ledger.forget_worker(worker);
        }
    }

    /// Links of which something asked for cannot be read: nothing of theirs is taken away.
    pub(crate) fn frozen(&self) -> BTreeSet<LinkId> {
        let keys = self.unreadable.keys();
        keys.filter_map(|key| match config_entry::place(key)? {
            Place::Link(link) | Place::Subscription(link, _) => Some(link),
            Place::Cluster(_) => None,
        })
        .collect()
    }
}

fn note_unreadable(unreadable: &mut BTreeMap<Key, String>, fault: Unreadable) {
    if unreadable.get(&fault.key) != Some(&fault.reason) {
        error!(
            key = fault.key,
            reason = fault.reason,
            "stored value cannot be read"
        );
    }
    unreadable.insert(fault.key, fault.reason);
}

/// The worker that a key under `prefix` names.
fn named(key: &str, prefix: &str) -> Option<WorkerId> {
    WorkerId::new(key.strip_prefix(prefix)?).ok()
}

/// Worker and chunk of a key under `prefix`.
pub(super) fn chunk_key(key: &str, prefix: &str) -> Option<(WorkerId, u32)> {
    let (worker, chunk) = keys::split_chunk(key, prefix)?;
    Some((WorkerId::new(worker).ok()?, chunk))
}

fn record_key(key: &str) -> Option<LinkTopic> {
    let (link, topic) = key.strip_prefix(keys::TOPIC_RECORDS)?.split_once('/')?;
    Some(LinkTopic {
        link: LinkId::new(link).ok()?,
        topic: TopicName::new(topic).ok()?,
    })
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
