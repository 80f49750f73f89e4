//! A worker joins and leaves while everything flows.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    rig::{self, LINK, Placement, Rig, moved, tasks_of},
    settings, wait,
};
use tokio::time::Instant;

use crate::scrapes::{Round, Scraper, as_float, check_always, growth};

const DEADLINE: Duration = Duration::from_secs(30);
/// The longest pause of a partition that changes its worker and does not bear two.
const MOVE_PAUSE: Duration = Duration::from_secs(5);
const FOURTH: &str = "worker-4";
/// Until metrics tell what is so: they are mostly read every 15 s.
const ONE_SCRAPE: Duration = Duration::from_secs(5);

/// C041: planned moves repeat nothing. C119: and metrics tell of each partition once.
#[test]
fn c_c041_c119_a_fourth_worker_takes_its_fair_share_and_gives_it_back_without_repeats() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;

        let all = rig.api.tasks(LINK).await?.len();
        let told = Round::now(rig).await;
        let scraper = Scraper::start(rig);
        let start = Instant::now();
        rig.system.add_worker(FOURTH).await?;
        scraper.look_again(rig);
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
        let told = check_metrics(rig, &told, ("rebalance", joined.len()), 4).await?;

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
        check_metrics(rig, &told, ("worker-draining", joined.len()), 3).await?;
        check_always(&scraper.finish(), all)?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(
            repeats.is_empty(),
            "planned moves repeat nothing: {repeats:?}"
        );
        Ok(())
    });
}

/// Each partition's lag is told by its one owner again, all moves since `before` are counted under their reason,
/// and of so many workers none is told of that has gone.
async fn check_metrics(
    rig: &mut Rig,
    before: &Round,
    (reason, moved): (&str, usize),
    workers: usize,
) -> Result<Round> {
    let lanes = Rig::base_lanes();
    wait::until("metrics of the new owners", ONE_SCRAPE, async || {
        let now = Round::now(rig).await;
        now.check_one_owner(&lanes)?;
        let moves = growth(&before.moves()?, &now.moves()?);
        let wanted = [(reason.to_owned(), as_float(moved))].into();
        ensure!(moves == wanted, "moves: {moves:?}, expected {wanted:?}");
        let by_state = now.workers_by_state()?;
        let wanted = [("active".to_owned(), as_float(workers))].into();
        ensure!(by_state == wanted, "workers: {by_state:?}");
        Ok(Some(now))
    })
    .await
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
