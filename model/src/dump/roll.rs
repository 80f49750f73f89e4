//! When a group is closed.
//!
//! A group is one partition's records since the last commit, a file for each bucket that they fall into. All its
//! files are closed and committed together, since progress is one offset. It is closed when
//!
//! - a file of it is large enough;
//! - it is old enough by our own clock, also when no further record comes (C089);
//! - a bucket in it is over: the timestamps seen have passed its end by the lateness limit, so whoever waits
//!   for that hour need not wait for the next file to fill;
//! - the next record would open one bucket too many.
//!
//! Records that come later than that still go where their timestamp says. They do not close the group at once, or each
//! would make a file of its own: they wait for one of the other reasons.
//!
//! # Hostile timestamps
//! A timestamp further ahead of our clock than `ahead_max` says nothing about how far the producers have come and
//! moves no watermark; its record lies in its bucket nevertheless.

use std::{collections::BTreeMap, time::Duration};

use super::bucket::{Bucket, Unit};
use crate::ids::UnixMillis;

/// When groups are closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file, as its writer measures them, from which on its group is closed. At least 1.
    pub file_bytes_max: u64,
    /// Age of a group, by our clock, from which on it is closed.
    pub age_max: Duration,
    /// How much later than records with higher timestamps a record may come and still be on time.
    pub lateness: Duration,
    /// Buckets open at a time in one partition; from 1 to [`FILES_MAX`](super::manifest::FILES_MAX).
    pub buckets_max: usize,
    /// How far ahead of our clock a timestamp may be and still count.
    pub ahead_max: Duration,
}

impl Default for Limits {
    /// 256 MiB or ten minutes; ten minutes late; 64 buckets; an hour ahead, which is more than clocks differ.
    fn default() -> Self {
        Self {
            file_bytes_max: 256 << 20,
            age_max: Duration::from_mins(10),
            lateness: Duration::from_mins(10),
            buckets_max: 64,
            ahead_max: Duration::from_hours(1),
        }
    }
}

/// Why a group is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Roll {
    /// A file is large enough.
    Bytes,
    /// It is old enough.
    Age,
    /// A bucket is over.
    BucketOver,
    /// One bucket too many.
    Buckets,
}

/// One open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    bytes: u64,
    /// It was opened when its bucket was over already.
    is_late: bool,
}

/// What is open of one partition.
#[derive(Debug, Clone)]
pub struct Group {
    limits: Limits,
    unit: Unit,
    /// On our monotonic clock, when the first record or left-out offset came.
    since: Option<Duration>,
    open: BTreeMap<Bucket, Open>,
    watermark: Option<UnixMillis>,
    late_records: u64,
}

impl Group {
    /// Nothing open. `watermark`: as the last manifest tells it.
    #[must_use]
    pub fn new(limits: Limits, unit: Unit, watermark: Option<UnixMillis>) -> Self {
        Self {
            limits,
            unit,
            since: None,
            open: BTreeMap::new(),
            watermark,
            late_records: 0,
        }
    }

    /// Whether the group must be closed before a record of this bucket can go in.
    #[must_use]
    pub fn before(&self, bucket: Bucket) -> Option<Roll> {
        let is_full = self.open.len() >= self.limits.buckets_max.max(1);
        (is_full && !self.open.contains_key(&bucket)).then_some(Roll::Buckets)
    }

    /// A record goes into a bucket. `wall` is our own clock, as far as it can be trusted; `mono` our monotonic
    /// one.
    pub fn record(
        &mut self,
        bucket: Bucket,
        timestamp: UnixMillis,
        wall: UnixMillis,
        mono: Duration,
    ) {
        self.since.get_or_insert(mono);
        let is_late = self.is_over(bucket);
        self.late_records += u64::from(is_late);
        self.open
            .entry(bucket)
            .or_insert(Open { bytes: 0, is_late });
        let ahead = i64::try_from(self.limits.ahead_max.as_millis()).unwrap_or(i64::MAX);
        let counts = bucket != Bucket::Undated && timestamp.0 <= wall.0.saturating_add(ahead);
        if counts {
            self.watermark = self.watermark.max(Some(timestamp));
        }
    }

    /// An offset is in the group that is in no file.
    pub fn left_out(&mut self, mono: Duration) {
        self.since.get_or_insert(mono);
    }

    /// A writer has measured its file.
    pub fn measured(&mut self, bucket: Bucket, bytes: u64) {
        if let Some(open) = self.open.get_mut(&bucket) {
            open.bytes = bytes;
        }
    }

    /// Whether the group is to be closed now; an empty one never is.
    #[must_use]
    pub fn due(&self, mono: Duration) -> Option<Roll> {
        let since = self.since?;
        let is_large = |open: &Open| open.bytes >= self.limits.file_bytes_max.max(1);
        if self.open.values().any(is_large) {
            return Some(Roll::Bytes);
        }
        let is_waited_for =
            |(bucket, open): (&Bucket, &Open)| !open.is_late && self.is_over(*bucket);
        if self.open.iter().any(is_waited_for) {
            return Some(Roll::BucketOver);
        }
        (mono.saturating_sub(since) >= self.limits.age_max).then_some(Roll::Age)
    }

    /// When the group is old enough, on our monotonic clock; None while it is empty.
    #[must_use]
    pub fn due_at(&self) -> Option<Duration> {
        self.since
            .map(|since| since.saturating_add(self.limits.age_max))
    }

    /// It was committed, or given up and is read again.
    pub fn closed(&mut self) {
        self.since = None;
        self.open.clear();
    }

