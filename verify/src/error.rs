//! Why something could not be compared.

use std::time::Duration;

use kreplicator_model::ids::{ClusterId, Offset, Partition, TopicName};

/// What stood in the way of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster cannot be used.
    #[error("{}", .0.full_text())]
    Cluster(#[from] kreplicator_kafka::error::Error),
    /// The topic is not there.
    #[error("topic {topic} does not exist on cluster {cluster}; create it or check its name")]
    NoTopic {
        /// The cluster.
        cluster: ClusterId,
        /// The topic.
        topic: TopicName,
    },
    /// The topic has fewer partitions.
    #[error("{place} does not exist; check --partition, or let the target topic grow")]
    NoPartition {
        /// Where.
        place: Place,
    },
    /// Nothing came, not even word that there is nothing.
    #[error("{place} gave nothing for {waited:?}: {cause}")]
    Silent {
        /// Where.
        place: Place,
        /// How long.
        waited: Duration,
        /// What the client saw last.
        cause: String,
    },
    /// The records asked for are gone.
    #[error(
        "{place}: records from offset {from} on were deleted before they were read; start again"
    )]
    Deleted {
        /// Where.
        place: Place,
        /// Where reading stood.
        from: Offset,
    },
    /// Records cannot be read.
    #[error("{place} cannot be read: {cause}")]
    Unreadable {
        /// Where.
        place: Place,
        /// What the client says.
        cause: String,
    },
    /// A header cannot be read.
    #[error(
        "{place}, offset {offset}: a header's name is not UTF-8, which the client library cannot read; \
         leave the record out by --from-offset or --to-offset, or headers by --ignore headers"
    )]
    Header {
        /// Where.
        place: Place,
        /// The record.
        offset: Offset,
    },
    /// Stopped before the end.
    #[error("stopped before the end")]
    Stopped,
}

/// A partition on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The cluster.
    pub cluster: ClusterId,
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "partition {} of topic {} on cluster {}",
            self.partition, self.topic, self.cluster
        )
    }
}
