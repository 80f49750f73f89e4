//! What a broker says to a produce request.

use kafka_protocol::messages::{
    ProduceResponse,
    produce_response::{PartitionProduceResponse, TopicProduceResponse},
};
use kreplicator_model::ids::{Offset, Partition, TopicName, UnixMillis};

use super::Asked;
use crate::{
    code::Code,
    topic::{Leader, Node, TopicPartition},
};

/// Answer to a produce request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// One for each partition asked for.
    pub partitions: Vec<PartitionAnswer>,
    /// Where the leaders named in `partitions` listen, when they are others.
    pub nodes: Vec<Node>,
}

/// What became of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionAnswer {
    /// The partition.
    pub partition: TopicPartition,
    /// [`Code::NONE`]: acknowledged by all in-sync replicas.
    pub code: Code,
    /// Offset of the first record; for a duplicate that of the first time. None when the broker does
    /// not know it.
    pub base_offset: Option<Offset>,
    /// Time given by the broker, for topics with append time. For a duplicate old brokers tell the
    /// time of the batch itself.
    pub log_append_time: Option<UnixMillis>,
    /// Start of the log.
    pub log_start: Option<Offset>,
    /// The broker's words.
    pub message: Option<String>,
    /// Records that made the broker refuse the batch.
    pub record_errors: Vec<RecordError>,
    /// Who leads now, when it is another.
    pub leader: Option<Leader>,
}

/// A record that made the broker refuse its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// Its index in the batch, from 0.
    pub index: i32,
    /// The broker's words.
    pub message: Option<String>,
}

impl Answer {
    pub(super) fn read(response: ProduceResponse, asked: &Asked) -> Result<Self, String> {
        let mut missing = asked.partitions.clone();
        let mut partitions = Vec::with_capacity(missing.len());
        for topic in response.responses {
            let name = topic_name(&topic, asked)?;
            for answer in topic.partition_responses {
                let partition = TopicPartition::new(name.clone(), Partition(answer.index));
                if !missing.remove(&partition) {
                    return Err(format!("{partition} was not asked for, or is told twice"));
                }
                partitions.push(PartitionAnswer::read(partition, answer));
            }
        }
        if let Some(partition) = missing.first() {
            return Err(format!("{partition} is missing"));
        }
        let nodes = response.node_endpoints.iter().filter_map(|node| {
            Node::from_wire(node.node_id, &node.host, node.port, node.rack.as_deref())
        });
        Ok(Self {
            partitions,
            nodes: nodes.collect(),
        })
    }
}

fn topic_name(topic: &TopicProduceResponse, asked: &Asked) -> Result<TopicName, String> {
    if topic.name.is_empty() {
        let name = asked.ids.get(&topic.topic_id);
        return name
            .cloned()
            .ok_or_else(|| format!("topic id {} was not asked for", topic.topic_id));
    }
    TopicName::new(topic.name.as_str()).map_err(|fault| fault.to_string())
}

impl PartitionAnswer {
    fn read(partition: TopicPartition, answer: PartitionProduceResponse) -> Self {
        let offset = |offset: i64| (offset >= 0).then_some(Offset(offset));
        let record_errors = answer.record_errors.into_iter().map(|error| RecordError {
            index: error.batch_index,
            message: error.batch_index_error_message.map(|text| text.to_string()),
        });
        let leader = answer.current_leader;
        Self {
            partition,
            code: Code(answer.error_code),
            base_offset: offset(answer.base_offset),
            log_append_time: (answer.log_append_time_ms >= 0)
                .then_some(UnixMillis(answer.log_append_time_ms)),
            log_start: offset(answer.log_start_offset),
            message: answer.error_message.map(|text| text.to_string()),
            record_errors: record_errors.collect(),
            leader: Leader::from_wire(leader.leader_id, leader.leader_epoch),
        }
    }
}
