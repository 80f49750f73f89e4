//! What is known of a cluster: brokers, and the topics that were asked for. Newer leaderships win
//! over older ones, wherever they were heard of (KIP-320).

use std::{collections::BTreeMap, sync::Arc};

use kafka_protocol::messages::{
    MetadataResponse,
    metadata_response::{MetadataResponsePartition, MetadataResponseTopic},
};
use kreplicator_model::ids::{Partition, TopicName};
use tokio::time::Instant;

use crate::{
    code::Code,
    topic::{BrokerId, Leader, Node, TopicId, TopicPartition},
};

/// A topic as its cluster told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// Its id; None where the broker is too old to tell (before 2.8).
    pub id: Option<TopicId>,
    /// All partitions, those without a leader too.
    pub partitions: BTreeMap<Partition, Option<Leader>>,
}

impl Topic {
    fn read(name: TopicName, topic: &MetadataResponseTopic) -> Self {
        let partitions = topic.partitions.iter().filter_map(|partition| {
            let number = Partition(partition.partition_index);
            (number.0 >= 0).then(|| (number, leader(partition)))
        });
        Self {
            name,
            id: (!topic.topic_id.is_nil()).then_some(topic.topic_id),
            partitions: partitions.collect(),
        }
    }

    /// Keeps what was known of leaderships that are newer than what was told now.
    fn keep_newer(&mut self, before: &Self) {
        if self.id != before.id {
            return;
        }
        for (partition, leader) in &mut self.partitions {
            let known = before.partitions.get(partition).copied().flatten();
            if let (Some(known), Some(told)) = (known, *leader)
                && known.epoch > told.epoch
            {
                *leader = Some(known);
            }
        }
    }
}

fn leader(partition: &MetadataResponsePartition) -> Option<Leader> {
    // Some faults, such as a missing listener, come with a leader that cannot be used. A replica
    // that is away (9) is not one of them.
    let usable = matches!(
        Code(partition.error_code),
        Code::NONE | Code::REPLICA_NOT_AVAILABLE
    );
    if usable {
        Leader::from_wire(partition.leader_id, partition.leader_epoch)
    } else {
        None
    }
}

/// What is known of one topic.
#[derive(Debug, Clone)]
struct Known {
    topic: Result<Arc<Topic>, Code>,
    told_at: Instant,
    /// Something went wrong with it since.
    stale: bool,
}

/// What is known of a cluster.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    cluster_id: Option<String>,
    nodes: BTreeMap<i32, Node>,
    topics: BTreeMap<TopicName, Known>,
}

impl Metadata {
    /// Takes over an answer to a question for `asked`.
    pub(super) fn apply(&mut self, asked: &[TopicName], response: &MetadataResponse, now: Instant) {
        if let Some(id) = &response.cluster_id {
            self.cluster_id = Some(id.to_string());
        }
        let brokers = response.brokers.iter();
        let nodes = brokers.filter_map(|broker| {
            let rack = broker.rack.as_deref();
            Node::from_wire(broker.node_id, &broker.host, broker.port, rack)
        });
        let nodes: BTreeMap<_, _> = nodes.map(|node| (node.id.0, node)).collect();
        // A broker that is just starting may know nobody: what we know is better.
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
        for topic in &response.topics {
            let Some(name) = topic.name.as_ref() else {
                continue;
            };
            let Some(name) = asked.iter().find(|asked| asked.as_str() == name.as_str()) else {
                continue;
            };
            let told = match Code(topic.error_code).fault() {
                Some(code) => Err(code),
                None => {
                    let mut told = Topic::read(name.clone(), topic);
                    if let Some(Ok(before)) = self.topics.get(name).map(|known| &known.topic) {
                        told.keep_newer(before);
                    }
                    Ok(Arc::new(told))
                }
            };
            let known = Known {
                topic: told,
                told_at: now,
                stale: false,
            };
            self.topics.insert(name.clone(), known);
        }
    }

    /// Kafka's id of the cluster, once it was told.
    pub(super) fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    pub(super) fn node(&self, id: BrokerId) -> Option<&Node> {
        self.nodes.get(&id.0)
    }

    /// A broker named in the answer of another call.
    pub(super) fn note_node(&mut self, node: Node) {
        self.nodes.insert(node.id.0, node);
    }

    /// Only the bootstrap servers are trusted from now on.
    pub(super) fn forget_nodes(&mut self) {
        self.nodes.clear();
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The topic, when what is known was told after `since` and nothing went wrong with it since.
    pub(super) fn fresh(
        &self,
        name: &TopicName,
        since: Option<Instant>,
    ) -> Option<Result<Arc<Topic>, Code>> {
        let known = self.topics.get(name)?;
        let fresh = !known.stale && since.is_none_or(|since| known.told_at >= since);
        fresh.then(|| known.topic.clone())
    }

    /// When the topic was told last.
    pub(super) fn told_at(&self, name: &TopicName) -> Option<Instant> {
        self.topics.get(name).map(|known| known.told_at)
    }

    /// The leader as far as it is known, fresh or not.
    pub(super) fn leader(&self, at: &TopicPartition) -> Option<Leader> {
        let known = self.topics.get(&at.topic)?;
        let topic = known.topic.as_ref().ok()?;
        topic.partitions.get(&at.partition).copied().flatten()
    }

    /// Topics that something went wrong with, or told before `since`.
    pub(super) fn due(&self, since: Option<Instant>) -> Vec<TopicName> {
        let topics = self.topics.iter();
        let due = topics
            .filter(|(_, known)| known.stale || since.is_some_and(|since| known.told_at < since));
        due.map(|(name, _)| name.clone()).collect()
    }

    /// What is known of a topic is not trusted any more.
    pub(super) fn mark_stale(&mut self, name: &TopicName) {
        if let Some(known) = self.topics.get_mut(name) {
            known.stale = true;
        }
    }

    /// The topic is of no interest any more.
    pub(super) fn forget(&mut self, name: &TopicName) {
        self.topics.remove(name);
    }

    /// A leader named in the answer of another call. True when that is news that can be used.
    pub(super) fn note_leader(
        &mut self,
        at: &TopicPartition,
        leader: Leader,
        nodes: &[Node],
    ) -> bool {
        if let Some(node) = nodes.iter().find(|node| node.id == leader.broker) {
            self.nodes.insert(node.id.0, node.clone());
        }
        if !self.nodes.contains_key(&leader.broker.0) {
            return false;
        }
        let Some(known) = self.topics.get_mut(&at.topic) else {
            return false;
        };
        let Ok(topic) = &mut known.topic else {
            return false;
        };
        let topic = Arc::make_mut(topic);
        match topic.partitions.get_mut(&at.partition) {
            Some(current) if current.is_none_or(|current| current.epoch < leader.epoch) => {
                *current = Some(leader);
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests;
