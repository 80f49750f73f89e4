//! Controllers and the metadata store go away and come back.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    rig::{self, Rig, moved},
    settings,
    system::LEASE,
    wait,
};
use tokio::time::Instant;

use crate::scrapes::{Scraper, check_no_second_owner};

/// How long the flow may need after the store is back. C058 asks for 30 s.
const RECOVERY: Duration = Duration::from_secs(30);
/// What of a core a process may use that has nothing to do but wait, as C055 asks for.
const IDLE_SHARE: f64 = 0.05;

#[test]
fn e1_a_killed_leader_is_succeeded_and_nothing_moves_or_pauses() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let leader = rig.system.leader().await?;
        let start = Instant::now();
        rig.system.controllers()[leader].kill().await?;
        let api = rig.api.clone();
        wait::until_true("another leader", LEASE * 2, async || {
            Ok(rig.system.leader().await? != leader && !api.workers().await?.is_empty())
        })
        .await?;
        rig.settle().await?;
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        same_placement(rig, &before).await
    });
}

#[test]
fn e2_data_flows_without_any_controller_and_nothing_moves_when_they_return() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        for controller in rig.system.controllers() {
            controller.kill().await?;
        }
        let away = settings::length(Duration::from_secs(12), Duration::from_secs(30));
        rig.observe(away).await;
        rig.settle().await?;
        rig.observe(Duration::from_secs(3)).await;
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        same_placement(rig, &before).await
    });
}

#[test]
fn e3_a_restart_of_the_store_within_a_lease_is_not_noticed() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        rig.system.etcd().kill().await?;
        rig.system.etcd().restart().await?;
        // Past the end of every lease that was not renewed.
        rig.observe(LEASE + Duration::from_secs(2)).await;
        rig.settle().await?;
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        same_placement(rig, &before).await
    });
}

/// C055: nobody spins while the store is away for longer than a lease; and what is promised once flows on.
#[test]
fn e4_c055_a_store_gone_for_longer_than_a_lease_costs_a_pause_at_most() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let usual = cpu_shares(rig, LEASE).await?;
        let start = Instant::now();
        rig.system.etcd().kill().await?;
        let away = settings::length(LEASE * 3, Duration::from_secs(300));
        // Past the end of the leases only waiting is left to do, and copying.
        rig.observe(LEASE).await;
        let shares = cpu_shares(rig, away - LEASE).await?;
        for ((name, usual), (_, share)) in usual.iter().zip(shares) {
            let copies = settings::is_exactly_once() && name.starts_with("worker");
            let copying = if copies { 1.3 * usual } else { 0.0 };
            let (used, usual) = (share * 100.0, usual * 100.0);
            println!("{name} used {used:.1} % of a core, {usual:.1} % before");
            ensure!(
                share < copying + IDLE_SHARE,
                "{name} used {used:.0} % of a core, {usual:.0} % before"
            );
        }
        if settings::is_exactly_once() {
            let window = start..Instant::now();
            rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
        }
        let returned = Instant::now();
        rig.system.etcd().restart().await?;
        for lane in Rig::base_lanes() {
            rig.tail.first_arrival(&lane, returned, RECOVERY).await?;
        }
        rig.settle().await?;
        println!("flow again after {:?}", returned.elapsed());
        if settings::is_exactly_once() {
            let window = start..Instant::now();
            rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
            let repeats = rig.tail.repeats_since(start);
            ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        }
        same_owners(rig, &before).await
    });
}

/// C058: leases that end all at once are suspicious: the fleet keeps its tasks.
#[test]
fn e5_c058_a_fleet_that_loses_all_leases_at_once_keeps_its_tasks() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        let revoked = rig.system.etcd().revoke_all_leases().await?;
        ensure!(revoked >= 3, "only {revoked} leases");
        rig.observe(Duration::from_secs(3)).await;
        rig.settle().await?;
        let window = start..Instant::now();
        let pauses = rig.tail.pauses(&Rig::base_lanes(), &window);
        let longest = pauses.values().max().copied().unwrap_or_default();
        ensure!(longest < RECOVERY, "paused for {longest:?}");
        if settings::is_exactly_once() {
            rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
        }
        same_owners(rig, &before).await
    });
}

