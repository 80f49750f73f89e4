//! The API's door to discovery, open whether or not this controller leads.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::admin::ClusterMetadata;
use kreplicator_model::{ids::ClusterId, spec::Cluster};
use tokio::time::timeout;

use super::{
    Discovery,
    watcher::{Shared, look},
};
use crate::{
    api::{ClusterView, DiscoveryPort},
    cluster_admin::AdminConnector,
};

/// Looks at clusters through the leader's discovery where it watches them by the same spec, and
/// through a client of its own otherwise.
#[derive(Debug)]
pub struct DiscoveryDoor {
    connector: Arc<dyn AdminConnector>,
    discovery: Mutex<Option<Discovery>>,
}

impl DiscoveryDoor {
    /// A door with no discovery behind it yet.
    #[must_use]
    pub fn new(connector: Arc<dyn AdminConnector>) -> Self {
        Self {
            connector,
            discovery: Mutex::default(),
        }
    }

    /// Puts the present leader's discovery behind the door, or takes it away.
    pub fn set(&self, discovery: Option<Discovery>) {
        *self
            .discovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = discovery;
    }

    fn discovery(&self) -> Option<Discovery> {
        self.discovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The leader's own watch over a cluster, where it reaches it by the same spec.
    fn watched(&self, cluster: &Cluster) -> Option<Arc<Shared>> {
        let shared = self.discovery()?.shared(&cluster.id)?;
        (shared.cluster == *cluster).then_some(shared)
    }
}

#[async_trait]
impl DiscoveryPort for DiscoveryDoor {
    async fn look(&self, cluster: &Cluster, deadline: Duration) -> Result<ClusterView, String> {
        let Some(shared) = self.watched(cluster) else {
            let admin = self
                .connector
                .connect(cluster)
                .map_err(|error| error.to_string())?;
            let answer = look(admin.as_ref(), cluster, deadline).await;
            return answer
                .map(|metadata| view(&metadata))
                .map_err(|error| error.to_string());
        };
        let ticket = shared.ask();
        let mut latest = shared.latest.subscribe();
        let served = latest.wait_for(|latest| latest.served >= ticket);
        // Out of time, what the look before said is the best cause there is.
        let in_time = timeout(deadline, served)
            .await
            .is_ok_and(|served| served.is_ok());
        match &shared.latest.borrow().answer {
            Some(Ok(metadata)) if in_time => Ok(view(metadata)),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(_)) | None => Err(format!(
                "cluster {} gave no answer within {}; check its bootstrap_servers and the network",
                cluster.id,
                humantime::format_duration(deadline)
            )),
        }
    }

    fn last_seen(&self, cluster: &Cluster) -> Option<ClusterView> {
        let shared = self.watched(cluster)?;
        let seen = shared.latest.borrow().topics.clone()?;
        let topics = seen.topics.iter();
        Some(ClusterView {
            topics: topics
                .map(|(name, topic)| (name.clone(), topic.partitions))
                .collect(),
            kafka_cluster_id: seen.kafka_cluster_id.clone(),
        })
    }

    fn poke(&self, cluster: &ClusterId) {
        if let Some(discovery) = self.discovery() {
            // Nobody waits for this look.
            let _ticket = discovery.ask(cluster);
        }
    }
}

fn view(metadata: &ClusterMetadata) -> ClusterView {
    let topics = metadata.topics.iter();
    ClusterView {
        topics: topics
            .filter(|(_, topic)| topic.partitions > 0)
            .map(|(name, topic)| (name.clone(), topic.partitions))
            .collect(),
        kafka_cluster_id: metadata.kafka_cluster_id.clone(),
    }
}
