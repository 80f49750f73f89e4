//! Partitions, brokers and leaders as the client speaks of them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kafka_protocol::{messages::TopicName as WireTopic, protocol::StrBytes};
use kreplicator_model::ids::{Partition, TopicName};

pub use kafka_protocol::messages::BrokerId;

/// Kafka's id of a topic (KIP-516): another one after the topic was deleted and created anew.
pub type TopicId = uuid::Uuid;

/// One partition of one topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    #[must_use]
    pub fn new(topic: TopicName, partition: Partition) -> Self {
        Self { topic, partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A topic's name as messages carry it.
pub(crate) fn to_wire(name: &TopicName) -> WireTopic {
    WireTopic(StrBytes::from_string(name.as_str().to_owned()))
}

/// What belongs to partitions, grouped by topic as messages want it, in order.
pub(crate) fn by_topic<'a, T>(
    partitions: impl IntoIterator<Item = (&'a TopicPartition, T)>,
) -> BTreeMap<&'a TopicName, Vec<(Partition, T)>> {
    let mut topics: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, of) in partitions {
        let topic = topics.entry(&at.topic).or_default();
        topic.push((at.partition, of));
    }
    topics
}

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// The broker.
    pub broker: BrokerId,
    /// Number of its leadership; None where the broker is too old to tell (before 2.1).
    pub epoch: Option<i32>,
}

impl Leader {
    /// As messages carry it: −1 stands for unknown.
    pub(crate) fn from_wire(broker: BrokerId, epoch: i32) -> Option<Self> {
        (broker.0 >= 0).then_some(Self {
            broker,
            epoch: (epoch >= 0).then_some(epoch),
        })
    }
}

/// A broker and where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: BrokerId,
    /// Host name or address; looked up anew at each connection.
    pub host: Arc<str>,
    /// Port, from 1.
    pub port: u16,
    /// Where it stands (`broker.rack`).
    pub rack: Option<Arc<str>>,
}

impl Node {
    /// As messages carry it; None when the port is not one.
    pub(crate) fn from_wire(
        id: BrokerId,
        host: &str,
        port: i32,
        rack: Option<&str>,
    ) -> Option<Self> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        Some(Self {
            id,
            host: Arc::from(host),
            port,
            rack: rack.map(Arc::from),
        })
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
