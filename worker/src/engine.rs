//! The interface between the supervisor, which decides what runs, and the data path, which copies.
//!
//! The supervisor starts a task when it is assigned and stops it when it is not; everything between
//! (opening, faults, retries, checkpoints) is the engine's. One engine serves the tasks of all links
//! whose `engine` setting names it; [`crate::engines`] joins them.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_model::{
    exact,
    ids::{Offset, OwnerEpoch, TaskId, TopicName, UnixMillis},
    spec::{self, CheckpointSide, Cluster, Link, StartPolicy},
};

pub use kreplicator_model::target_limits::TargetLimits;

/// Everything that is the same for all tasks of a link. A change of any of it means that the tasks
/// of the link are stopped and started anew, one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkContext {
    /// The link.
    pub link: Link,
    /// Its source.
    pub source: Cluster,
    /// Its target.
    pub target: Cluster,
}

impl LinkContext {
    /// The cluster that holds the link's checkpoints.
    #[must_use]
    pub fn checkpoint_cluster(&self) -> &Cluster {
        match self.link.checkpoint_on {
            CheckpointSide::Source => &self.source,
            CheckpointSide::Target => &self.target,
        }
    }
}

/// One task as assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    /// The task.
    pub id: TaskId,
    /// Its ownership; written into every checkpoint.
    pub epoch: OwnerEpoch,
    /// Topic written to.
    pub target_topic: TopicName,
    /// Where to begin when no checkpoint exists. Partitions that appeared after the subscription
    /// come with `Earliest`.
    pub start: StartPolicy,
    /// What the target topic refuses.
    pub limits: TargetLimits,
}

/// Where a task is in its life on this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Finding its checkpoint, opening clients.
    Starting,
    /// Copying.
    Running,
    /// Stopped by a fault, waiting for its retry.
    Faulted,
    /// Delivering what was read, then over.
    Stopping,
    /// Over: reads nothing, sends nothing.
    Stopped,
}

/// What a task can promise about repeats. Neither ever loses or reorders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Every record once, whatever second owners do.
    ExactlyOnce,
    /// A record may come twice.
    AtLeastOnce(Weakness),
}

/// Why no more than at least once can be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weakness {
    /// The records engine does not count what it delivers.
    RecordsEngine,
    /// Counting does not tell everything.
    Counting(exact::Reason),
}

/// Which way the task's last batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathSeen {
    /// Passed on unopened.
    Passed,
    /// Opened and encoded anew, by this rule; a stable name such as `holes`.
    Rewritten(&'static str),
}

/// What a task tells of itself; a consistent copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where it is in its life.
    pub state: State,
    /// When `state` was entered.
    pub since: UnixMillis,
    /// Why it is faulted: names the thing and the remedy. Empty otherwise.
    pub cause: String,
    /// When a faulted task tries again.
    pub retry_at: Option<UnixMillis>,
    /// Next source offset to copy: everything below is at the target or is accounted for as a gap.
    pub checkpoint: Option<Offset>,
    /// First offset that the source still has.
    pub log_start: Option<Offset>,
    /// Last stable offset of the source, measured at most one interval ago; None: cannot be measured.
    pub log_end: Option<Offset>,
    /// When the checkpoint last moved, or was last seen to be at the log's end.
    pub progress_at: Option<UnixMillis>,
    /// Records acknowledged by the target since the task started here.
    pub records_total: u64,
    /// Their bytes: keys, values and headers where records are sent one by one, whole batches as they were sent
    /// where batches are passed on.
    pub bytes_total: u64,
    /// Source offsets that no longer existed to copy, since the task began and whoever owned it; kept with the
    /// checkpoint, so a checkpoint that somebody sets by hand begins at 0.
    pub gap_records_total: u64,
    /// Records handed to the client and not yet acknowledged.
    pub in_flight_records: u64,
    /// The data path that carries the task.
    pub engine: spec::Engine,
    /// What the task promises now; None until it is known.
    pub delivery: Option<Delivery>,
    /// Which way its last batch went; None before the first, and where no batch is ever passed on.
    pub path: Option<PathSeen>,
}

impl Delivery {
    /// The stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExactlyOnce => exact::EXACTLY_ONCE,
            Self::AtLeastOnce(_) => "at_least_once",
        }
    }

    /// The stable name of why it is no more than that; empty for exactly once.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "",
            Self::AtLeastOnce(Weakness::RecordsEngine) => "records_engine",
            Self::AtLeastOnce(Weakness::Counting(reason)) => reason.as_str(),
        }
    }
}

impl Delivery {
    /// Whether a second owner does no harm, so that the task may go on while nobody knows whether there is
    /// one.
    #[must_use]
    pub fn runs_without_lease(self) -> bool {
        self == Self::ExactlyOnce
    }
}

impl From<exact::DeliveryMode> for Delivery {
    fn from(mode: exact::DeliveryMode) -> Self {
        match mode {
            exact::DeliveryMode::ExactlyOnce => Self::ExactlyOnce,
            exact::DeliveryMode::AtLeastOnce(reason) => {
                Self::AtLeastOnce(Weakness::Counting(reason))
            }
        }
    }
}

impl PathSeen {
    /// The stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Rewritten(_) => "rewritten",
        }
    }

    /// The stable name of the rule by which batches are encoded anew; empty where they are passed on.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Passed => "",
            Self::Rewritten(rule) => rule,
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Everything read was acknowledged and the checkpoint is saved.
    Clean,
    /// Everything read was acknowledged, but its checkpoint could not be saved: the next owner begins at an
    /// older one, and reads some of it again.
    Unsaved,
    /// Time ran out or the fence closed: these records were with the client and may or may not arrive.
    Forced {
        /// Their number.
        in_flight_records: u64,
    },
}

/// A data path.
#[async_trait]
pub trait Engine: Send + Sync + Debug {
    /// Begins a task and returns at once; what becomes of it is in [`RunningTask::status`].
    fn start(&self, spec: TaskSpec, context: Arc<LinkContext>) -> Arc<dyn RunningTask>;

    /// Lets go of the clients of a link that has no tasks any more, within the deadline.
    async fn release_link(&self, link: &kreplicator_model::ids::LinkId, deadline: Duration);

    /// Lets go of everything, within the deadline. Tasks were stopped before.
    async fn close(&self, deadline: Duration);

    /// Waits until a part of the engine has panicked, and tells which and how: some tasks may stand still
    /// from then on and not know it, so the process has to end. Cancel safe.
    async fn broken(&self) -> String {
        std::future::pending().await
    }
}

/// A task that was started.
#[async_trait]
pub trait RunningTask: Send + Sync + Debug {
    /// What it was started with.
    fn spec(&self) -> &TaskSpec;

    /// How it is doing.
    fn status(&self) -> Status;

    /// Whether it may go on though this worker's registration has ended: see
    /// [`Delivery::runs_without_lease`].
    fn may_go_on(&self) -> bool {
        let delivery = self.status().delivery;
        delivery.is_some_and(Delivery::runs_without_lease)
    }

    /// Stops reading, waits until the target has acknowledged what was read, saves the checkpoint.
    /// After `deadline` what is left is thrown away as far as it can be. When this returns, the task
    /// reads nothing, sends nothing and saves nothing any more.
    async fn stop(&self, deadline: Duration) -> Stopped;
}
