//! Up to when a topic is complete.
//!
//! Whoever processes an hour wants to know that nothing of it is still to come. A topic is complete up to a time
//! when all of its partitions are: the minimum over partitions (C090). A partition is complete up to
//!
//! - the highest timestamp dumped, less the lateness limit;
//! - or, where everything was dumped that the source had when its end was asked for, up to that moment, less the
//!   lateness limit and less how far clocks may differ. So a partition in which nothing happens holds nobody up.
//!
//! A partition of which nothing is known yet makes the topic unknown. What was said is never taken back: times
//! only rise, hours are marked one by one, and a record that comes later still is counted as late.

use std::{collections::BTreeMap, time::Duration};

use super::bucket::{Bucket, Unit};
use crate::ids::{Partition, UnixMillis};

/// What "complete" allows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// As in [`roll::Limits`](super::roll::Limits).
    pub lateness: Duration,
    /// How far the clocks of workers and producers may be apart.
    pub clocks_apart_max: Duration,
}

impl Default for Rules {
    /// Ten minutes each.
    fn default() -> Self {
        Self {
            lateness: Duration::from_mins(10),
            clocks_apart_max: Duration::from_mins(10),
        }
    }
}

/// What is known of one partition. Both times are behind the checkpoint: of committed groups only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// As the last committed manifest tells it.
    pub watermark: Option<UnixMillis>,
    /// By the clock of its worker, when the source's end was asked for that the checkpoint has reached.
    pub caught_up_at: Option<UnixMillis>,
}

impl Progress {
    /// Up to when the partition is complete; None: unknown.
    #[must_use]
    pub fn complete_to(self, rules: Rules) -> Option<UnixMillis> {
        let by_records = self.watermark.map(|time| less(time, rules.lateness));
        let idle = rules.lateness.saturating_add(rules.clocks_apart_max);
        let by_end = self.caught_up_at.map(|time| less(time, idle));
        by_records.max(by_end)
    }
}

fn less(time: UnixMillis, by: Duration) -> UnixMillis {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    UnixMillis(time.0.saturating_sub(by))
}

/// The completeness of one topic.
#[derive(Debug, Clone)]
pub struct Topic {
    rules: Rules,
    unit: Unit,
    partitions: BTreeMap<Partition, Option<UnixMillis>>,
    /// Start of the next bucket to mark; None: none was marked, and where to begin is not known yet.
    next: Option<UnixMillis>,
}

impl Topic {
    /// A topic with partitions `0..partitions`, nothing known of them. `next`: start of the bucket after the last
    /// one that is marked.
    #[must_use]
    pub fn new(rules: Rules, unit: Unit, partitions: i32, next: Option<UnixMillis>) -> Self {
        let mut topic = Self {
            rules,
            unit,
            partitions: BTreeMap::new(),
            next,
        };
        topic.grown(partitions);
        topic
    }

    /// The topic has this many partitions. New ones are unknown at first; none goes away.
    pub fn grown(&mut self, partitions: i32) {
        for partition in 0..partitions {
            self.partitions.entry(Partition(partition)).or_default();
        }
    }

    /// A partition has come this far. What is behind what it said before changes nothing.
    pub fn progress(&mut self, partition: Partition, progress: Progress) {
        let complete_to = progress.complete_to(self.rules);
        let known = self.partitions.entry(partition).or_default();
        *known = (*known).max(complete_to);
    }

    /// Up to when the topic is complete; None: unknown.
    #[must_use]
    pub fn complete_to(&self) -> Option<UnixMillis> {
        let all: Option<Vec<UnixMillis>> = self.partitions.values().copied().collect();
        all?.into_iter().min()
    }

    /// The partitions that hold the topic up, lowest first: those of which nothing is known, else those that
    /// are complete up to the least time.
    #[must_use]
    pub fn held_up_by(&self) -> Vec<Partition> {
        let least = self.partitions.values().min();
        let holding = self.partitions.iter();
        let holding = holding.filter(|(_, complete_to)| Some(*complete_to) == least);
        holding.map(|(partition, _)| *partition).collect()
    }

    /// The next bucket to mark as complete, if it is. The caller marks it, then says [`Topic::marked`].
    #[must_use]
    pub fn next_mark(&self) -> Option<Bucket> {
        let complete_to = self.complete_to()?;
        let next = self.unit.bucket(self.next?);
        let end = self.unit.end(next)?;
        (end <= complete_to).then_some(next)
    }

    /// The topic's first bucket, by its first record; of no effect once something was marked or begun.
    pub fn begins(&mut self, first: UnixMillis) {
        if self.next.is_none()
            && let Bucket::Dated { start } = self.unit.bucket(first)
        {
            self.next = Some(start);
        }
    }

