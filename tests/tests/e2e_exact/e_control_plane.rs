//! etcd and every controller are gone at the same time.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    rig::{CATCH_UP, Rig, moved, tasks_of},
    settings, wait,
};
use tokio::time::Instant;

use crate::{
    owners::wait_for_one_each,
    stage::{WORKERS, scenario},
};

/// C055, C058: on return nothing moves, nor is anything given anew to whom it was with.
#[test]
fn c055_without_any_control_plane_everything_flows_and_nothing_moves_on_its_return() {
    scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        take_away(rig).await?;
        let away = settings::length(Duration::from_secs(12), Duration::from_secs(300));
        let away = rig.observe(away).await;
        rig.check_pauses(&Rig::base_lanes(), &away, &allowed)?;
        bring_back(rig).await?;
        rig.settle().await?;
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        let moved = moved(&before, &rig.placement().await?);
        ensure!(moved.is_empty(), "moved: {moved:?}");
        once(rig, start).await
    });
}

/// C037: one worker stays cut off when all others are back; they succeed it while it goes on.
#[test]
fn c037_a_worker_that_is_left_out_when_the_control_plane_returns_is_succeeded_without_harm() {
    scenario(async |rig| {
        let left_out = WORKERS[0];
        let own = tasks_of(&rig.placement().await?, left_out);
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        take_away(rig).await?;
        rig.system.worker(left_out)?.store().black_hole();
        let away = settings::length(Duration::from_secs(1), Duration::from_secs(300));
        rig.observe(away).await;
        bring_back(rig).await?;
        let api = rig.api.clone();
        let succession = wait::until_true("the succession", CATCH_UP, async || {
            let owners = rig.placement().await?;
            let running = api.status().await?.tasks.unwrap_or_default();
            Ok(own.iter().all(|lane| owners[lane].0 != left_out)
                && running.running == running.total)
        });
        succession.await?;
        println!("succeeded after {:?}", start.elapsed());
        // Both go on side by side until the one that is registered nowhere finds the other ahead.
        rig.observe(Duration::from_secs(1)).await;
        // What follows is a planned move, back to the one that registers anew.
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        rig.system.worker(left_out)?.store().pass().await;
        rig.settle().await?;
        once(rig, start).await
    });
}

async fn take_away(rig: &mut Rig) -> Result<()> {
    rig.system.etcd().kill().await?;
    for controller in rig.system.controllers() {
        controller.kill().await?;
    }
    Ok(())
}

/// Nothing that was waited for: workers find it by themselves.
async fn bring_back(rig: &mut Rig) -> Result<()> {
    rig.system.etcd().restart().await?;
    for controller in rig.system.controllers() {
        controller.start()?;
    }
    for controller in rig.system.controllers() {
        controller.ready().await?;
    }
    Ok(())
}

/// Every record since the beginning is there once, and every task has one owner.
async fn once(rig: &mut Rig, start: Instant) -> Result<()> {
    wait_for_one_each(rig).await?;
    let repeats = rig.tail.repeats_since(start);
    ensure!(repeats.is_empty(), "repeated: {repeats:?}");
    rig.verify().await
}
