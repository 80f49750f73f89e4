//! What discovery knows, as plain values.

use std::{collections::BTreeMap, sync::Arc};

use kreplicator_model::{
    ids::{ClusterId, TopicName},
    resolve::SourceTopic,
};

use crate::fleet::ClusterState;

/// A cluster's topics as of the last look that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterTopics {
    /// Topics that exist, internal ones included.
    pub topics: BTreeMap<TopicName, SourceTopic>,
    /// What is not among them is not there for certain.
    pub confirmed: bool,
    /// Kafka's own cluster id, where it is known.
    pub kafka_cluster_id: Option<String>,
    /// Brokers known.
    pub brokers: usize,
}

/// One cluster as discovery knows it.
#[derive(Debug, Clone, Default)]
pub struct ClusterSnapshot {
    /// For people.
    pub state: ClusterState,
    /// None: never looked at with success since this leader began or its spec changed.
    pub topics: Option<Arc<ClusterTopics>>,
    /// The cluster that answers is not the one declared: nothing may be copied from or to it.
    pub refused: Option<String>,
    /// The highest ticket of a look that succeeded.
    pub succeeded: u64,
}

/// Every cluster.
pub type Snapshot = BTreeMap<ClusterId, ClusterSnapshot>;
