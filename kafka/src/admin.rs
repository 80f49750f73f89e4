//! Administration of one cluster: what discovery reads and what target topics need.

use std::collections::BTreeMap;

use kreplicator_model::ids::TopicName;

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
