//! One of two workers is killed (`kill -9`) under a steady load: how long until all partitions flow
//! again, and what comes twice.
//!
//! The busier one is killed: two nodes of MirrorMaker 2 may well have one that copies nothing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{
    figures::rounded,
    findings::{Finding, Measure, Trial},
    options::Load,
    peer::{Job, Layout, Peer, Running},
    procfs::Group,
    pulse::Pulse,
    report::{line, say},
    stage::{PARTITIONS, Stage},
};

/// Longest wait for the first records: two nodes of MirrorMaker 2 rebalance several times.
const FLOWS: Duration = Duration::from_secs(180);
/// How long both workers run before one is killed, so that both have their share.
const SHARED: Duration = Duration::from_secs(30);
/// How long workers are looked at to tell which one copies more.
const LOOK: Duration = Duration::from_secs(15);
/// Longest wait for the recovery. MirrorMaker 2 needs over five minutes by its defaults
/// (`scheduled.rebalance.max.delay.ms`) unless the killed node led its group.
const RECOVERY: Duration = Duration::from_secs(15 * 60);
/// How long records flow after the recovery, for repeats that come late.
const AFTER: Duration = Duration::from_secs(10);
/// Longest wait for the last records.
const LAST: Duration = Duration::from_secs(120);

/// Measures each contestant and prints a line for it.
///
/// # Errors
/// When records do not flow again.
pub(crate) async fn run(stage: &Stage, peers: &[&dyn Peer]) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    for peer in peers {
        let name = peer.name().name();
        let found = one(stage, *peer)
            .await
            .with_context(|| format!("{name}: one of two workers killed"))?;
        let found = Finding::all(Trial::Failover, peer.name(), found);
        all.extend(found);
    }
    Ok(all)
}

async fn one(stage: &Stage, peer: &dyn Peer) -> Result<[(Measure, f64); 3]> {
    let name = peer.name().name();
    let topic = format!("failover-{name}");
    let copy = peer.target_topic(&topic);
    stage.source.create_topic(&topic, PARTITIONS, &[]).await?;
    stage.target.create_topic(&copy, PARTITIONS, &[]).await?;
    stage.forget_mm2().await?;
    say(&format!("failover: {name} with two workers"));
    let job = Job {
        name: "failover".to_owned(),
        source: stage.source.bootstrap(),
        target: stage.target.bootstrap(),
        topics: vec![topic.clone()],
        codec: Load::Lz4.codec(),
        layout: Layout::Fleet(2),
    };
    let mut running = peer.start(&job).await?;
    let pulse = Pulse::start(stage, Load::Lz4.codec(), &topic, &copy, PARTITIONS)?;
    pulse.flows(FLOWS).await.with_context(|| running.logs())?;
    sleep_until(Instant::now() + SHARED).await;
    pulse.flows(FLOWS).await.with_context(|| running.logs())?;
    running.check()?;

    let busiest = busiest(&running).await?;
    running.workers.remove(busiest).kill().await?;
    say(&format!("failover: a worker of {name} is killed"));
    let flow_again = pulse
        .flows(RECOVERY)
        .await
        .with_context(|| running.logs())?;
    sleep_until(Instant::now() + AFTER).await;
    running.check()?;
    let ended = pulse.finish(LAST).await?;
    say(&format!(
        "failover: {name} flows again in all partitions after {:.1} s; {} repeats, {} missing",
        flow_again.as_secs_f64(),
        ended.repeats(),
        ended.missing()
    ));
    line(&json!({
        "bench": "mirror_failover",
        "peer": name,
        "flow_again_seconds": rounded(flow_again.as_secs_f64()),
        "records": ended.sent,
        "repeats": ended.repeats(),
        "missing": ended.missing(),
    }))?;
    Ok([
        (Measure::Seconds, flow_again.as_secs_f64()),
        (Measure::Repeats, ended.repeats() as f64),
        (Measure::Missing, ended.missing() as f64),
    ])
}

/// Position of the worker that uses the most processor time.
async fn busiest(running: &Running) -> Result<usize> {
    let workers = running.workers.iter();
    let mut groups: Vec<Group> = workers.map(|worker| Group::of([worker.id()])).collect();
    let sample = |groups: &mut Vec<Group>| -> Result<Vec<Duration>> {
        let all = groups.iter_mut();
        all.map(|group| Ok(group.sample()?.cpu)).collect()
    };
    let before = sample(&mut groups)?;
    sleep_until(Instant::now() + LOOK).await;
    let after = sample(&mut groups)?;
    let used = after.iter().zip(&before);
    let used = used.map(|(after, before)| after.saturating_sub(*before));
    let most = used.enumerate().max_by_key(|(_, used)| *used);
    most.map(|(position, _)| position)
        .context("there is no worker")
}
