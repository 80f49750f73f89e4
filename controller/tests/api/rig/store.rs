//! The store in memory, with faults on demand.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_store::{
    Entry, Error, LeaseId, MetaStore, Outcome, Result as StoreResult, Revision, Snapshot, Txn,
    Watch, embedded::EmbeddedStore,
};

/// The store in memory, with faults on demand.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: EmbeddedStore,
    /// The next commits happen, but their answers are lost.
    lose_answers: AtomicBool,
    /// The process that commits is stopped for good after this many more commits.
    commits_left: Mutex<Option<u32>>,
    commits: Mutex<Vec<Txn>>,
    /// Reads fail.
    deaf: AtomicBool,
}

impl FaultyStore {
    pub(crate) fn new() -> Self {
        Self {
            inner: EmbeddedStore::in_memory(),
            lose_answers: AtomicBool::new(false),
            commits_left: Mutex::new(None),
            commits: Mutex::default(),
            deaf: AtomicBool::new(false),
        }
    }

    /// The answer of the next commit is lost.
    pub(crate) fn lose_next_answer(&self) {
        self.lose_answers.store(true, Ordering::SeqCst);
    }

    /// After `commits` more, every commit fails without happening; None: all go well.
    pub(crate) fn fail_after(&self, commits: Option<u32>) {
        *self.commits_left.lock().expect("no panic") = commits;
    }

    /// Whether reads fail.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Transactions committed since the last call.
    pub(crate) fn take_commits(&self) -> Vec<Txn> {
        std::mem::take(&mut self.commits.lock().expect("no panic"))
    }
}

#[async_trait]
impl MetaStore for FaultyStore {
    async fn get(&self, key: &str) -> StoreResult<Option<Entry>> {
        if self.deaf.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("cut off by the test".to_owned()));
        }
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Snapshot> {
        self.inner.list(prefix).await
    }

    async fn commit(&self, txn: Txn) -> StoreResult<Outcome> {
        if let Some(left) = &mut *self.commits_left.lock().expect("no panic") {
            if *left == 0 {
                return Err(Error::Unavailable("cut off by the test".to_owned()));
            }
            *left -= 1;
        }
        let outcome = self.inner.commit(txn.clone()).await?;
        if let Outcome::Committed(_) = outcome {
            self.commits.lock().expect("no panic").push(txn);
        }
        if self.lose_answers.swap(false, Ordering::SeqCst) {
            return Err(Error::Unavailable("answer lost by the test".to_owned()));
        }
        Ok(outcome)
    }

    async fn grant(&self, ttl: Duration) -> StoreResult<LeaseId> {
        self.inner.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> StoreResult<Duration> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> StoreResult<()> {
        self.inner.revoke(lease).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> StoreResult<Box<dyn Watch>> {
        self.inner.watch(prefix, from).await
    }
}
