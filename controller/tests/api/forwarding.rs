//! Any controller answers.

use std::{sync::Arc, time::Duration};

use kreplicator_proto::v1;
use tokio::time::{Instant, timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::Code;

use crate::rig::{
    LIMIT, Rig, exact, put_cluster, reference, refused, running_fleet, subscribe, worker,
};

#[tokio::test]
async fn a_follower_passes_unary_calls_on() {
    let (rig, leader) = Rig::with_leader().await;
    let follower = rig.controller("c2").await;
    follower.follow(&leader);
    follower.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let request = subscribe(vec![exact("a-b", "t1")]);
    follower
        .subscriptions()
        .subscribe(request)
        .await
        .expect("accepted");
    let read = leader
        .subscriptions()
        .get_subscription(reference("a-b", "t1"))
        .await;
    assert_eq!(read.expect("known").into_inner().id, "t1");
    // Refusals pass with their code and text.
    refused(
        follower
            .subscriptions()
            .get_subscription(reference("a-b", "t2"))
            .await,
        Code::NotFound,
        &["a-b/t2"],
    );
    let status = follower.status().get_status(v1::GetStatusRequest {}).await;
    let status = status.expect("a status").into_inner();
    assert_eq!(
        (status.leader.as_str(), status.leader_address),
        ("c1", leader.address.to_string())
    );
}

#[tokio::test]
async fn a_follower_passes_streams_on_both_ways() {
    let (rig, leader) = Rig::with_leader().await;
    let follower = rig.controller("c2").await;
    follower.follow(&leader);
    follower.declare_link().await;

    let mut watch = follower
        .subscriptions()
        .watch_subscriptions(v1::WatchRequest::default())
        .await
        .expect("a stream")
        .into_inner();
    let event = timeout(LIMIT, watch.message())
        .await
        .expect("in time")
        .expect("no error");
    let synced = v1::subscription_event::Event::Synced(true);
    assert_eq!(event.expect("an event").event, Some(synced));
    rig.discovery.set_topics("a", ["t1"]);
    let request = subscribe(vec![exact("a-b", "t1")]);
    leader
        .subscriptions()
        .subscribe(request)
        .await
        .expect("accepted");
    let event = timeout(LIMIT, watch.message())
        .await
        .expect("in time")
        .expect("no error");
    let Some(v1::subscription_event::Event::Updated(info)) = event.expect("an event").event else {
        panic!("no update");
    };
    assert_eq!(info.id, "t1");

    leader.fleet.send_replace(Arc::new(running_fleet(&["t1"])));
    let (reports, received) = tokio::sync::mpsc::channel(4);
    let mut acks = follower
        .fleet_api()
        .report(ReceiverStream::new(received))
        .await
        .expect("a stream")
        .into_inner();
    for full in [false, true] {
        let report = v1::WorkerReport {
            worker: "w1".to_owned(),
            full,
            records_per_second: 9.0,
            ..v1::WorkerReport::default()
        };
        reports.send(report).await.expect("open");
        let ack = timeout(LIMIT, acks.message())
            .await
            .expect("in time")
            .expect("no error");
        assert_eq!(ack.expect("an ack").want_full, !full);
    }
    let kept = leader.reports.view(Instant::now()).worker(&worker("w1"));
    assert!(kept.is_some_and(|numbers| numbers.records_per_second > 8.0));
    drop(reports);
    let end = timeout(LIMIT, acks.next()).await.expect("in time");
    assert!(end.is_none(), "the end passes, too: {end:?}");
}

#[tokio::test]
async fn without_a_leader_a_call_waits_and_then_says_what_to_do() {
    let mut rig = Rig::new();
    let one = rig.controller("c1").await;
    let began = Instant::now();
    let answer = one.status().get_status(v1::GetStatusRequest {}).await;
    refused(
        answer,
        Code::Unavailable,
        &["no controller leads", "repeat the call"],
    );
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );

    // A leader that appears meanwhile answers.
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.elect(&one).await;
    };
    let mut client = one.clusters();
    let (answer, ()) = tokio::join!(client.put_cluster(put_cluster("a")), late);
    assert!(answer.expect("accepted").into_inner().changed);
}

#[tokio::test]
async fn a_dead_leader_is_waited_for_and_its_successor_answers() {
    let (mut rig, old) = Rig::with_leader().await;
    let new = rig.controller("c2").await;
    let follower = rig.controller("c3").await;
    new.follow(&old);
    follower.follow(&old);
    let mut client = follower.clusters();
    client
        .put_cluster(put_cluster("a"))
        .await
        .expect("forwarded");
    old.stop().await;
    let takeover = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        rig.elect(&new).await;
        follower.follow(&new);
    };
    let (answer, ()) = tokio::join!(client.put_cluster(put_cluster("b")), takeover);
    assert!(
        answer
            .expect("answered by the successor")
            .into_inner()
            .changed
    );
}

#[tokio::test]
async fn a_forwarded_call_is_not_forwarded_again() {
    let rig = Rig::new();
    let one = rig.controller("c1").await;
    let two = rig.controller("c2").await;
    // Each takes the other for the leader.
    one.follow(&two);
    two.follow(&one);
    let answer = timeout(LIMIT, one.status().get_status(v1::GetStatusRequest {})).await;
    refused(
        answer.expect("no endless loop"),
        Code::Unavailable,
        &["c1", "leader"],
    );
}

