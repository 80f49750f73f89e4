//! A store that can go away, counts calls and remembers what was listed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_model::{
    ids::{OwnerEpoch, TaskId},
    ownership::Owned,
};
use kreplicator_proto::{assignment::Ownership, stored::Stored};
use kreplicator_store::{
    EmbeddedStore, Entry, Error, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot, Txn,
    Watch, WatchEvent, keys,
};
use tokio::{sync::watch, time::sleep};

/// The embedded store behind a door that can be shut.
#[derive(Debug)]
pub(crate) struct FlakyStore {
    inner: EmbeddedStore,
    away: watch::Sender<bool>,
    /// Answers of writes are lost: they happen, and the caller does not learn of it.
    losing_answers: AtomicBool,
    calls: AtomicU64,
    owned_writes: AtomicU64,
    listed: Mutex<BTreeMap<String, BTreeMap<TaskId, Owned>>>,
}

impl FlakyStore {
    pub(crate) fn new() -> Self {
        Self {
            inner: EmbeddedStore::in_memory(),
            away: watch::Sender::new(false),
            losing_answers: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            owned_writes: AtomicU64::new(0),
            listed: Mutex::default(),
        }
    }

    /// The store itself, always there: for the controller's side of a test.
    pub(crate) fn inner(&self) -> &EmbeddedStore {
        &self.inner
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.away.send_replace(away);
    }

    pub(crate) fn lose_answers(&self, losing: bool) {
        self.losing_answers.store(losing, Ordering::SeqCst);
    }

    /// Calls made so far, answered or not.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Writes of `owned` keys so far.
    pub(crate) fn owned_writes(&self) -> u64 {
        self.owned_writes.load(Ordering::SeqCst)
    }

    /// Whether the last list written for the task's chunk holds it under this epoch.
    pub(crate) fn lists(&self, id: &TaskId, epoch: OwnerEpoch) -> bool {
        let listed = self
            .listed
            .lock()
            .expect("no test panics while it holds this");
        let suffix = format!("/{:04}", keys::chunk_of(&id.link, &id.topic));
        listed
            .iter()
            .filter(|(key, _)| key.ends_with(&suffix))
            .any(|(_, tasks)| tasks.get(id).is_some_and(|owned| owned.epoch == epoch))
    }

    async fn enter(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if *self.away.borrow() {
            sleep(Duration::from_millis(5)).await;
            return Err(gone());
        }
        Ok(())
    }

    fn note(&self, ops: &[Op]) {
        let mut listed = self
            .listed
            .lock()
            .expect("no test panics while it holds this");
        for op in ops {
            if let Op::Put { key, value, .. } = op
                && key.starts_with(keys::OWNED)
            {
                let owned = Ownership::decode(key, value).expect("workers write what is readable");
                listed.insert(key.clone(), owned.tasks);
                self.owned_writes.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn gone() -> Error {
    Error::Unavailable("the test took it away".to_owned())
}

#[async_trait]
impl MetaStore for FlakyStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.enter().await?;
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot> {
        self.enter().await?;
        self.inner.list(prefix).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.enter().await?;
        let ops = txn.ops.clone();
        let outcome = self.inner.commit(txn).await?;
        if matches!(outcome, Outcome::Committed(_)) {
            self.note(&ops);
        }
        if self.losing_answers.load(Ordering::SeqCst) {
            return Err(gone());
        }
        Ok(outcome)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId> {
        self.enter().await?;
        self.inner.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration> {
        self.enter().await?;
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.enter().await?;
        self.inner.revoke(lease).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        self.enter().await?;
        let inner = self.inner.watch(prefix, from).await?;
        let away = self.away.subscribe();
        Ok(Box::new(FlakyWatch { inner, away }))
    }
}

#[derive(Debug)]
struct FlakyWatch {
    inner: Box<dyn Watch>,
    away: watch::Receiver<bool>,
}

#[async_trait]
impl Watch for FlakyWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        tokio::select! {
            biased;
            _ = self.away.wait_for(|away| *away) => Err(gone()),
            events = self.inner.next() => events,
        }
    }
}
