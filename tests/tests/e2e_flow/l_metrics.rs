//! What metrics say of latency and lag, beside what the reader of the target sees.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    arrivals::Window,
    http,
    rig::{self, LINK, Rig},
    settings, wait,
};

use crate::scrapes::{Round, Series, as_float, of};

const DEADLINE: Duration = Duration::from_secs(20);
/// A topic that is not written to any more while its target is away, so that its lag holds still.
const STILL: &str = "searches";
const LATENCY: &str = "kreplicator_worker_replication_latency_seconds";
/// Samples of latency a second that each task takes at most.
const SAMPLES_PER_SECOND_MAX: f64 = 10.0;
/// The load waits so long for more before it sends: no record can be copied in less.
const LINGER_SECONDS: f64 = 0.005;
const PROGRESS_AGE: &str = "kreplicator_worker_progress_age_seconds_max";

#[test]
fn l_latency_is_counted_as_the_reader_of_the_target_sees_it() {
    rig::scenario(async |rig| {
        let before = Round::now(rig).await;
        let time = settings::length(Duration::from_secs(3), Duration::from_secs(60));
        let begun = before.at;
        rig.observe(time).await;
        let after = Round::now(rig).await;
        check_latency(rig, &before, &after, &(begun..after.at))
    });
}

/// Counts of all workers have grown by what could be sampled, and half of it lies where the arrivals do.
fn check_latency(rig: &Rig, before: &Round, after: &Round, window: &Window) -> Result<()> {
    let lanes = Rig::base_lanes();
    let grown = |name: &str| sum(after, name) - sum(before, name);
    let count = grown(&format!("{LATENCY}_count"));
    let records = grown("kreplicator_worker_replicated_records_total");
    let seconds = (window.end - window.start).as_secs_f64();
    // Each answer counts up to a moment of its own.
    let most = as_float(lanes.len()) * (seconds + 1.0) * SAMPLES_PER_SECOND_MAX;
    ensure!(
        count >= as_float(lanes.len()) && count <= most.min(records),
        "{count} samples of {records} records in {seconds:.1} s"
    );
    let mut up_to: BTreeMap<u64, f64> = BTreeMap::new();
    for (round, sign) in [(after, 1.0), (before, -1.0)] {
        for series in round.workers.values() {
            for (bound, samples) in buckets(series)? {
                *up_to.entry(bound.to_bits()).or_default() += sign * samples;
            }
        }
    }
    let up_to: Vec<(f64, f64)> = up_to
        .into_iter()
        .map(|(bound, samples)| (f64::from_bits(bound), samples))
        .collect();
    ensure!(
        up_to.is_sorted_by(|lower, upper| lower.1 <= upper.1)
            && up_to.last() == Some(&(f64::INFINITY, count)),
        "{count} samples in buckets {up_to:?}"
    );
    let within = |seconds: f64| {
        let bucket = up_to.iter().rev().find(|(bound, _)| *bound <= seconds);
        bucket.map_or(0.0, |(_, samples)| *samples)
    };
    let arrived = rig.tail.latency_of_all(window);
    let slow = arrived.quantile(900).context("no arrivals")?.as_secs_f64();
    let upper = up_to.iter().find(|(bound, _)| *bound >= slow);
    let (upper, _) = upper.context("buckets end with +Inf")?;
    println!("{count} samples in {up_to:?}; nine in ten records arrived within {slow:.3} s");
    ensure!(
        within(LINGER_SECONDS) <= count / 2.0,
        "sooner than the load sends: {up_to:?}"
    );
    ensure!(
        within(*upper) >= count / 2.0,
        "nine in ten records arrived within {slow:.3} s, but half the samples are above {upper} s: {up_to:?}"
    );
    Ok(())
}

