//! Where reading starts and goes on: policies, gaps, and checkpoints as they are found.

use std::{sync::Arc, time::Duration};

use kreplicator_model::{
    ids::OwnerEpoch,
    spec::{CheckpointSide, GapPolicy, StartPolicy},
};
use kreplicator_worker::engine::Stopped;
use tokio::time::sleep;

use crate::{
    rig::{
        Rec, Rig, STOP, Stream, copied, faulted, fill, numbered, quick_config, read, spec,
        status_where, values,
    },
    wire,
};

#[tokio::test(flavor = "multi_thread")]
async fn c005_a_checkpoint_past_the_end_is_reported_and_never_reset() {
    let rig = Rig::new();
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..50));
    rig.commit("short", 0, 10_000, "");
    let task = rig.start("short", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("ends at 50, before offset 10000"),
        "{}",
        status.cause
    );
    assert_eq!(
        rig.committed("short", 0).map(|(offset, _)| offset),
        Some(10_000)
    );
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
}

/// Fills a mock partition over its limit of 5 MiB, so that it drops the oldest batches.
fn overflow(rig: &Rig, topic: &str) -> i64 {
    let value = "x".repeat(500_000);
    let records: Vec<_> = (0..40).map(|_| Rec::new(0, &value)).collect();
    for batch in records.chunks(2) {
        fill(&rig.source, topic, batch);
    }
    40
}

#[tokio::test(flavor = "multi_thread")]
async fn c001_source_offsets_that_are_gone_are_counted_once_and_the_task_goes_on() {
    let rig = Rig::new();
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..10));
    rig.commit("short", 0, 1, "");
    let end = 10 + overflow(&rig, "short");
    let task = rig.start("short", 0);
    let status = copied(task.as_ref(), end).await;
    let log_start = status_where(task.as_ref(), "a look", |status| status.log_start.is_some())
        .await
        .log_start
        .expect("measured");
    assert!(
        log_start.0 > 10,
        "the mock cluster dropped old batches: {log_start}"
    );
    assert_eq!(status.gap_records_total, log_start.0.unsigned_abs() - 1);
    assert_eq!(status.records_total, (end - log_start.0).unsigned_abs());
}

#[tokio::test(flavor = "multi_thread")]
async fn c001_a_link_that_halts_on_gaps_copies_nothing() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.link.on_gap = GapPolicy::Halt;
    rig.context = Arc::new(context);
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..10));
    rig.commit("short", 0, 1, "");
    overflow(&rig, "short");
    let task = rig.start("short", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("[1, "), "{}", status.cause);
    assert_eq!(status.records_total, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_owners_checkpoint_fences_this_one() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    rig.commit("orders", 0, 4, "k1 e=8 w=worker-2");
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("worker-2") && status.cause.contains("epoch 8"),
        "{}",
        status.cause
    );
    assert_eq!(status.retry_at, None, "trying again cannot help");
    let mut successor = spec("orders", 0);
    successor.epoch = OwnerEpoch(9);
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    let task = rig.start_spec(successor);
    let status = copied(task.as_ref(), 10).await;
    assert_eq!(status.records_total, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_cannot_be_read_is_an_error_and_not_a_beginning() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    rig.commit("orders", 0, 4, "k2 something new");
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("version 2"), "{}", status.cause);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(task.status().records_total, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_policies_are_resolved_once_and_kept() {
    let mut rig = Rig::new();
    rig.topic("late", 1);
    fill(&rig.source, "late", &numbered(0, 0..10));
    let mut latest = spec("late", 0);
    latest.start = StartPolicy::Latest;
    let task = rig.start_spec(latest.clone());
    let status = status_where(task.as_ref(), "the start", |status| {
        status.checkpoint.is_some()
    })
    .await;
    assert_eq!(status.checkpoint.map(|at| at.0), Some(10));
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(rig.committed("late", 0).map(|(offset, _)| offset), Some(10));

    fill(&rig.source, "late", &numbered(0, 10..15));
    rig.restart(quick_config()).await;
    let task = rig.start_spec(latest);
    let status = copied(task.as_ref(), 15).await;
    assert_eq!(
        status.records_total, 5,
        "what came while it was stopped is copied"
    );
    let found = read(&rig.target, "late", 1, 5).await;
    assert_eq!(values(&found, 0), ["0,10", "0,11", "0,12", "0,13", "0,14"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_can_live_on_the_target() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.link.checkpoint_on = CheckpointSide::Target;
    rig.context = Arc::new(context);
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(
        rig.committed("orders", 0),
        None,
        "nothing is written to the source"
    );
    rig.restart(quick_config()).await;
    fill(&rig.source, "orders", &numbered(0, 10..12));
    let task = rig.start("orders", 0);
    let status = copied(task.as_ref(), 12).await;
    assert_eq!(status.records_total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn c114_a_commit_marker_at_the_end_is_passed_beside_a_topic_that_never_rests() {
    let rig = Rig::new();
    rig.topic("quiet", 1);
    rig.topic("busy", 1);
    fill(&rig.source, "quiet", &numbered(0, 0..10));
    let marker = wire::commit_marker(1_700_000_000_000);
    wire::produce(&rig.source.bootstrap_servers(), "quiet", &marker).await;
    let _stream = Stream::into(&rig.source, "busy");
    let _busy = rig.start("busy", 0);
    let quiet = rig.start("quiet", 0);
    let status = copied(quiet.as_ref(), 11).await;
    assert_eq!(status.records_total, 10);
    assert_eq!(status.gap_records_total, 0);
}
