//! The supervisor on a store in memory with a scripted engine, in virtual time. The engine asserts in
//! each of these tests that no task starts unlisted, leaves the list before it stopped, or meets an
//! open gate after its ownership ended.

mod carried;
mod leaving;
mod ownership;

use std::time::Duration;

use kreplicator_model::ids::OwnerEpoch;
use kreplicator_store::keys;
use tokio::time::{Instant, sleep};

use crate::{
    engine::{State, Stopped},
    testkit::{
        FakeTask, Rig, Script, eventually, link_id,
        rig::{delete, put, put_cluster},
        task, task_on,
    },
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn assigned_tasks_run_and_are_acknowledged() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1), (task_on("a-c", "clicks", 3), 1)])
        .await;
    rig.settle_on(&[(task(0), 1), (task_on("a-c", "clicks", 3), 1)])
        .await;
    assert_eq!(rig.health.unready(), None);
    let (live, _) = rig.live().await.expect("registered");
    for owned in rig.owned().await.values() {
        assert_eq!(owned.incarnation, live.incarnation);
    }
    assert_eq!(rig.tasks.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_need_not_change_never_pauses() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1), (task(1), 1)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 1)]).await;
    rig.assign([(task(0), 1), (task(2), 2)]).await;
    rig.settle_on(&[(task(0), 1), (task(2), 2)]).await;
    let starts: Vec<_> = rig
        .engine
        .starts()
        .into_iter()
        .map(|(spec, _)| spec.id)
        .collect();
    assert_eq!(starts, [task(0), task(1), task(2)]);
    let stops: Vec<_> = rig.engine.stops().into_iter().map(|stop| stop.id).collect();
    assert_eq!(stops, [task(1)]);
    assert_eq!(rig.tasks.removals(), 1, "a released task leaves the table");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_listed_as_stopping_until_it_has_stopped() {
    let mut rig = Rig::start().await;
    rig.engine.script(Script {
        stop_takes: 3 * SECOND,
        ..Script::default()
    });
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.assign([]).await;
    sleep(2 * SECOND).await;
    let owned = rig.owned().await;
    let (number, _, revision) = rig.chunk().await;
    let listed = owned[&number].tasks[&task(0)];
    assert_eq!((listed.epoch, listed.stopping), (OwnerEpoch(1), true));
    assert_eq!(
        owned[&number].applied_revision, revision.0,
        "acknowledged all the same"
    );
    rig.settle_on(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_epoch_of_a_running_task_is_a_stop_and_a_start() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.assign([(task(0), 2)]).await;
    rig.settle_on(&[(task(0), 2)]).await;
    let epochs: Vec<_> = rig
        .engine
        .starts()
        .into_iter()
        .map(|(spec, _)| spec.epoch.0)
        .collect();
    assert_eq!(epochs, [1, 2]);
    assert_eq!(rig.engine.stops()[0].outcome, Stopped::Clean);
}

#[tokio::test(start_paused = true)]
async fn an_older_generation_is_refused_and_not_acknowledged() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 5)]).await;
    rig.settle_on(&[(task(0), 5)]).await;
    let (number, chunk, revision) = rig.chunk().await;
    let mut other = chunk.clone();
    other.topics.clear();
    rig.write_chunk(4, number, other.clone()).await;
    sleep(5 * SECOND).await;
    assert_eq!(rig.engine.running(), [task(0)]);
    assert_eq!(rig.owned().await[&number].applied_revision, revision.0);

    rig.write_chunk(5, number, other.clone()).await;
    sleep(5 * SECOND).await;
    assert_eq!(
        rig.engine.running(),
        [task(0)],
        "one generation, one content"
    );
    assert_eq!(rig.owned().await[&number].applied_revision, revision.0);

    rig.write_chunk(6, number, other).await;
    rig.settle_on(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_chunk_leaves_what_runs() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    let (number, chunk, _) = rig.chunk().await;
    put(
        &rig.store,
        keys::assignment(&rig.worker, number),
        vec![0xff],
    )
    .await;
    sleep(5 * SECOND).await;
    assert_eq!(rig.engine.running(), [task(0)]);
    rig.write_chunk(rig.generation() + 1, number, chunk).await;
    rig.settle_on(&[(task(0), 1)]).await;
    assert_eq!(rig.engine.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_its_link_to_be_known() {
    let mut rig = Rig::start().await;
    let stranger = task_on("a-d", "orders", 0);
    rig.assign([(task(0), 1), (stranger.clone(), 1)]).await;
    eventually("the known one runs", async || {
        rig.engine.running() == [task(0)]
    })
    .await;
    eventually("the other is counted", async || {
        rig.tasks.waiting().get(&link_id("a-d")) == Some(&1)
    })
    .await;
    crate::testkit::rig::put_cluster(&rig.store, "d", "d:9092").await;
    crate::testkit::rig::put_link(&rig.store, "a-d", "a", "d").await;
    rig.settle_on(&[(task(0), 1), (stranger, 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn c050_a_changed_cluster_restarts_the_tasks_of_its_links_and_no_other() {
    let mut rig = Rig::start().await;
    let other = task_on("a-c", "clicks", 0);
    let all = [(task(0), 1), (task(1), 1), (other.clone(), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    put_cluster(&rig.store, "b", "b-2:9092").await;
    eventually("both follow", async || {
        let server = |task: &FakeTask| task.context().target.bootstrap_servers[0].clone();
        rig.has_settled_on(&all).await
            && [0, 1]
                .iter()
                .all(|n| server(&rig.engine.task(&task(*n))) == "b-2:9092")
    })
    .await;
    let starts: Vec<_> = rig
        .engine
        .starts()
        .into_iter()
        .map(|(spec, _)| spec.id)
        .collect();
    assert_eq!(starts.iter().filter(|id| **id == other).count(), 1);
    assert_eq!(starts.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_link_is_left_running_until_its_tasks_are_taken_away() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    delete(&rig.store, keys::link(&link_id("a-b"))).await;
    sleep(5 * SECOND).await;
    assert_eq!(rig.engine.running(), [task(0)]);
    rig.assign([]).await;
    rig.settle_on(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_link_lets_go_of_its_clients() {
    let mut rig = Rig::start().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.assign([]).await;
    rig.settle_on(&[]).await;
    sleep(10 * SECOND).await;
    assert!(rig.engine.released().is_empty(), "it may come back");
    eventually("released", async || {
        rig.engine.released() == [link_id("a-b")]
    })
    .await;
    rig.assign([(task(0), 2)]).await;
    rig.settle_on(&[(task(0), 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn c043_status_keys_deleted_by_hand_are_written_again_and_nothing_restarts() {
    let mut rig = Rig::start().await;
    let all = [(task(0), 1), (task_on("a-c", "clicks", 0), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    for number in rig.owned().await.into_keys() {
        delete(&rig.store, keys::owned(&rig.worker, number)).await;
    }
    rig.settle_on(&all).await;
    let (number, _, _) = rig.chunk().await;
    put(&rig.store, keys::owned(&rig.worker, number), Vec::new()).await;
    rig.settle_on(&all).await;
    assert_eq!(rig.engine.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn c046_a_task_that_hangs_in_stop_is_forced_and_stays_in_the_books_until_then() {
    let mut rig = Rig::start().await;
    rig.engine.script_task(
        &task(0),
        Script {
            stop_takes: 3_600 * SECOND,
            ..Script::default()
        },
    );
    rig.assign([(task(0), 1), (task(1), 1)]).await;
    rig.settle_on(&[(task(0), 1), (task(1), 1)]).await;
    rig.assign([(task(1), 1)]).await;
    let told = Instant::now();
    sleep(9 * SECOND).await;
    let (number, _, _) = rig.chunk().await;
    assert!(rig.owned().await[&number].tasks[&task(0)].stopping);
    rig.settle_on(&[(task(1), 1)]).await;
    assert!(told.elapsed() < 11 * SECOND, "the limit is 10 s");
    assert!(matches!(
        rig.engine.stops()[0].outcome,
        Stopped::Forced { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn c046_a_task_beyond_control_ends_the_process_and_keeps_the_lease() {
    let mut rig = Rig::start().await;
    rig.engine.script_task(
        &task(0),
        Script {
            stop_takes: 3_600 * SECOND,
            stop_ignores_limit: true,
            ..Script::default()
        },
    );
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    rig.assign([]).await;
    let error = rig.ended().await.expect_err("it cannot go on");
    assert!(error.to_string().contains("a-b/orders/0"), "{error}");
    assert!(!rig.gate.is_open());
    let (number, _, _) = rig.chunk().await;
    let owned = rig.owned().await;
    assert!(
        owned[&number].tasks[&task(0)].stopping,
        "never gone before it is: {owned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn c049_a_thousand_tasks_are_taken_on_in_seconds_with_few_writes() {
    let mut rig = Rig::start().await;
    rig.engine.script(Script {
        start_takes: 2 * SECOND,
        ..Script::default()
    });
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    let writes = rig.store.owned_writes();
    let mut all = vec![(task(0), 1)];
    all.extend((0..1_000).map(|n| (task_on("a-b", &format!("t-{}", n / 6), n % 6), 2)));
    let began = Instant::now();
    rig.assign(all.clone()).await;
    eventually("all copy", async || {
        let live = rig.tasks.live();
        live.len() == all.len()
            && live
                .iter()
                .all(|(_, live)| live.task.status().state == State::Running)
    })
    .await;
    assert!(began.elapsed() < 5 * SECOND, "took {:?}", began.elapsed());
    let writes = rig.store.owned_writes() - writes;
    assert!(
        writes <= 2 * u64::from(keys::ASSIGNMENT_CHUNKS),
        "{writes} writes"
    );
    assert!(rig.engine.stops().is_empty(), "what ran went on");
    // Given up just as quickly.
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
}