#[tokio::test]
async fn losing_the_lead_ends_streams() {
    let (mut rig, old) = Rig::with_leader().await;
    let mut watch = old
        .subscriptions()
        .watch_subscriptions(v1::WatchRequest::default())
        .await
        .expect("a stream")
        .into_inner();
    let first = timeout(LIMIT, watch.message())
        .await
        .expect("in time")
        .expect("no error");
    assert!(first.is_some());
    let (_reports, received) = tokio::sync::mpsc::channel::<v1::WorkerReport>(1);
    let mut acks = old
        .fleet_api()
        .report(ReceiverStream::new(received))
        .await
        .expect("a stream")
        .into_inner();
    let new = rig.controller("c2").await;
    rig.elect(&new).await;
    old.follow(&new);
    let end = timeout(LIMIT, watch.message()).await.expect("in time");
    refused(end, Code::Unavailable, &["taken over"]);
    let end = timeout(LIMIT, acks.message()).await.expect("in time");
    refused(end, Code::Unavailable, &["taken over"]);
}

#[tokio::test]
async fn a_crashed_controller_answers_nothing_on_connections_left_open() {
    let (_rig, leader) = Rig::with_leader().await;
    let mut clusters = leader.clusters();
    clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    let mut events = leader
        .subscriptions()
        .watch_subscriptions(v1::WatchRequest::default())
        .await
        .expect("a stream")
        .into_inner();
    timeout(LIMIT, events.message())
        .await
        .expect("in time")
        .expect("no error");
    leader.crash();
    let end = timeout(LIMIT, events.message())
        .await
        .expect("the stream ends");
    refused(end, Code::Unavailable, &[]);
    let answer = timeout(LIMIT, clusters.put_cluster(put_cluster("b"))).await;
    refused(answer.expect("in time"), Code::Unavailable, &[]);
}

#[tokio::test]
async fn every_controller_tells_its_health_itself() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };

    let (rig, leader) = Rig::with_leader().await;
    let follower = rig.controller("c2").await;
    let mut health = HealthClient::new(follower.channel());
    let mut wait_for = async |service: &str, wanted: ServingStatus| {
        let reached = async {
            loop {
                let request = HealthCheckRequest {
                    service: service.to_owned(),
                };
                let answer = health.check(request).await.expect("a known service");
                if answer.into_inner().status() == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, reached).await.expect("it becomes so");
    };
    for service in ["", "kreplicator.v1.Links", "kreplicator.v1.Fleet"] {
        wait_for(service, ServingStatus::NotServing).await;
    }
    follower.follow(&leader);
    for service in ["", "kreplicator.v1.Links", "kreplicator.v1.Fleet"] {
        wait_for(service, ServingStatus::Serving).await;
    }
    follower.follow_nobody();
    wait_for("kreplicator.v1.Status", ServingStatus::NotServing).await;
}

#[tokio::test]
async fn every_controller_describes_its_api() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    use tonic_reflection::pb::v1alpha;

    let rig = Rig::new();
    let controller = rig.controller("c1").await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(controller.channel())
        .server_reflection_info(tokio_stream::once(request))
        .await
        .expect("a stream")
        .into_inner();
    let answer = answers
        .message()
        .await
        .expect("no error")
        .expect("an answer");
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("no list: {answer:?}");
    };
    let names: Vec<String> = services
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for name in ["kreplicator.v1.Subscriptions", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }

    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "kreplicator.v1.SubscribeRequest".to_owned(),
            ),
        ),
    };
    let mut answers =
        v1alpha::server_reflection_client::ServerReflectionClient::new(controller.channel())
            .server_reflection_info(tokio_stream::once(request))
            .await
            .expect("a stream")
            .into_inner();
    let answer = answers
        .message()
        .await
        .expect("no error")
        .expect("an answer");
    assert!(matches!(
        answer.message_response,
        Some(v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_))
    ));
}

/// Passes bytes on to `target` until it is told to swallow them, as a cut cable does.
async fn cable(
    target: std::net::SocketAddr,
) -> (std::net::SocketAddr, tokio::sync::watch::Sender<bool>) {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let cut = tokio::sync::watch::Sender::new(false);
    let is_cut = cut.subscribe();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(target)
                .await
                .expect("the leader listens");
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            for (mut from, mut to) in [(near_read, far_write), (far_read, near_write)] {
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(read @ 1..) = from.read(&mut buffer).await {
                        let bytes = buffer.get(..read).expect("what was read");
                        if !*is_cut.borrow() && to.write_all(bytes).await.is_err() {
                            return;
                        }
                    }
                    // A cut cable closes nothing either.
                    let _open = to;
                    std::future::pending::<()>().await;
                });
            }
        }
    });
    (address, cut)
}

#[tokio::test]
async fn c110_a_leader_behind_a_cut_cable_is_noticed() {
    let (rig, leader) = Rig::with_leader().await;
    let (address, cut) = cable(leader.address).await;
    let follower = rig.controller("c2").await;
    follower.follow_address("c1", address);
    let mut events = follower
        .subscriptions()
        .watch_subscriptions(v1::WatchRequest::default())
        .await
        .expect("a stream")
        .into_inner();
    let first = timeout(LIMIT, events.message())
        .await
        .expect("in time")
        .expect("no error");
    assert!(first.is_some());
    cut.send_replace(true);
    let began = Instant::now();
    let mut clusters = follower.clusters();
    let call = clusters.put_cluster(put_cluster("a"));
    let (end, answer) = tokio::join!(timeout(LIMIT, events.message()), timeout(LIMIT, call));
    let end = end.expect("the stream ends").expect_err("not in order");
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    refused(
        answer.expect("the call ends"),
        Code::Unavailable,
        &["c1", "same request id"],
    );
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}
