use kafka_protocol::{
    messages::{
        TopicName as WireTopic,
        find_coordinator_response::Coordinator,
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
            OffsetFetchResponseTopic, OffsetFetchResponseTopics,
        },
    },
    protocol::Encodable as _,
};

use super::*;
use crate::{parts::Parts, topic::BrokerId};

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).expect("legal"), Partition(partition))
}

#[test]
fn requests_can_be_said_in_every_version() {
    let commit = |epoch| Commit {
        offset: Offset(7),
        leader_epoch: epoch,
        metadata: "m".to_owned(),
    };
    let commits = BTreeMap::from([
        (at("ants", 0), commit(Some(3))),
        (at("ants", 1), commit(None)),
        (at("bees", 0), commit(None)),
    ]);
    let range = OffsetCommitRequest::VERSIONS;
    for version in range.min..=range.max {
        let request = commit_request("copy", &commits, version);
        assert_eq!(request.topics.len(), 2);
        assert_eq!(request.generation_id_or_member_epoch, -1);
        let size = request.compute_size(version);
        assert!(size.is_ok(), "commit {version}: {size:?}");
    }
    let partitions = commits.into_keys().collect();
    let range = OffsetFetchRequest::VERSIONS;
    for version in range.min..=range.max {
        let request = fetch_request("copy", &partitions, version);
        let size = request.compute_size(version);
        assert!(size.is_ok(), "fetch {version}: {size:?}");
    }
    let find = find_coordinator("copy");
    let range = FindCoordinator::VERSIONS;
    for version in range.min..=range.max {
        let outcome = find.encode(version, &mut Parts::default());
        assert!(outcome.is_ok(), "find {version}: {outcome:?}");
    }
}

#[test]
fn old_and_new_answers_tell_the_same() {
    let name = || WireTopic(StrBytes::from_static_str("ants"));
    let text = || Some(StrBytes::from_static_str("m"));
    let old = OffsetFetchResponse::default().with_topics(vec![
        OffsetFetchResponseTopic::default()
            .with_name(name())
            .with_partitions(vec![
                OffsetFetchResponsePartition::default()
                    .with_committed_offset(7)
                    .with_metadata(text()),
                OffsetFetchResponsePartition::default()
                    .with_partition_index(1)
                    .with_committed_offset(-1),
            ]),
    ]);
    let new = OffsetFetchResponse::default().with_groups(vec![
        OffsetFetchResponseGroup::default().with_topics(vec![
            OffsetFetchResponseTopics::default()
                .with_name(name())
                .with_partitions(vec![
                    OffsetFetchResponsePartitions::default()
                        .with_committed_offset(7)
                        .with_metadata(text()),
                    OffsetFetchResponsePartitions::default()
                        .with_partition_index(1)
                        .with_committed_offset(-1),
                ]),
        ]),
    ]);
    let old = read_fetch(old).expect("no error");
    assert_eq!(old, read_fetch(new).expect("no error"));
    let committed = Committed {
        offset: Offset(7),
        leader_epoch: None,
        metadata: "m".to_owned(),
    };
    assert_eq!(
        old,
        [
            (at("ants", 0), Ok(Some(committed))),
            (at("ants", 1), Ok(None))
        ]
    );
}

#[test]
fn absent_is_not_refused() {
    let refused = OffsetFetchResponse::default().with_error_code(Code::NOT_COORDINATOR.0);
    assert_eq!(read_fetch(refused), Err(Code::NOT_COORDINATOR));
    let group =
        OffsetFetchResponseGroup::default().with_error_code(Code::GROUP_AUTHORIZATION_FAILED.0);
    let refused = OffsetFetchResponse::default().with_groups(vec![group]);
    assert_eq!(read_fetch(refused), Err(Code::GROUP_AUTHORIZATION_FAILED));
}

#[test]
fn the_coordinator_is_read_from_both_shapes() {
    let old = FindCoordinatorResponse::default()
        .with_node_id(BrokerId(3))
        .with_host(StrBytes::from_static_str("h"))
        .with_port(1);
    let (code, node) = read_coordinator(&old);
    assert_eq!((code, node.map(|node| node.id.0)), (Code::NONE, Some(3)));
    let coordinator = Coordinator::default()
        .with_error_code(Code::COORDINATOR_NOT_AVAILABLE.0)
        .with_node_id(BrokerId(-1))
        .with_port(-1);
    let new = FindCoordinatorResponse::default().with_coordinators(vec![coordinator]);
    let (code, node) = read_coordinator(&new);
    assert_eq!((code, node), (Code::COORDINATOR_NOT_AVAILABLE, None));
}