    /// A bucket was marked.
    pub fn marked(&mut self, bucket: Bucket) {
        self.next = self.next.max(self.unit.end(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NINE: i64 = 1_796_029_200_000;
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    fn seen(timestamp: i64) -> Progress {
        Progress {
            watermark: Some(UnixMillis(timestamp)),
            caught_up_at: None,
        }
    }

    fn marks(topic: &mut Topic) -> Vec<i64> {
        let mut marks = Vec::new();
        while let Some(bucket) = topic.next_mark() {
            let Bucket::Dated { start } = bucket else {
                panic!("only dated ones are marked")
            };
            marks.push((start.0 - NINE) / HOUR);
            topic.marked(bucket);
        }
        marks
    }

    #[test]
    fn c090_a_topic_is_as_complete_as_its_slowest_partition() {
        let mut topic = Topic::new(Rules::default(), Unit::Hour, 2, None);
        topic.begins(UnixMillis(NINE + 5));
        topic.progress(Partition(0), seen(NINE + 5 * HOUR));
        assert_eq!(topic.complete_to(), None);
        assert_eq!(topic.held_up_by(), [Partition(1)]);
        assert!(marks(&mut topic).is_empty());
        topic.progress(Partition(1), seen(NINE + HOUR + 10 * MINUTE - 1));
        assert!(marks(&mut topic).is_empty());
        topic.progress(Partition(1), seen(NINE + 2 * HOUR + 10 * MINUTE));
        assert_eq!(marks(&mut topic), [0, 1]);
        assert_eq!(topic.held_up_by(), [Partition(1)]);
    }

    #[test]
    fn c090_an_idle_partition_holds_nobody_up_and_a_clock_ten_minutes_ahead_does_no_harm() {
        let mut topic = Topic::new(Rules::default(), Unit::Hour, 2, Some(UnixMillis(NINE)));
        topic.progress(Partition(0), seen(NINE + 3 * HOUR + 20 * MINUTE));
        // It is 10:10, and the worker of the idle partition believes it to be 10:20.
        let caught_up = |at| Progress {
            watermark: Some(UnixMillis(NINE - 3 * HOUR)),
            caught_up_at: Some(UnixMillis(at)),
        };
        topic.progress(Partition(1), caught_up(NINE + HOUR + 20 * MINUTE - 1));
        assert!(marks(&mut topic).is_empty());
        topic.progress(Partition(1), caught_up(NINE + HOUR + 20 * MINUTE));
        assert_eq!(marks(&mut topic), [0]);
    }

    #[test]
    fn what_was_said_is_not_taken_back() {
        let mut topic = Topic::new(Rules::default(), Unit::Hour, 1, Some(UnixMillis(NINE)));
        topic.progress(Partition(0), seen(NINE + 2 * HOUR));
        let complete_to = topic.complete_to();
        topic.progress(Partition(0), seen(NINE));
        topic.progress(Partition(0), Progress::default());
        assert_eq!(topic.complete_to(), complete_to);
        assert_eq!(marks(&mut topic), [0]);
        topic.marked(Unit::Hour.bucket(UnixMillis(NINE - 5 * HOUR)));
        assert!(marks(&mut topic).is_empty());
        // A new partition makes it unknown, and marks stay.
        topic.grown(2);
        assert_eq!(topic.complete_to(), None);
        topic.progress(Partition(1), seen(NINE));
        topic.progress(Partition(0), seen(NINE + 9 * HOUR));
        assert!(marks(&mut topic).is_empty());
    }

    #[test]
    fn a_topic_without_partitions_or_dated_records_is_unknown() {
        let mut topic = Topic::new(Rules::default(), Unit::Hour, 0, None);
        assert_eq!(topic.complete_to(), None);
        topic.begins(UnixMillis(-1));
        topic.progress(Partition(0), seen(i64::MAX));
        assert_eq!(topic.next_mark(), None);
        topic.begins(UnixMillis(i64::MIN));
        assert_eq!(topic.next_mark(), None);
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let rules = Rules {
            lateness: Duration::MAX,
            clocks_apart_max: Duration::MAX,
        };
        let mut topic = Topic::new(rules, Unit::Hour, 1, Some(UnixMillis(NINE)));
        topic.progress(
            Partition(0),
            Progress {
                watermark: Some(UnixMillis(i64::MIN)),
                caught_up_at: Some(UnixMillis(i64::MAX)),
            },
        );
        assert_eq!(topic.next_mark(), None);
    }
}
