//! Tasks go on: over restarts, pauses, neighbours that come and go, and changed links.

use std::{sync::Arc, time::Duration};

use kreplicator_model::spec::GapPolicy;
use kreplicator_worker::engine::{State, Stopped};
use tokio::time::{Instant, sleep};

use crate::rig::{
    PATIENCE, Rec, Rig, STOP, copied, faulted, fill, numbered, quick_config, read, status_where,
    values,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_from_the_checkpoint_without_repeats() {
    let mut rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..100));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 100).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(
        rig.committed("orders", 0),
        Some((100, "k1 e=7 w=worker-1".to_owned()))
    );

    fill(&rig.source, "orders", &numbered(0, 100..150));
    rig.restart(quick_config()).await;
    let task = rig.start("orders", 0);
    let status = copied(task.as_ref(), 150).await;
    assert_eq!(status.records_total, 50);
    let found = read(&rig.target, "orders", 1, 150).await;
    let expected: Vec<_> = (0..150).map(|number| format!("0,{number}")).collect();
    assert_eq!(values(&found, 0), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c025_a_target_that_goes_away_pauses_the_task_and_nothing_is_lost_or_repeated() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..20));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 20).await;

    rig.target.broker_down(-1).expect("down");
    fill(&rig.source, "orders", &numbered(0, 20..40));
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("cluster b"), "{}", status.cause);
    assert_eq!(
        status.checkpoint.map(|at| at.0),
        Some(20),
        "what is not acknowledged is no progress"
    );

    rig.target.broker_up(-1).expect("up");
    copied(task.as_ref(), 40).await;
    status_where(task.as_ref(), "recovery", |status| {
        status.state == State::Running && status.cause.is_empty()
    })
    .await;
    let found = read(&rig.target, "orders", 1, 40).await;
    let expected: Vec<_> = (0..40).map(|number| format!("0,{number}")).collect();
    assert_eq!(values(&found, 0), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c107_memory_stays_within_the_budget_while_the_target_is_slow() {
    let mut config = quick_config();
    config.sink.linger = Duration::from_millis(1);
    let rig = Rig::with(config, 4 << 20);
    rig.topic("big", 4);
    let value = "x".repeat(10_000);
    for partition in 0..4 {
        let records: Vec<_> = (0..300)
            .map(|number| Rec::new(partition, &format!("{partition},{number},{value}")))
            .collect();
        fill(&rig.source, "big", &records);
    }
    rig.target
        .broker_round_trip_time(-1, Duration::from_millis(50))
        .expect("slow");
    let tasks: Vec<_> = (0..4)
        .map(|partition| rig.start("big", partition))
        .collect();
    let end = Instant::now() + PATIENCE;
    let mut highest = 0;
    while tasks
        .iter()
        .any(|task| task.status().checkpoint.is_none_or(|at| at.0 < 300))
    {
        highest = highest.max(rig.budget.used_bytes());
        assert!(highest <= rig.budget.limit_bytes(), "{highest} bytes");
        assert!(Instant::now() < end, "{:#?}", tasks[0].status());
        sleep(Duration::from_millis(5)).await;
    }
    assert!(highest > 1 << 20, "the budget was put to use: {highest}");
    let found = read(&rig.target, "big", 4, 1_200).await;
    for partition in 0..4 {
        let expected: Vec<_> = (0..300)
            .map(|number| format!("{partition},{number},{value}"))
            .collect();
        assert!(
            values(&found, partition) == expected,
            "partition {partition} in order, once"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_come_and_go_while_others_flow() {
    let rig = Rig::new();
    rig.topic("steady", 1);
    rig.topic("moving", 4);
    fill(&rig.source, "steady", &numbered(0, 0..200));
    for partition in 0..4 {
        fill(&rig.source, "moving", &numbered(partition, 0..50));
    }
    let steady = rig.start("steady", 0);
    for round in 0..5 {
        let tasks: Vec<_> = (0..4)
            .map(|partition| rig.start("moving", partition))
            .collect();
        for task in &tasks {
            copied(task.as_ref(), 50).await;
        }
        for task in tasks {
            assert_eq!(task.stop(STOP).await, Stopped::Clean, "round {round}");
        }
    }
    copied(steady.as_ref(), 200).await;
    let found = read(&rig.target, "moving", 4, 200).await;
    assert_eq!(found.len(), 200, "every record once over all rounds");
    assert_eq!(steady.status().state, State::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_link_takes_over_task_by_task_and_its_old_clients_end() {
    let mut rig = Rig::new();
    rig.topic("orders", 2);
    for partition in 0..2 {
        fill(&rig.source, "orders", &numbered(partition, 0..10));
    }
    let before: Vec<_> = (0..2)
        .map(|partition| rig.start("orders", partition))
        .collect();
    for task in &before {
        copied(task.as_ref(), 10).await;
    }
    let reserved = rig.budget.used_bytes();
    let mut context = (*rig.context).clone();
    context.link.on_gap = GapPolicy::Halt;
    rig.context = Arc::new(context);
    assert_eq!(before[0].stop(STOP).await, Stopped::Clean);
    let first = rig.start("orders", 0);
    fill(&rig.source, "orders", &numbered(0, 10..20));
    fill(&rig.source, "orders", &numbered(1, 10..20));
    copied(first.as_ref(), 20).await;
    copied(before[1].as_ref(), 20).await;
    assert_eq!(before[1].stop(STOP).await, Stopped::Clean);
    let end = Instant::now() + PATIENCE;
    while rig.budget.used_bytes() > reserved {
        assert!(Instant::now() < end, "the old reader's memory is kept");
        sleep(Duration::from_millis(50)).await;
    }
    let second = rig.start("orders", 1);
    fill(&rig.source, "orders", &numbered(1, 20..25));
    copied(second.as_ref(), 25).await;
    let found = read(&rig.target, "orders", 2, 45).await;
    assert_eq!(found.len(), 45, "nothing twice");
}
