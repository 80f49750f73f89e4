//! Offsets of partitions: by time, at the ends, and where a leader's epoch ended.

use std::collections::BTreeMap;

use kafka_protocol::messages::{
    BrokerId as WireBroker, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
};
use kreplicator_model::ids::{Offset, Partition, TopicName, UnixMillis};
use tokio::time::Instant;

use super::{
    ClusterClient,
    leaders::{ByPartition, Question},
};
use crate::{
    code::Code,
    fetch::EpochEnd,
    topic::{BrokerId, Leader, TopicPartition, by_topic, to_wire},
};

/// We are no replica.
const CONSUMER: WireBroker = WireBroker(-1);

/// Which offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The first offset of the log.
    Earliest,
    /// The end (exclusive), by the isolation asked for.
    Latest,
    /// The first record at or after a time.
    Timestamp(UnixMillis),
}

impl At {
    fn to_wire(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            // Negative times are codes; nothing is older than 1970 to Kafka.
            Self::Timestamp(time) => time.0.max(0),
        }
    }
}

/// What [`At::Latest`] is the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// What is replicated (the high watermark).
    Uncommitted,
    /// What no open transaction can change (the last stable offset).
    Committed,
}

impl Isolation {
    /// As requests carry it.
    #[must_use]
    pub fn level(self) -> i8 {
        match self {
            Self::Uncommitted => 0,
            Self::Committed => 1,
        }
    }
}

/// An offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The offset; None when no record is as young as the time asked for.
    pub offset: Option<Offset>,
    /// Time stamp of the record there, for a question by time.
    pub timestamp: Option<UnixMillis>,
    /// Epoch of the leader that wrote there, when the broker tells.
    pub leader_epoch: Option<i32>,
}

impl ClusterClient {
    /// Offsets of partitions, asked of their leaders. Faults that may pass, an unknown topic among them,
    /// are tried again until `deadline`.
    pub async fn list_offsets(
        &self,
        asked: BTreeMap<TopicPartition, At>,
        isolation: Isolation,
        deadline: Instant,
    ) -> ByPartition<Listed> {
        self.ask_leaders(&ListOffsets(isolation), asked, deadline)
            .await
    }

    /// Offsets of partitions as `broker` tells them, asked once. Every partition asked for has an outcome;
    /// a broker that does not lead it in just this epoch, where one is given, refuses (KIP-320).
    pub(super) async fn list_offsets_at(
        &self,
        broker: BrokerId,
        asked: BTreeMap<TopicPartition, (At, Leader)>,
        isolation: Isolation,
        deadline: Instant,
    ) -> ByPartition<Listed> {
        self.ask_leader(&ListOffsets(isolation), broker, asked, deadline)
            .await
    }

    /// Where the epoch asked for, or the last one before it, ends in the log of `broker`, asked once. As
    /// [`Self::list_offsets_at`] else.
    pub(super) async fn offset_for_leader_epoch_at(
        &self,
        broker: BrokerId,
        asked: BTreeMap<TopicPartition, (i32, Leader)>,
        deadline: Instant,
    ) -> ByPartition<Option<EpochEnd>> {
        self.ask_leader(&LeaderEpochs, broker, asked, deadline)
            .await
    }

    /// Where the epoch asked for, or the last one before it, ends in the leader's log (KIP-320). None:
    /// the leader knows none so old.
    pub async fn offset_for_leader_epoch(
        &self,
        asked: BTreeMap<TopicPartition, i32>,
        deadline: Instant,
    ) -> ByPartition<Option<EpochEnd>> {
        self.ask_leaders(&LeaderEpochs, asked, deadline).await
    }
}

struct ListOffsets(Isolation);

impl Question for ListOffsets {
    type Ask = At;
    type Told = Listed;
    type Request = ListOffsetsRequest;

    const WHAT: &'static str = "offsets";

    fn request(&self, asked: &BTreeMap<TopicPartition, (At, Leader)>) -> ListOffsetsRequest {
        let topics = by_topic(asked).into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(partition, (at, leader))| {
                ListOffsetsPartition::default()
                    .with_partition_index(partition.0)
                    .with_current_leader_epoch(leader.epoch.unwrap_or(-1))
                    .with_timestamp(at.to_wire())
            });
            ListOffsetsTopic::default()
                .with_name(to_wire(name))
                .with_partitions(partitions.collect())
        });
        ListOffsetsRequest::default()
            .with_replica_id(CONSUMER)
            .with_isolation_level(self.0.level())
            .with_topics(topics.collect())
    }

    fn read(&self, answer: ListOffsetsResponse) -> Vec<(TopicPartition, Result<Listed, Code>)> {
        let mut told = Vec::new();
        for topic in answer.topics {
            let Ok(name) = TopicName::new(topic.name.as_str()) else {
                continue;
            };
            for partition in topic.partitions {
                let at = TopicPartition::new(name.clone(), Partition(partition.partition_index));
                let listed = match Code(partition.error_code).fault() {
                    Some(code) => Err(code),
                    None => Ok(Listed {
                        offset: (partition.offset >= 0).then_some(Offset(partition.offset)),
                        timestamp: (partition.timestamp >= 0)
                            .then_some(UnixMillis(partition.timestamp)),
                        leader_epoch: (partition.leader_epoch >= 0)
                            .then_some(partition.leader_epoch),
                    }),
                };
                told.push((at, listed));
            }
        }
        told
    }
}

struct LeaderEpochs;

impl Question for LeaderEpochs {
    type Ask = i32;
    type Told = Option<EpochEnd>;
    type Request = OffsetForLeaderEpochRequest;

    const WHAT: &'static str = "end of a leader's epoch";

    fn request(
        &self,
        asked: &BTreeMap<TopicPartition, (i32, Leader)>,
    ) -> OffsetForLeaderEpochRequest {
        let topics = by_topic(asked).into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(partition, (epoch, leader))| {
                OffsetForLeaderPartition::default()
                    .with_partition(partition.0)
                    .with_current_leader_epoch(leader.epoch.unwrap_or(-1))
                    .with_leader_epoch(*epoch)
            });
            OffsetForLeaderTopic::default()
                .with_topic(to_wire(name))
                .with_partitions(partitions.collect())
        });
        OffsetForLeaderEpochRequest::default()
            .with_replica_id(CONSUMER)
            .with_topics(topics.collect())
    }

    fn read(
        &self,
        answer: OffsetForLeaderEpochResponse,
    ) -> Vec<(TopicPartition, Result<Option<EpochEnd>, Code>)> {
        let mut told = Vec::new();
        for topic in answer.topics {
            let Ok(name) = TopicName::new(topic.topic.as_str()) else {
                continue;
            };
            for partition in topic.partitions {
                let at = TopicPartition::new(name.clone(), Partition(partition.partition));
                let end = match Code(partition.error_code).fault() {
                    Some(code) => Err(code),
                    None => Ok((partition.end_offset >= 0).then_some(EpochEnd {
                        epoch: partition.leader_epoch,
                        end: Offset(partition.end_offset),
                    })),
                };
                told.push((at, end));
            }
        }
        told
    }
}
