//! Under which topic's name a checkpoint is kept.
//!
//! Brokers take commits only for topics that their own cluster has (KafkaApis, `OffsetCommit`). On the
//! source that is the source topic, on the target the target topic. Where both names differ, what is kept
//! on the target says whose it is: the name of one task's target may be that of another one's source.
//! Earlier versions used the source topic's name on the target too, where it happened to exist; what they
//! left there is still found.

use kreplicator_model::{checkpoint::CheckpointMeta, ids::TopicName, spec::CheckpointSide};

/// The names of one task's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    source: TopicName,
    kept: TopicName,
}

impl Names {
    /// The names for a task from `source` to `target` whose checkpoints are on `side`.
    #[must_use]
    pub fn new(side: CheckpointSide, source: &TopicName, target: &TopicName) -> Self {
        let kept = match side {
            CheckpointSide::Source => source,
            CheckpointSide::Target => target,
        };
        Self {
            source: source.clone(),
            kept: kept.clone(),
        }
    }

    /// The topic whose name the checkpoint is kept under.
    #[must_use]
    pub fn kept(&self) -> &TopicName {
        &self.kept
    }

    /// The name that an earlier version kept it under, where that is another.
    #[must_use]
    pub fn former(&self) -> Option<&TopicName> {
        (self.kept != self.source).then_some(&self.source)
    }

    /// The text of a commit under [`Self::kept`].
    #[must_use]
    pub fn mark(&self, meta: CheckpointMeta) -> CheckpointMeta {
        match self.former() {
            Some(source) => meta.with_source(source.clone()),
            None => meta,
        }
    }

    /// Whether what was found under [`Self::kept`] is this task's. One without a text of ours is: an
    /// operator put it there.
    #[must_use]
    pub fn is_ours(&self, meta: Option<&CheckpointMeta>) -> bool {
        meta.is_none_or(|meta| meta.source.as_ref() == self.former())
    }

    /// Whether what was found under [`Self::former`] is this task's, from an earlier version.
    #[must_use]
    pub fn is_former(meta: Option<&CheckpointMeta>) -> bool {
        meta.is_some_and(|meta| meta.source.is_none())
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ids::{OwnerEpoch, WorkerId};

    use super::*;

    fn topic(name: &str) -> TopicName {
        TopicName::new(name).expect("legal")
    }

    fn names(side: CheckpointSide, source: &str, target: &str) -> Names {
        Names::new(side, &topic(source), &topic(target))
    }

    fn meta() -> CheckpointMeta {
        CheckpointMeta::new(OwnerEpoch(7), WorkerId::new("w").expect("legal"), None)
    }

    #[test]
    fn each_cluster_is_told_of_its_own_topic() {
        let on_source = names(CheckpointSide::Source, "orders", "copy.orders");
        assert_eq!(on_source.kept(), &topic("orders"));
        assert_eq!(on_source.former(), None);
        assert_eq!(on_source.mark(meta()), meta(), "as ever");
        let on_target = names(CheckpointSide::Target, "orders", "copy.orders");
        assert_eq!(on_target.kept(), &topic("copy.orders"));
        assert_eq!(on_target.former(), Some(&topic("orders")));
        let same_name = names(CheckpointSide::Target, "orders", "orders");
        assert_eq!(same_name.former(), None);
        assert_eq!(same_name.mark(meta()), meta(), "as ever");
    }

    #[test]
    fn what_another_task_keeps_under_the_same_name_is_not_taken() {
        let first = names(CheckpointSide::Target, "orders", "copy.orders");
        let second = names(CheckpointSide::Target, "copy.orders", "copy.copy.orders");
        let kept = first.mark(meta());
        assert!(first.is_ours(Some(&kept)));
        assert!(!second.is_ours(Some(&kept)));
        assert!(!Names::is_former(Some(&kept)), "nor as its former one");
        // The second one's from an earlier version.
        assert!(!first.is_ours(Some(&meta())));
        assert!(Names::is_former(Some(&meta())));
        // An operator's.
        assert!(first.is_ours(None));
        assert!(!Names::is_former(None));
        let plain = names(CheckpointSide::Source, "orders", "copy.orders");
        assert!(plain.is_ours(Some(&meta())) && plain.is_ours(None));
    }
}
