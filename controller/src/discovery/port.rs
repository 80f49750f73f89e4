//! The API's door to discovery, open whether or not this controller leads.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::admin::ClusterMetadata;
use kreplicator_model::{ids::ClusterId, spec::Cluster};
use tokio::time::timeout;

use super::{Discovery, watcher::look};
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
}

#[async_trait]
impl DiscoveryPort for DiscoveryDoor {
    async fn look(&self, cluster: &Cluster, deadline: Duration) -> Result<ClusterView, String> {
        let watched = self
            .discovery()
            .and_then(|discovery| discovery.shared(&cluster.id))
            .filter(|shared| shared.cluster == *cluster);
        let Some(shared) = watched else {
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
