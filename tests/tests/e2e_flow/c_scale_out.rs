//! A worker joins and leaves while everything flows.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    rig::{self, Placement, Rig, moved, tasks_of},
    settings, wait,
};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(30);
/// The longest pause of a partition that changes its worker and does not bear two.
const MOVE_PAUSE: Duration = Duration::from_secs(5);
const FOURTH: &str = "worker-4";

/// C041: planned moves repeat nothing.
#[test]
fn c_c041_a_fourth_worker_takes_its_fair_share_and_gives_it_back_without_repeats() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;

        let start = Instant::now();
        rig.system.add_worker(FOURTH).await?;
        let share = before.len() / 4;
        let after = wait::until("the fair share", DEADLINE, async || {
            let now = rig.placement().await?;
            let own = tasks_of(&now, FOURTH).len();
            ensure!(
                (share..=before.len().div_ceil(4)).contains(&own),
                "{FOURTH} has {own} of {} tasks",
                now.len()
            );
            Ok(Some(now))
        })
        .await?;
        let tasks = i32::try_from(before.len())?;
        rig.system.wait_running(tasks, DEADLINE).await?;
        let joined = moved(&before, &after);
        ensure!(
            joined == tasks_of(&after, FOURTH),
            "only what it took has moved: {joined:?}"
        );
        rig.caught_up().await?;
        check_moves(rig, &before, &after, start, &allowed)?;

        let leaving = Instant::now();
        rig.system.remove_worker(FOURTH).await?;
        let last = rig.placement().await?;
        ensure!(
            moved(&after, &last) == tasks_of(&after, FOURTH),
            "only what it had has moved"
        );
        rig.system.wait_running(tasks, DEADLINE).await?;
        rig.caught_up().await?;
        check_moves(rig, &after, &last, leaving, &allowed)?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(
            repeats.is_empty(),
            "planned moves repeat nothing: {repeats:?}"
        );
        Ok(())
    });
}

/// Moved partitions paused for 5 s at most, all others not at all; those neither that bear two owners.
fn check_moves(
    rig: &Rig,
    before: &Placement,
    after: &Placement,
    start: Instant,
    allowed: &std::collections::BTreeMap<kreplicator_tests::checker::Lane, Duration>,
) -> Result<()> {
    let moved = moved(before, after);
    let window = start..Instant::now();
    if settings::is_exactly_once() {
        return rig.check_pauses(before.keys(), &window, allowed);
    }
    let stayed = before.keys().filter(|lane| !moved.contains(*lane));
    rig.check_pauses(stayed, &window, allowed)?;
    let of_moved = moved.iter().map(|lane| (lane.clone(), MOVE_PAUSE));
    rig.check_pauses(&moved, &window, &of_moved.collect())
}
