//! Administration of one cluster: what discovery reads and what target topics need.
//!
//! An [`Admin`] holds two clients of the library, since only its admin client has the calls and only
//! its consumer tells what went wrong. Both live on a thread of their own, which serves the consumer
//! and drops both in the end: dropping a client waits for its threads, so it never happens on the
//! threads of the async runtime (C109).

mod calls;
mod clients;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_model::{
    ids::{ClusterId, TopicName},
    spec::Cluster,
};
use tokio::sync::Semaphore;

use self::clients::Clients;
use crate::{
    error::Error,
    properties::{ClientProperties, client_properties},
    secrets::SecretSource,
};

/// What a cluster says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterMetadata {
    /// Kafka's own cluster id, where the client can tell it.
    pub kafka_cluster_id: Option<String>,
    /// Brokers known now.
    pub brokers: usize,
    /// Every topic that this user may see, internal ones included.
    pub topics: BTreeMap<TopicName, TopicMetadata>,
}

/// One topic of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Number of partitions.
    pub partitions: i32,
    /// The broker's error for this topic (no permission, …).
    pub error: Option<String>,
}

/// One setting of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigValue {
    /// None where the broker hides it.
    pub value: Option<String>,
    /// Set on the topic itself, not inherited from the broker.
    pub is_topic_override: bool,
}

/// A topic to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// Number of partitions, at least 1.
    pub partitions: i32,
    /// None: the broker's default.
    pub replication_factor: Option<u16>,
    /// Settings that it is made with.
    pub config: BTreeMap<String, String>,
}

/// Longest wait for one call unless [`Admin::with_deadline`] says otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(15);
/// Calls of one cluster that may block a thread at the same time; more queue up, within their deadline.
/// Changes and descriptions of topics are not among them: the library answers those without a thread.
const PARALLEL_CALLS_MAX: usize = 4;

/// Administration of one cluster. Clones share the clients.
#[derive(Debug, Clone)]
pub struct Admin {
    cluster: ClusterId,
    expected_cluster_id: Option<String>,
    auto_create: bool,
    deadline: Duration,
    permits: Arc<Semaphore>,
    clients: Arc<Clients>,
}

impl Admin {
    /// Clients for `cluster`. Reads secrets and files; never waits for the network, and does not
    /// fail when the cluster is away.
    ///
    /// # Errors
    /// Secrets or files that cannot be read; settings that the client library refuses.
    pub fn connect(cluster: &Cluster, secrets: &dyn SecretSource) -> Result<Self, Error> {
        Self::from_properties(cluster, &client_properties(cluster, secrets)?)
    }

    /// The same from properties that were put together before.
    ///
    /// # Errors
    /// Settings that the client library refuses.
    pub fn from_properties(
        cluster: &Cluster,
        properties: &ClientProperties,
    ) -> Result<Self, Error> {
        Ok(Self {
            cluster: cluster.id.clone(),
            expected_cluster_id: cluster.expected_cluster_id.clone(),
            auto_create: cluster.allows_auto_create(),
            deadline: DEADLINE_DEFAULT,
            permits: Arc::new(Semaphore::new(PARALLEL_CALLS_MAX)),
            clients: Arc::new(Clients::create(&cluster.id, properties)?),
        })
    }

    /// The same with another deadline for each call.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What its clients were made from.
    #[must_use]
    pub fn properties(&self) -> &ClientProperties {
        self.clients.properties()
    }

    /// Whether [`Admin::topic_auto`] is allowed: the cluster's client options say so.
    #[must_use]
    pub fn allows_auto_create(&self) -> bool {
        self.auto_create
    }
}
