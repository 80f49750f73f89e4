//! Requests and answers about groups, in the shapes that versions give them.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::{
    messages::{
        FindCoordinatorRequest, FindCoordinatorResponse, GroupId, OffsetCommitRequest,
        OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::{
            OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
        },
    },
    protocol::StrBytes,
};
use kreplicator_model::ids::{Offset, Partition, TopicName};

use super::{Commit, Committed};
use crate::{
    call::Call,
    code::Code,
    topic::{Node, TopicPartition, by_topic, to_wire},
};

/// First version of FindCoordinator that asks for several keys.
const FIND_MANY: i16 = 4;
/// First version of OffsetFetch that asks for several groups.
const FETCH_MANY: i16 = 8;
/// First version of OffsetFetch that can wait for transactions.
const REQUIRE_STABLE: i16 = 7;
/// First version of OffsetCommit that has the epoch of the leader.
const COMMIT_EPOCH: i16 = 6;
/// Versions of OffsetCommit that carry a time of retention; −1: the broker's.
const RETENTION: std::ops::RangeInclusive<i16> = 2..=4;

/// FindCoordinator in the shape that each version wants.
#[derive(Debug, Clone)]
pub(super) struct FindCoordinator {
    many: FindCoordinatorRequest,
    one: FindCoordinatorRequest,
}

impl Call for FindCoordinator {
    const API: kafka_protocol::messages::ApiKey = FindCoordinatorRequest::API;
    const NAME: &'static str = FindCoordinatorRequest::NAME;
    const VERSIONS: crate::call::Versions = FindCoordinatorRequest::VERSIONS;
    type Answer = FindCoordinatorResponse;

    fn encode(&self, version: i16, parts: &mut crate::parts::Parts) -> Result<(), String> {
        let request = if version >= FIND_MANY {
            &self.many
        } else {
            &self.one
        };
        Call::encode(request, version, parts)
    }

    fn decode(body: bytes::Bytes, version: i16) -> Result<FindCoordinatorResponse, String> {
        <FindCoordinatorRequest as Call>::decode(body, version)
    }

    fn throttle(answer: &FindCoordinatorResponse) -> std::time::Duration {
        <FindCoordinatorRequest as Call>::throttle(answer)
    }
}

pub(super) fn find_coordinator(group: &str) -> FindCoordinator {
    let key = StrBytes::from_string(group.to_owned());
    // Type 0: groups.
    let request = FindCoordinatorRequest::default().with_key_type(0);
    FindCoordinator {
        many: request.clone().with_coordinator_keys(vec![key.clone()]),
        one: request.with_key(key),
    }
}

pub(super) fn read_coordinator(answer: &FindCoordinatorResponse) -> (Code, Option<Node>) {
    let Some(coordinator) = answer.coordinators.first() else {
        let node = Node::from_wire(answer.node_id, &answer.host, answer.port, None);
        return (Code(answer.error_code), node);
    };
    let node = Node::from_wire(
        coordinator.node_id,
        &coordinator.host,
        coordinator.port,
        None,
    );
    (Code(coordinator.error_code), node)
}

pub(super) fn commit_request(
    group: &str,
    commits: &BTreeMap<TopicPartition, Commit>,
    version: i16,
) -> OffsetCommitRequest {
    let topics = by_topic(commits).into_iter().map(|(name, commits)| {
        let partitions = commits.into_iter().map(|(partition, commit)| {
            let mut partition = OffsetCommitRequestPartition::default()
                .with_partition_index(partition.0)
                .with_committed_offset(commit.offset.0)
                .with_committed_metadata(Some(StrBytes::from_string(commit.metadata.clone())));
            if version >= COMMIT_EPOCH {
                partition.committed_leader_epoch = commit.leader_epoch.unwrap_or(-1);
            }
            partition
        });
        OffsetCommitRequestTopic::default()
            .with_name(to_wire(name))
            .with_partitions(partitions.collect())
    });
    let mut request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
        .with_generation_id_or_member_epoch(-1)
        .with_member_id(StrBytes::new())
        .with_topics(topics.collect());
    if RETENTION.contains(&version) {
        request.retention_time_ms = -1;
    }
    request
}

pub(super) fn read_commit(answer: OffsetCommitResponse) -> Vec<(TopicPartition, Code)> {
    let mut told = Vec::new();
    for topic in answer.topics {
        let Ok(name) = TopicName::new(topic.name.as_str()) else {
            continue;
        };
        for partition in topic.partitions {
            let at = TopicPartition::new(name.clone(), Partition(partition.partition_index));
            told.push((at, Code(partition.error_code)));
        }
    }
    told
}

pub(super) fn fetch_request(
    group: &str,
    partitions: &BTreeSet<TopicPartition>,
    version: i16,
) -> OffsetFetchRequest {
    let topics = by_topic(partitions.iter().map(|at| (at, ()))).into_iter();
    let topics = topics.map(|(name, partitions)| {
        let indexes = partitions.into_iter().map(|(partition, ())| partition.0);
        (to_wire(name), indexes.collect::<Vec<_>>())
    });
    let group = GroupId(StrBytes::from_string(group.to_owned()));
    let mut request = OffsetFetchRequest::default();
    if version >= REQUIRE_STABLE {
        request.require_stable = true;
    }
    if version >= FETCH_MANY {
        let topics = topics.map(|(name, partitions)| {
            OffsetFetchRequestTopics::default()
                .with_name(name)
                .with_partition_indexes(partitions)
        });
        return request.with_groups(vec![
            OffsetFetchRequestGroup::default()
                .with_group_id(group)
                .with_topics(Some(topics.collect())),
        ]);
    }
    let topics = topics.map(|(name, partitions)| {
        OffsetFetchRequestTopic::default()
            .with_name(name)
            .with_partition_indexes(partitions)
    });
    request
        .with_group_id(group)
        .with_topics(Some(topics.collect()))
}

/// What an answer tells of each partition; None: no offset.
pub(super) type Told = Vec<(TopicPartition, Result<Option<Committed>, Code>)>;

pub(super) fn read_fetch(answer: OffsetFetchResponse) -> Result<Told, Code> {
    let mut told = Vec::new();
    let mut add =
        |name: &str, index: i32, code: i16, offset: i64, epoch: i32, text: Option<StrBytes>| {
            let Ok(name) = TopicName::new(name) else {
                return;
            };
            let committed = match Code(code).fault() {
                Some(code) => Err(code),
                None => Ok((offset >= 0).then(|| Committed {
                    offset: Offset(offset),
                    leader_epoch: (epoch >= 0).then_some(epoch),
                    metadata: text.map(|text| text.to_string()).unwrap_or_default(),
                })),
            };
            told.push((TopicPartition::new(name, Partition(index)), committed));
        };
    if let Some(code) = Code(answer.error_code).fault() {
        return Err(code);
    }
    for topic in answer.topics {
        for p in topic.partitions {
            add(
                &topic.name,
                p.partition_index,
                p.error_code,
                p.committed_offset,
                p.committed_leader_epoch,
                p.metadata,
            );
        }
    }
    for group in answer.groups {
        if let Some(code) = Code(group.error_code).fault() {
            return Err(code);
        }
        for topic in group.topics {
            for p in topic.partitions {
                add(
                    &topic.name,
                    p.partition_index,
                    p.error_code,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata,
                );
            }
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests;
