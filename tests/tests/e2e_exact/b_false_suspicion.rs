//! A worker is silent for two seconds and was well all the time.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{rig::Rig, settings};
use tokio::time::Instant;

use crate::{
    owners::wait_for_one_each,
    stage::{WORKERS, change_leader, leaders_metric, scenario},
};

const FROZEN: Duration = Duration::from_secs(2);
/// The longest pause of a partition: that of a planned move, which brings back what was succeeded.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Tasks that were given away since their worker was silent.
const SUCCEEDED: &str = "kreplicator_controller_plan_moves_total{reason=\"worker-silent\"}";

/// In the short form the first is suspected wrongly, and the others are within the minute in which nobody is: both
/// must be harmless. In full all are suspected.
#[test]
fn a_worker_frozen_for_two_seconds_costs_a_move_at_most_and_has_one_successor() {
    scenario(async |rig| {
        let start = Instant::now();
        let mut suspected = 0;
        for round in 0..settings::length(3, 20) {
            let is_suspected = round == 0 || settings::soak();
            if is_suspected {
                change_leader(rig).await?;
            }
            let moved = freeze(rig, WORKERS[round % WORKERS.len()]).await?;
            println!("round {round}: {moved} tasks succeeded");
            ensure!(
                moved > 0.0 || !is_suspected,
                "round {round}: nobody was suspected"
            );
            suspected += usize::from(moved > 0.0);
        }
        println!("{suspected} wrong suspicions");
        wait_for_one_each(rig).await?;
        rig.settle().await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        rig.verify().await
    });
}

/// Freezes a worker for a while; tells how many of its tasks were given to others.
async fn freeze(rig: &mut Rig, name: &str) -> Result<f64> {
    let before = leaders_metric(rig, SUCCEEDED).await?;
    let start = Instant::now();
    rig.system.worker(name)?.process()?.freeze().await?;
    rig.observe(FROZEN).await;
    rig.system.worker(name)?.process()?.thaw()?;
    let moved = leaders_metric(rig, SUCCEEDED).await? - before;
    rig.settle().await?;
    let lanes = Rig::base_lanes().into_iter();
    let allowed = lanes.map(|lane| (lane, PAUSE_MAX)).collect();
    let window = start..Instant::now();
    rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
    Ok(moved)
}
