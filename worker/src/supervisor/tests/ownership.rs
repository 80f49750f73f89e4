//! Losing ownership and getting it back.

use kreplicator_store::MetaStore;

use super::*;
use crate::testkit::rig::{FENCE_MARGIN, LEASE_TTL};

/// Loses nothing but the store, until `back` after that.
async fn lose_store_for(rig: &Rig, away: Duration) {
    rig.store.set_away(true);
    sleep(away).await;
    rig.store.set_away(false);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_for_less_than_a_lease_tasks_go_on() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    for _ in 0..5 {
        lose_store_for(&rig, SECOND).await;
        sleep(3 * SECOND).await;
    }
    assert_eq!(rig.engine.starts().len(), 1);
    assert!(rig.engine.stops().is_empty());
    rig.assign([(task(0), 1), (task(1), 2)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn c037_a_worker_cut_off_from_the_store_stops_before_its_lease_can_end() {
    let mut rig = Rig::start().await;
    let all = [(task(0), 1), (task(1), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    rig.store.set_away(true);
    let cut = Instant::now();
    eventually("everything stopped", async || {
        rig.engine.running().is_empty()
    })
    .await;
    assert!(
        cut.elapsed() <= LEASE_TTL - FENCE_MARGIN,
        "took {:?}",
        cut.elapsed()
    );
    for stop in rig.engine.stops() {
        assert_eq!(stop.limit, Duration::ZERO, "at once");
        assert!(stop.at - cut <= LEASE_TTL - FENCE_MARGIN);
    }
    assert!(!rig.gate.is_open());
    assert_eq!(rig.health.unready(), Some("not registered"));
    assert!(
        rig.tasks.is_empty(),
        "no series of what is not ours any more"
    );
    sleep(2 * LEASE_TTL).await;
    assert!(rig.owned().await.is_empty(), "went with the lease");
    assert!(rig.live().await.is_none());

    rig.store.set_away(false);
    rig.settle_on(&all).await;
    assert_eq!(rig.health.unready(), None);
    let (live, _) = rig.live().await.expect("registered again");
    eventually("the new incarnation is told", async || {
        let (live, _) = rig.live().await.expect("registered");
        live.incarnation.ends_with("-2")
    })
    .await;
    assert!(!live.draining);
}

#[tokio::test(start_paused = true)]
async fn c037_what_was_given_away_meanwhile_is_not_started_again() {
    let mut rig = Rig::start().await;
    let first = task_on("a-c", "clicks", 0);
    rig.assign([(first.clone(), 1), (task(1), 1)]).await;
    rig.settle_on(&[(first.clone(), 1), (task(1), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    rig.assign([(task(1), 1)]).await;
    rig.store.set_away(false);
    rig.settle_on(&[(task(1), 1)]).await;
    eventually("the other link is let go of", async || {
        rig.engine.released() == [link_id("a-c")]
    })
    .await;
    let starts = rig.engine.starts();
    let of_first = starts.iter().filter(|(spec, _)| spec.id == first);
    assert_eq!(of_first.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn c038_a_worker_frozen_for_three_leases_finds_the_gate_shut() {
    let mut rig = Rig::start().await;
    // Stopping takes longer than registering again: the gate has to wait for it.
    rig.engine.script(Script {
        stop_takes: 3 * SECOND,
        ..Script::default()
    });
    let all = [(task(0), 1), (task(1), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    let (before, _) = rig.live().await.expect("registered");
    assert!(rig.gate.is_open());
    // Time jumps; nothing of the worker runs before the gate is asked.
    tokio::time::advance(3 * LEASE_TTL).await;
    assert!(!rig.gate.is_open());
    eventually("both stopped", async || rig.engine.stops().len() == 2).await;
    for stop in rig.engine.stops() {
        assert_eq!(stop.limit, Duration::ZERO);
        assert!(matches!(stop.outcome, Stopped::Forced { .. }));
    }
    rig.settle_on(&all).await;
    let (after, _) = rig.live().await.expect("registered again");
    assert_ne!(before.incarnation, after.incarnation);
}

#[tokio::test(start_paused = true)]
async fn a_lapse_that_the_lease_outlives_restarts_everything_under_a_new_incarnation() {
    let mut rig = Rig::start().await;
    let all = [(task(0), 1), (task_on("a-c", "clicks", 0), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    let (_, lease) = rig.live().await.expect("registered");
    rig.store.set_away(true);
    eventually("everything stopped", async || {
        rig.engine.running().is_empty()
    })
    .await;
    rig.store.set_away(false);
    rig.settle_on(&all).await;
    let (_, after) = rig.live().await.expect("registered");
    assert_eq!(lease, after, "the store never saw it leave");
    eventually("lists name the new incarnation", async || {
        let (live, _) = rig.live().await.expect("registered");
        let owned = rig.owned().await;
        live.incarnation.ends_with("-2")
            && owned
                .values()
                .all(|owned| owned.incarnation == live.incarnation)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn c055_a_store_that_is_away_for_long_costs_next_to_nothing() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.set_away(true);
    sleep(30 * SECOND).await;
    let calls = rig.store.calls();
    sleep(300 * SECOND).await;
    let per_minute = (rig.store.calls() - calls) / 5;
    assert!(per_minute <= 90, "{per_minute} calls a minute");
    rig.store.set_away(false);
    rig.settle_on(&[(task(0), 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn c058_a_revoked_lease_is_replaced_and_the_same_tasks_run_again() {
    let mut rig = Rig::start().await;
    let all = [(task(0), 1), (task(1), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    let (_, lease) = rig.live().await.expect("registered");
    rig.store.inner().revoke(lease).await.expect("revoked");
    let revoked = Instant::now();
    eventually("noticed", async || rig.engine.stops().len() == 2).await;
    rig.settle_on(&all).await;
    assert!(
        revoked.elapsed() < 10 * SECOND,
        "took {:?}",
        revoked.elapsed()
    );
    let (_, after) = rig.live().await.expect("registered again");
    assert_ne!(lease, after);
    let epochs: Vec<_> = rig
        .engine
        .starts()
        .into_iter()
        .map(|(spec, _)| spec.epoch.0)
        .collect();
    assert_eq!(epochs, [1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_registration_deleted_by_hand_is_noticed_with_the_next_write_at_the_latest() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    delete(&rig.store, keys::worker_live(&rig.worker)).await;
    rig.assign([(task(0), 1), (task(1), 2)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 2)]).await;
    assert!(rig.live().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answer_is_lost_start_nothing_and_settle_later() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.lose_answers(true);
    rig.assign([(task(0), 1), (task(1), 2)]).await;
    sleep(3 * SECOND).await;
    assert_eq!(
        rig.engine.running(),
        [task(0)],
        "what ran goes on, nothing new starts"
    );
    rig.store.lose_answers(false);
    rig.settle_on(&[(task(0), 1), (task(1), 2)]).await;
    assert_eq!(rig.engine.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_with_the_same_id_waits_unready_and_runs_nothing() {
    let mut first = Rig::start().await;
    first.assign([(task(0), 1)]).await;
    first.settle_on(&[(task(0), 1)]).await;
    let second = Rig::on(first.store.clone(), "w-1", SECOND);
    sleep(3 * LEASE_TTL).await;
    assert_eq!(second.health.unready(), Some("not registered"));
    assert!(second.engine.running().is_empty());
    assert_eq!(
        second.health.dead(Instant::now()),
        None,
        "waiting is not being dead"
    );
    assert_eq!(first.engine.running(), [task(0)]);

    first.leave();
    first.ended().await.expect("left");
    eventually("the second takes over", async || {
        second.engine.running() == [task(0)]
    })
    .await;
    assert_eq!(second.health.unready(), None);
}
