//! Tasks that bear a second owner go on without a registration.

use super::*;
use crate::testkit::rig::{FENCE_MARGIN, LEASE_TTL};

const EXACT: Script = Script {
    start_takes: Duration::ZERO,
    stop_takes: Duration::ZERO,
    stop_ignores_limit: false,
    exactly_once: true,
};

/// Starts per task.
fn starts_of(rig: &Rig, id: &kreplicator_model::ids::TaskId) -> usize {
    let starts = rig.engine.starts();
    starts.iter().filter(|(spec, _)| spec.id == *id).count()
}

#[tokio::test(start_paused = true)]
async fn they_never_pause_while_the_store_is_away_and_others_stop_in_time() {
    let mut rig = Rig::start().await;
    rig.engine.script_task(&task(0), EXACT);
    let all = [(task(0), 1), (task(1), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    rig.store.set_away(true);
    let cut = Instant::now();
    eventually("the other stopped", async || {
        rig.engine.running() == [task(0)]
    })
    .await;
    assert!(cut.elapsed() <= LEASE_TTL - FENCE_MARGIN);
    assert!(!rig.gate.is_open());
    sleep(300 * SECOND).await;
    assert_eq!(rig.engine.running(), [task(0)]);
    assert_eq!(rig.tasks.len(), 1, "it is still told of");
    assert_eq!(rig.health.unready(), Some("not registered"));

    rig.store.set_away(false);
    rig.settle_on(&all).await;
    assert_eq!(starts_of(&rig, &task(0)), 1, "it runs on as it was");
    assert_eq!(starts_of(&rig, &task(1)), 2);
    assert!(rig.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_three_leases_is_a_loss_like_any_other() {
    let mut rig = Rig::start().await;
    rig.engine.script(EXACT);
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    tokio::time::advance(3 * LEASE_TTL).await;
    assert!(!rig.gate.is_open());
    rig.settle_on(&[(task(0), 1)]).await;
    assert!(rig.engine.stops().is_empty());
    assert_eq!(rig.engine.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_away_meanwhile_stops_before_the_gate_opens() {
    let mut rig = Rig::start().await;
    rig.engine.script(EXACT);
    // The engine asserts that the gate stays shut until it has stopped.
    rig.engine.script_task(
        &task(0),
        Script {
            stop_takes: 3 * SECOND,
            ..EXACT
        },
    );
    rig.assign([(task(0), 1), (task(1), 1)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    rig.assign([(task(1), 1), (task(2), 2)]).await;
    rig.store.set_away(false);
    rig.settle_on(&[(task(1), 1), (task(2), 2)]).await;
    let stops = rig.engine.stops();
    assert_eq!(stops.len(), 1);
    assert_eq!((&stops[0].id, stops[0].limit), (&task(0), Duration::ZERO));
    assert_eq!(starts_of(&rig, &task(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn under_a_new_ownership_a_task_begins_anew() {
    let mut rig = Rig::start().await;
    rig.engine.script(EXACT);
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    // It was elsewhere and has come back.
    rig.assign([(task(0), 3)]).await;
    rig.store.set_away(false);
    rig.settle_on(&[(task(0), 3)]).await;
    let epochs: Vec<_> = rig
        .engine
        .starts()
        .into_iter()
        .map(|(spec, _)| spec.epoch.0)
        .collect();
    assert_eq!(epochs, [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_promise_it_any_more_is_begun_anew_with_the_registration() {
    let mut rig = Rig::start().await;
    rig.engine.script(EXACT);
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    assert_eq!(rig.engine.running(), [task(0)]);
    rig.engine.script(Script::default());
    rig.store.set_away(false);
    rig.settle_on(&[(task(0), 1)]).await;
    eventually("it has begun anew", async || starts_of(&rig, &task(0)) == 2).await;
    assert_eq!(rig.engine.stops().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_leave_while_the_store_is_away_drains_them() {
    let mut rig = Rig::start().await;
    rig.engine.script(Script {
        stop_takes: 2 * SECOND,
        ..EXACT
    });
    rig.assign([(task(0), 1), (task(1), 1)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    assert_eq!(rig.engine.running().len(), 2);
    rig.leave();
    rig.ended().await.expect("left");
    let stops = rig.engine.stops();
    assert_eq!(stops.len(), 2);
    for stop in stops {
        assert!(stop.limit > 2 * SECOND, "time to deliver");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_settings_are_followed_after_the_return() {
    let mut rig = Rig::start().await;
    rig.engine.script(EXACT);
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.set_away(true);
    sleep(2 * LEASE_TTL).await;
    put_cluster(&rig.store, "a", "elsewhere:9092").await;
    rig.store.set_away(false);
    eventually("it was begun anew", async || starts_of(&rig, &task(0)) == 2).await;
    rig.settle_on(&[(task(0), 1)]).await;
}
