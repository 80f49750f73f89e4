use bytes::Bytes;
use kafka_protocol::{
    messages::{
        BrokerId, FetchRequest, ProducerId,
        fetch_response::{AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData},
    },
    protocol::Encodable as _,
};
use proptest::prelude::*;

use super::*;
use crate::topic::Leader;

const NEWEST: i16 = 17;
const BY_NAME: i16 = 11;

fn at(topic: &str, partition: i32) -> TopicPartition {
    let topic = TopicName::new(topic).expect("legal");
    TopicPartition::new(topic, Partition(partition))
}

fn id(number: u128) -> Option<TopicId> {
    Some(TopicId::from_u128(number))
}

fn from(offset: i64) -> Position {
    Position {
        offset: Offset(offset),
        leader_epoch: Some(3),
        last_fetched_epoch: None,
        bytes_max: 1 << 20,
    }
}

fn message(session: &mut Session, version: i16) -> FetchRequest {
    session.next_request(version).message().clone()
}

fn answer(session_id: i32) -> FetchResponse {
    FetchResponse::default().with_session_id(session_id)
}

fn refusal(code: Code) -> FetchResponse {
    FetchResponse::default().with_error_code(code.0)
}

fn offsets(message: &FetchRequest) -> Vec<(i32, i64)> {
    let partitions = message.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| (partition.partition, partition.fetch_offset))
        .collect()
}

/// A session of number 7 that has told its partitions.
fn opened() -> Session {
    let mut session = Session::new(Settings::default());
    session.update(at("ants", 0), id(1), from(10));
    session.update(at("ants", 1), id(1), from(20));
    let first = message(&mut session, NEWEST);
    assert_eq!((first.session_id, first.session_epoch), (0, 0));
    session.apply(answer(7)).expect("taken");
    session
}

#[test]
fn the_first_request_tells_everything_and_the_next_nothing() {
    let mut session = Session::new(Settings {
        rack: Some("r1".to_owned()),
        ..Settings::default()
    });
    session.update(at("ants", 0), id(1), from(10));
    session.update(at("bees", 0), id(2), from(20));
    let first = message(&mut session, NEWEST);
    assert_eq!(first.topics.len(), 2);
    assert_eq!(first.topics[0].topic_id, TopicId::from_u128(1));
    assert!(first.topics[0].topic.is_empty(), "by id");
    assert_eq!(first.topics[0].partitions[0].current_leader_epoch, 3);
    assert_eq!((first.isolation_level, &*first.rack_id), (1, "r1"));
    session.apply(answer(7)).expect("taken");
    for epoch in 1..4 {
        let next = message(&mut session, NEWEST);
        assert_eq!((next.session_id, next.session_epoch), (7, epoch));
        assert!(next.topics.is_empty() && next.forgotten_topics_data.is_empty());
        session.apply(answer(7)).expect("taken");
    }
}

#[test]
fn only_what_changed_is_told() {
    let mut session = opened();
    session.update(at("ants", 1), id(1), from(25));
    session.update(at("bees", 3), id(2), from(0));
    session.remove(&at("ants", 0));
    let next = message(&mut session, NEWEST);
    assert_eq!(offsets(&next), [(1, 25), (3, 0)]);
    assert_eq!(next.forgotten_topics_data.len(), 1);
    assert_eq!(next.forgotten_topics_data[0].partitions, [0]);
    session.apply(answer(7)).expect("taken");
    // Changed and changed back, removed and added again: nothing to tell.
    session.update(at("ants", 1), id(1), from(30));
    session.update(at("ants", 1), id(1), from(25));
    session.remove(&at("bees", 3));
    session.update(at("bees", 3), id(2), from(0));
    session.update(at("cats", 0), id(3), from(0));
    session.remove(&at("cats", 0));
    let next = message(&mut session, NEWEST);
    assert!(next.topics.is_empty() && next.forgotten_topics_data.is_empty());
}

