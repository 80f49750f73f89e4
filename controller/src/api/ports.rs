//! What the API needs from the rest of the controller.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use async_trait::async_trait;
use kreplicator_model::{
    ids::{ClusterId, TopicName, UnixMillis},
    spec::Cluster,
};

/// What a cluster says of itself, internal topics included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterView {
    /// Topics with their number of partitions.
    pub topics: BTreeMap<TopicName, i32>,
    /// Kafka's own cluster id, where it is known.
    pub kafka_cluster_id: Option<String>,
}

/// Looks at Kafka clusters on behalf of a request.
#[async_trait]
pub trait DiscoveryPort: Debug + Send + Sync + 'static {
    /// Asks the cluster, reached by exactly this spec, for its topics. The answer is complete and was
    /// given after this call began. Never takes longer than `deadline`.
    ///
    /// # Errors
    /// The cause for people: not reachable, login refused, another cluster id than expected…
    async fn look(&self, cluster: &Cluster, deadline: Duration) -> Result<ClusterView, String>;

    /// What was last seen on the cluster, reached by exactly this spec; None: it is not watched, or was
    /// never seen. Returns at once.
    fn last_seen(&self, cluster: &Cluster) -> Option<ClusterView>;

    /// What is asked for on this cluster has just changed: look at it again at once. Returns at once.
    fn poke(&self, cluster: &ClusterId);
}

/// Wall-clock time, for what is stored and shown.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> UnixMillis;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        UnixMillis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}
