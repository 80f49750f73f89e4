//! The session's machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kafka_protocol::{
    messages::{
        FetchRequest, FetchResponse, TopicName as WireTopic,
        fetch_request::{FetchPartition, FetchTopic, ForgottenTopic},
        fetch_response::FetchableTopicResponse,
    },
    protocol::StrBytes,
};
use kreplicator_model::ids::{Offset, Partition, TopicName};

use super::{
    answer::{Answer, Fetched},
    request::{BY_ID, Request},
};
use crate::{
    cluster::offsets::Isolation,
    code::Code,
    error::Error,
    topic::{Node, TopicId, TopicPartition},
};

/// First version that has the leader's epoch.
const LEADER_EPOCH: i16 = 9;
/// First version that has the reader's rack.
const RACK: i16 = 11;
/// First version that has the epoch of the last record read.
const LAST_FETCHED_EPOCH: i16 = 12;
/// Epoch of a request that neither has a session nor wants one.
const NO_SESSION: i32 = -1;

/// Settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long the broker may wait for `bytes_min`.
    pub wait_max: Duration,
    /// Bytes that make the broker answer at once, from 1.
    pub bytes_min: i32,
    /// Bytes of records of an answer; the first batch is sent whole even if it is larger.
    pub bytes_max: i32,
    /// Where we stand (`client.rack`): the broker may name a nearer replica.
    pub rack: Option<String>,
    /// Up to where is read.
    pub isolation: Isolation,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait_max: Duration::from_millis(500),
            bytes_min: 1,
            bytes_max: 16 << 20,
            rack: None,
            isolation: Isolation::Committed,
        }
    }
}

/// Where a partition is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The next offset wanted.
    pub offset: Offset,
    /// Epoch of the leader as we know it: an old leader then refuses instead of giving what
    /// may be cut off.
    pub leader_epoch: Option<i32>,
    /// Epoch of the batch read last: the leader then tells if its log has parted from that.
    pub last_fetched_epoch: Option<i32>,
    /// Bytes of records for this partition in an answer.
    pub bytes_max: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    topic_id: Option<TopicId>,
    position: Position,
}

/// Where the conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next request names everything and opens a session; an old one is given up by it.
    Full {
        /// The session to give up; 0: none.
        old: i32,
    },
    /// The next request names what changed.
    Incremental {
        /// The session.
        id: i32,
        /// Number of the next request, from 1.
        epoch: i32,
    },
}

/// Which partitions are read from one broker, and the fetch session that tells it.
///
/// One request at a time: [`Session::next_request`], then [`Session::apply`] with its answer or
/// [`Session::lost`] when there was none. A session may outlive its connection.
///
/// A partition whose answer was not followed by [`Session::update`] is sent again: to pause one,
/// [`Session::remove`] it.
///
/// # Source
/// KIP-227 (sessions), KIP-516 (ids), KIP-392 (racks), KIP-320 and KIP-595 (epochs);
/// `FetchSessionHandler.java` of Kafka 4.3.1 for recovery.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    wanted: BTreeMap<TopicPartition, Entry>,
    /// What the broker has been told, and so what its answers are about.
    told: BTreeMap<TopicPartition, Entry>,
    /// Partitions where `wanted` and `told` may differ.
    changed: BTreeSet<TopicPartition>,
    names: BTreeMap<TopicId, TopicName>,
    /// How many of `wanted` have no topic id.
    without_id: usize,
    by_id: bool,
    stage: Stage,
    /// Where a full request begins, so that no partition is always last.
    rotation: usize,
    /// The broker keeps no session: each request names everything.
    is_sessionless: bool,
}

