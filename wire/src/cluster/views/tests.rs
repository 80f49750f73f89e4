use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ApiKey, DescribeProducersRequest, DescribeProducersResponse, ListOffsetsRequest,
        ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse, ProducerId as WireProducer, TopicName as WireTopic,
        describe_producers_response::{
            PartitionResponse, ProducerState as Remembered, TopicResponse,
        },
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        metadata_response::{
            MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
        },
        offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
    },
    protocol::{Decodable, StrBytes},
};
use kreplicator_model::ids::{Partition, TopicName};

use super::*;
use crate::cluster::{
    fake::{FakeBroker, body},
    tests::{client, client_with, soon},
};

const SPEAKS: &[(ApiKey, i16)] = &[
    (ApiKey::Metadata, 7),
    (ApiKey::ListOffsets, 4),
    (ApiKey::OffsetForLeaderEpoch, 3),
    (ApiKey::DescribeProducers, 0),
];

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).expect("legal"), Partition(partition))
}

fn read<M: Decodable>(mut request: Bytes, version: i16) -> M {
    M::decode(&mut request, version).expect("legal")
}

/// Broker 1 leads partition 0 of every topic but `gone` in `epoch`; partition 1 has no leader.
fn metadata(request: Bytes, port: i32, epoch: i32, version: i16) -> Option<Bytes> {
    let request: MetadataRequest = read(request, version);
    let topics = request.topics.expect("named").into_iter().map(|topic| {
        let name = topic.name.expect("named");
        if &**name == "gone" {
            let code = Code::UNKNOWN_TOPIC_OR_PARTITION.0;
            return MetadataResponseTopic::default()
                .with_name(Some(name))
                .with_error_code(code);
        }
        let led = [(0, 1), (1, -1)].map(|(index, leader)| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(epoch)
        });
        MetadataResponseTopic::default()
            .with_name(Some(name))
            .with_partitions(led.into())
    });
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port);
    let answer = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(topics.collect());
    Some(body(&answer, version))
}

/// Offsets: the log starts at 3 and ends at `end`; who asks for another epoch than `epoch` is refused.
fn offsets(request: Bytes, end: i64, epoch: i32, version: i16) -> Option<Bytes> {
    let request: ListOffsetsRequest = read(request, version);
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|asked| {
            let is_current = asked.current_leader_epoch == epoch;
            ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(if is_current {
                    0
                } else {
                    Code::FENCED_LEADER_EPOCH.0
                })
                .with_offset(if asked.timestamp == -2 { 3 } else { end })
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    let answer = ListOffsetsResponse::default().with_topics(topics.collect());
    Some(body(&answer, version))
}

/// The log end of those who ask for `epoch`.
fn log_end(request: Bytes, end: i64, epoch: i32, version: i16) -> Option<Bytes> {
    let request: OffsetForLeaderEpochRequest = read(request, version);
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|asked| {
            let is_current = asked.current_leader_epoch == epoch;
            EpochEndOffset::default()
                .with_partition(asked.partition)
                .with_error_code(if is_current {
                    0
                } else {
                    Code::FENCED_LEADER_EPOCH.0
                })
                .with_leader_epoch(asked.leader_epoch)
                .with_end_offset(end)
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic)
            .with_partitions(partitions.collect())
    });
    let answer = OffsetForLeaderEpochResponse::default().with_topics(topics.collect());
    Some(body(&answer, version))
}

/// Producer 7, whose last record has this sequence.
fn producers(request: Bytes, last_sequence: i32, version: i16) -> Option<Bytes> {
    let request: DescribeProducersRequest = read(request, version);
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            let ours = Remembered::default()
                .with_producer_id(WireProducer(7))
                .with_last_sequence(last_sequence);
            PartitionResponse::default()
                .with_partition_index(index)
                .with_active_producers(vec![ours])
        });
        TopicResponse::default()
            .with_name(WireTopic(topic.name.0))
            .with_partitions(partitions.collect())
    });
    let answer = DescribeProducersResponse::default().with_topics(topics.collect());
    Some(body(&answer, version))
}

