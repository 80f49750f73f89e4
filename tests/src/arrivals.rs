//! When records arrived at a target: pauses of a partition, and latency.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tokio::time::Instant;

use crate::checker::Lane;

/// A stretch of time, from its start to before its end.
pub type Window = Range<Instant>;

/// A time without an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// When it began.
    pub from: Instant,
    /// How long it was.
    pub length: Duration,
}

/// First arrivals of records, by partition of the target.
#[derive(Debug, Default)]
pub struct Arrivals {
    lanes: BTreeMap<Lane, Vec<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    latency: Duration,
}

impl Arrivals {
    /// Takes note of a record; times of one partition never go back.
    pub fn observe(&mut self, at: Instant, topic: &str, partition: i32, latency: Duration) {
        let seen = Seen { at, latency };
        match self.lanes.get_mut(&(topic.to_owned(), partition)) {
            Some(lane) => lane.push(seen),
            None => {
                self.lanes.insert((topic.to_owned(), partition), vec![seen]);
            }
        }
    }

    /// Partitions in which anything ever arrived.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.keys()
    }

    /// The longest time in `window` without an arrival in a partition, its edges included: a
    /// partition in which nothing arrived paused for the whole window.
    #[must_use]
    pub fn longest_pause(&self, lane: &Lane, window: &Window) -> Pause {
        let mut from = window.start;
        let mut longest = Pause {
            from,
            length: Duration::ZERO,
        };
        let ends = self.within(lane, window).iter().map(|seen| seen.at);
        for end in ends.chain([window.end]) {
            let length = end - from;
            if length > longest.length {
                longest = Pause { from, length };
            }
            from = end;
        }
        longest
    }

    /// The first arrival in a partition at or after `from`.
    #[must_use]
    pub fn first_since(&self, lane: &Lane, from: Instant) -> Option<Instant> {
        let seen = self.lanes.get(lane)?;
        let first = seen.partition_point(|seen| seen.at < from);
        Some(seen.get(first)?.at)
    }

    /// Number of arrivals in a partition within `window`.
    #[must_use]
    pub fn count(&self, lane: &Lane, window: &Window) -> usize {
        self.within(lane, window).len()
    }

    /// Latency of one partition within `window`.
    #[must_use]
    pub fn latency(&self, lane: &Lane, window: &Window) -> Latency {
        Latency::of(self.within(lane, window))
    }

    /// Latency of all partitions within `window`.
    #[must_use]
    pub fn latency_of_all(&self, window: &Window) -> Latency {
        Latency::of(self.lanes.keys().flat_map(|lane| self.within(lane, window)))
    }

    fn within(&self, lane: &Lane, window: &Window) -> &[Seen] {
        let Some(seen) = self.lanes.get(lane) else {
            return &[];
        };
        let first = seen.partition_point(|seen| seen.at < window.start);
        let end = seen.partition_point(|seen| seen.at < window.end);
        seen.get(first..end).unwrap_or_default()
    }
}

/// Times from the create time of records to their arrival, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    sorted: Vec<Duration>,
}

impl Latency {
    fn of<'a>(seen: impl IntoIterator<Item = &'a Seen>) -> Self {
        let mut sorted: Vec<Duration> = seen.into_iter().map(|seen| seen.latency).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest latency that `per_mille` of 1,000 records do not exceed; None without records.
    #[must_use]
    pub fn quantile(&self, per_mille: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * per_mille).div_ceil(1_000).max(1);
        self.sorted.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lane() -> Lane {
        ("orders".to_owned(), 0)
    }

    fn arrivals(start: Instant, millis: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for after in millis {
            let after = Duration::from_millis(*after);
            arrivals.observe(start + after, "orders", 0, after);
        }
        arrivals
    }

    #[test]
    fn the_longest_pause_counts_the_edges_of_the_window() {
        let start = Instant::now();
        let arrivals = arrivals(start, &[300, 400, 900]);
        let pause = |from: u64, to: u64| {
            let at = |millis| start + Duration::from_millis(millis);
            arrivals
                .longest_pause(&lane(), &(at(from)..at(to)))
                .length
                .as_millis()
        };
        assert_eq!(pause(300, 901), 500, "between two arrivals");
        let window = start..start + SECOND;
        let began = arrivals.longest_pause(&lane(), &window).from;
        assert_eq!(began - start, Duration::from_millis(400));
        assert_eq!(pause(0, 401), 300, "before the first");
        assert_eq!(pause(900, 1_700), 800, "after the last");
        assert_eq!(pause(2_000, 3_000), 1_000, "nothing at all");
        let window = start..start + SECOND;
        let nobody = arrivals.longest_pause(&("x".to_owned(), 0), &window).length;
        assert_eq!(nobody, SECOND);
    }

    #[test]
    fn quantiles_are_of_records_within_the_window() {
        let start = Instant::now();
        let millis: Vec<u64> = (1..=1_000).collect();
        let arrivals = arrivals(start, &millis);
        let all = arrivals.latency(&lane(), &(start..start + SECOND * 2));
        assert_eq!(all.count(), 1_000);
        assert_eq!(all.quantile(500), Some(Duration::from_millis(500)));
        assert_eq!(all.quantile(999), Some(Duration::from_millis(999)));
        assert_eq!(all.quantile(1_000), Some(SECOND));
        let half = arrivals.latency_of_all(&(start..start + SECOND / 2));
        assert_eq!(half.quantile(1_000), Some(Duration::from_millis(499)));
        assert_eq!(Latency::default().quantile(500), None);
    }

    #[test]
    fn arrivals_are_found_from_a_moment_on() {
        let start = Instant::now();
        let arrivals = arrivals(start, &[100, 200]);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(arrivals.first_since(&lane(), at(101)), Some(at(200)));
        assert_eq!(arrivals.first_since(&lane(), at(201)), None);
        assert_eq!(arrivals.count(&lane(), &(at(100)..at(200))), 1);
    }
}
