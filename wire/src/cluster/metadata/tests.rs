use std::time::Duration;

use kafka_protocol::{
    messages::{TopicName as WireTopic, metadata_response::MetadataResponseBroker},
    protocol::StrBytes,
};

use super::*;

fn name(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(name(topic), Partition(partition))
}

fn leader(broker: i32, epoch: i32) -> Leader {
    Leader {
        broker: BrokerId(broker),
        epoch: Some(epoch),
    }
}

/// One topic whose partitions have these leaders and epochs.
fn told(topic: &str, id: u128, leaders: &[(i32, i32)]) -> MetadataResponse {
    let brokers = [1, 2].map(|id| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_static_str("host"))
            .with_port(9092)
    });
    let partitions = (0..).zip(leaders).map(|(index, (leader, epoch))| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(*leader))
            .with_leader_epoch(*epoch)
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(WireTopic(StrBytes::from_string(topic.to_owned()))))
        .with_topic_id(TopicId::from_u128(id))
        .with_partitions(partitions.collect());
    MetadataResponse::default()
        .with_brokers(brokers.into())
        .with_topics(vec![topic])
}

fn known(leaders: &[(i32, i32)]) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.apply(&[name("ants")], &told("ants", 1, leaders), Instant::now());
    metadata
}

#[tokio::test(start_paused = true)]
async fn the_newer_leadership_wins_wherever_it_was_heard_of() {
    let mut metadata = known(&[(1, 5), (-1, 5)]);
    assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(1, 5)));
    assert_eq!(metadata.leader(&at("ants", 1)), None, "no leader");
    assert!(metadata.note_leader(&at("ants", 0), leader(2, 6), &[]));
    assert!(metadata.note_leader(&at("ants", 1), leader(2, 6), &[]));
    // A broker that has not heard of it yet, and an old hint.
    metadata.apply(
        &[name("ants")],
        &told("ants", 1, &[(1, 5), (-1, 5)]),
        Instant::now(),
    );
    assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(2, 6)));
    assert!(!metadata.note_leader(&at("ants", 0), leader(1, 5), &[]));
    assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(2, 6)));
    metadata.apply(&[name("ants")], &told("ants", 1, &[(1, 7)]), Instant::now());
    assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(1, 7)));
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_anew_starts_with_old_numbers_again() {
    let mut metadata = known(&[(1, 5)]);
    metadata.apply(&[name("ants")], &told("ants", 2, &[(2, 0)]), Instant::now());
    assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(2, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_hint_to_a_broker_that_nobody_knows_is_no_news() {
    let mut metadata = known(&[(1, 5)]);
    assert!(!metadata.note_leader(&at("ants", 0), leader(9, 6), &[]));
    let node = Node::from_wire(BrokerId(9), "nine", 9099, None).expect("legal");
    assert!(metadata.note_leader(&at("ants", 0), leader(9, 6), std::slice::from_ref(&node)));
    assert_eq!(metadata.node(BrokerId(9)), Some(&node));
    assert!(
        !metadata.note_leader(&at("bees", 0), leader(1, 1), &[]),
        "not asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_doubtful_or_old_is_not_fresh() {
    let mut metadata = known(&[(1, 5)]);
    let ants = name("ants");
    assert!(metadata.fresh(&ants, None).is_some());
    metadata.mark_stale(&ants);
    assert!(metadata.fresh(&ants, None).is_none());
    assert_eq!(metadata.due(None), std::slice::from_ref(&ants));
    assert!(
        metadata.leader(&at("ants", 0)).is_some(),
        "better than nothing"
    );
    metadata.apply(
        std::slice::from_ref(&ants),
        &told("ants", 1, &[(1, 5)]),
        Instant::now(),
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(metadata.fresh(&ants, None).is_some());
    assert!(metadata.fresh(&ants, Some(Instant::now())).is_none());
}

#[tokio::test(start_paused = true)]
async fn without_topic_ids_a_lower_epoch_told_again_and_again_is_a_topic_made_anew() {
    let told_old = |leader| told("ants", 0, &[leader]);
    let mut metadata = Metadata::default();
    let mut hear = |leader| {
        metadata.apply(&[name("ants")], &told_old(leader), Instant::now());
        metadata.leader(&at("ants", 0)).expect("a leader")
    };
    assert_eq!(hear((1, 7)), leader(1, 7));
    assert_eq!(hear((2, 0)), leader(1, 7), "perhaps it has not heard yet");
    assert_eq!(hear((2, 0)), leader(1, 7));
    assert_eq!(hear((1, 7)), leader(1, 7), "it had not");
    assert_eq!(hear((2, 0)), leader(1, 7));
    assert_eq!(hear((2, 0)), leader(1, 7));
    assert_eq!(hear((2, 0)), leader(2, 0));
    assert_eq!(hear((1, 1)), leader(1, 1));
}

#[tokio::test(start_paused = true)]
async fn with_topic_ids_an_old_leadership_never_comes_back() {
    let mut metadata = known(&[(1, 7)]);
    for _ in 0..10 {
        metadata.apply(&[name("ants")], &told("ants", 1, &[(2, 6)]), Instant::now());
        assert_eq!(metadata.leader(&at("ants", 0)), Some(leader(1, 7)));
    }
}

#[tokio::test(start_paused = true)]
async fn topics_that_nobody_needs_are_dropped_and_those_waited_for_are_due() {
    let mut metadata = known(&[(1, 5)]);
    let (ants, bees) = (name("ants"), name("bees"));
    let bees_told = told("bees", 2, &[(1, 1)]);
    metadata.apply(std::slice::from_ref(&bees), &bees_told, Instant::now());
    tokio::time::advance(Duration::from_secs(10)).await;
    let later = Instant::now();
    metadata.note_use(std::slice::from_ref(&ants), later);
    // To be told is not to be needed.
    metadata.apply(std::slice::from_ref(&bees), &bees_told, later);
    metadata.drop_idle(later);
    assert!(metadata.told(&bees).is_none());
    assert!(metadata.told(&ants).is_some());
    metadata.want(std::slice::from_ref(&bees));
    assert_eq!(metadata.due(None), std::slice::from_ref(&bees));
    metadata.apply(std::slice::from_ref(&bees), &bees_told, later);
    assert!(metadata.due(None).is_empty(), "told");
}

#[tokio::test(start_paused = true)]
async fn each_topic_of_an_answer_is_found_among_those_asked_for() {
    let asked = ["ants", "bees", "cows", "dogs"].map(name);
    let mut response = told("dogs", 4, &[(1, 4)]);
    for (topic, id) in [("eels", 5), ("ants", 1), ("aphids", 6), ("cows", 3)] {
        let leader = (1, i32::try_from(id).expect("small"));
        response.topics.extend(told(topic, id, &[leader]).topics);
    }
    let mut metadata = Metadata::default();
    metadata.apply(&asked, &response, Instant::now());
    let epoch = |topic: &str| {
        let leader = metadata.leader(&at(topic, 0));
        leader.and_then(|leader| leader.epoch)
    };
    assert_eq!(
        asked.map(|topic| epoch(topic.as_str())),
        [Some(1), None, Some(3), Some(4)]
    );
    assert_eq!((epoch("eels"), epoch("aphids")), (None, None), "uninvited");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_topic_is_told_and_due_again() {
    let mut response = told("ants", 1, &[]);
    response.topics[0].error_code = Code::LEADER_NOT_AVAILABLE.0;
    let mut metadata = Metadata::default();
    let ants = name("ants");
    metadata.apply(std::slice::from_ref(&ants), &response, Instant::now());
    assert_eq!(metadata.told(&ants), Some(Err(Code::LEADER_NOT_AVAILABLE)));
    assert_eq!(metadata.fresh(&ants, None), None);
    assert_eq!(metadata.due(None), [ants]);
}

#[tokio::test(start_paused = true)]
async fn hostile_numbers_and_names_are_left_out() {
    let mut response = told("ants", 1, &[(1, 5)]);
    response.brokers[0].port = 70_000;
    response.topics[0].partitions[0].partition_index = -4;
    response
        .topics
        .extend(told("uninvited", 1, &[(1, 1)]).topics);
    let mut metadata = Metadata::default();
    metadata.apply(&[name("ants")], &response, Instant::now());
    assert_eq!(metadata.nodes().count(), 1);
    assert!(metadata.fresh(&name("uninvited"), None).is_none());
    let topic = metadata
        .fresh(&name("ants"), None)
        .expect("known")
        .expect("no error");
    assert!(topic.partitions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_knows_nobody_yet_does_not_make_us_forget_the_others() {
    let mut metadata = known(&[(1, 5)]);
    metadata.apply(&[], &MetadataResponse::default(), Instant::now());
    assert_eq!(metadata.nodes().count(), 2);
}