#[tokio::test]
async fn partitions_that_cannot_be_told_delay_nobody_else() {
    let own = Arc::new(OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, request| match api {
        ApiKey::Metadata => metadata(request, *port.get().expect("set"), 5, version),
        ApiKey::ListOffsets => offsets(request, 9, 5, version),
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let patience = Duration::from_secs(4);
    let begin = Instant::now();
    let hopeless = [at("ants", 1), at("gone", 0)];
    let hopeless = hopeless.map(|at| {
        let client = client.clone();
        async move { client.committed_range(&at, begin + patience).await }
    });
    let hopeless = futures::future::join_all(hopeless);
    let others = async {
        for round in 0..10 {
            let topics = ["ants", "bees", &format!("new{round}")].map(|topic| at(topic, 0));
            let asked = topics.iter().map(|at| client.committed_range(at, soon()));
            for told in futures::future::join_all(asked).await {
                let told = told.expect("told");
                assert_eq!((told.start, told.end), (Offset(3), Offset(9)));
            }
            client.mark_stale(&at("ants", 0).topic);
        }
        begin.elapsed()
    };
    let (hopeless, others) = futures::join!(hopeless, others);
    assert!(others < patience / 2, "{others:?}");
    assert!(hopeless.iter().all(Result::is_err), "{hopeless:?}");
}

#[tokio::test]
async fn topics_asked_for_together_are_put_into_few_questions() {
    let own = Arc::new(OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, request| match api {
        ApiKey::Metadata => metadata(request, *port.get().expect("set"), 5, version),
        ApiKey::ListOffsets => offsets(request, 9, 5, version),
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let asked = (0..500).map(|number| {
        let client = client.clone();
        async move {
            client
                .committed_range(&at(&format!("t{number}"), 0), soon())
                .await
        }
    });
    for told in futures::future::join_all(asked).await {
        assert!(told.is_ok(), "{told:?}");
    }
    assert!(broker.requests() < 20, "{}", broker.requests());
}

#[tokio::test]
async fn a_view_is_of_one_leadership() {
    let own = Arc::new(OnceLock::new());
    let port = Arc::clone(&own);
    // It loses the leadership and has it back, without what it had not replicated, right after it has
    // told of its producers.
    let described = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&described);
    let broker = FakeBroker::start(SPEAKS, move |api, version, request| {
        let epoch = if times.load(Ordering::Relaxed) == 0 {
            5
        } else {
            7
        };
        match api {
            ApiKey::Metadata => metadata(request, *port.get().expect("set"), epoch, version),
            ApiKey::ListOffsets => offsets(request, 9, epoch, version),
            ApiKey::OffsetForLeaderEpoch => log_end(request, 9, epoch, version),
            ApiKey::DescribeProducers => {
                let is_first = times.fetch_add(1, Ordering::Relaxed) == 0;
                producers(request, if is_first { 12 } else { 4 }, version)
            }
            _ => None,
        }
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let view = client.view(&at("ants", 0), soon()).await.expect("told");
    let remembered = view.producers.expect("it can tell");
    assert_eq!(remembered[0].last_sequence, Some(4), "as of epoch 7");
    assert_eq!(view.log_end, Some(Offset(9)));
    assert_eq!(described.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_broker_that_cannot_tell_of_producers_tells_the_rest() {
    const OLD: &[(ApiKey, i16)] = &[(ApiKey::Metadata, 7), (ApiKey::ListOffsets, 4)];
    let own = Arc::new(OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(OLD, move |api, version, request| match api {
        ApiKey::Metadata => metadata(request, *port.get().expect("set"), 5, version),
        ApiKey::ListOffsets => offsets(request, 9, 5, version),
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let view = client.view(&at("ants", 0), soon()).await.expect("told");
    assert_eq!((view.producers, view.log_end), (None, None));
    assert_eq!(view.range.end, Offset(9));
}

#[tokio::test]
async fn who_waits_for_the_turn_of_somebody_patient_has_its_own_deadline() {
    let own = Arc::new(OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, request| match api {
        ApiKey::Metadata => metadata(request, *port.get().expect("set"), 5, version),
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client_with(&[broker.address()], |settings| {
        settings.attempt_timeout = Duration::from_secs(60);
    });
    let (ants, bees) = (at("ants", 0), at("bees", 0));
    let begin = Instant::now();
    let patient = client.committed_range(&ants, begin + Duration::from_secs(6));
    let hasty = client.committed_range(&bees, begin + Duration::from_millis(300));
    let told = tokio::select! {
        told = patient => panic!("it does not answer: {told:?}"),
        told = hasty => told,
    };
    assert!(told.is_err(), "{told:?}");
    let waited = begin.elapsed();
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}
