//! Which directory a record belongs to.
//!
//! The directory follows from the topic and the record's own timestamp, in UTC, and from nothing else: not from
//! the clock of whoever writes it, so that two workers never disagree (C090). A [`Pattern`] says how.
//!
//! # Hostile timestamps
//! A timestamp is what a producer claims. Kafka's own "none" is −1, and seconds or microseconds are taken for
//! milliseconds now and then. Years 1970 to 9999 have a directory each, so a record of "1970-01-20" lies where
//! its timestamp says. What is negative or lies beyond is *undated*: one more bucket, whose directory has Hive's
//! name for null (`dt=__HIVE_DEFAULT_PARTITION__`), so that readers still find dates in the column.

mod civil;
mod pattern;

pub use pattern::{Pattern, PatternError};

use crate::ids::UnixMillis;

/// First millisecond of the year 10000.
const DATED_END: i64 = 253_402_300_800_000;

/// The length of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// A calendar year.
    Year,
    /// A calendar month.
    Month,
    /// A day from midnight to midnight, UTC.
    Day,
    /// An hour.
    Hour,
}

/// The records that share a directory of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// Records without a usable timestamp.
    Undated,
    /// Records of one unit of time.
    Dated {
        /// Its first millisecond.
        start: UnixMillis,
    },
}

impl Unit {
    /// The bucket of a record with this timestamp.
    #[must_use]
    pub fn bucket(self, timestamp: UnixMillis) -> Bucket {
        if !(0..DATED_END).contains(&timestamp.0) {
            return Bucket::Undated;
        }
        let start = civil::start_of(self, timestamp.0);
        Bucket::Dated {
            start: UnixMillis(start),
        }
    }

    /// First millisecond after the bucket; None for the undated one, which never ends.
    #[must_use]
    pub fn end(self, bucket: Bucket) -> Option<UnixMillis> {
        match bucket {
            Bucket::Undated => None,
            Bucket::Dated { start } => Some(UnixMillis(civil::next_start(self, start.0))),
        }
    }

    /// Number of buckets that records within `span_ms` of each other can fall into, at most.
    #[must_use]
    pub fn buckets_within(self, span_ms: u64) -> u64 {
        let shortest = match self {
            Self::Year => 365 * 24,
            Self::Month => 28 * 24,
            Self::Day => 24,
            Self::Hour => 1,
        } * 3_600_000;
        span_ms.div_ceil(shortest) + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNITS: [Unit; 4] = [Unit::Year, Unit::Month, Unit::Day, Unit::Hour];

    #[test]
    fn hostile_timestamps_are_undated() {
        for timestamp in [i64::MIN, -1, DATED_END, 1_700_000_000_000_000, i64::MAX] {
            for unit in UNITS {
                assert_eq!(unit.bucket(UnixMillis(timestamp)), Bucket::Undated);
            }
        }
        for timestamp in [0, DATED_END - 1] {
            assert_ne!(Unit::Hour.bucket(UnixMillis(timestamp)), Bucket::Undated);
        }
    }

    proptest! {
        #[test]
        fn a_record_lies_within_its_bucket_and_buckets_join(timestamp in 0..DATED_END) {
            for unit in UNITS {
                let bucket = unit.bucket(UnixMillis(timestamp));
                let Bucket::Dated { start } = bucket else { panic!("dated") };
                let end = unit.end(bucket).expect("dated buckets end");
                prop_assert!(start.0 <= timestamp && timestamp < end.0);
                prop_assert_eq!(unit.bucket(start), bucket);
                prop_assert_eq!(unit.bucket(UnixMillis(end.0 - 1)), bucket);
                if end.0 < DATED_END {
                    prop_assert_eq!(unit.bucket(end), Bucket::Dated { start: end });
                }
            }
        }

        #[test]
        fn buckets_of_a_span_are_counted_from_above(start in 0..DATED_END / 2, span in 0_u64..10_000_000_000) {
            for unit in UNITS {
                let last = UnixMillis(start.saturating_add_unsigned(span));
                let mut bucket = unit.bucket(UnixMillis(start));
                let mut count = 1;
                while bucket != unit.bucket(last) {
                    let start = unit.end(bucket).expect("dated");
                    bucket = unit.bucket(start);
                    count += 1;
                }
                prop_assert!(count <= unit.buckets_within(span));
            }
        }
    }
}
