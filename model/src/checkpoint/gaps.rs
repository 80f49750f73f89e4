//! Source offsets that were gone before they were copied, counted for a task and not for its owner.
//!
//! The count is kept with the checkpoint, so whoever goes on from there goes on counting. What a checkpoint says
//! is about what lies below it: a gap that lies ahead is found once more by whoever begins there.

use crate::ids::Offset;

/// Counts the gaps of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Offsets of gaps below the checkpoint.
    below: u64,
    /// Ends and offsets of the others, in order.
    ahead: Vec<(Offset, u64)>,
    /// The gap found last.
    last: Option<(Offset, Offset)>,
}

impl Gaps {
    /// The task goes on from a checkpoint at `offset` that came with a count of `told`. Its own may be newer, unless
    /// somebody has put the checkpoint back: before a gap there is nothing to go on from.
    pub fn resume(&mut self, offset: Offset, told: u64) {
        if self.last.is_some_and(|(from, _)| offset < from) {
            *self = Self::default();
        }
        self.below = self.at(offset).max(told);
    }

    /// Offsets `[from, to)` are gone. Gives how many of them were not counted before.
    pub fn find(&mut self, from: Offset, to: Offset) -> u64 {
        let begin = self.last.map_or(from, |(_, to)| from.max(to));
        if begin >= to {
            return 0;
        }
        let offsets = to.0.abs_diff(begin.0);
        self.last = Some((from, to));
        self.ahead.push((to, offsets));
        offsets
    }

    /// All that were found.
    #[must_use]
    pub fn total(&self) -> u64 {
        let ahead = self.ahead.iter().map(|(_, offsets)| *offsets);
        ahead.fold(self.below, u64::saturating_add)
    }

    /// What is told with a checkpoint at `offset`; checkpoints never go back.
    pub fn at(&mut self, offset: Offset) -> u64 {
        let passed = self.ahead.partition_point(|(to, _)| *to <= offset);
        let passed = self.ahead.drain(..passed).map(|(_, offsets)| offsets);
        self.below = passed.fold(self.below, u64::saturating_add);
        self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_goes_on_counting_and_counts_nothing_twice() {
        let mut first = Gaps::default();
        assert_eq!(first.find(Offset(83), Offset(134)), 51);
        assert_eq!((first.at(Offset(83)), first.total()), (0, 51));
        // Whoever begins before the gap finds it once more.
        let mut second = Gaps::default();
        second.resume(Offset(83), 0);
        second.find(Offset(83), Offset(134));
        assert_eq!(second.total(), 51);
        // And whoever begins behind it is told.
        assert_eq!(first.at(Offset(134)), 51);
        let mut third = Gaps::default();
        third.resume(Offset(134), 51);
        assert_eq!(third.find(Offset(200), Offset(210)), 10);
        assert_eq!((third.at(Offset(209)), third.at(Offset(210))), (51, 61));
    }

    #[test]
    fn a_checkpoint_that_was_put_back_begins_a_new_count() {
        let mut gaps = Gaps::default();
        gaps.find(Offset(83), Offset(134));
        assert_eq!(gaps.at(Offset(500)), 51);
        gaps.resume(Offset(0), 0);
        assert_eq!(gaps.total(), 0);
        // As where the topic was made anew, and has lost something too.
        assert_eq!(gaps.find(Offset(20), Offset(30)), 10);
        assert_eq!(gaps.at(Offset(30)), 10);
    }

    #[test]
    fn a_task_that_begins_again_counts_a_gap_once() {
        let mut gaps = Gaps::default();
        gaps.find(Offset(10), Offset(20));
        for _ in 0..2 {
            gaps.resume(Offset(10), 0);
            assert_eq!(gaps.find(Offset(10), Offset(20)), 0);
        }
        gaps.resume(Offset(20), 0);
        assert_eq!(gaps.total(), 10, "not saved yet");
        assert_eq!(gaps.find(Offset(15), Offset(30)), 10, "from 20 on");
        assert_eq!(gaps.total(), 20);
    }
}
