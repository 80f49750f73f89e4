//! What the engine needs of whoever keeps the lines of tasks (`model::exact`).

use std::fmt::Debug;

use async_trait::async_trait;
use kreplicator_model::{
    exact::{Line, ProducerId},
    ids::{LinkId, OwnerEpoch, Partition, TopicName},
};

/// Whose line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Of {
    /// The link.
    pub link: LinkId,
    /// The source topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
    /// What is written to. A line of another target is no line.
    pub target: Target,
}

/// A target topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Kafka's id of the cluster, where it tells.
    pub cluster_id: Option<String>,
    /// The topic.
    pub topic: TopicName,
    /// Kafka's id of the topic, where it tells.
    pub topic_id: Option<String>,
}

/// A line as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The line.
    pub line: Line,
    /// The target topic was deleted and made anew since.
    pub target_is_another: bool,
}

/// Why a line was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lines of tasks cannot be read or written: {0}")]
pub struct Error(pub String);

/// Keeps lines, so that whoever begins or takes over a task counts as the owner before did.
#[async_trait]
pub trait LineBook: Send + Sync + Debug {
    /// The line of a task; None: it has none.
    ///
    /// # Errors
    /// When the store does not answer in time, or holds what cannot be read.
    async fn line(&self, of: &Of) -> Result<Option<Kept>, Error>;

    /// Writes a line in place of `before`. False: somebody else has written one; nothing was changed.
    ///
    /// # Errors
    /// As [`LineBook::line`]; whether it was written is not known then.
    async fn write(
        &self,
        of: &Of,
        before: Option<&Line>,
        line: &Line,
        epoch: OwnerEpoch,
    ) -> Result<bool, Error>;

    /// The producer id of a link on its target; None: it has none.
    ///
    /// # Errors
    /// As [`LineBook::line`].
    async fn producer_id(
        &self,
        link: &LinkId,
        target_cluster_id: Option<&str>,
    ) -> Result<Option<ProducerId>, Error>;

    /// Notes a producer id of a link where there is none. Gives the one that holds: it may be
    /// another's.
    ///
    /// # Errors
    /// As [`LineBook::line`].
    async fn note_producer_id(
        &self,
        link: &LinkId,
        target_cluster_id: Option<&str>,
        id: ProducerId,
    ) -> Result<ProducerId, Error>;
}