/// C058: a store that answers nothing, though its connections stand, and goes on once all leases could have ended.
#[test]
fn e7_c058_a_store_that_is_stuck_for_longer_than_a_lease_moves_and_loses_nothing() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        rig.system.etcd().freeze().await?;
        rig.observe(settings::length(LEASE * 2, LEASE * 3)).await;
        let thawed = Instant::now();
        rig.system.etcd().thaw()?;
        let scraper = Scraper::start(rig);
        for lane in Rig::base_lanes() {
            rig.tail.first_arrival(&lane, thawed, RECOVERY).await?;
        }
        println!("flow again after {:?}", thawed.elapsed());
        // Past the end of every lease that was not renewed.
        rig.observe(LEASE + Duration::from_secs(1)).await;
        rig.settle().await?;
        check_no_second_owner(&scraper.finish())?;
        if settings::is_exactly_once() {
            let window = start..Instant::now();
            rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
            let repeats = rig.tail.repeats_since(start);
            ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        }
        same_owners(rig, &before).await
    });
}

/// C043: what is planned and what runs are compared for ever, so claims lost by an accident come back.
#[test]
fn e6_c043_claims_deleted_by_hand_are_made_anew_and_nothing_is_copied_twice() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let start = Instant::now();
        let mut client = rig.system.etcd().client().await?;
        let options = etcd_client::DeleteOptions::new().with_prefix();
        let owned = "/kreplicator/owned/";
        let deleted = client.delete(owned, Some(options)).await?.deleted();
        ensure!(deleted > 0, "no claims under {owned}");
        let claims = || {
            etcd_client::GetOptions::new()
                .with_prefix()
                .with_count_only()
        };
        wait::until_true("the claims", RECOVERY * 2, async || {
            let found = client.clone().get(owned, Some(claims())).await?.count();
            Ok(found == deleted)
        })
        .await?;
        rig.settle().await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(repeats.is_empty(), "copied twice: {repeats:?}");
        same_owners(rig, &before).await
    });
}

/// Which part of a core each process uses for some time.
async fn cpu_shares(rig: &mut Rig, time: Duration) -> Result<Vec<(String, f64)>> {
    let (began, before) = (Instant::now(), cpu_times(rig)?);
    rig.observe(time).await;
    let elapsed = began.elapsed().as_secs_f64();
    let used = before.into_iter().zip(cpu_times(rig)?);
    let shares = used.map(|((name, before), (_, after))| {
        let share = after.saturating_sub(before).as_secs_f64() / elapsed;
        (name, share)
    });
    Ok(shares.collect())
}

fn cpu_times(rig: &mut Rig) -> Result<Vec<(String, Duration)>> {
    let mut used = Vec::new();
    for controller in rig.system.controllers() {
        let name = controller.name().to_owned();
        used.push((name, controller.process()?.cpu_time()?));
    }
    for (name, worker) in rig.system.workers() {
        used.push((name.clone(), worker.process()?.cpu_time()?));
    }
    Ok(used)
}

/// Same workers and same epochs: nothing was given anew.
async fn same_placement(rig: &Rig, before: &rig::Placement) -> Result<()> {
    let moved = moved(before, &rig.placement().await?);
    ensure!(moved.is_empty(), "moved: {moved:?}");
    Ok(())
}

/// Same workers; they may have registered anew.
async fn same_owners(rig: &Rig, before: &rig::Placement) -> Result<()> {
    let after = rig.placement().await?;
    let moved: Vec<_> = before
        .iter()
        .filter(|(lane, (worker, _))| after.get(*lane).map(|(owner, _)| owner) != Some(worker))
        .collect();
    ensure!(moved.is_empty(), "moved: {moved:?}");
    Ok(())
}