#[test]
fn five_thousand_quiet_partitions_cost_a_few_bytes() {
    let mut session = Session::new(Settings::default());
    for topic in 0..50 {
        for partition in 0..100 {
            session.update(
                at(&format!("topic-{topic}"), partition),
                id(topic + 1),
                from(1_000),
            );
        }
    }
    assert_eq!(session.len(), 5_000);
    let size = |message: FetchRequest| message.compute_size(NEWEST).expect("legal");
    assert!(size(message(&mut session, NEWEST)) > 100_000);
    session.apply(answer(7)).expect("taken");
    session.update(at("topic-1", 5), id(2), from(1_001));
    assert!(size(message(&mut session, NEWEST)) < 300);
}

#[test]
fn a_session_that_the_broker_dropped_is_opened_anew() {
    for (code, old) in [
        (Code::FETCH_SESSION_ID_NOT_FOUND, 0),
        (Code::INVALID_FETCH_SESSION_EPOCH, 7),
        (Code::FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ] {
        let mut session = opened();
        session.update(at("ants", 1), id(1), from(25));
        let _lost = message(&mut session, NEWEST);
        let news = session.apply(refusal(code)).expect("recovered");
        assert_eq!(news, Answer::default());
        let next = message(&mut session, NEWEST);
        assert_eq!((next.session_id, next.session_epoch), (old, 0), "{code}");
        assert_eq!(offsets(&next), [(0, 10), (1, 25)]);
        session.apply(answer(8)).expect("taken");
        let next = message(&mut session, NEWEST);
        assert_eq!((next.session_id, next.session_epoch), (8, 1));
    }
}

#[test]
fn a_broker_without_room_for_sessions_is_told_everything_each_time() {
    let mut session = opened();
    session.apply(answer(0)).expect("taken");
    for _ in 0..3 {
        let next = message(&mut session, NEWEST);
        assert_eq!((next.session_id, next.session_epoch), (0, 0));
        assert_eq!(offsets(&next), [(0, 10), (1, 20)]);
        session.apply(answer(0)).expect("taken");
    }
}

#[test]
fn a_question_without_a_session_leaves_none_at_the_broker() {
    let mut session = Session::sessionless(Settings::default());
    session.update(at("ants", 0), id(1), from(10));
    // Whatever the broker says.
    for told in [
        answer(0),
        answer(7),
        refusal(Code::INVALID_FETCH_SESSION_EPOCH),
        answer(0),
    ] {
        let next = message(&mut session, NEWEST);
        assert_eq!((next.session_id, next.session_epoch), (0, -1));
        assert_eq!(offsets(&next), [(0, 10)]);
        session.apply(told).expect("taken");
    }
}

#[test]
fn a_lost_answer_and_another_refusal_lose_nothing() {
    let mut session = opened();
    session.update(at("ants", 1), id(1), from(25));
    let _lost = message(&mut session, NEWEST);
    session.lost();
    let next = message(&mut session, NEWEST);
    assert_eq!((next.session_id, next.session_epoch), (7, 0));
    assert_eq!(offsets(&next), [(0, 10), (1, 25)]);
    let fault = session.apply(refusal(Code::CLUSTER_AUTHORIZATION_FAILED));
    assert_eq!(
        fault.expect_err("refused").code(),
        Some(Code::CLUSTER_AUTHORIZATION_FAILED)
    );
    assert_eq!(offsets(&message(&mut session, NEWEST)), [(0, 10), (1, 25)]);
}

#[test]
fn old_brokers_and_topics_without_id_go_by_name() {
    let mut session = opened();
    let named = session.next_request(BY_NAME);
    assert!(!named.is_by_id());
    assert_eq!(&**named.message().topics[0].topic, "ants");
    assert!(named.message().topics[0].topic_id.is_nil());
    named.message().compute_size(BY_NAME).expect("legal");
    let mut session = opened();
    session.update(at("bees", 0), None, from(5));
    let mixed = session.next_request(NEWEST);
    assert_eq!(mixed.highest_version(), BY_ID - 1);
    assert_eq!(
        (mixed.message().session_id, mixed.message().session_epoch),
        (7, 0)
    );
    assert_eq!(mixed.message().topics.len(), 2, "all of them anew");
    session.apply(answer(8)).expect("taken");
    // By id again as soon as all have one.
    session.remove(&at("bees", 0));
    let next = session.next_request(NEWEST);
    assert!(next.is_by_id() && next.message().session_epoch == 0);
}

#[test]
fn a_topic_created_anew_opens_the_session_anew() {
    let mut session = opened();
    session.update(at("ants", 0), id(9), from(0));
    session.update(at("ants", 1), id(9), from(0));
    let next = message(&mut session, NEWEST);
    assert_eq!((next.session_id, next.session_epoch), (7, 0));
    assert_eq!(next.topics.len(), 1);
    assert_eq!(next.topics[0].topic_id, TopicId::from_u128(9));
    session.apply(answer(8)).expect("taken");
    // The old id means nothing any more.
    let _next = message(&mut session, NEWEST);
    assert!(
        session
            .apply(news(1, 0))
            .expect("taken")
            .partitions
            .is_empty()
    );
}

#[test]
fn full_requests_begin_elsewhere_each_time() {
    let mut session = Session::new(Settings::default());
    for (topic, number) in [("ants", 1), ("bees", 2), ("cats", 3)] {
        session.update(at(topic, 0), id(number), from(0));
    }
    let mut firsts = std::collections::BTreeSet::new();
    for _ in 0..3 {
        firsts.insert(message(&mut session, NEWEST).topics[0].topic_id);
        session.apply(answer(0)).expect("taken");
    }
    assert_eq!(firsts.len(), 3);
}

/// An answer of session 8 with news of one partition of the topic of an id.
fn news(topic: u128, partition: i32) -> FetchResponse {
    let data = PartitionData::default()
        .with_partition_index(partition)
        .with_high_watermark(40)
        .with_last_stable_offset(-1)
        .with_log_start_offset(5)
        .with_records(Some(Bytes::from_static(b"records")))
        .with_preferred_read_replica(BrokerId(4))
        .with_diverging_epoch(EpochEndOffset::default().with_epoch(2).with_end_offset(9))
        .with_current_leader(
            LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(5))
                .with_leader_epoch(6),
        )
        .with_aborted_transactions(Some(vec![
            AbortedTransaction::default()
                .with_producer_id(ProducerId(77))
                .with_first_offset(11),
        ]));
    let topic = FetchableTopicResponse::default()
        .with_topic_id(TopicId::from_u128(topic))
        .with_partitions(vec![data]);
    answer(8).with_responses(vec![topic])
}

