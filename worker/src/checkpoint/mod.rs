//! Where checkpoints are kept between owners.

pub mod kafka;
pub mod names;

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use async_trait::async_trait;
use kreplicator_model::{
    checkpoint::{CheckpointMeta, MetaError},
    ids::{LinkId, Offset, OwnerEpoch, TaskId},
};

/// The consumer group that holds the checkpoints of a link: a plain group that any Kafka tool can
/// show, never one with members.
#[must_use]
pub fn group_of(link: &LinkId) -> String {
    format!("kreplicator.{link}")
}

/// A checkpoint as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Next source offset to copy.
    pub offset: Offset,
    /// Who saved it; None: somebody with another tool, such as an operator who reset it.
    pub meta: Option<CheckpointMeta>,
}

/// A checkpoint to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    /// Whose.
    pub task: TaskId,
    /// The ownership under which it is saved.
    pub epoch: OwnerEpoch,
    /// Next source offset to copy.
    pub offset: Offset,
    /// Source offsets below it that were gone before they were copied.
    pub gaps: u64,
}

/// Why a checkpoint was not read or saved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nobody answered in time.
    #[error("checkpoints in group {group} cannot be reached: {cause}")]
    Unreachable {
        /// The group.
        group: String,
        /// Why, as far as is known.
        cause: String,
    },
    /// The cluster answered and said no.
    #[error("checkpoints in group {group}: {cause}")]
    Refused {
        /// The group.
        group: String,
        /// Why and what to do.
        cause: String,
    },
    /// What is there cannot be read. Never taken for "no checkpoint".
    #[error(
        "checkpoint of {task} in group {group} cannot be read; reset it or upgrade this worker"
    )]
    Unreadable {
        /// Whose.
        task: TaskId,
        /// The group.
        group: String,
        /// What is wrong with it.
        #[source]
        fault: MetaError,
    },
    /// This worker may not act any more.
    #[error("not saved: this worker's lease may be over")]
    Fenced,
}

/// Checkpoints that are there, by task; None: there is none.
pub type Loaded = BTreeMap<TaskId, Result<Option<Committed>, Error>>;

/// Keeps the checkpoints of one link.
#[async_trait]
pub trait CheckpointStore: Send + Sync + Debug {
    /// Reads checkpoints. Every task asked for has an answer.
    ///
    /// # Errors
    /// When nothing at all could be read.
    async fn load(&self, tasks: &[TaskId], deadline: Duration) -> Result<Loaded, Error>;

    /// Saves checkpoints; those that were not saved are given back with the reason. One that is
    /// behind what this store saved before is left out silently (C048).
    ///
    /// # Errors
    /// When nothing at all was saved, or it is not known what was.
    async fn save(
        &self,
        saves: &[Save],
        deadline: Duration,
    ) -> Result<BTreeMap<TaskId, Error>, Error>;

    /// Forgets a task that this worker does not own any more: the next owner may go anywhere.
    fn forget(&self, task: &TaskId);
}
