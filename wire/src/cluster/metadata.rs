//! What is known of a cluster: brokers, and the topics that somebody asks for. Newer leaderships win
//! over older ones, wherever they were heard of (KIP-320). Topics that nobody asks for any more are
//! dropped after a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

/// Where no topic id tells a topic made anew from a broker that has not heard of a leadership yet, a
/// lower epoch that is told this often in a row is taken for the former. A guess: brokers hear of each
/// other's news within some milliseconds, and refreshes have pauses between them.
const LOWER_TOLD_MAX: u32 = 3;

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
    /// It was told with an error, or something went wrong with it since.
    stale: bool,
    /// Somebody wanted to know last.
    used_at: Instant,
    /// How often in a row a partition was told with an older leadership than the one known.
    lower_told: BTreeMap<Partition, u32>,
}

impl Known {
    /// Keeps what was known of leaderships that are newer than what was told now.
    fn keep_newer(&mut self, before: &Self) {
        let (Ok(topic), Ok(before_topic)) = (&mut self.topic, &before.topic) else {
            return;
        };
        if topic.id != before_topic.id {
            return;
        }
        let is_same_for_sure = topic.id.is_some();
        for (partition, leader) in &mut Arc::make_mut(topic).partitions {
            let known = before_topic.partitions.get(partition).copied().flatten();
            if let (Some(known), Some(told)) = (known, *leader)
                && known.epoch > told.epoch
            {
                let times = before
                    .lower_told
                    .get(partition)
                    .map_or(1, |times| times + 1);
                if is_same_for_sure || times < LOWER_TOLD_MAX {
                    *leader = Some(known);
                    self.lower_told.insert(*partition, times);
                }
            }
        }
    }
}

/// What is known of a cluster.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    cluster_id: Option<String>,
    nodes: BTreeMap<i32, Node>,
    topics: BTreeMap<TopicName, Known>,
    /// Topics that somebody waits for: whoever asks next asks for all of them.
    wanted: BTreeSet<TopicName>,
}

impl Metadata {
    /// Takes over an answer to a question for `asked`, which is sorted by name. An error of a topic holds
    /// for those who asked by now: who asks later wants to know whether it has passed.
    pub(super) fn apply(&mut self, asked: &[TopicName], response: &MetadataResponse, now: Instant) {
        debug_assert!(asked.is_sorted(), "{asked:?}");
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
            let found = asked.binary_search_by(|asked| asked.as_str().cmp(name.as_str()));
            let Ok(name) = found.map(|index| &asked[index]) else {
                continue;
            };
            let told = match Code(topic.error_code).fault() {
                Some(code) => Err(code),
                None => Ok(Arc::new(Topic::read(name.clone(), topic))),
            };
            let before = self.topics.get(name);
            let mut known = Known {
                stale: told.is_err(),
                topic: told,
                told_at: now,
                used_at: before.map_or(now, |before| before.used_at),
                lower_told: BTreeMap::new(),
            };
            if let Some(before) = before {
                known.keep_newer(before);
            }
            self.topics.insert(name.clone(), known);
        }
        for name in asked {
            self.wanted.remove(name);
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

    /// What was told of the topic last, whatever became of it since.
    pub(super) fn told(&self, name: &TopicName) -> Option<Result<Arc<Topic>, Code>> {
        self.topics.get(name).map(|known| known.topic.clone())
    }

    /// When the topic was told last.
    pub(super) fn told_at(&self, name: &TopicName) -> Option<Instant> {
        self.topics.get(name).map(|known| known.told_at)
    }

    /// The leader as far as it is known, fresh or not.
    #[cfg(test)]
    pub(super) fn leader(&self, at: &TopicPartition) -> Option<Leader> {
        let known = self.topics.get(&at.topic)?;
        let topic = known.topic.as_ref().ok()?;
        topic.partitions.get(&at.partition).copied().flatten()
    }

    /// Topics to ask for: those that somebody waits for, that something went wrong with, or told before
    /// `since`.
    pub(super) fn due(&self, since: Option<Instant>) -> Vec<TopicName> {
        let topics = self.topics.iter();
        let due = topics
            .filter(|(_, known)| known.stale || since.is_some_and(|since| known.told_at < since));
        let due = due.map(|(name, _)| name).chain(&self.wanted);
        let due: BTreeSet<_> = due.collect();
        due.into_iter().cloned().collect()
    }

    /// Somebody needs to know of these topics.
    pub(super) fn note_use(&mut self, names: &[TopicName], now: Instant) {
        for name in names {
            if let Some(known) = self.topics.get_mut(name) {
                known.used_at = now;
            }
        }
    }

    /// Somebody waits for these topics to be told.
    pub(super) fn want(&mut self, names: &[TopicName]) {
        self.wanted.extend(names.iter().cloned());
    }

    /// Drops topics that nobody wanted to know of since `oldest`.
    pub(super) fn drop_idle(&mut self, oldest: Instant) {
        self.topics.retain(|_, known| known.used_at >= oldest);
    }

    /// What is known of a topic is not trusted any more.
    pub(super) fn mark_stale(&mut self, name: &TopicName) {
        if let Some(known) = self.topics.get_mut(name) {
            known.stale = true;
        }
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