#[test]
fn all_that_a_broker_tells_of_a_partition_is_passed_on() {
    let mut session = opened();
    let _next = message(&mut session, NEWEST);
    let told = session.apply(news(1, 1)).expect("taken");
    let [fetched] = &told.partitions[..] else {
        panic!("{told:?}");
    };
    assert_eq!(
        (&fetched.partition, fetched.offset),
        (&at("ants", 1), Offset(20))
    );
    assert_eq!(fetched.high_watermark, Some(Offset(40)));
    assert_eq!(fetched.last_stable_offset, None);
    assert_eq!(fetched.log_start, Some(Offset(5)));
    assert_eq!(&fetched.records[..], b"records");
    assert_eq!(fetched.preferred_replica, Some(BrokerId(4)));
    let leader = Leader {
        broker: BrokerId(5),
        epoch: Some(6),
    };
    assert_eq!(fetched.leader, Some(leader));
    assert_eq!(
        fetched.diverging.map(|end| (end.epoch, end.end.0)),
        Some((2, 9))
    );
    let aborted = fetched
        .aborted
        .iter()
        .map(|gone| (gone.producer_id, gone.first_offset.0));
    assert_eq!(aborted.collect::<Vec<_>>(), [(77, 11)]);
}

#[test]
fn answers_about_what_is_read_no_longer_or_elsewhere_are_left_out() {
    let mut session = opened();
    let _next = message(&mut session, NEWEST);
    session.update(at("ants", 1), id(1), from(99));
    assert!(
        session
            .apply(news(1, 1))
            .expect("taken")
            .partitions
            .is_empty()
    );
    let mut session = opened();
    let _next = message(&mut session, NEWEST);
    session.remove(&at("ants", 1));
    assert!(
        session
            .apply(news(1, 1))
            .expect("taken")
            .partitions
            .is_empty()
    );
    let mut session = opened();
    let _next = message(&mut session, NEWEST);
    assert!(
        session
            .apply(news(5, 1))
            .expect("taken")
            .partitions
            .is_empty()
    );
    assert!(
        session
            .apply(news(1, 2))
            .expect("taken")
            .partitions
            .is_empty()
    );
}