impl Session {
    /// A session without partitions.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            wanted: BTreeMap::new(),
            told: BTreeMap::new(),
            changed: BTreeSet::new(),
            names: BTreeMap::new(),
            without_id: 0,
            by_id: false,
            stage: Stage::Full { old: 0 },
            rotation: 0,
            is_sessionless: false,
        }
    }

    /// For a single question, or a few: the broker is asked to keep no session. It has room for a limited
    /// number (`max.incremental.fetch.session.cache.slots`, 1,000 by default), and one that nobody uses
    /// any more takes the place of others for minutes.
    ///
    /// # Source
    /// KIP-227, "Sessionless fetch": id 0 and epoch -1, as `FetchMetadata.LEGACY` of Kafka 4.3.1.
    #[must_use]
    pub fn sessionless(settings: Settings) -> Self {
        Self {
            is_sessionless: true,
            ..Self::new(settings)
        }
    }

    /// Reads `partition` from `position` on from the next request. With an id for every topic of
    /// the session (and a broker from 3.1), a topic created anew is an error instead of other
    /// records.
    pub fn update(
        &mut self,
        partition: TopicPartition,
        topic_id: Option<TopicId>,
        position: Position,
    ) {
        let entry = Entry { topic_id, position };
        let before = self.wanted.insert(partition.clone(), entry);
        let had_none = before.is_some_and(|entry| entry.topic_id.is_none());
        self.without_id += usize::from(topic_id.is_none());
        self.without_id -= usize::from(had_none);
        if let Some(id) = topic_id
            && before.is_none_or(|entry| entry.topic_id != topic_id)
        {
            self.names.insert(id, partition.topic.clone());
        }
        self.changed.insert(partition);
    }

    /// Reads `partition` no longer. Where it was read, if it was.
    pub fn remove(&mut self, partition: &TopicPartition) -> Option<Position> {
        let entry = self.wanted.remove(partition)?;
        self.without_id -= usize::from(entry.topic_id.is_none());
        self.changed.insert(partition.clone());
        Some(entry.position)
    }

    /// Where `partition` is read from the next request on.
    #[must_use]
    pub fn position(&self, partition: &TopicPartition) -> Option<Position> {
        self.wanted.get(partition).map(|entry| entry.position)
    }

    /// Number of partitions that are read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether nothing is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Changes how long the broker may wait and how much it may send, from the next request on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The request that was made last has no answer: everything is told anew. Nothing is lost,
    /// since positions move by [`Session::update`] alone.
    pub fn lost(&mut self) {
        let old = match self.stage {
            Stage::Full { old } => old,
            Stage::Incremental { id, .. } => id,
        };
        self.stage = Stage::Full { old };
    }

    /// The next request, for a connection that speaks `version`
    /// ([`Connection::version`](crate::connection::Connection::version)).
    #[must_use]
    pub fn next_request(&mut self, version: i16) -> Request {
        let by_id = version >= BY_ID && self.without_id == 0;
        if by_id != self.by_id || self.has_new_topic() {
            // A session goes by names or by ids, and by one id a topic.
            self.lost();
        }
        self.by_id = by_id;
        let (id, epoch) = match self.stage {
            Stage::Full { .. } if self.is_sessionless => (0, NO_SESSION),
            Stage::Full { old } => (old, 0),
            Stage::Incremental { id, epoch } => (id, epoch),
        };
        let mut message = FetchRequest::default()
            .with_max_wait_ms(i32::try_from(self.settings.wait_max.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(self.settings.bytes_min)
            .with_max_bytes(self.settings.bytes_max)
            .with_isolation_level(self.settings.isolation.level())
            .with_session_id(id)
            .with_session_epoch(epoch);
        if let Some(rack) = &self.settings.rack
            && version >= RACK
        {
            message.rack_id = StrBytes::from_string(rack.clone());
        }
        match self.stage {
            Stage::Full { .. } => self.tell_all(version, &mut message),
            Stage::Incremental { .. } => self.tell_changes(version, &mut message),
        }
        Request::new(message, by_id)
    }

    /// Whether a topic that the broker was told of goes by another id now.
    fn has_new_topic(&self) -> bool {
        self.changed.iter().any(|partition| {
            let wanted = self.wanted.get(partition);
            let told = self.told.get(partition);
            wanted.is_some_and(|wanted| told.is_some_and(|told| told.topic_id != wanted.topic_id))
        })
    }

    fn tell_all(&mut self, version: i16, message: &mut FetchRequest) {
        self.told = self.wanted.clone();
        self.changed.clear();
        // Ids of topics that are gone are of no use any more.
        let entries = self.told.iter();
        let names = entries.filter_map(|(at, entry)| Some((entry.topic_id?, at.topic.clone())));
        self.names = names.collect();
        for (partition, entry) in &self.told {
            add(&mut message.topics, partition, *entry, self.by_id, version);
        }
        if !message.topics.is_empty() {
            let by = self.rotation % message.topics.len();
            message.topics.rotate_left(by);
            self.rotation = self.rotation.wrapping_add(1);
        }
    }

    fn tell_changes(&mut self, version: i16, message: &mut FetchRequest) {
        for partition in std::mem::take(&mut self.changed) {
            match (self.wanted.get(&partition), self.told.get(&partition)) {
                (Some(wanted), told) if told != Some(wanted) => {
                    add(
                        &mut message.topics,
                        &partition,
                        *wanted,
                        self.by_id,
                        version,
                    );
                    self.told.insert(partition, *wanted);
                }
                (None, Some(told)) => {
                    forget(
                        &mut message.forgotten_topics_data,
                        &partition,
                        *told,
                        self.by_id,
                    );
                    self.told.remove(&partition);
                }
                (Some(_) | None, _) => {}
            }
        }
    }

    /// Digests the answer to the request that was made last.
    ///
    /// # Errors
    /// [`Error::Refused`] when the broker refuses the whole request. Loss of the session is no error:
    /// the answer is empty then, and the next request tells everything anew.
    pub fn apply(&mut self, response: FetchResponse) -> Result<Answer, Error> {
        match Code(response.error_code) {
            Code::NONE => {}
            Code::FETCH_SESSION_ID_NOT_FOUND => {
                self.stage = Stage::Full { old: 0 };
                return Ok(Answer::default());
            }
            Code::INVALID_FETCH_SESSION_EPOCH | Code::FETCH_SESSION_TOPIC_ID_ERROR => {
                self.lost();
                return Ok(Answer::default());
            }
            code => {
                self.lost();
                let what = "fetching".to_owned();
                return Err(Error::Refused { what, code });
            }
        }
        self.stage = match (self.stage, response.session_id) {
            // No room for a session at the broker: everything is named each time.
            (_, 0) => Stage::Full { old: 0 },
            _ if self.is_sessionless => Stage::Full { old: 0 },
            (Stage::Full { .. }, id) => Stage::Incremental { id, epoch: 1 },
            (Stage::Incremental { id, .. }, other) if id != other => Stage::Full { old: id },
            (Stage::Incremental { id, epoch }, _) => Stage::Incremental {
                id,
                epoch: epoch.checked_add(1).unwrap_or(1),
            },
        };
        let nodes = response.node_endpoints.iter().filter_map(|node| {
            Node::from_wire(node.node_id, &node.host, node.port, node.rack.as_deref())
        });
        let mut answer = Answer {
            partitions: Vec::new(),
            nodes: nodes.collect(),
        };
        for topic in response.responses {
            let Some(name) = self.topic_name(&topic) else {
                continue;
            };
            for data in topic.partitions {
                let number = Partition(data.partition_index);
                let partition = TopicPartition::new(name.clone(), number);
                let (wanted, told) = (self.wanted.get(&partition), self.told.get(&partition));
                if let (Some(wanted), Some(told)) = (wanted, told)
                    && wanted.position.offset == told.position.offset
                {
                    let offset = told.position.offset;
                    answer
                        .partitions
                        .push(Fetched::read(partition, offset, data));
                }
            }
        }
        Ok(answer)
    }

    /// None for topics that were never asked for.
    fn topic_name(&self, topic: &FetchableTopicResponse) -> Option<TopicName> {
        if self.by_id {
            self.names.get(&topic.topic_id).cloned()
        } else {
            TopicName::new(topic.topic.as_str()).ok()
        }
    }
}

/// The name as messages carry it; empty where the id takes its place.
fn wire_name(topic: &TopicName, by_id: bool) -> WireTopic {
    if by_id {
        WireTopic::default()
    } else {
        WireTopic(StrBytes::from_string(topic.as_str().to_owned()))
    }
}

fn add(topics: &mut Vec<FetchTopic>, at: &TopicPartition, entry: Entry, by_id: bool, version: i16) {
    let position = entry.position;
    let mut partition = FetchPartition::default()
        .with_partition(at.partition.0)
        .with_fetch_offset(position.offset.0)
        .with_partition_max_bytes(position.bytes_max);
    if version >= LEADER_EPOCH {
        partition.current_leader_epoch = position.leader_epoch.unwrap_or(-1);
    }
    if version >= LAST_FETCHED_EPOCH {
        partition.last_fetched_epoch = position.last_fetched_epoch.unwrap_or(-1);
    }
    let topic_id = entry.topic_id.filter(|_| by_id).unwrap_or_default();
    let name = wire_name(&at.topic, by_id);
    // Partitions come in order, so those of a topic follow each other.
    match topics.last_mut() {
        Some(last) if last.topic_id == topic_id && last.topic == name => {
            last.partitions.push(partition);
        }
        Some(_) | None => topics.push(
            FetchTopic::default()
                .with_topic(name)
                .with_topic_id(topic_id)
                .with_partitions(vec![partition]),
        ),
    }
}

fn forget(topics: &mut Vec<ForgottenTopic>, at: &TopicPartition, entry: Entry, by_id: bool) {
    let topic_id = entry.topic_id.filter(|_| by_id).unwrap_or_default();
    let name = wire_name(&at.topic, by_id);
    match topics.last_mut() {
        Some(last) if last.topic_id == topic_id && last.topic == name => {
            last.partitions.push(at.partition.0);
        }
        Some(_) | None => topics.push(
            ForgottenTopic::default()
                .with_topic(name)
                .with_topic_id(topic_id)
                .with_partitions(vec![at.partition.0]),
        ),
    }
}

#[cfg(test)]
mod tests;
