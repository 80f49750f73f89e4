//! How many partitions share the answers of a fetcher. Where each may fill an answer alone, one that lags
//! behind keeps the others waiting for a turn (C036); so each asks for its part. One that is alone among quiet
//! ones gets everything.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

/// A partition counts as busy for about so long after its last records: in this time each gets a turn.
const SPAN: Duration = Duration::from_millis(500);

/// Counts partitions that bring records.
#[derive(Debug)]
pub(super) struct Busy {
    /// Numbers of the lanes that had records since `began`.
    now: HashSet<u64>,
    began: Instant,
    /// How many had in the span before.
    before: usize,
}

impl Busy {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now: HashSet::new(),
            began: now,
            before: 0,
        }
    }

    /// A lane had records.
    pub(super) fn note(&mut self, lane: u64, now: Instant) {
        if now - self.began >= SPAN {
            self.before = self.now.len();
            self.now.clear();
            self.began = now;
        }
        self.now.insert(lane);
    }

    /// The part of `bytes` that one partition may ask for, and at least `least`.
    pub(super) fn part(&self, bytes: usize, least: usize) -> usize {
        let sharing = self.now.len().max(self.before).max(1);
        (bytes / sharing).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c036_partitions_that_bring_records_share_and_quiet_ones_do_not_count() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut busy = Busy::new(start);
        assert_eq!(busy.part(600, 10), 600, "nobody is known to be busy");
        for lane in 0..6 {
            busy.note(lane, at(80 * lane));
        }
        assert_eq!(busy.part(600, 10), 100);
        assert_eq!(busy.part(30, 10), 10);
        // Three have caught up and are quiet now.
        for ms in (500..1_600).step_by(100) {
            busy.note(ms % 3, at(ms));
        }
        assert_eq!(busy.part(600, 10), 200);
    }
}
