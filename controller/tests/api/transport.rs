//! Limits and deadlines (C110).

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use kreplicator_proto::v1;
use tokio::time::{Instant, timeout};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::rig::{Controller, LIMIT, Rig, exact, refused, subscribe};

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

/// Sends bytes as they are, and does not care what comes back.
#[derive(Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}

/// Calls `Clusters.DeleteCluster` with these bytes for a message.
async fn delete_cluster(controller: &Controller, message: &'static [u8]) -> Result<(), Status> {
    let mut client = Grpc::new(controller.channel());
    client.ready().await.expect("it listens");
    let path = PathAndQuery::from_static("/kreplicator.v1.Clusters/DeleteCluster");
    let request = Request::new(Bytes::from_static(message));
    client.unary(request, path, Raw).await.map(drop)
}

#[tokio::test]
async fn what_cannot_be_decoded_is_the_callers_fault_and_names_the_field() {
    let (rig, leader) = Rig::with_leader().await;
    let follower = rig.controller("c2").await;
    follower.follow(&leader);
    for controller in [&leader, &follower] {
        // Field 1, two bytes that no text in UTF-8 holds.
        let answer = delete_cluster(controller, b"\x0a\x02\xff\xfe").await;
        refused(answer, Code::InvalidArgument, &["id", "UTF-8"]);
        // Field 1 says it is longer than the message.
        let answer = delete_cluster(controller, b"\x0a\x09a").await;
        refused(answer, Code::InvalidArgument, &["cannot be read"]);
        let answer = delete_cluster(controller, b"\x0a\x01a").await;
        refused(answer, Code::NotFound, &["cluster"]);
    }
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