/// C115, C116: what is behind is said to be, of a target that gives no answer too, and more with each look.
#[test]
fn l_c115_c116_lag_grows_while_a_target_gives_no_answer_and_is_the_same_wherever_it_is_told() {
    rig::scenario(async |rig| {
        rig.target.freeze(0).await?;
        let told = blocked(rig).await;
        rig.target.thaw(0)?;
        rig.load.add(STILL, rig::PARTITIONS);
        told?;
        rig.caught_up().await?;
        wait::until_true("a small lag", DEADLINE, async || {
            let lag = Round::now(rig).await.lag_of(STILL)?;
            // Two seconds' worth: it is written to.
            Ok(lag < f64::from(rig::RATE) * 2.0 / as_float(rig::TOPICS.len()))
        })
        .await
    });
}

async fn blocked(rig: &mut Rig) -> Result<()> {
    rig.observe(Duration::from_secs(1)).await;
    rig.load.remove(STILL);
    rig.load.settle(DEADLINE).await?;
    let first = wait::until("the same lag everywhere", DEADLINE, async || {
        Ok(Some(same_lag(rig).await?))
    })
    .await?;
    let time = settings::length(Duration::from_secs(3), Duration::from_secs(300));
    rig.observe(time).await;
    let second = same_lag(rig).await?;
    for topic in rig::TOPICS.iter().filter(|topic| **topic != STILL) {
        let (before, after) = (first.lag_of(topic)?, second.lag_of(topic)?);
        // Half of what was written since: it is looked for each second only.
        let written = f64::from(rig::RATE) / as_float(rig::TOPICS.len()) * time.as_secs_f64();
        ensure!(
            after - before >= written / 2.0,
            "the lag of {topic} was {before} and is {after} after {time:?}"
        );
    }
    ensure!(first.lag_of(STILL)? == second.lag_of(STILL)?);
    for (worker, series) in &second.workers {
        let age = |series: &Series| http::sum(series, PROGRESS_AGE).unwrap_or_default();
        let (before, after) = (age(&first.workers[worker]), age(series));
        ensure!(
            after - before >= time.as_secs_f64() / 2.0,
            "{worker} told {before} s without progress and {after} s after {time:?}"
        );
    }
    Ok(())
}

/// Checks that of the topic that is written to no more all tell the same: the source's own ends less the
/// checkpoints, workers, the leader's metrics, and the API.
async fn same_lag(rig: &mut Rig) -> Result<Round> {
    let produced = rig.counts_of(STILL);
    let now = Round::now(rig).await;
    let mut lag = 0;
    for task in rig.api.tasks(LINK).await? {
        if task.topic == STILL {
            let report = task.report.context("not reported yet")?;
            let lane = (task.topic, task.partition);
            let end = i64::try_from(produced[&lane])?;
            ensure!(
                report.log_end == Some(end),
                "{lane:?} ends at {end}: {report:?}"
            );
            let behind = end - report.checkpoint.context("no checkpoint")?;
            ensure!(report.lag_records == Some(behind), "{report:?}");
            lag += behind;
        }
    }
    let api = rig.api.subscription(LINK, STILL).await?.status;
    let api = api.unwrap_or_default().lag_records;
    let leader = of(now.leader()?, "kreplicator_controller_lag_records");
    let leader: Vec<f64> = leader
        .filter(|(labels, _)| labels["link"] == LINK && labels["topic"] == STILL)
        .map(|(_, lag)| lag)
        .collect();
    let workers = now.lag_of(STILL)?;
    let wanted = as_float(usize::try_from(lag)?);
    ensure!(
        lag > 0 && api == Some(lag) && leader == [wanted] && workers == wanted,
        "the lag is {lag}; the API tells {api:?}, the leader {leader:?}, the workers {workers}"
    );
    Ok(now)
}

/// Sum of a metric over all workers.
fn sum(round: &Round, name: &str) -> f64 {
    let sums = round
        .workers
        .values()
        .filter_map(|series| http::sum(series, name));
    sums.sum()
}

/// Samples of latency up to each bound in seconds, of the base link.
fn buckets(series: &Series) -> Result<Vec<(f64, f64)>> {
    let name = format!("{LATENCY}_bucket");
    let own = of(series, &name).filter(|(labels, _)| labels["link"] == LINK);
    own.map(|(labels, samples)| Ok((labels["le"].parse()?, samples)))
        .collect()
}
