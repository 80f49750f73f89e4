//! Committed offsets of a simple group, one without members: its coordinator is found and asked, and
//! found anew when it has moved.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};

use kafka_protocol::{
    messages::{
        FindCoordinatorRequest, FindCoordinatorResponse, GroupId, OffsetCommitRequest,
        OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, TopicName as WireTopic,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::{
            OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
        },
    },
    protocol::StrBytes,
};
use kreplicator_model::ids::{Offset, Partition, TopicName};
use tokio::time::Instant;

use super::{ClusterClient, Purpose, leaders::ByPartition};
use crate::{
    call::Call,
    code::{Class, Code},
    error::Error,
    topic::{BrokerId, Node, TopicPartition},
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

/// Which broker coordinates which group, as far as it is known.
pub(super) type Coordinators = BTreeMap<String, BrokerId>;

/// An offset to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The next offset to be read.
    pub offset: Offset,
    /// Epoch of the leader that wrote the record before it.
    pub leader_epoch: Option<i32>,
    /// Text kept with it; brokers take 4,096 bytes by default.
    pub metadata: String,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to be read.
    pub offset: Offset,
    /// Epoch of the leader that wrote the record before it, when it was committed.
    pub leader_epoch: Option<i32>,
    /// Text kept with it; empty when there is none.
    pub metadata: String,
}

impl ClusterClient {
    /// Commits offsets in a group without members. Each partition has an outcome of its own; faults
    /// that may pass are tried again until `deadline`.
    ///
    /// # Errors
    /// When the coordinator cannot be found or asked until `deadline`; nothing is known then.
    pub async fn commit_offsets(
        &self,
        group: &str,
        commits: &BTreeMap<TopicPartition, Commit>,
        deadline: Instant,
    ) -> Result<ByPartition<()>, Error> {
        let mut done = BTreeMap::new();
        let mut open = commits.clone();
        let mut retry = self.retry(deadline);
        loop {
            let outcome = self.commit_once(group, &open, deadline).await;
            let fault = match outcome {
                Ok(told) => {
                    let mut last = None;
                    for (at, outcome) in told {
                        let outcome = self.outcome(group, &at, outcome);
                        if let Err(fault) = &outcome
                            && fault.is_retryable()
                        {
                            last = Some(fault.clone());
                        } else if open.remove(&at).is_some() {
                            done.insert(at, outcome);
                        }
                    }
                    last.unwrap_or_else(|| silence(group))
                }
                Err(fault) => fault,
            };
            if open.is_empty() {
                return Ok(done);
            }
            self.forget_coordinator(group, &fault);
            retry.pause(fault).await?;
        }
    }

    /// Committed offsets of a group; partitions without one are left out. Waits for transactions that
    /// are committing one. Faults that may pass are tried again until `deadline`.
    ///
    /// # Errors
    /// When the coordinator cannot be found or asked until `deadline`, or a partition is refused.
    pub async fn committed_offsets(
        &self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<BTreeMap<TopicPartition, Committed>, Error> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut retry = self.retry(deadline);
        loop {
            let fault = match self.committed_once(group, partitions, deadline).await {
                Ok(committed) => return Ok(committed),
                Err(fault) => fault,
            };
            self.forget_coordinator(group, &fault);
            retry.pause(fault).await?;
        }
    }

    async fn commit_once(
        &self,
        group: &str,
        commits: &BTreeMap<TopicPartition, Commit>,
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, Code)>, Error> {
        let coordinator = self.coordinator(group, deadline).await?;
        let attempt = self.attempt(deadline);
        let connection = self
            .connection(coordinator, Purpose::Control, attempt)
            .await?;
        let version = connection.version::<OffsetCommitRequest>()?;
        let request = commit_request(group, commits, version);
        let answer = connection.send(request, attempt).await?;
        Ok(read_commit(answer))
    }

