//! Tasks are moved on purpose: an operator empties a worker and lets it have tasks again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    arrivals::Window,
    rig::{CATCH_UP, Rig, moved, tasks_of},
    settings, wait,
};
use tokio::time::Instant;

use crate::{
    owners::wait_for_one_each,
    stage::{WORKERS, scenario},
};

/// What a move may add to the latency that 99.9 % of all records keep without one.
const ADDED: Duration = Duration::from_millis(100);
/// The latest record of a partition that is moved, on a machine that is shared with two brokers.
const LATEST_SHARED: Duration = Duration::from_secs(1);

/// C041: no record is much later than it would be without a move.
#[test]
fn c041_a_drained_worker_gives_its_tasks_away_and_hardly_a_record_is_later() {
    scenario(async |rig| {
        let time = settings::length(Duration::from_secs(5), Duration::from_secs(60));
        let steady = rig.observe(time).await;
        let (usual, latest_usual) = (latency(rig, &steady, 999)?, latency(rig, &steady, 1_000)?);
        let bound = settings::length(LATEST_SHARED, usual + ADDED).max(latest_usual);

        let start = Instant::now();
        let mut latest = Duration::ZERO;
        for _ in 0..settings::length(1, 10) {
            latest = latest.max(there_and_back(rig, WORKERS[0]).await?);
        }
        println!(
            "latest record {latest:?}; without moves {latest_usual:?}, 99.9 % within {usual:?}"
        );
        ensure!(
            latest <= bound,
            "a record of a moved partition came {latest:?} after it was written, allowed are {bound:?}"
        );
        wait_for_one_each(rig).await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        rig.verify().await
    });
}

/// Empties a worker and gives it tasks again; tells how late the latest record was of all that moved.
async fn there_and_back(rig: &mut Rig, name: &str) -> Result<Duration> {
    let before = rig.placement().await?;
    let start = Instant::now();
    rig.operate(&["worker", "drain", name, "--wait"]).await?;
    let emptied = rig.placement().await?;
    ensure!(tasks_of(&emptied, name).is_empty(), "{emptied:?}");
    rig.caught_up().await?;
    rig.operate(&["worker", "drain", name, "--undrain"]).await?;
    let share = before.len() / WORKERS.len();
    wait::until_true("the fair share", CATCH_UP, async || {
        Ok(tasks_of(&rig.placement().await?, name).len() >= share)
    })
    .await?;
    rig.settle().await?;
    let window = start..Instant::now();
    let after = rig.placement().await?;
    let mut latest = Duration::ZERO;
    for lane in moved(&before, &emptied).union(&moved(&emptied, &after)) {
        let latency = rig.tail.latency(lane, &window).quantile(1_000);
        latest = latest.max(latency.with_context(|| format!("nothing came of {lane:?}"))?);
    }
    Ok(latest)
}

fn latency(rig: &Rig, window: &Window, per_mille: usize) -> Result<Duration> {
    let latency = rig.tail.latency_of_all(window).quantile(per_mille);
    latency.context("nothing came")
}
