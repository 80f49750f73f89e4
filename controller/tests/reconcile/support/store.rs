//! A store that can be cut off from one process and that counts its transactions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_store::api::{
    Entry, Error, LeaseId, MetaStore, Outcome, Result, Revision, Snapshot, Txn, Watch, WatchEvent,
};
use tokio::time::sleep;

/// One process's way to the store.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    store: Arc<dyn MetaStore>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    cut: AtomicBool,
    deaf: AtomicBool,
    commits: AtomicUsize,
}

impl Line {
    pub(crate) fn new(store: Arc<dyn MetaStore>) -> Self {
        Self {
            store,
            state: Arc::default(),
        }
    }

    /// Cuts the line or mends it.
    pub(crate) fn set_cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::SeqCst);
    }

    /// Loses the answers to transactions, which happen all the same, or stops doing so.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.state.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Transactions that changed something.
    pub(crate) fn commits(&self) -> usize {
        self.state.commits.load(Ordering::SeqCst)
    }

    fn is_cut(&self) -> bool {
        self.state.cut.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        if self.is_cut() {
            return Err(Error::Unavailable("the line is cut".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl MetaStore for Line {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.check()?;
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot> {
        self.check()?;
        self.store.list(prefix).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.check()?;
        let outcome = self.store.commit(txn).await?;
        if matches!(outcome, Outcome::Committed(_)) {
            self.state.commits.fetch_add(1, Ordering::SeqCst);
        }
        if self.state.deaf.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("the answer is lost".to_owned()));
        }
        Ok(outcome)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId> {
        self.check()?;
        self.store.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration> {
        self.check()?;
        self.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.check()?;
        self.store.revoke(lease).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        self.check()?;
        let watch = self.store.watch(prefix, from).await?;
        Ok(Box::new(LineWatch {
            watch,
            line: self.clone(),
        }))
    }
}

#[derive(Debug)]
struct LineWatch {
    watch: Box<dyn Watch>,
    line: Line,
}

#[async_trait]
impl Watch for LineWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        let cut = async {
            while !self.line.is_cut() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            biased;
            () = cut => Err(Error::Unavailable("the line is cut".to_owned())),
            events = self.watch.next() => events,
        }
    }
}
