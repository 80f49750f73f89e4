//! The client against brokers that freeze, move, lie and leave.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ApiKey, BrokerId as WireBroker, FindCoordinatorResponse, InitProducerIdResponse,
        ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitResponse,
        ProducerId as WireProducer, TopicName as WireTopic,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        metadata_response::{
            MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
        },
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
    },
    protocol::{Decodable, StrBytes},
};
use kreplicator_model::{
    backoff::Backoff,
    ids::{ClusterId, Offset, Partition, TopicName},
    spec,
};
use tokio_util::task::TaskTracker;

use super::{
    fake::{FakeBroker, body},
    group::Commit,
    offsets::{At, Isolation},
    *,
};
use crate::{
    code::{Class, Code},
    settings::NoSecrets,
    topic::TopicPartition,
};

mod passing;

const SPEAKS: &[(ApiKey, i16)] = &[
    (ApiKey::Metadata, 7),
    (ApiKey::InitProducerId, 1),
    (ApiKey::ListOffsets, 4),
    (ApiKey::FindCoordinator, 2),
    (ApiKey::OffsetCommit, 6),
];

pub(super) fn client(servers: &[String]) -> ClusterClient {
    client_with(servers, |_| ())
}

/// As [`client`], with some of its settings changed.
pub(super) fn client_with(servers: &[String], change: impl FnOnce(&mut Settings)) -> ClusterClient {
    let cluster = spec::Cluster {
        id: ClusterId::new("here").expect("legal"),
        bootstrap_servers: servers.to_vec(),
        security: spec::Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let mut settings = Settings::of(&cluster, "test");
    settings.attempt_timeout = Duration::from_millis(300);
    settings.metadata_pause_min = Duration::from_millis(10);
    settings.backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
    change(&mut settings);
    ClusterClient::new(settings, Arc::new(NoSecrets), TaskTracker::new())
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn lane() -> TopicPartition {
    TopicPartition::new(TopicName::new("ants").expect("legal"), Partition(0))
}

fn wire_topic() -> WireTopic {
    WireTopic(StrBytes::from_static_str("ants"))
}

fn new_id(number: i64) -> Option<Bytes> {
    let answer = InitProducerIdResponse::default()
        .with_producer_id(WireProducer(number))
        .with_producer_epoch(0);
    Some(body(&answer, 1))
}

/// Metadata of one partition: `brokers` by number and port, and who leads.
fn metadata(brokers: &[(i32, i32)], leader: (i32, i32), version: i16) -> Option<Bytes> {
    let brokers = brokers.iter().map(|(id, port)| {
        MetadataResponseBroker::default()
            .with_node_id(WireBroker(*id))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(*port)
    });
    let partition = MetadataResponsePartition::default()
        .with_leader_id(WireBroker(leader.0))
        .with_leader_epoch(leader.1);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(wire_topic()))
        .with_partitions(vec![partition]);
    let answer = MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_topics(vec![topic]);
    Some(body(&answer, version))
}

fn end(code: Code, offset: i64, version: i16) -> Option<Bytes> {
    let partition = ListOffsetsPartitionResponse::default()
        .with_error_code(code.0)
        .with_offset(offset);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(wire_topic())
        .with_partitions(vec![partition]);
    let answer = ListOffsetsResponse::default().with_topics(vec![topic]);
    Some(body(&answer, version))
}

#[tokio::test]
async fn a_frozen_broker_costs_one_attempt_when_another_can_answer() {
    let frozen = FakeBroker::start(SPEAKS, |_, _, _| None).await;
    let lively = FakeBroker::start(SPEAKS, |_, _, _| new_id(7)).await;
    let client = client(&[frozen.address(), lively.address()]);
    for _ in 0..4 {
        let begin = Instant::now();
        let id = client.init_producer_id(soon()).await.expect("an id");
        assert_eq!((id.id, id.epoch), (7, 0));
        assert!(
            begin.elapsed() < Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
    }
    assert!(frozen.requests() <= 1, "the one that answers is preferred");
}

#[tokio::test]
async fn nobody_there_is_told_within_the_deadline_and_names_the_cluster() {
    let gone = FakeBroker::start(SPEAKS, |_, _, _| None).await.address();
    let client = client(&[gone]);
    let begin = Instant::now();
    let fault = client
        .init_producer_id(begin + Duration::from_millis(500))
        .await
        .expect_err("nobody");
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    assert!(fault.to_string().contains("cluster here"), "{fault}");
    assert!(fault.is_retryable());
}

#[tokio::test]
async fn c104_a_partition_that_moved_is_asked_for_at_its_new_leader() {
    let second = FakeBroker::start(SPEAKS, |api, version, _| match api {
        ApiKey::ListOffsets => end(Code::NONE, 42, version),
        _ => None,
    })
    .await;
    let moved = second.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let first = Arc::new(std::sync::OnceLock::new());
    let own = Arc::clone(&first);
    let broker = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        ApiKey::Metadata => {
            let brokers = [(1, *own.get().expect("set")), (2, moved)];
            let leader = match count.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => (1, 5),
                _ => (2, 6),
            };
            metadata(&brokers, leader, version)
        }
        ApiKey::ListOffsets => end(Code::NOT_LEADER_OR_FOLLOWER, -1, version),
        _ => None,
    })
    .await;
    first.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let question = BTreeMap::from([(lane(), At::Latest)]);
    let told = client
        .list_offsets(question, Isolation::Committed, soon())
        .await;
    let listed = told[&lane()].clone().expect("told");
    assert_eq!(listed.offset, Some(Offset(42)));
    assert_eq!(asked.load(Ordering::Relaxed), 3, "once for each refusal");
    assert_eq!(
        client.known_leader(&lane()).map(|leader| leader.broker.0),
        Some(2)
    );
}

