//! The task behind a view: read, watch, check, and begin again when anything is amiss.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::{ViewOptions, pending::Shared};
use crate::api::{Error, Key, MetaStore, Result, Revision, Snapshot, WatchEvent};

/// Follows one prefix for ever.
pub(super) struct Follower {
    store: Arc<dyn MetaStore>,
    prefix: String,
    options: ViewOptions,
    shared: Arc<Shared>,
    /// Last write of each key handed on: enough to tell drift without a second copy of the values.
    index: BTreeMap<Key, Revision>,
    /// Of the snapshot or of the last event.
    revision: Revision,
}

/// Why a round ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("{0} keys differed from the store though the watch ran")]
    Drift(u64),
    #[error("the store's revision went back from {0:?} to {1:?}")]
    WentBack(Revision, Revision),
}

/// A full read that checks the view while the watch goes on.
enum Audit {
    /// The next one is due then.
    Idle(Instant),
    /// Reading. `touched` holds the last revision of each key that the watch showed meanwhile.
    Reading {
        read: Pin<Box<dyn Future<Output = Result<Snapshot>> + Send>>,
        began_at: Revision,
        touched: BTreeMap<Key, Revision>,
    },
    /// Read; the watch gets time to catch up with it.
    Settling {
        snapshot: Snapshot,
        touched: BTreeMap<Key, Revision>,
        until: Instant,
    },
}

impl Follower {
    pub(super) fn new(
        store: Arc<dyn MetaStore>,
        prefix: String,
        options: ViewOptions,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            store,
            prefix,
            options,
            shared,
            index: BTreeMap::new(),
            revision: Revision::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut failures: u32 = 0;
        loop {
            let began = Instant::now();
            let end = match self.round().await {
                Ok(never) => match never {},
                Err(end) => end,
            };
            // A watch that held for a while shows that the store was well again.
            if began.elapsed() > self.options.backoff.max {
                failures = 0;
            }
            failures = failures.saturating_add(1);
            if self.shared.set_failed(end.to_string()) {
                warn!(prefix = %self.prefix, error = %end, "view lost the store, reading again");
            } else {
                debug!(prefix = %self.prefix, error = %end, failures, "view cannot read the store");
            }
            let delay = self.options.backoff.delay(failures, &mut rand::rng());
            sleep(delay).await;
        }
    }

    /// Reads everything, then follows until something is amiss.
    async fn round(&mut self) -> std::result::Result<std::convert::Infallible, End> {
        let snapshot = self.store.list(&self.prefix).await?;
        let from = snapshot.revision.next();
        self.adopt(snapshot);
        let mut watch = self.store.watch(&self.prefix, from).await?;
        if self.shared.set_synced() {
            info!(prefix = %self.prefix, revision = self.revision.0, "view follows the store");
        }
        let mut audit = self.next_audit();
        loop {
            tokio::select! {
                events = watch.next() => self.apply(events?, &mut audit),
                done = audit.step() => audit = self.advance(audit, done)?,
            }
        }
    }

    fn adopt(&mut self, snapshot: Snapshot) {
        if snapshot.revision < self.revision {
            warn!(
                prefix = %self.prefix,
                before = self.revision.0,
                now = snapshot.revision.0,
                "the store's revision went back; it was restored or replaced"
            );
        }
        self.revision = snapshot.revision;
        self.index = snapshot
            .entries
            .iter()
            .map(|(key, entry)| (key.clone(), entry.mod_revision))
            .collect();
        self.shared.put_snapshot(snapshot);
    }

    fn apply(&mut self, events: Vec<WatchEvent>, audit: &mut Audit) {
        let known = events.into_iter().map(|event| {
            self.revision = self.revision.max(event.revision);
            let before = match &event.entry {
                Some(entry) => self.index.insert(event.key.clone(), entry.mod_revision),
                None => self.index.remove(&event.key),
            };
            audit.touch(&event);
            (event, before.is_some())
        });
        let known = known.collect();
        self.shared.put_events(known);
    }

    fn next_audit(&self) -> Audit {
        let jitter = rand::rng().random_range(0.9..=1.1);
        Audit::Idle(Instant::now() + self.options.resync_interval.mul_f64(jitter))
    }

    /// Moves the audit on after its wait ended with `done`.
    fn advance(
        &self,
        audit: Audit,
        done: Option<Result<Snapshot>>,
    ) -> std::result::Result<Audit, End> {
        match audit {
            Audit::Idle(_) => {
                let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
                Ok(Audit::Reading {
                    read: Box::pin(async move { store.list(&prefix).await }),
                    began_at: self.revision,
                    touched: BTreeMap::new(),
                })
            }
            Audit::Reading {
                began_at, touched, ..
            } => {
                let snapshot = done.expect("a read ends with a result")?;
                if snapshot.revision < began_at {
                    return Err(End::WentBack(began_at, snapshot.revision));
                }
                Ok(Audit::Settling {
                    snapshot,
                    touched,
                    until: Instant::now() + self.options.drift_grace,
                })
            }
            Audit::Settling {
                snapshot, touched, ..
            } => match self.drift(&snapshot, &touched) {
                0 => Ok(self.next_audit()),
                keys => {
                    self.shared.add_drift(keys);
                    Err(End::Drift(keys))
                }
            },
        }
    }

    /// Keys that differ from `snapshot` and were not changed after it.
    fn drift(&self, snapshot: &Snapshot, touched: &BTreeMap<Key, Revision>) -> u64 {
        let settled = |key: &Key| touched.get(key).is_none_or(|at| *at <= snapshot.revision);
        let wrong = snapshot
            .entries
            .iter()
            .filter(|(key, entry)| self.index.get(*key) != Some(&entry.mod_revision))
            .map(|(key, _)| key);
        let surplus = self
            .index
            .keys()
            .filter(|key| !snapshot.entries.contains_key(*key));
        let count = wrong.chain(surplus).filter(|key| settled(key)).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl Audit {
    /// Waits for the audit's next move. Cancel safe.
    async fn step(&mut self) -> Option<Result<Snapshot>> {
        match self {
            Self::Idle(until) | Self::Settling { until, .. } => {
                sleep_until(*until).await;
                None
            }
            Self::Reading { read, .. } => Some(read.await),
        }
    }

    fn touch(&mut self, event: &WatchEvent) {
        match self {
            Self::Idle(_) => {}
            Self::Reading { touched, .. } | Self::Settling { touched, .. } => {
                touched.insert(event.key.clone(), event.revision);
            }
        }
    }
}
