//! Under which leaders source offsets were written, as far as a checkpoint may still have to say it.
//!
//! A checkpoint tells the epoch of the leader that wrote the record before it. Whoever goes on from there tells it
//! to the source, which then knows whether its log still holds that record: after an unclean election, or in a topic
//! made anew, it may hold others at the same offsets, however long it has grown since.
//!
//! # Source
//! KIP-320; `Partition.fetchRecords` and `LeaderEpochFileCache.endOffsetFor` of Kafka 4.3.1.

use std::collections::VecDeque;

use kreplicator_model::ids::Offset;

/// A few entries: leaders change seldom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epochs {
    /// From each of these offsets on, up to the next one. None: the log's format does not tell, or it is not known.
    marks: VecDeque<(Offset, Option<i32>)>,
    /// Epoch of the record before the first mark.
    before: Option<i32>,
}

impl Epochs {
    /// Nothing is read yet; `before`: of the record before the position.
    pub(super) fn new(before: Option<i32>) -> Self {
        Self {
            marks: VecDeque::new(),
            before,
        }
    }

    /// A batch of this epoch was read; what was read before ends at `from`.
    pub(super) fn read(&mut self, from: Offset, epoch: Option<i32>) {
        if self.latest() != epoch {
            self.marks.push_back((from, epoch));
        }
    }

    /// Epoch of what was read last.
    pub(super) fn latest(&self) -> Option<i32> {
        self.marks.back().map_or(self.before, |(_, epoch)| *epoch)
    }

    /// Epoch of the record before `offset`, which nobody asks below any more.
    pub(super) fn settle(&mut self, offset: Offset) -> Option<i32> {
        while let Some((from, epoch)) = self.marks.front()
            && *from < offset
        {
            self.before = *epoch;
            self.marks.pop_front();
        }
        self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_the_epoch_of_the_record_before_it() {
        let mut epochs = Epochs::new(Some(3));
        for (from, epoch) in [(10, 3), (12, 3), (14, 5), (20, 5), (22, 6)] {
            epochs.read(Offset(from), Some(epoch));
        }
        assert_eq!(epochs.marks.len(), 2, "one for each leader");
        assert_eq!(epochs.latest(), Some(6));
        for (checkpoint, epoch) in [(10, 3), (14, 3), (15, 5), (22, 5), (23, 6), (30, 6)] {
            assert_eq!(
                epochs.settle(Offset(checkpoint)),
                Some(epoch),
                "{checkpoint}"
            );
        }
        assert!(epochs.marks.is_empty());
        assert_eq!(epochs.latest(), Some(6));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let mut epochs = Epochs::new(None);
        assert_eq!(epochs.settle(Offset(5)), None);
        epochs.read(Offset(5), Some(1));
        epochs.read(Offset(7), None);
        assert_eq!(epochs.latest(), None);
        assert_eq!(epochs.settle(Offset(5)), None);
        assert_eq!(epochs.settle(Offset(6)), Some(1));
        assert_eq!(epochs.settle(Offset(9)), None);
    }
}