    async fn committed_once(
        &self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<BTreeMap<TopicPartition, Committed>, Error> {
        let coordinator = self.coordinator(group, deadline).await?;
        let attempt = self.attempt(deadline);
        let connection = self
            .connection(coordinator, Purpose::Control, attempt)
            .await?;
        let version = connection.version::<OffsetFetchRequest>()?;
        let request = fetch_request(group, partitions, version);
        let answer = connection.send(request, attempt).await?;
        let told = read_fetch(answer).map_err(|code| Error::Refused {
            what: format!("committed offsets of group {group}"),
            code,
        })?;
        let mut committed = BTreeMap::new();
        let mut missing = partitions.clone();
        for (at, outcome) in told {
            if !missing.remove(&at) {
                continue;
            }
            let offset = outcome.map_err(|code| Error::Refused {
                what: format!("committed offset of group {group} in {at}"),
                code,
            })?;
            if let Some(offset) = offset {
                committed.insert(at, offset);
            }
        }
        // A partition not told of is not one without an offset: to start from nothing would be wrong.
        if missing.is_empty() {
            Ok(committed)
        } else {
            Err(silence(group))
        }
    }

    fn outcome(&self, group: &str, at: &TopicPartition, code: Code) -> Result<(), Error> {
        Error::check(code.0, || format!("commit of group {group} in {at}"))
    }

    /// The broker that coordinates `group`.
    async fn coordinator(&self, group: &str, deadline: Instant) -> Result<BrokerId, Error> {
        if let Some(known) = self.coordinators().get(group) {
            return Ok(*known);
        }
        let answer = self.call_any(find_coordinator(group), deadline).await?;
        let (code, node) = read_coordinator(&answer);
        Error::check(code.0, || format!("coordinator of group {group}"))?;
        let node = node.ok_or_else(|| silence(group))?;
        let id = node.id;
        // It may be one that the metadata does not name yet.
        self.metadata().note_node(node);
        self.coordinators().insert(group.to_owned(), id);
        Ok(id)
    }

    fn coordinators(&self) -> std::sync::MutexGuard<'_, Coordinators> {
        self.inner
            .coordinators
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_coordinator(&self, group: &str, fault: &Error) {
        if fault.class() == Class::Refresh {
            self.coordinators().remove(group);
        }
    }
}

/// The coordinator's answer lacks what was asked for.
fn silence(group: &str) -> Error {
    Error::Refused {
        what: format!("group {group}: the coordinator's answer is not complete"),
        code: Code::COORDINATOR_NOT_AVAILABLE,
    }
}

fn wire_topic(name: &TopicName) -> WireTopic {
    WireTopic(StrBytes::from_string(name.as_str().to_owned()))
}

/// FindCoordinator in the shape that each version wants.
#[derive(Debug, Clone)]
struct FindCoordinator {
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

fn find_coordinator(group: &str) -> FindCoordinator {
    let key = StrBytes::from_string(group.to_owned());
    // Type 0: groups.
    let request = FindCoordinatorRequest::default().with_key_type(0);
    FindCoordinator {
        many: request.clone().with_coordinator_keys(vec![key.clone()]),
        one: request.with_key(key),
    }
}

fn read_coordinator(answer: &FindCoordinatorResponse) -> (Code, Option<Node>) {
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

fn commit_request(
    group: &str,
    commits: &BTreeMap<TopicPartition, Commit>,
    version: i16,
) -> OffsetCommitRequest {
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for (at, commit) in commits {
        let mut partition = OffsetCommitRequestPartition::default()
            .with_partition_index(at.partition.0)
            .with_committed_offset(commit.offset.0)
            .with_committed_metadata(Some(StrBytes::from_string(commit.metadata.clone())));
        if version >= COMMIT_EPOCH {
            partition.committed_leader_epoch = commit.leader_epoch.unwrap_or(-1);
        }
        let name = wire_topic(&at.topic);
        match topics.last_mut() {
            Some(last) if last.name == name => last.partitions.push(partition),
            Some(_) | None => topics.push(
                OffsetCommitRequestTopic::default()
                    .with_name(name)
                    .with_partitions(vec![partition]),
            ),
        }
    }
    let mut request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
        .with_generation_id_or_member_epoch(-1)
        .with_member_id(StrBytes::new())
        .with_topics(topics);
    if RETENTION.contains(&version) {
        request.retention_time_ms = -1;
    }
    request
}

fn read_commit(answer: OffsetCommitResponse) -> Vec<(TopicPartition, Code)> {
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

fn fetch_request(
    group: &str,
    partitions: &BTreeSet<TopicPartition>,
    version: i16,
) -> OffsetFetchRequest {
    let mut topics: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition.0);
    }
    let group = GroupId(StrBytes::from_string(group.to_owned()));
    let mut request = OffsetFetchRequest::default();
    if version >= REQUIRE_STABLE {
        request.require_stable = true;
    }
    if version >= FETCH_MANY {
        let topics = topics.into_iter().map(|(name, partitions)| {
            OffsetFetchRequestTopics::default()
                .with_name(wire_topic(name))
                .with_partition_indexes(partitions)
        });
        return request.with_groups(vec![
            OffsetFetchRequestGroup::default()
                .with_group_id(group)
                .with_topics(Some(topics.collect())),
        ]);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        OffsetFetchRequestTopic::default()
            .with_name(wire_topic(name))
            .with_partition_indexes(partitions)
    });
    request
        .with_group_id(group)
        .with_topics(Some(topics.collect()))
}

/// What an answer tells of each partition; None: no offset.
type Told = Vec<(TopicPartition, Result<Option<Committed>, Code>)>;

fn read_fetch(answer: OffsetFetchResponse) -> Result<Told, Code> {
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
