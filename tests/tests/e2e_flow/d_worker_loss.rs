//! A worker drains, dies, or loses sight of the metadata store.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_tests::{
    checker::Lane,
    rig::{self, Rig, tasks_of},
    settings,
    system::LEASE,
};
use tokio::time::Instant;

/// From the loss of a worker until its partitions flow again.
pub(crate) const TAKE_OVER: Duration = LEASE.saturating_add(Duration::from_secs(3));
/// The same where nobody waits for the lease to end, which takes 4 s at least.
const SUCCESSION: Duration = Duration::from_millis(3_800);
const MOVE_PAUSE: Duration = Duration::from_secs(5);
/// C041: twenty times in a soak.
#[test]
fn d1_c041_a_worker_told_to_stop_drains_without_repeats() {
    rig::scenario(async |rig| {
        for _ in 0..settings::length(1, 20) {
            let before = rig.placement().await?;
            let allowed = rig.allowed_pauses().await;
            let start = Instant::now();
            rig.system.worker("worker-1")?.terminate().await?;
            flows_again(rig).await?;
            let own = tasks_of(&before, "worker-1");
            let stayed = before.keys().filter(|lane| !own.contains(*lane));
            let window = start..Instant::now();
            rig.check_pauses(stayed, &window, &allowed)?;
            let of_own = own.iter().map(|lane| (lane.clone(), MOVE_PAUSE));
            rig.check_pauses(&own, &window, &of_own.collect())?;
            rig.settle().await?;
            let repeats = rig.tail.repeats_since(start);
            ensure!(repeats.is_empty(), "a drain repeats nothing: {repeats:?}");
        }
        Ok(())
    });
}

/// C026: many times in a soak.
#[test]
fn d2_c026_a_killed_workers_partitions_flow_again_and_repeat_only_what_was_not_saved() {
    rig::scenario(async |rig| {
        for _ in 0..settings::length(1, 20) {
            let before = rig.placement().await?;
            let allowed = rig.allowed_pauses().await;
            let saved = rig.checkpoints().await?;
            let start = Instant::now();
            rig.system.worker("worker-2")?.kill().await?;
            let own = tasks_of(&before, "worker-2");
            flows_again(rig).await?;
            let window = start..Instant::now();
            let longest = if settings::is_exactly_once() {
                SUCCESSION
            } else {
                TAKE_OVER
            };
            let pauses = rig.tail.pauses(&own, &window);
            println!("paused for at most {:?}", pauses.values().max());
            let of_own = own.iter().map(|lane| (lane.clone(), longest));
            rig.check_pauses(&own, &window, &of_own.collect())?;
            let stayed = before.keys().filter(|lane| !own.contains(*lane));
            rig.check_pauses(stayed, &window, &allowed)?;
            rig.settle().await?;
            check_repeats(rig, &own, start, &saved)?;
        }
        Ok(())
    });
}

/// C037: cut off from the store only, a worker stops by itself before others start; or goes on until the
/// others are ahead, where each record is promised once.
#[test]
fn d4_c037_a_worker_cut_off_from_the_store_is_succeeded_without_harm() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let own = tasks_of(&before, "worker-1");
        let allowed = rig.allowed_pauses().await;
        let saved = rig.checkpoints().await?;
        let start = Instant::now();
        rig.system.worker("worker-1")?.store().black_hole();
        let away = rig.observe(LEASE * 2).await;
        if settings::is_exactly_once() {
            rig.check_pauses(&own, &away, &allowed)?;
        } else {
            let of_own = own.iter().map(|lane| (lane.clone(), TAKE_OVER));
            rig.check_pauses(&own, &away, &of_own.collect())?;
        }
        let stayed = before.keys().filter(|lane| !own.contains(*lane));
        rig.check_pauses(stayed, &away, &allowed)?;
        rig.system.worker("worker-1")?.store().pass().await;
        rig.settle().await?;
        check_repeats(rig, &own, start, &saved)
    });
}

/// Waits until the other workers run everything and the target has caught up: pauses are over then.
async fn flows_again(rig: &Rig) -> Result<()> {
    let tasks = i32::try_from(Rig::base_lanes().len())?;
    rig.system.wait_running(tasks, TAKE_OVER * 2).await?;
    rig.caught_up().await?;
    Ok(())
}

/// Only partitions of the lost worker repeated anything since `start`, only records that were not
/// saved before, and none where each is promised once. The load is all that ever wrote to the source, so a record's number is its offset.
pub(crate) fn check_repeats(
    rig: &Rig,
    own: &std::collections::BTreeSet<Lane>,
    start: Instant,
    saved: &BTreeMap<Lane, (i64, String)>,
) -> Result<()> {
    for (lane, seqs) in rig.tail.repeats_since(start) {
        ensure!(
            own.contains(&lane) && !settings::is_exactly_once(),
            "{lane:?} repeats {} records",
            seqs.len()
        );
        let lowest = seqs.iter().min().copied().unwrap_or_default();
        let checkpoint = u64::try_from(saved[&lane].0)?;
        ensure!(
            lowest >= checkpoint,
            "{lane:?} repeats {lowest}, which was saved: the checkpoint was {checkpoint}"
        );
    }
    Ok(())
}
