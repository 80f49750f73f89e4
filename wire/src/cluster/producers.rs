//! Producers: a new id, and what brokers remember of those that wrote to a partition.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, InitProducerIdRequest,
    ProducerId as WireProducer, describe_producers_request::TopicRequest,
};
use kreplicator_model::ids::{Offset, Partition, TopicName, UnixMillis};
use tokio::time::Instant;

use super::{
    ClusterClient,
    leaders::{ByPartition, Question},
};
use crate::{
    code::Code,
    error::Error,
    topic::{BrokerId, Leader, TopicPartition, by_topic, to_wire},
};

/// A producer id that the cluster has given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerId {
    /// The id, from 0.
    pub id: i64,
    /// Its epoch, 0 for a new one.
    pub epoch: i16,
}

/// What a broker remembers of a producer on one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// Its id.
    pub id: i64,
    /// Its epoch, as large as a broker tells it.
    pub epoch: i32,
    /// Sequence of the last record; None when the broker has an epoch but no batch of it.
    pub last_sequence: Option<i32>,
    /// Time stamp of the last batch.
    pub last_timestamp: Option<UnixMillis>,
    /// Where its open transaction begins.
    pub transaction_start: Option<Offset>,
}

impl ClusterClient {
    /// A new producer id, without a transactional id.
    ///
    /// # Errors
    /// [`Error::Refused`] when the user may not have one; else why none was given until `deadline`.
    pub async fn init_producer_id(&self, deadline: Instant) -> Result<ProducerId, Error> {
        let mut retry = self.retry(deadline);
        loop {
            // The default of the message is an empty transactional id, which brokers refuse.
            let request = InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(i32::MAX)
                .with_producer_id(WireProducer(-1))
                .with_producer_epoch(-1);
            let answer = self.call_any(request, deadline).await?;
            let refusal = Error::check(answer.error_code, || {
                format!("a producer id of cluster {}", self.inner.settings.cluster)
            });
            match refusal {
                Ok(()) => {
                    return Ok(ProducerId {
                        id: answer.producer_id.0,
                        epoch: answer.producer_epoch,
                    });
                }
                // Right after its start a broker has none to give yet.
                Err(fault) => retry.pause(fault).await?,
            }
        }
    }

    /// What the leaders of partitions remember of producers. Brokers before 2.8 cannot tell
    /// ([`Error::Unsupported`]). Faults that may pass are tried again until `deadline`.
    pub async fn describe_producers(
        &self,
        partitions: BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> ByPartition<Vec<ProducerState>> {
        let asked = partitions.into_iter().map(|at| (at, ()));
        self.ask_leaders(&Producers, asked.collect(), deadline)
            .await
    }

    /// What `broker` remembers of the producers of partitions that it leads, asked once. Every partition
    /// asked for has an outcome. In which epoch it leads them is not part of this call.
    pub(super) async fn describe_producers_at(
        &self,
        broker: BrokerId,
        partitions: BTreeMap<TopicPartition, Leader>,
        deadline: Instant,
    ) -> ByPartition<Vec<ProducerState>> {
        let asked = partitions
            .into_iter()
            .map(|(at, leader)| (at, ((), leader)));
        self.ask_leader(&Producers, broker, asked.collect(), deadline)
            .await
    }
}

struct Producers;

impl Question for Producers {
    type Ask = ();
    type Told = Vec<ProducerState>;
    type Request = DescribeProducersRequest;

    const WHAT: &'static str = "producers";

    fn request(&self, asked: &BTreeMap<TopicPartition, ((), Leader)>) -> DescribeProducersRequest {
        let topics = by_topic(asked).into_iter().map(|(name, partitions)| {
            let indexes = partitions.iter().map(|(partition, _)| partition.0);
            TopicRequest::default()
                .with_name(to_wire(name))
                .with_partition_indexes(indexes.collect())
        });
        DescribeProducersRequest::default().with_topics(topics.collect())
    }

    fn read(
        &self,
        answer: DescribeProducersResponse,
    ) -> Vec<(TopicPartition, Result<Vec<ProducerState>, Code>)> {
        let mut told = Vec::new();
        for topic in answer.topics {
            let Ok(name) = TopicName::new(topic.name.as_str()) else {
                continue;
            };
            for partition in topic.partitions {
                let at = TopicPartition::new(name.clone(), Partition(partition.partition_index));
                let producers =
                    partition
                        .active_producers
                        .into_iter()
                        .map(|producer| ProducerState {
                            id: producer.producer_id.0,
                            epoch: producer.producer_epoch,
                            last_sequence: (producer.last_sequence >= 0)
                                .then_some(producer.last_sequence),
                            last_timestamp: (producer.last_timestamp >= 0)
                                .then_some(UnixMillis(producer.last_timestamp)),
                            transaction_start: (producer.current_txn_start_offset >= 0)
                                .then_some(Offset(producer.current_txn_start_offset)),
                        });
                let producers = match Code(partition.error_code).fault() {
                    Some(code) => Err(code),
                    None => Ok(producers.collect()),
                };
                told.push((at, producers));
            }
        }
        told
    }
}
