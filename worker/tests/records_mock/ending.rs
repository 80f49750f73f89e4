//! Tasks end: by the fence, stuck, or all at once.

use std::{sync::Arc, time::Duration};

use kreplicator_worker::engine::{Engine, RunningTask, State, Stopped};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::Instant;

use crate::rig::{
    PATIENCE, Rig, STOP, copied, fill, numbered, quick_config, read, status_where, values,
};

/// A task that has copied ten records and saved that it did.
async fn ten_saved() -> (Rig, Arc<dyn RunningTask>) {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    status_where(task.as_ref(), "the save", |_| {
        rig.committed("orders", 0)
            .is_some_and(|(offset, _)| offset == 10)
    })
    .await;
    (rig, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn c037_a_closed_fence_stops_sending_and_saving() {
    let (rig, task) = ten_saved().await;

    rig.fence.close();
    fill(&rig.source, "orders", &numbered(0, 10..20));
    status_where(task.as_ref(), "the end", |status| {
        status.state == State::Stopped
    })
    .await;
    let stopped = task.stop(STOP).await;
    assert_eq!(
        stopped,
        Stopped::Forced {
            in_flight_records: 0
        }
    );
    assert_eq!(
        values(&read(&rig.target, "orders", 1, 10).await, 0).len(),
        10
    );
    assert_eq!(
        rig.committed("orders", 0).map(|(offset, _)| offset),
        Some(10)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c046_a_task_that_is_stuck_is_thrown_out_in_time_and_its_neighbours_go_on() {
    let rig = Rig::with_target_brokers(quick_config(), 64 << 20, 2);
    for (topic, leader) in [("free", 1), ("stuck", 2)] {
        rig.topic(topic, 1);
        rig.target
            .partition_leader(topic, 0, Some(leader))
            .expect("a leader");
    }
    fill(&rig.source, "stuck", &numbered(0, 0..1));
    fill(&rig.source, "free", &numbered(0, 0..10));
    let stuck = rig.start("stuck", 0);
    let free = rig.start("free", 0);
    copied(free.as_ref(), 10).await;
    copied(stuck.as_ref(), 1).await;
    let reserved = rig.budget.used_bytes();
    rig.target.broker_down(2).expect("down");
    fill(&rig.source, "stuck", &numbered(0, 1..11));
    status_where(stuck.as_ref(), "records in flight", |status| {
        status.in_flight_records == 10
    })
    .await;

    let began = Instant::now();
    let stopped = stuck.stop(Duration::from_secs(1)).await;
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(stopped, Stopped::Forced { .. }), "{stopped:?}");
    assert_eq!(stuck.status().state, State::Stopped);

    // The leader comes back: nothing of the stopped task may arrive.
    rig.target.broker_up(2).expect("up");
    fill(&rig.source, "free", &numbered(0, 10..20));
    let status = copied(free.as_ref(), 20).await;
    assert_eq!(status.records_total, 20, "the neighbour repeats nothing");
    let found = read(&rig.target, "stuck", 1, 1).await;
    assert_eq!(values(&found, 0), ["0,0"]);
    assert_eq!(rig.budget.used_bytes(), reserved, "its memory is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn c109_everything_is_let_go_within_the_deadline() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    let began = Instant::now();
    rig.engine
        .release_link(&rig.context.link.id, PATIENCE)
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(rig.budget.used_bytes(), 0, "the reader's memory is back");
    let task = rig.start("orders", 0);
    fill(&rig.source, "orders", &numbered(0, 10..12));
    copied(task.as_ref(), 12).await;
    rig.source.broker_down(-1).expect("down");
    rig.target.broker_down(-1).expect("down");
    let began = Instant::now();
    task.stop(Duration::from_secs(1)).await;
    rig.engine.close(Duration::from_secs(3)).await;
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_last_checkpoint_is_refused_says_that_the_next_owner_reads_again() {
    let (rig, task) = ten_saved().await;

    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 1_000];
    rig.source
        .request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    fill(&rig.source, "orders", &numbered(0, 10..20));
    copied(task.as_ref(), 20).await;
    assert_eq!(task.stop(STOP).await, Stopped::Unsaved);
    let copy = values(&read(&rig.target, "orders", 1, 20).await, 0);
    assert_eq!(copy.len(), 20, "everything is there");
    assert_eq!(
        rig.committed("orders", 0).map(|(offset, _)| offset),
        Some(10)
    );
}
