//! Lines and producer ids in the metadata store: what owners of a task agree on before one of them
//! sends.
//!
//! A [`Line`] says which source record has sequence 0. Two owners that counted from different records
//! would make the target take a batch of one for a repeat of the other's, so a line is written by
//! compare-and-put before its first send. That happens when a task runs for the first time and
//! whenever its counting begins anew, not per record or per second.
//!
//! - [`LineBook`]: the door.
//! - [`StoredLines`]: behind it, the metadata store.
//! - [`kreplicator_wire::gather`]: many callers at once make few calls. [`draft`]: which writes fit.
//!
//! Workers write these keys without the leader's guard: no decision of the controller rests on them,
//! and a line has to be agreed on while no controller is there.

mod draft;
mod stored;

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;
use kreplicator_model::{
    exact::{Line, ProducerId},
    ids::{ClusterId, LinkId, LinkTopic, OwnerEpoch, Partition, TopicName},
};
use kreplicator_proto::{
    line_record::{LineEntry, LineRecord},
    stored::Unreadable,
};
use kreplicator_store::Revision;

pub use stored::StoredLines;

/// What lines are for. Lines for anything else count as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineTarget {
    /// Our name of the cluster written to.
    pub cluster: ClusterId,
    /// Kafka's own id of it; None: not known, and then any is taken for it.
    pub cluster_id: Option<String>,
    /// Topic written to.
    pub topic: TopicName,
    /// Kafka's id of that topic; None: not known (brokers before 2.8 have none). A topic with another
    /// id was made anew: its lines are *not* absent, see [`TopicLines::is_another_topic`].
    pub topic_id: Option<String>,
}

/// The lines of a topic as they were read or written. Clones share their content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicLines {
    /// Revision of the stored value, also of one that is for another target; None: there was none.
    revision: Option<Revision>,
    /// None: there was none, or it is for another target.
    record: Option<Arc<LineRecord>>,
}

/// A line to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// The partition, the same number on source and target.
    pub partition: Partition,
    /// Its line.
    pub line: Line,
    /// The ownership that it is written under.
    pub owner_epoch: OwnerEpoch,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The line is stored; the lines as they are now.
    Done(TopicLines),
    /// Somebody else has written a line of this partition, the lines are for another topic, or what
    /// was to be replaced has changed. Nothing was written; the lines as they are now.
    Conflict(TopicLines),
}

/// What asking the target for a producer id may end in.
pub type Allocated = std::result::Result<ProducerId, Box<dyn std::error::Error + Send + Sync>>;

/// Has the target give out a producer id; with a deadline of its own. It may be called more than
/// once; an id that is not used is lost, and there are plenty.
pub type Allocate<'a> = dyn Fn() -> BoxFuture<'a, Allocated> + Send + Sync + 'a;

/// Why the book cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The metadata store. A write may or may not have happened: load again.
    #[error(transparent)]
    Store(#[from] Arc<kreplicator_store::Error>),
    /// The store or the other writers of the topic took too long. As [`Error::Store`].
    #[error("{key} could not be read or written within {seconds} s")]
    Late {
        /// The key.
        key: String,
        /// How long was waited.
        seconds: u64,
    },
    /// What is stored cannot be understood, and is left alone.
    #[error("{0}; restore it or delete the key")]
    Unreadable(#[from] Unreadable),
    /// The target gave out no producer id.
    #[error("target gave no producer id for link {link}")]
    Allocate {
        /// The link.
        link: LinkId,
        /// What the target said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Late { .. } | Self::Allocate { .. } => true,
            Self::Unreadable(_) => false,
        }
    }
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Lines and producer ids, agreed between all workers. Every call has a deadline and none is retried
/// beyond it; a call may be given up at any time.
#[async_trait]
pub trait LineBook: Send + Sync + Debug {
    /// The lines of a topic, as they are at some moment after the call began.
    async fn load(&self, topic: &LinkTopic, target: &LineTarget) -> Result<TopicLines>;

    /// Writes the line of one partition in place of the one in `expected`, or of none. Other partitions
    /// are left as they are, whoever has changed them since. Writing a line that is there already is
    /// [`Written::Done`], so a write whose answer was lost can be repeated.
    async fn write(
        &self,
        topic: &LinkTopic,
        target: &LineTarget,
        expected: &TopicLines,
        entry: NewEntry,
    ) -> Result<Written>;

    /// The producer id of a link on its target; `allocate` is called when none is stored for this
    /// target, and its answer is what everybody gets unless somebody else was faster.
    async fn producer_id(
        &self,
        link: &LinkId,
        target: &ClusterId,
        target_cluster_id: Option<&str>,
        allocate: &Allocate<'_>,
    ) -> Result<ProducerId>;
}

impl TopicLines {
    /// What was read at `revision`, as far as it is for `target`.
    #[must_use]
    pub fn new(revision: Option<Revision>, record: Option<Arc<LineRecord>>) -> Self {
        Self { revision, record }
    }

    /// Revision of the stored value; None: there is none.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// The line of a partition; None before its first.
    #[must_use]
    pub fn line(&self, partition: Partition) -> Option<&Line> {
        self.entry(partition).map(|entry| &entry.line)
    }

    /// The same with where it comes from.
    #[must_use]
    pub fn entry(&self, partition: Partition) -> Option<&LineEntry> {
        self.record.as_ref()?.lines.get(&partition)
    }

    /// The target topic's id that the lines were written for, where it was known.
    #[must_use]
    pub fn target_topic_id(&self) -> Option<&str> {
        self.record.as_ref()?.target_topic_id.as_deref()
    }

    /// Whether the lines were written for a topic of the same name that was deleted since.
    #[must_use]
    pub fn is_another_topic(&self, target: &LineTarget) -> bool {
        differs(self.target_topic_id(), target.topic_id.as_deref())
    }
}

/// Both known and not the same.
fn differs(known: Option<&str>, seen: Option<&str>) -> bool {
    known.zip(seen).is_some_and(|(known, seen)| known != seen)
}