#[tokio::test]
async fn c106_brokers_that_came_back_elsewhere_are_found_by_the_bootstrap_servers() {
    let gone = FakeBroker::start(SPEAKS, |_, _, _| None).await;
    let (gone, port) = (gone.address(), gone.port());
    let told = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&told);
    let own = Arc::new(std::sync::OnceLock::new());
    let port_now = Arc::clone(&own);
    let server = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        // At first it tells where the broker was.
        ApiKey::Metadata => match times.fetch_add(1, Ordering::Relaxed) {
            0 => metadata(&[(1, port)], (1, 5), version),
            _ => metadata(&[(1, *port_now.get().expect("set"))], (1, 5), version),
        },
        ApiKey::ListOffsets => end(Code::NONE, 3, version),
        _ => None,
    })
    .await;
    own.set(server.port()).expect("once");
    let client = client(&[gone, server.address()]);
    let question = BTreeMap::from([(lane(), At::Latest)]);
    let listed = client
        .list_offsets(question, Isolation::Committed, soon())
        .await;
    assert_eq!(
        listed[&lane()].clone().expect("told").offset,
        Some(Offset(3))
    );
}

#[tokio::test]
async fn many_who_need_a_topic_ask_once() {
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |_, version, _| {
        metadata(&[(1, *port.get().expect("set"))], (1, 5), version)
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let lane = lane();
    let asking = (0..200).map(|_| client.leader(&lane, soon()));
    for outcome in futures::future::join_all(asking).await {
        assert_eq!(outcome.expect("a leader").broker.0, 1);
    }
    assert_eq!(broker.requests(), 1);
    client.mark_stale(&lane.topic);
    let asking = (0..200).map(|_| client.leader(&lane, soon()));
    futures::future::join_all(asking).await;
    assert_eq!(broker.requests(), 2);
}

#[tokio::test]
async fn only_topics_asked_for_are_asked_for_and_none_is_created() {
    let broker = FakeBroker::start(SPEAKS, move |api, version, mut request| {
        assert_eq!(api, ApiKey::Metadata);
        let request = <MetadataRequest as Decodable>::decode(&mut request, version).expect("legal");
        assert!(!request.allow_auto_topic_creation);
        let topics = request.topics.expect("not all topics");
        assert_eq!(topics.len(), 1);
        metadata(&[(1, 1)], (1, 5), version)
    })
    .await;
    let client = client(&[broker.address()]);
    let topic = client.topic(&lane().topic, soon()).await.expect("known");
    assert_eq!((topic.partitions.len(), topic.id), (1, None));
}

#[tokio::test]
async fn a_coordinator_that_loads_and_moves_is_followed_within_the_deadline() {
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let (commits, finds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (committed, found) = (Arc::clone(&commits), Arc::clone(&finds));
    let broker = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        ApiKey::FindCoordinator => {
            found.fetch_add(1, Ordering::Relaxed);
            let answer = FindCoordinatorResponse::default()
                .with_node_id(WireBroker(1))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(*port.get().expect("set"));
            Some(body(&answer, version))
        }
        ApiKey::OffsetCommit => {
            let code = match committed.fetch_add(1, Ordering::Relaxed) {
                0 => Code::COORDINATOR_LOAD_IN_PROGRESS,
                1 => Code::NOT_COORDINATOR,
                2 => Code::NONE,
                _ => Code::GROUP_AUTHORIZATION_FAILED,
            };
            let partition = OffsetCommitResponsePartition::default().with_error_code(code.0);
            let topic = OffsetCommitResponseTopic::default()
                .with_name(wire_topic())
                .with_partitions(vec![partition]);
            let answer = OffsetCommitResponse::default().with_topics(vec![topic]);
            Some(body(&answer, version))
        }
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let commit = Commit {
        offset: Offset(1),
        leader_epoch: None,
        metadata: String::new(),
    };
    let commit = BTreeMap::from([(lane(), commit)]);
    let done = client.commit_offsets("copy", &commit, soon()).await;
    assert_eq!(done[&lane()], Ok(()));
    assert_eq!(commits.load(Ordering::Relaxed), 3);
    assert_eq!(
        finds.load(Ordering::Relaxed),
        2,
        "again only after it moved"
    );
    let done = client.commit_offsets("copy", &commit, soon()).await;
    let fault = done[&lane()].clone().expect_err("refused");
    assert_eq!(fault.class(), Class::Terminal);
    assert!(
        fault.to_string().contains("copy") && fault.to_string().contains("ants/0"),
        "{fault}"
    );
}

#[tokio::test]
async fn a_topic_that_is_gone_keeps_no_other_commit_from_being_told() {
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        ApiKey::FindCoordinator => {
            let answer = FindCoordinatorResponse::default()
                .with_node_id(WireBroker(1))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(*port.get().expect("set"));
            Some(body(&answer, version))
        }
        ApiKey::OffsetCommit => {
            let codes = [
                Code::NONE,
                Code::UNKNOWN_TOPIC_OR_PARTITION,
                Code::COORDINATOR_LOAD_IN_PROGRESS,
            ];
            let partitions = (0..).zip(codes).map(|(index, code)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code.0)
            });
            let topic = OffsetCommitResponseTopic::default()
                .with_name(wire_topic())
                .with_partitions(partitions.collect());
            let answer = OffsetCommitResponse::default().with_topics(vec![topic]);
            Some(body(&answer, version))
        }
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let commits = |count| {
        let commits = (0..count).map(|index| {
            let commit = Commit {
                offset: Offset(1),
                leader_epoch: None,
                metadata: String::new(),
            };
            (TopicPartition::new(lane().topic, Partition(index)), commit)
        });
        commits.collect::<BTreeMap<_, _>>()
    };
    let code = |outcome: &Result<(), Error>| outcome.as_ref().err().and_then(Error::code);
    let done = client.commit_offsets("copy", &commits(2), soon()).await;
    let told: Vec<_> = done.values().map(code).collect();
    assert_eq!(told, [None, Some(Code::UNKNOWN_TOPIC_OR_PARTITION)]);
    assert_eq!(broker.requests(), 2, "it is not tried again");
    // One that does not pass until the deadline takes nothing away from the others either.
    let short = Instant::now() + Duration::from_millis(300);
    let done = client.commit_offsets("copy", &commits(3), short).await;
    let done: Vec<_> = done.into_values().collect();
    assert!(done[0].is_ok(), "{done:?}");
    assert_eq!(code(&done[1]), Some(Code::UNKNOWN_TOPIC_OR_PARTITION));
    // By its code, or because the time was over in the middle of another attempt.
    assert!(done[2].is_err(), "{done:?}");
}

#[tokio::test]
async fn a_purpose_has_a_connection_of_its_own_that_is_kept() {
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        ApiKey::Metadata => metadata(&[(1, *port.get().expect("set"))], (1, 5), version),
        // A slow call.
        ApiKey::InitProducerId => None,
        _ => end(Code::NONE, 3, version),
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let leader = client
        .leader(&lane(), soon())
        .await
        .expect("a leader")
        .broker;
    let open = async |purpose| {
        let connection = client.connection(leader, purpose, soon()).await;
        connection.expect("open")
    };
    let fetching = open(Purpose::Fetch(0)).await;
    let again = open(Purpose::Fetch(0)).await;
    let slow = fetching.send(
        kafka_protocol::messages::InitProducerIdRequest::default().with_transactional_id(None),
        Instant::now() + Duration::from_millis(200),
    );
    assert!(slow.await.is_err());
    assert!(again.is_closed(), "the same connection");
    let question = BTreeMap::from([(lane(), At::Latest)]);
    let told = client
        .list_offsets(question, Isolation::Committed, soon())
        .await;
    assert!(told[&lane()].is_ok(), "another connection");
    assert!(!open(Purpose::Fetch(0)).await.is_closed(), "opened anew");
}
