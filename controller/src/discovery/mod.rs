//! Discovery: which topics exist on which cluster, and which clusters answer.
//!
//! Each declared cluster has a task of its own (`watcher`) that looks at it at an interval and at once
//! when somebody asks. Tasks come and go with the declared clusters; a changed spec means a new
//! task with a new client, so a corrected address works without a restart (C050).

mod merge;
mod port;
mod snapshot;
mod watcher;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use kreplicator_model::{ids::ClusterId, spec::Cluster};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    api::Clock,
    cluster_admin::{AdminConnector, ClusterAdmin},
    metrics::Metrics,
};
pub use port::DiscoveryDoor;
pub use snapshot::{ClusterSnapshot, ClusterTopics, Snapshot};
use watcher::{Shared, Watcher};

/// How often and how long clusters are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Time between looks.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

/// The clusters being watched. Clones are the same discovery.
#[derive(Debug, Clone)]
pub struct Discovery(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    connector: Arc<dyn AdminConnector>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    changed: Arc<Notify>,
    watched: Mutex<BTreeMap<ClusterId, Watched>>,
    tickets: Arc<AtomicU64>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

#[derive(Debug)]
struct Watched {
    shared: Arc<Shared>,
    cancel: CancellationToken,
}

impl Discovery {
    /// Watches nothing yet. `changed` is told whenever something differs. Tasks run on `tasks` until
    /// `cancel` fires.
    #[must_use]
    pub fn new(
        settings: Settings,
        connector: Arc<dyn AdminConnector>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        changed: Arc<Notify>,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            settings,
            connector,
            clock,
            metrics,
            changed,
            watched: Mutex::default(),
            tickets: Arc::default(),
            tasks,
            cancel,
        }))
    }

    /// Watches exactly these clusters, each by this spec.
    pub fn watch(&self, clusters: &BTreeMap<ClusterId, Cluster>) {
        let mut watched = self.watched();
        watched.retain(|id, entry| {
            let stays = clusters.get(id) == Some(&entry.shared.cluster);
            if !stays {
                entry.cancel.cancel();
            }
            stays
        });
        for (id, cluster) in clusters {
            if !watched.contains_key(id) {
                watched.insert(id.clone(), self.start(cluster.clone()));
            }
        }
    }

    fn start(&self, cluster: Cluster) -> Watched {
        let inner = &self.0;
        let shared = Arc::new(Shared::new(cluster, Arc::clone(&inner.tickets)));
        let cancel = inner.cancel.child_token();
        let watcher = Watcher {
            shared: Arc::clone(&shared),
            settings: inner.settings,
            connector: Arc::clone(&inner.connector),
            clock: Arc::clone(&inner.clock),
            metrics: Arc::clone(&inner.metrics),
            changed: Arc::clone(&inner.changed),
        };
        let token = cancel.clone();
        inner.tasks.spawn(async move {
            token.run_until_cancelled(watcher.run()).await;
        });
        Watched { shared, cancel }
    }

    /// What is known of every cluster.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let watched = self.watched();
        let known = watched.iter().map(|(id, entry)| {
            let latest = entry.shared.latest.borrow();
            let known = ClusterSnapshot {
                state: latest.state.clone(),
                topics: latest.topics.clone(),
                refused: latest.refused.clone(),
                succeeded: latest.succeeded,
            };
            (id.clone(), known)
        });
        known.collect()
    }

    /// Asks for a look at once; None when the cluster is not watched. Once `succeeded` in the
    /// [`Snapshot`] has reached the ticket, a look that began after this call has succeeded.
    #[must_use]
    pub fn ask(&self, cluster: &ClusterId) -> Option<u64> {
        self.shared(cluster).map(|shared| shared.ask())
    }

    /// Looks at once and waits until the look is over, or for `limit`. False: it failed or is not over.
    pub async fn refresh(&self, cluster: &ClusterId, limit: Duration) -> bool {
        let Some(shared) = self.shared(cluster) else {
            return false;
        };
        let ticket = shared.ask();
        let mut latest = shared.latest.subscribe();
        let served = latest.wait_for(|latest| latest.served >= ticket);
        match tokio::time::timeout(limit, served).await {
            Ok(Ok(latest)) => latest.succeeded >= ticket,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// The topics of a cluster as of the last look that succeeded.
    #[must_use]
    pub fn topics(&self, cluster: &ClusterId) -> Option<Arc<ClusterTopics>> {
        self.shared(cluster)?.latest.borrow().topics.clone()
    }

    /// The client of a cluster, once there is one.
    #[must_use]
    pub fn admin(&self, cluster: &ClusterId) -> Option<Arc<dyn ClusterAdmin>> {
        self.shared(cluster)?.latest.borrow().admin.clone()
    }

    fn shared(&self, cluster: &ClusterId) -> Option<Arc<Shared>> {
        let watched = self.watched();
        watched.get(cluster).map(|entry| Arc::clone(&entry.shared))
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClusterId, Watched>> {
        // A map of handles is whole after every statement, whoever panicked.
        self.0
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
