//! Leaving in order.

use super::*;

/// Another worker that stays, so that there is somebody to wait for.
async fn with_company() -> (Rig, Rig) {
    let rig = Rig::start().await;
    let other = Rig::on(rig.store.clone(), "w-2", SECOND);
    eventually("the other is there", async || other.live().await.is_some()).await;
    (rig, other)
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_tasks_leaves_at_once() {
    let mut rig = Rig::start().await;
    eventually("ready", async || rig.health.unready().is_none()).await;
    let told = Instant::now();
    rig.leave();
    rig.ended().await.expect("left");
    assert!(told.elapsed() < SECOND, "took {:?}", told.elapsed());
    assert!(rig.live().await.is_none(), "the lease is given back");
    assert!(rig.engine.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_registered_leaves_at_once() {
    let rig = Rig::start().await;
    eventually("registered", async || rig.live().await.is_some()).await;
    let mut second = Rig::on(rig.store.clone(), "w-1", SECOND);
    sleep(2 * SECOND).await;
    second.leave();
    let told = Instant::now();
    second.ended().await.expect("left");
    assert!(told.elapsed() < SECOND);
    assert!(rig.live().await.is_some(), "the first one is untouched");
}

#[tokio::test(start_paused = true)]
async fn tasks_flow_on_until_the_controller_has_moved_them() {
    let (mut rig, _other) = with_company().await;
    let all = [(task(0), 1), (task(1), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    rig.leave();
    eventually("everybody is told", async || {
        rig.live().await.is_some_and(|(live, _)| live.draining)
    })
    .await;
    assert_eq!(rig.health.unready(), Some("draining"));
    sleep(3 * SECOND).await;
    assert_eq!(rig.engine.running(), [task(0), task(1)]);
    // The controller moves one away, and assigns another by mistake.
    rig.assign([(task(1), 1), (task(2), 2)]).await;
    eventually("one is released", async || {
        rig.engine.running() == [task(1)]
    })
    .await;
    assert!(!rig.is_over());
    rig.assign([]).await;
    let moved = Instant::now();
    rig.ended().await.expect("left");
    assert!(moved.elapsed() < SECOND, "took {:?}", moved.elapsed());
    assert!(
        rig.engine
            .stops()
            .iter()
            .all(|stop| stop.outcome == Stopped::Clean)
    );
    assert_eq!(
        rig.engine.starts().len(),
        2,
        "nothing was started while leaving"
    );
    assert!(rig.live().await.is_none());
    assert!(rig.owned().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_took_is_stopped_cleanly_when_the_time_is_over() {
    let (mut rig, _other) = with_company().await;
    rig.engine.script(Script {
        stop_takes: 2 * SECOND,
        ..Script::default()
    });
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.leave();
    let told = Instant::now();
    rig.ended().await.expect("left");
    let took = told.elapsed();
    assert!(took >= 15 * SECOND && took < 19 * SECOND, "took {took:?}");
    let stop = &rig.engine.stops()[0];
    assert_eq!((stop.limit, stop.outcome), (10 * SECOND, Stopped::Clean));
    assert!(rig.live().await.is_none());
    assert!(rig.owned().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_alone_does_not_wait_for_others() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.leave();
    let told = Instant::now();
    rig.ended().await.expect("left");
    assert!(told.elapsed() < SECOND, "took {:?}", told.elapsed());
    assert_eq!(rig.engine.stops()[0].outcome, Stopped::Clean);
}

#[tokio::test(start_paused = true)]
async fn leaving_without_a_store_still_ends_in_time() {
    let (mut rig, _other) = with_company().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.store.set_away(true);
    rig.leave();
    let told = Instant::now();
    rig.ended().await.expect("left");
    assert!(
        told.elapsed() < 10 * SECOND,
        "the fence ends it: {:?}",
        told.elapsed()
    );
    assert!(rig.engine.running().is_empty());
}
