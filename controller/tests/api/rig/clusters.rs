//! Clusters that answer as the test says.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use async_trait::async_trait;
use kreplicator_controller::api::{ClusterView, DiscoveryPort};
use kreplicator_model::{ids::ClusterId, spec::Cluster};

use super::topic;

/// Clusters that answer as the test says.
#[derive(Debug, Default)]
pub(crate) struct FakeClusters {
    views: Mutex<BTreeMap<String, Result<ClusterView, String>>>,
    looks: Mutex<Vec<String>>,
    pokes: Mutex<Vec<String>>,
}

impl FakeClusters {
    /// Sets the topics of a cluster, each with one partition.
    pub(crate) fn set_topics<'a>(&self, cluster: &str, topics: impl IntoIterator<Item = &'a str>) {
        self.set_partitions(cluster, topics.into_iter().map(|name| (name, 1)));
    }

    /// Sets the topics of a cluster with their partitions.
    pub(crate) fn set_partitions<'a>(
        &self,
        cluster: &str,
        topics: impl IntoIterator<Item = (&'a str, i32)>,
    ) {
        let topics = topics.into_iter();
        let view = ClusterView {
            topics: topics.map(|(name, count)| (topic(name), count)).collect(),
            kafka_cluster_id: None,
        };
        let mut views = self.views.lock().expect("no panic");
        views.insert(cluster.to_owned(), Ok(view));
    }

    /// Has a cluster fail.
    pub(crate) fn set_cause(&self, cluster: &str, cause: &str) {
        let mut views = self.views.lock().expect("no panic");
        views.insert(cluster.to_owned(), Err(cause.to_owned()));
    }

    /// Looks so far.
    pub(crate) fn looks(&self) -> usize {
        self.looks.lock().expect("no panic").len()
    }

    /// Clusters that were poked since the last call.
    pub(crate) fn take_pokes(&self) -> Vec<String> {
        std::mem::take(&mut self.pokes.lock().expect("no panic"))
    }
}

#[async_trait]
impl DiscoveryPort for FakeClusters {
    async fn look(&self, cluster: &Cluster, _deadline: Duration) -> Result<ClusterView, String> {
        let id = cluster.id.to_string();
        self.looks.lock().expect("no panic").push(id.clone());
        let views = self.views.lock().expect("no panic");
        views
            .get(&id)
            .cloned()
            .unwrap_or_else(|| Ok(ClusterView::default()))
    }

    fn last_seen(&self, cluster: &Cluster) -> Option<ClusterView> {
        let views = self.views.lock().expect("no panic");
        views.get(cluster.id.as_str())?.clone().ok()
    }

    fn poke(&self, cluster: &ClusterId) {
        let mut pokes = self.pokes.lock().expect("no panic");
        pokes.push(cluster.to_string());
    }
}
