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
    marks: VecDeque<Mark>,
    /// What holds before the first of them.
    before: Mark,
}

/// The epoch under which the records from `from` on were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) from: Offset,
    pub(super) epoch: Option<i32>,
}

impl Epochs {
    /// Nothing is read yet from `position` on; `epoch`: of the record before it.
    pub(super) fn new(position: Offset, epoch: Option<i32>) -> Self {
        Self {
            marks: VecDeque::new(),
            before: Mark {
                from: Offset(position.0 - 1),
                epoch,
            },
        }
    }

    /// A batch of this epoch was read; what was read before ends at `from`.
    pub(super) fn read(&mut self, from: Offset, epoch: Option<i32>) {
        if self.latest() != epoch {
            self.marks.push_back(Mark { from, epoch });
        }
    }

    /// Epoch of what was read last.
    pub(super) fn latest(&self) -> Option<i32> {
        self.marks.back().unwrap_or(&self.before).epoch
    }

    /// What holds of the record before `offset`, below which only that is remembered from now on.
    pub(super) fn settle(&mut self, offset: Offset) -> Mark {
        while let Some(mark) = self.marks.front()
            && mark.from < offset
        {
            self.before = *mark;
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
        let mut epochs = Epochs::new(Offset(10), Some(3));
        for (from, epoch) in [(10, 3), (12, 3), (14, 5), (20, 5), (22, 6)] {
            epochs.read(Offset(from), Some(epoch));
        }
        assert_eq!(epochs.marks.len(), 2, "one for each leader");
        assert_eq!(epochs.latest(), Some(6));
        for (checkpoint, epoch) in [(10, 3), (14, 3), (15, 5), (22, 5), (23, 6), (30, 6)] {
            let mark = epochs.settle(Offset(checkpoint));
            assert_eq!(mark.epoch, Some(epoch), "{checkpoint}");
            assert!(mark.from < Offset(checkpoint));
        }
        assert!(epochs.marks.is_empty());
        assert_eq!(epochs.latest(), Some(6));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let mut epochs = Epochs::new(Offset(5), None);
        assert_eq!(epochs.settle(Offset(5)).epoch, None);
        epochs.read(Offset(5), Some(1));
        epochs.read(Offset(7), None);
        assert_eq!(epochs.latest(), None);
        assert_eq!(epochs.settle(Offset(5)).epoch, None);
        assert_eq!(epochs.settle(Offset(6)).epoch, Some(1));
        assert_eq!(epochs.settle(Offset(9)).epoch, None);
    }
}
