//! Assignments and lists that nobody of ours writes are refused as a whole, with every fault.

use std::time::Duration;

use kreplicator_model::{
    ids::{LinkId, OwnerEpoch, Partition, TaskId, TopicName},
    ownership::Owned,
    target_limits::TargetLimits,
};
use kreplicator_proto::{
    assignment::{Assignment, Ownership},
    fault::FieldFault,
    v1,
};
use prost::Message;

fn start() -> Option<v1::StartPolicy> {
    Some(v1::StartPolicy {
        at: Some(v1::start_policy::At::Earliest(true)),
    })
}

fn topic(name: &str, partitions: &[i32]) -> v1::AssignedTopic {
    v1::AssignedTopic {
        link: "a-b".to_owned(),
        topic: name.to_owned(),
        target_topic: name.to_owned(),
        start: start(),
        partitions: partitions
            .iter()
            .map(|partition| v1::AssignedPartition {
                partition: *partition,
                epoch: 3,
            })
            .collect(),
        ..v1::AssignedTopic::default()
    }
}

fn chunk(topics: Vec<v1::AssignedTopic>) -> v1::AssignmentChunk {
    v1::AssignmentChunk {
        generation: 3,
        topics,
    }
}

fn told(faults: &[FieldFault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn an_assignment_lists_each_of_its_tasks_once() {
    let sound = chunk(vec![topic("clicks", &[0]), topic("orders", &[1, 0])]);
    let tasks = Assignment::try_from(&sound).expect("sound").tasks();
    let names: Vec<String> = tasks.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["a-b/clicks/0", "a-b/orders/0", "a-b/orders/1"]);

    let twice = chunk(vec![topic("orders", &[0, 0]), topic("clicks", &[1])]);
    let faults = Assignment::try_from(&twice).expect_err("refused");
    assert_eq!(
        told(&faults),
        ["topics[0].partitions[1]: partition 0 is listed twice"]
    );
    let again = chunk(vec![topic("orders", &[0]), topic("orders", &[1])]);
    let faults = Assignment::try_from(&again).expect_err("refused");
    assert_eq!(
        told(&faults),
        ["topics[1]: topic a-b/orders is listed twice"]
    );
}

#[test]
fn every_fault_of_an_assignment_is_told() {
    let broken = chunk(vec![v1::AssignedTopic {
        link: "A".to_owned(),
        start: None,
        first_partitions: -1,
        target_limits: Some(v1::TargetLimits {
            max_message_bytes: Some(-1),
            timestamp_after_max_ms: Some(-2),
            ..v1::TargetLimits::default()
        }),
        ..topic("orders", &[-1])
    }]);
    let faults = Assignment::try_from(&broken).expect_err("refused");
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "topics[0].link",
            "topics[0].start",
            "topics[0].first_partitions",
            "topics[0].partitions[0]",
            "topics[0].target_limits.max_message_bytes",
            "topics[0].target_limits.timestamp_after_max_ms",
        ]
    );
}

#[test]
fn a_limit_of_zero_is_not_the_absence_of_a_limit() {
    let limits = TargetLimits {
        max_message_bytes: Some(0),
        timestamp_before_max: Some(Duration::ZERO),
        timestamp_after_max: Some(Duration::ZERO),
        ..TargetLimits::default()
    };
    for limits in [limits, TargetLimits::default()] {
        let bytes = v1::TargetLimits::from(&limits).encode_to_vec();
        let message = v1::TargetLimits::decode(bytes.as_slice()).expect("sound");
        assert_eq!(TargetLimits::try_from(&message), Ok(limits));
    }
}

#[test]
fn a_list_of_tasks_survives_the_way_through_its_message() {
    let task = |topic: &str, partition| TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(topic).expect("legal"),
        partition: Partition(partition),
    };
    let owned = |stopping| Owned {
        epoch: OwnerEpoch(9),
        stopping,
    };
    let list = Ownership {
        applied_revision: 7,
        incarnation: "x-1".to_owned(),
        tasks: [
            (task("clicks", 2), owned(false)),
            (task("orders", 0), owned(true)),
            (task("orders", 1), owned(false)),
        ]
        .into(),
    };
    let message = v1::OwnedChunk::from(&list);
    assert_eq!(message.topics.len(), 2, "partitions are grouped by topic");
    assert_eq!(Ownership::try_from(&message), Ok(list));

    let mut twice = message;
    twice.applied_revision = -1;
    let first = twice.topics[1].partitions[0];
    twice.topics[1].partitions.push(first);
    let faults = Ownership::try_from(&twice).expect_err("refused");
    assert_eq!(
        told(&faults),
        [
            "applied_revision: is negative",
            "topics[1]: partition 0 is listed twice"
        ]
    );
}
