//! The desired state as read from the store, at one moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, LinkId},
    spec::Link,
};
use kreplicator_proto::{
    status::Refusal, stored::Unreadable, subscription_record::SubscriptionRecord,
};
use kreplicator_store::{Entry, Error, Key, MetaStore, Revision, keys};
use tokio::time::Instant;
use tracing::warn;

use crate::config_entry::{self, Item};

/// What was asked for, with what writing it needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    /// Last write of [`keys::DESIRED_STATE`] before everything else was read; None: never.
    pub(crate) version: Option<Revision>,
    /// Everything that could be read.
    pub(crate) desired: Desired,
    /// What was noted about each subscription.
    pub(crate) subscriptions: BTreeMap<(LinkId, String), SubscriptionRecord>,
    /// Last write of each key under `config/`.
    pub(crate) revisions: BTreeMap<Key, Revision>,
    /// Values that nobody of ours can have written; the rest goes on without them.
    pub(crate) unreadable: Vec<Unreadable>,
}

impl Loaded {
    fn read(version: Option<Revision>, entries: &BTreeMap<Key, Entry>) -> Self {
        let mut loaded = Self {
            version,
            ..Self::default()
        };
        for (key, entry) in entries {
            loaded.revisions.insert(key.clone(), entry.mod_revision);
            if let Err(fault) = loaded.take(key, &entry.value) {
                loaded.unreadable.push(fault);
            }
        }
        loaded
    }

    fn take(&mut self, key: &str, value: &[u8]) -> Result<(), Unreadable> {
        match config_entry::read(key, value)? {
            Some(Item::Cluster(cluster)) => {
                self.desired.clusters.insert(cluster.id.clone(), cluster);
            }
            Some(Item::Link(link)) => {
                self.desired.links.insert(link.id.clone(), link);
            }
            Some(Item::Subscription(record)) => {
                let subscription = record.subscription.clone();
                let place = (subscription.link.clone(), subscription.selector.id());
                self.desired
                    .subscriptions
                    .insert(place.clone(), subscription);
                self.subscriptions.insert(place, record);
            }
            None => {}
        }
        Ok(())
    }

    /// The links that read from or write to a cluster.
    pub(crate) fn links_of(&self, cluster: &ClusterId) -> impl Iterator<Item = &Link> {
        self.desired
            .links
            .values()
            .filter(move |link| link.source == *cluster || link.target == *cluster)
    }
}

/// How long one reading is used while nothing changed through the API. Bounds how long a value that
/// somebody wrote past the API stays unseen.
const REUSED_FOR: Duration = Duration::from_secs(5);

/// Reads the desired state, once for many pages of a list.
#[derive(Debug)]
pub(crate) struct DesiredReader {
    store: Arc<dyn MetaStore>,
    last: Mutex<Option<(Arc<Loaded>, Instant)>>,
}

impl DesiredReader {
    pub(crate) fn new(store: Arc<dyn MetaStore>) -> Self {
        Self {
            store,
            last: Mutex::new(None),
        }
    }

    /// The desired state, at least as new as this call: the version is read first and linearizably,
    /// so that a reading with the same version misses no change made through the API.
    pub(crate) async fn load(&self) -> Result<Arc<Loaded>, Refusal> {
        let version = self.version().await?;
        let last = self.lock().clone();
        if let Some((loaded, read_at)) = last
            && loaded.version == version
            && read_at.elapsed() < REUSED_FOR
        {
            return Ok(loaded);
        }
        self.read(version).await
    }

    /// The desired state, read anew in any case.
    pub(crate) async fn reload(&self) -> Result<Arc<Loaded>, Refusal> {
        let version = self.version().await?;
        self.read(version).await
    }

    async fn version(&self) -> Result<Option<Revision>, Refusal> {
        let entry = self.store.get(keys::DESIRED_STATE).await.map_err(refusal)?;
        Ok(entry.map(|entry| entry.mod_revision))
    }

    async fn read(&self, version: Option<Revision>) -> Result<Arc<Loaded>, Refusal> {
        let snapshot = self.store.list(keys::CONFIG).await.map_err(refusal)?;
        let loaded = Arc::new(Loaded::read(version, &snapshot.entries));
        for fault in &loaded.unreadable {
            warn!(
                key = fault.key,
                reason = fault.reason,
                "stored value is left out"
            );
        }
        *self.lock() = Some((Arc::clone(&loaded), Instant::now()));
        Ok(loaded)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Arc<Loaded>, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller is told when the store does not do its part.
pub(crate) fn refusal(error: Error) -> Refusal {
    match error {
        Error::Unavailable(_) | Error::ReadOnly(_) | Error::LeaseGone(_) => Refusal::Unavailable(
            format!("{error}; repeat the call, with the same request id"),
        ),
        Error::Compacted { .. } | Error::Denied(_) | Error::Invalid(_) => {
            Refusal::Internal(error.to_string())
        }
    }
}
