//! Limits and deadlines (C110).

use std::time::Duration;

use kreplicator_proto::v1;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request};

use crate::rig::{LIMIT, Rig, exact, refused, subscribe};

#[tokio::test]
async fn c110_a_deadline_ends_a_call_with_a_clear_error() {
    let rig = Rig::new();
    // Nobody leads: the call waits.
    let controller = rig.controller("c1").await;
    let mut request = Request::new(v1::GetStatusRequest {});
    let deadline = "2500m".parse().expect("legal");
    request.metadata_mut().insert("grpc-timeout", deadline);
    let began = Instant::now();
    let answer = timeout(LIMIT, controller.status().get_status(request)).await;
    refused(
        answer.expect("in time"),
        Code::DeadlineExceeded,
        &["deadline"],
    );
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn c110_requests_have_a_size_limit_that_fits_large_ones() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", []);
    // 6 MB: above the transport's own default.
    let names: Vec<String> = (0..24_000).map(|n| format!("{n:0>240}")).collect();
    let large = v1::SubscribeRequest {
        subscriptions: names.iter().map(|name| exact("a-b", name)).collect(),
        ..v1::SubscribeRequest::default()
    };
    let message = refused(
        leader.subscriptions().subscribe(large).await,
        Code::FailedPrecondition,
        &["does not exist on cluster a", "more"],
    );
    assert!(message.len() < 8_000, "the answer fits into trailers");

    let too_large = subscribe(vec![exact("a-b", &"x".repeat(17 << 20))]);
    let answer = leader.subscriptions().subscribe(too_large).await;
    refused(answer, Code::OutOfRange, &[]);
}

#[tokio::test]
async fn stopping_does_not_wait_for_idle_connections() {
    let (_rig, leader) = Rig::with_leader().await;
    let mut clusters = leader.clusters();
    clusters
        .list_clusters(v1::ListRequest::default())
        .await
        .expect("a list");
    let began = Instant::now();
    leader.stop().await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}
