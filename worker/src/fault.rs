//! Why a task cannot go on: a kind for metrics and decisions, a cause for people.

use kreplicator_model::{
    checkpoint::CheckpointMeta,
    ids::{Offset, Partition, TopicName},
    task::FaultKind,
};
use kreplicator_wire::topic::TopicId;

use crate::engine::TaskSpec;

/// What sort of trouble it is; the label of the fault counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The target refuses a record, or it cannot be sent unchanged.
    Refused,
    /// The target cannot be written to.
    Target,
    /// The source cannot be read from.
    Source,
    /// Source offsets that were never copied are gone, and the link halts on gaps.
    Gap,
    /// The source ends before what was copied already.
    Truncated,
    /// The reader does not move though there is more to read.
    Stalled,
    /// A checkpoint cannot be read or saved.
    Checkpoint,
    /// Another owner has taken over.
    Fenced,
    /// Settings, secrets or files of the clusters.
    Settings,
    /// A record does not fit into the memory budget.
    Memory,
}

impl Kind {
    /// The label value.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Target => "target",
            Self::Source => "source",
            Self::Gap => "gap",
            Self::Truncated => "truncated",
            Self::Stalled => "stalled",
            Self::Checkpoint => "checkpoint",
            Self::Fenced => "fenced",
            Self::Settings => "settings",
            Self::Memory => "memory",
        }
    }

    /// Whether trying again may help: everything may heal but a lost ownership, since even settings
    /// and topics are changed from outside while a task waits.
    #[must_use]
    pub fn retry(self) -> FaultKind {
        match self {
            Self::Fenced => FaultKind::Terminal,
            Self::Refused
            | Self::Target
            | Self::Source
            | Self::Gap
            | Self::Truncated
            | Self::Stalled
            | Self::Checkpoint
            | Self::Settings
            | Self::Memory => FaultKind::Retryable,
        }
    }
}

/// A fault of one task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Fault {
    /// What sort it is.
    pub kind: Kind,
    /// What happened to what, and the remedy.
    pub cause: String,
}

impl Fault {
    /// A fault with its text.
    #[must_use]
    pub fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }
}

impl Fault {
    /// Source offsets `[from, to)` are gone, and the link halts on gaps.
    #[must_use]
    pub fn halted_by_gap(from: Offset, to: Offset) -> Self {
        Self::new(
            Kind::Gap,
            format!(
                "source offsets [{from}, {to}) were deleted before they were copied and the link \
                 halts on gaps; set on_gap to continue_and_report, or reset the checkpoint to {to}"
            ),
        )
    }

    /// The source partition ends before what was copied.
    #[must_use]
    pub fn truncated(position: Offset, end: Offset) -> Self {
        Self::new(
            Kind::Truncated,
            format!(
                "the source partition ends at {end}, before offset {position} that was copied up to: \
                 the topic was truncated or made anew; check both topics, then reset the checkpoint"
            ),
        )
    }

    /// The record before `position`, which was copied, is not in the source partition any more, which may go on
    /// nevertheless. `cut`: where its log and what was copied part, if that is below.
    #[must_use]
    pub fn replaced(position: Offset, cut: Option<Offset>) -> Self {
        let from = cut.map_or_else(
            || format!("before {position}"),
            |cut| format!("from {cut} on"),
        );
        Self::new(
            Kind::Truncated,
            format!(
                "the source partition does not hold {from} what was copied up to offset {position}: an unclean election \
                 has cut its log, or the topic was made anew; check both topics, then reset the checkpoint"
            ),
        )
    }

    /// A batch of the source is damaged.
    #[must_use]
    pub fn damaged(topic: &TopicName, partition: Partition, at: Offset) -> Self {
        Self::new(
            Kind::Source,
            format!(
                "the batch of source offset {at} is damaged: its checksum does not fit its records; \
                 delete the records below the next good batch on the source, or repair its log"
            ),
        )
        .at_source(topic, partition)
    }

    /// The same with the name of the source partition before it.
    #[must_use]
    pub fn at_source(self, topic: &TopicName, partition: Partition) -> Self {
        let cause = self.cause;
        Self::new(
            self.kind,
            format!("source topic {topic} partition {partition}: {cause}"),
        )
    }

    /// The source topic goes by another id than that under which offsets up to `position` were copied.
    #[must_use]
    pub fn made_anew(spec: &TaskSpec, position: Offset, known: TopicId, told: TopicId) -> Self {
        let (link, topic) = (&spec.id.link, &spec.id.topic);
        Self::new(
            Kind::Truncated,
            format!(
                "the source topic was made anew: its id is {told}, it was {known} when offsets up to \
                 {position} were copied; check both topics, then put the checkpoint back by hand: \
                 kafka-consumer-groups --reset-offsets for topic {topic} of group kreplicator.{link}"
            ),
        )
    }

    /// The checkpoint of a task was saved under a later ownership than ours.
    #[must_use]
    pub fn taken_over(spec: &TaskSpec, by: &CheckpointMeta) -> Self {
        Self::new(
            Kind::Fenced,
            format!(
                "worker {} has taken over with epoch {}, ours is {}; if no other worker here runs this \
                 task, another installation uses link {} on the same clusters: stop it, or name the \
                 link otherwise",
                by.worker, by.epoch, spec.epoch, spec.id.link
            ),
        )
    }
}

/// An error with its causes, as one line for people: a transport's own text says nothing.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// A cluster's error as a fault of every task that needs the cluster.
impl From<(Kind, &kreplicator_kafka::error::Error)> for Fault {
    fn from((kind, error): (Kind, &kreplicator_kafka::error::Error)) -> Self {
        use kreplicator_kafka::error::Error;
        let kind = match error {
            Error::Secret { .. } | Error::File { .. } | Error::Settings { .. } => Kind::Settings,
            _ => kind,
        };
        Self::new(kind, error.full_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_ownership_is_final() {
        assert_eq!(Kind::Fenced.retry(), FaultKind::Terminal);
        assert_eq!(Kind::Refused.retry(), FaultKind::Retryable);
    }
}