    /// Whether there is nothing to close.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// Number of open buckets.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.open.len()
    }

    /// Highest timestamp seen that counts for lateness.
    #[must_use]
    pub fn watermark(&self) -> Option<UnixMillis> {
        self.watermark
    }

    /// Records so far that came after their bucket was over.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.late_records
    }

    /// Whether the watermark has passed the end of a bucket by the lateness limit.
    fn is_over(&self, bucket: Bucket) -> bool {
        let (Some(end), Some(watermark)) = (self.unit.end(bucket), self.watermark) else {
            return false;
        };
        let lateness = i64::try_from(self.limits.lateness.as_millis()).unwrap_or(i64::MAX);
        watermark.0.saturating_sub(lateness) >= end.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NINE: i64 = 1_796_029_200_000;
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    fn group() -> Group {
        Group::new(Limits::default(), Unit::Hour, None)
    }

    /// A record at this timestamp, when our clock says the same.
    fn record(group: &mut Group, timestamp: i64) -> Bucket {
        let bucket = Unit::Hour.bucket(UnixMillis(timestamp));
        group.record(
            bucket,
            UnixMillis(timestamp),
            UnixMillis(timestamp),
            Duration::ZERO,
        );
        bucket
    }

    #[test]
    fn c089_age_closes_a_group_without_a_further_record() {
        let mut group = group();
        let ten = Duration::from_mins(10);
        assert_eq!(group.due(Duration::MAX), None);
        record(&mut group, NINE);
        assert_eq!(group.due(ten - Duration::from_millis(1)), None);
        assert_eq!(group.due_at(), Some(ten));
        assert_eq!(group.due(ten), Some(Roll::Age));
        group.closed();
        assert!(group.is_empty());
        assert_eq!((group.due(Duration::MAX), group.due_at()), (None, None));
        group.left_out(Duration::from_secs(1));
        assert_eq!(group.due(ten + Duration::from_secs(1)), Some(Roll::Age));
    }

    #[test]
    fn a_large_file_closes_its_group() {
        let mut group = group();
        let bucket = record(&mut group, NINE);
        group.measured(bucket, (256 << 20) - 1);
        assert_eq!(group.due(Duration::ZERO), None);
        group.measured(bucket, 256 << 20);
        assert_eq!(group.due(Duration::ZERO), Some(Roll::Bytes));
    }

    #[test]
    fn c090_a_bucket_is_over_when_the_lateness_limit_has_passed() {
        let mut group = group();
        record(&mut group, NINE - 1);
        record(&mut group, NINE + 10 * MINUTE - 1);
        assert_eq!((group.due(Duration::ZERO), group.buckets()), (None, 2));
        record(&mut group, NINE + 10 * MINUTE);
        assert_eq!(group.due(Duration::ZERO), Some(Roll::BucketOver));
        group.closed();
        // A late one goes where it belongs and makes no file of its own.
        record(&mut group, NINE - 5);
        assert_eq!((group.late_records(), group.due(Duration::ZERO)), (1, None));
        assert_eq!(group.due(Duration::from_mins(10)), Some(Roll::Age));
    }

    #[test]
    fn timestamps_far_ahead_move_no_watermark() {
        let mut group = group();
        record(&mut group, NINE);
        let (ahead, wall) = (UnixMillis(NINE + 2 * HOUR), UnixMillis(NINE));
        let bucket = Unit::Hour.bucket(ahead);
        group.record(bucket, ahead, wall, Duration::ZERO);
        assert_eq!(group.watermark(), Some(UnixMillis(NINE)));
        assert_eq!((group.due(Duration::ZERO), group.buckets()), (None, 2));
        group.record(
            Bucket::Undated,
            UnixMillis(i64::MAX),
            UnixMillis(i64::MAX),
            Duration::ZERO,
        );
        group.record(Bucket::Undated, UnixMillis(-1), wall, Duration::ZERO);
        assert_eq!(group.watermark(), Some(UnixMillis(NINE)));
    }

    #[test]
    fn one_bucket_too_many_closes_the_group_first() {
        let limits = Limits {
            buckets_max: 2,
            ..Limits::default()
        };
        let mut group = Group::new(limits, Unit::Hour, None);
        let first = record(&mut group, NINE);
        record(&mut group, NINE - HOUR);
        let third = Unit::Hour.bucket(UnixMillis(NINE - 2 * HOUR));
        assert_eq!(group.before(first), None);
        assert_eq!(group.before(third), Some(Roll::Buckets));
    }

    proptest! {
        /// Records that are on time keep few buckets open, whatever their order.
        #[test]
        fn the_lateness_limit_decides_how_many_buckets_are_open(
            steps in proptest::collection::vec((-9 * MINUTE..=0, 0..40 * MINUTE), 1..200),
        ) {
            let mut group = group();
            let mut front = NINE;
            let span = Limits::default().lateness.as_millis() as u64;
            for (behind, step) in steps {
                front += step;
                record(&mut group, front + behind);
                if group.due(Duration::ZERO).is_some() {
                    group.closed();
                }
                // Those within the limit below the watermark, and the one that is just over.
                prop_assert!(group.buckets() as u64 <= Unit::Hour.buckets_within(span + 40 * MINUTE as u64));
            }
        }

        #[test]
        fn never_more_buckets_than_allowed(timestamps in proptest::collection::vec(any::<i64>(), 1..300), buckets_max in 1_usize..8) {
            let limits = Limits { buckets_max, ..Limits::default() };
            let mut group = Group::new(limits, Unit::Hour, None);
            for timestamp in timestamps {
                let bucket = Unit::Hour.bucket(UnixMillis(timestamp / 1_000_000));
                if group.before(bucket).is_some() {
                    group.closed();
                }
                group.record(bucket, UnixMillis(timestamp / 1_000_000), UnixMillis(NINE), Duration::ZERO);
                prop_assert!(group.buckets() <= buckets_max);
            }
        }
    }
}
