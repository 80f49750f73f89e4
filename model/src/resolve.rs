//! Which topics run on which link, and where they start.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    desired::Desired,
    ids::{ClusterId, LinkId, LinkTopic, NameError, TopicName, UnixMillis},
    spec::StartPolicy,
};

/// A topic as found on a source cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTopic {
    /// Number of partitions, at least 1.
    pub partitions: i32,
    /// Kafka's id of it, where the client can tell it.
    pub topic_id: Option<String>,
}

/// Topics by cluster. A cluster that was never discovered (or could not be reached since the start)
/// is absent: no data means wait.
pub type Inventory = BTreeMap<ClusterId, BTreeMap<TopicName, SourceTopic>>;

/// What was learned about a topic of a link when it first ran, and since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRecord {
    /// Its name on the target.
    pub target_topic: TopicName,
    /// Partitions from this one on start at offset 0.
    pub first_partitions: i32,
    /// Partitions last known on the source.
    pub partitions: i32,
    /// Partitions of the target topic when it was last verified; 0: never yet. Once it is above 0, a
    /// missing target topic was deleted and is not made again silently (C068).
    pub target_partitions: i32,
    /// Where partitions below `first_partitions` start when there is no checkpoint.
    pub start: StartPolicy,
    /// When it was first seen.
    pub first_seen: UnixMillis,
    /// Clusters this data passed before it reached the target, nearest last, the source included.
    pub origin_clusters: Vec<ClusterId>,
    /// Kafka's id of the source cluster.
    pub source_cluster_id: Option<String>,
    /// Kafka's id of the target cluster.
    pub target_cluster_id: Option<String>,
    /// Kafka's id of the source topic.
    pub source_topic_id: Option<String>,
}

/// A topic of a link as it shall run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTopic {
    /// Id of the subscription that asks for it.
    pub subscription: String,
    /// Its name on the target.
    pub target_topic: TopicName,
    /// Partitions on the source.
    pub partitions: i32,
    /// Partitions from this one on start at offset 0.
    pub first_partitions: i32,
    /// Where partitions below `first_partitions` start when there is no checkpoint.
    pub start: StartPolicy,
    /// Subscription or link is paused: it does not run.
    pub paused: bool,
    /// Why it does not run though it is asked for.
    pub problem: Option<TopicProblem>,
    /// Clusters the data passed, nearest last, the source included.
    pub origin_clusters: Vec<ClusterId>,
    /// There is no record of it yet: one must be written before it runs.
    pub is_new: bool,
}

impl ResolvedTopic {
    /// Whether tasks shall run for it.
    #[must_use]
    pub fn runs(&self) -> bool {
        !self.paused && self.problem.is_none()
    }
}

/// Why a topic does not run though it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicProblem {
    /// It was there and is not any more (C068).
    #[error(
        "source topic is gone from cluster {cluster}; its copy is kept, unsubscribe to forget it"
    )]
    SourceGone {
        /// The source cluster.
        cluster: ClusterId,
    },
    /// The data came from the cluster it would be copied to (C074).
    #[error("topic came from cluster {target} and would loop; drop the subscription")]
    WouldLoop {
        /// The cluster that the data came from and would go to.
        target: ClusterId,
    },
    /// Another topic is written to the same target topic.
    #[error("target topic {target_topic} is written by {other}; rename one of them on its link")]
    NameClash {
        /// The target topic that both map to.
        target_topic: TopicName,
        /// The one that keeps it.
        other: LinkTopic,
    },
    /// Its target name is not allowed by Kafka.
    #[error("target name is not allowed; rename it on the link: {0}")]
    BadTargetName(NameError),
}

/// What runs, and what is asked for in vain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Topics that a subscription asks for.
    pub topics: BTreeMap<LinkTopic, ResolvedTopic>,
    /// Exact subscriptions whose topic was never seen on a discovered source.
    pub missing: BTreeMap<(LinkId, String), TopicName>,
}

/// Works out which topics run. `baseline` holds the subscriptions whose first discovery pass is over.
#[must_use]
pub fn resolve(
    desired: &Desired,
    inventory: &Inventory,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    baseline: &BTreeSet<(LinkId, String)>,
) -> Resolved {
    let _ = (desired, inventory, records, baseline);
    todo!()
}
