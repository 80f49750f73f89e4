//! A store that misbehaves on request, in front of an embedded one.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_store::{
    EmbeddedStore, Entry, Error, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot, Txn,
    Watch, WatchEvent,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// What a store call takes before it gives up on a peer that is silent.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How the store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// As it should.
    Clear,
    /// Every call fails at once, and every watch ends.
    Away,
    /// No call is answered, and every watch ends.
    Silent,
    /// Every commit fails at once; all else is as it should be.
    ReadOnly,
    /// Commits happen, but their answers are lost.
    AnswersLost,
}

/// A store in front of another.
#[derive(Debug)]
pub(crate) struct Flaky {
    inner: Mutex<Arc<dyn MetaStore>>,
    weather: watch::Sender<Weather>,
    calls: AtomicU64,
    commits: AtomicU64,
    swallow_deletes: Arc<AtomicBool>,
}

impl Flaky {
    pub(crate) fn new() -> Arc<Self> {
        Self::before(Arc::new(EmbeddedStore::in_memory()))
    }

    pub(crate) fn before(inner: Arc<dyn MetaStore>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(inner),
            weather: watch::Sender::new(Weather::Clear),
            calls: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            swallow_deletes: Arc::default(),
        })
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Ends every watch and goes on with another store.
    pub(crate) fn replace(&self, inner: Arc<dyn MetaStore>) {
        self.set(Weather::Away);
        *self.inner.lock().expect("no panic") = inner;
    }

    /// Watches do not show deletes from now on.
    pub(crate) fn swallow_deletes(&self, swallow: bool) {
        self.swallow_deletes.store(swallow, Ordering::Relaxed);
    }

    /// Calls made so far, good or bad.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Of these, commits.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// The store behind.
    pub(crate) fn inner(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&*self.inner.lock().expect("no panic"))
    }

    async fn pass(&self) -> Result<Arc<dyn MetaStore>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let weather = *self.weather.borrow();
        match weather {
            Weather::Clear | Weather::AnswersLost | Weather::ReadOnly => Ok(self.inner()),
            Weather::Away => Err(Error::Unavailable("it is away".to_owned())),
            Weather::Silent => {
                sleep(CALL_TIMEOUT).await;
                Err(Error::Unavailable("it is silent".to_owned()))
            }
        }
    }
}

#[async_trait]
impl MetaStore for Flaky {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.pass().await?.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot> {
        self.pass().await?.list(prefix).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let store = self.pass().await?;
        if *self.weather.borrow() == Weather::ReadOnly {
            return Err(Error::ReadOnly("it takes no writes".to_owned()));
        }
        let outcome = store.commit(txn).await;
        if *self.weather.borrow() == Weather::AnswersLost {
            return Err(Error::Unavailable("the answer was lost".to_owned()));
        }
        outcome
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId> {
        self.pass().await?.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration> {
        self.pass().await?.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.pass().await?.revoke(lease).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        let inner = self.pass().await?.watch(prefix, from).await?;
        Ok(Box::new(FlakyWatch {
            inner,
            weather: self.weather.subscribe(),
            swallow_deletes: Arc::clone(&self.swallow_deletes),
        }))
    }
}

#[derive(Debug)]
struct FlakyWatch {
    inner: Box<dyn Watch>,
    weather: watch::Receiver<Weather>,
    swallow_deletes: Arc<AtomicBool>,
}

#[async_trait]
impl Watch for FlakyWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        loop {
            let foul = self
                .weather
                .wait_for(|weather| matches!(weather, Weather::Away | Weather::Silent));
            let mut events = tokio::select! {
                biased;
                _ = foul => return Err(Error::Unavailable("the watch broke".to_owned())),
                events = self.inner.next() => events?,
            };
            if self.swallow_deletes.load(Ordering::Relaxed) {
                events.retain(|event| event.entry.is_some());
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

pub(crate) fn put(key: &str, value: &str) -> Op {
    put_leased(key, value, None)
}

pub(crate) fn put_leased(key: &str, value: &str, lease: Option<LeaseId>) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
        lease,
    }
}

/// Commits without conditions.
pub(crate) async fn write(store: &dyn MetaStore, ops: Vec<Op>) -> Revision {
    let compares = Vec::new();
    match store.commit(Txn { compares, ops }).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

/// Waits for something that must come, however long in virtual time.
pub(crate) async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> T {
    timeout(limit, what)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}"))
}