/// A broker that keeps one session as KIP-227 says.
#[derive(Debug, Default)]
struct Broker {
    id: i32,
    epoch: i32,
    partitions: BTreeMap<(TopicId, i32), i64>,
}

impl Broker {
    fn serve(&mut self, request: &FetchRequest) -> FetchResponse {
        if request.session_epoch == 0 {
            self.partitions.clear();
            self.id += 1;
            self.epoch = 0;
        } else if request.session_id != self.id {
            return refusal(Code::FETCH_SESSION_ID_NOT_FOUND);
        } else if request.session_epoch != self.epoch + 1 {
            return refusal(Code::INVALID_FETCH_SESSION_EPOCH);
        } else {
            self.epoch += 1;
        }
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                self.partitions.remove(&(topic.topic_id, *partition));
            }
        }
        for topic in &request.topics {
            for partition in &topic.partitions {
                let key = (topic.topic_id, partition.partition);
                self.partitions.insert(key, partition.fetch_offset);
            }
        }
        answer(self.id)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Update(u8, i64),
    Remove(u8),
    Poll,
    LoseRequest,
    LoseAnswer,
    BrokerForgets,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8_u8, 0..4_i64).prop_map(|(key, offset)| Step::Update(key, offset)),
        2 => (0..8_u8).prop_map(Step::Remove),
        4 => Just(Step::Poll),
        1 => Just(Step::LoseRequest),
        1 => Just(Step::LoseAnswer),
        1 => Just(Step::BrokerForgets),
    ]
}

proptest! {
    /// Whatever is lost on the way, the broker reads what we want, at the latest two requests later.
    #[test]
    fn broker_and_session_agree_again_after_any_faults(steps in prop::collection::vec(step(), 0..60)) {
        let mut session = Session::new(Settings::default());
        let mut broker = Broker::default();
        let key = |key: u8| (at(&format!("t{}", key / 2), i32::from(key % 2)), id(u128::from(key / 2) + 1));
        for step in steps {
            match step {
                Step::Update(number, offset) => {
                    let (partition, topic) = key(number);
                    session.update(partition, topic, from(offset));
                }
                Step::Remove(number) => drop(session.remove(&key(number).0)),
                Step::Poll => {
                    let request = message(&mut session, NEWEST);
                    session.apply(broker.serve(&request)).expect("recovered");
                }
                Step::LoseRequest => {
                    let _request = message(&mut session, NEWEST);
                    session.lost();
                }
                Step::LoseAnswer => {
                    let request = message(&mut session, NEWEST);
                    let _answer = broker.serve(&request);
                    session.lost();
                }
                Step::BrokerForgets => broker = Broker { id: broker.id + 100, ..Broker::default() },
            }
        }
        for _ in 0..2 {
            let request = message(&mut session, NEWEST);
            session.apply(broker.serve(&request)).expect("recovered");
        }
        let wanted: BTreeMap<_, _> = (0..8).filter_map(|number| {
            let (partition, topic) = key(number);
            let position = session.position(&partition)?;
            Some(((topic.expect("an id"), partition.partition.0), position.offset.0))
        }).collect();
        prop_assert_eq!(broker.partitions, wanted);
    }
}
