//! From the writing of a record on the source to its reading on the target.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::{Instant, sleep_until};

use super::{
    peer::Running,
    pulse::{Arrival, Pulse},
};

/// Longest wait until records flow in all partitions.
const FLOWS: Duration = Duration::from_secs(120);
/// How long they flow before it counts.
const WARM_UP: Duration = Duration::from_secs(5);
/// Longest wait for the last ones.
const LAST: Duration = Duration::from_secs(60);

/// What of 100, of 1,000 and of all records arrived within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Latency {
    /// Half of all.
    pub(crate) p50: Duration,
    /// 99 of 100.
    pub(crate) p99: Duration,
    /// 999 of 1,000.
    pub(crate) p999: Duration,
    /// All.
    pub(crate) max: Duration,
}

impl Latency {
    /// Of latencies in any order; None: there are none.
    pub(crate) fn of(mut all: Vec<Duration>) -> Option<Self> {
        all.sort_unstable();
        Some(Self {
            p50: per_mille(&all, 500)?,
            p99: per_mille(&all, 990)?,
            p999: per_mille(&all, 999)?,
            max: *all.last()?,
        })
    }
}

/// The smallest of the sorted values that `share` of 1,000 do not exceed (nearest rank).
fn per_mille(sorted: &[Duration], share: usize) -> Option<Duration> {
    let rank = (sorted.len() * share).div_ceil(1_000);
    sorted.get(rank.max(1) - 1).copied()
}

/// Lets a stream flow through a contestant and tells the latencies of `time`.
///
/// # Errors
/// When records do not flow, or one is missing at the end.
pub(crate) async fn measure(
    pulse: Pulse,
    running: &mut Running,
    time: Duration,
) -> Result<Latency> {
    pulse.flows(FLOWS).await.with_context(|| running.logs())?;
    sleep_until(Instant::now() + WARM_UP).await;
    let from = pulse.now();
    sleep_until(Instant::now() + time).await;
    let to = pulse.now();
    running.check()?;
    let ended = pulse.finish(LAST).await?;
    let missing = ended.missing();
    ensure!(
        missing == 0,
        "{missing} of {} records never arrived\n{}",
        ended.sent,
        running.logs()
    );
    let counted = ended.arrivals.iter();
    let counted = counted.filter(|arrival| (from..to).contains(&arrival.sent));
    let latencies = counted.map(Arrival::latency).collect();
    Latency::of(latencies).context("no record was written in the time of measurement")
}

impl Arrival {
    /// From writing to arrival.
    fn latency(&self) -> Duration {
        self.arrived.saturating_sub(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(all: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        all.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latency = Latency::of(millis((1..=1_000).rev())).expect("there are some");
        let [p50, p99, p999, max] = [500, 990, 999, 1_000].map(Duration::from_millis);
        let expected = Latency {
            p50,
            p99,
            p999,
            max,
        };
        assert_eq!(latency, expected);
    }

    #[test]
    fn few_records_have_percentiles_too_and_none_have_none() {
        let one = Latency::of(millis([7])).expect("there is one");
        assert_eq!(one.p50, one.max);
        let two = Latency::of(millis([9, 3])).expect("there are two");
        assert_eq!((two.p50, two.p99), (Duration::from_millis(3), two.max));
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
