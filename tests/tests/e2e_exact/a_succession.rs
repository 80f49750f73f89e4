//! A killed worker is succeeded before its lease ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    rig::{Rig, tasks_of},
    settings,
};
use tokio::time::Instant;

use crate::stage::{WORKERS, scenario};

/// From the kill until every partition flows again: 1 s of silence, and what a look around, an assignment and
/// a start take. On a machine that is shared with two brokers only what proves that nobody waited for the
/// lease, which takes 4 s at least.
fn flows_within() -> Duration {
    settings::length(Duration::from_millis(3_800), Duration::from_millis(2_500))
}

/// C026, with the time that a worker may be silent by default.
#[test]
fn c026_a_killed_workers_tasks_flow_again_at_once_and_repeat_nothing() {
    scenario(async |rig| {
        // The second as fast as the first: whoever was gone indeed is not held against the next.
        for round in 0..settings::length(2, 10) {
            succeed(rig, WORKERS[round % WORKERS.len()]).await?;
        }
        rig.verify().await
    });
}

async fn succeed(rig: &mut Rig, victim: &str) -> Result<()> {
    let before = rig.placement().await?;
    let own = tasks_of(&before, victim);
    ensure!(!own.is_empty(), "{victim} has no tasks");
    let allowed = rig.allowed_pauses().await;
    let bound = flows_within();
    let start = Instant::now();
    rig.system.worker(victim)?.kill().await?;
    let window = rig.observe(bound + Duration::from_millis(500)).await;
    let pauses = rig.tail.pauses(&own, &window);
    println!(
        "{victim} killed: paused for at most {:?}",
        pauses.values().max()
    );
    let of_own = own.iter().map(|lane| (lane.clone(), bound)).collect();
    rig.check_pauses(&own, &window, &of_own)?;
    let stayed = before.keys().filter(|lane| !own.contains(*lane));
    rig.check_pauses(stayed, &window, &allowed)?;
    rig.settle().await?;
    let repeats = rig.tail.repeats_since(start);
    ensure!(repeats.is_empty(), "repeated: {repeats:?}");
    Ok(())
}
