//! Writing of record batches: one batch for each of several partitions a request, acknowledged by
//! all in-sync replicas. Batches are sent from where they lie.

mod answer;

use std::{collections::BTreeMap, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use kreplicator_model::ids::{Partition, TopicName};
use tokio::time::Instant;

pub use self::answer::{Answer, PartitionAnswer, RecordError};
use crate::{
    connection::{Connection, Pending},
    error::Error,
    parts::Parts,
    topic::{TopicId, TopicPartition},
};

/// First version with compact lengths and tagged fields.
const FLEXIBLE: i16 = 9;
/// First version that names topics by id.
const BY_ID: i16 = 13;
/// Acknowledged by all in-sync replicas.
const ACKS_ALL: i16 = -1;

/// One record batch for one partition.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The topic.
    pub topic: TopicName,
    /// Its id, where known. With it (and a broker from 4.1) a topic that was deleted and created
    /// anew refuses the batch instead of taking it.
    pub topic_id: Option<TopicId>,
    /// The partition.
    pub partition: Partition,
    /// Exactly one batch of format v2, in parts that follow each other: the header may so be new and the
    /// records shared.
    pub records: Vec<Bytes>,
}

impl Batch {
    /// Length of the records in bytes.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

/// A produce request.
#[derive(Debug, Clone)]
pub struct Request {
    timeout_ms: i32,
    topics: BTreeMap<TopicName, TopicBatches>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct TopicBatches {
    id: Option<TopicId>,
    batches: BTreeMap<Partition, Vec<Bytes>>,
}

impl Request {
    /// A request without batches. The broker waits up to `timeout` for its replicas.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            topics: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// Gives it back when the request has one of this partition already (brokers take one a request), or
    /// one of the same topic under another id.
    pub fn add(&mut self, batch: Batch) -> Result<(), Batch> {
        let topic = self.topics.get(&batch.topic);
        let clash = topic.is_some_and(|topic| {
            topic.id != batch.topic_id || topic.batches.contains_key(&batch.partition)
        });
        if clash {
            return Err(batch);
        }
        self.bytes += batch.record_bytes();
        self.topics
            .entry(batch.topic)
            .or_insert_with(|| TopicBatches {
                id: batch.topic_id,
                batches: BTreeMap::new(),
            })
            .batches
            .insert(batch.partition, batch.records);
        Ok(())
    }

    /// Length of all records in bytes.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Writes the request to a connection; see [`Connection::submit`]. Up to five may be in flight for a
    /// partition with a producer id.
    ///
    /// # Errors
    /// As [`Connection::submit`].
    pub async fn submit(
        self,
        connection: &Connection,
        deadline: Instant,
    ) -> Result<InFlight, Error> {
        let asked = Asked::of(&self);
        let pending = connection.submit(self, deadline).await?;
        Ok(InFlight {
            asked,
            pending,
            broker: connection.broker().clone(),
        })
    }

    /// Ids of all topics are needed to speak the newest version.
    pub(crate) fn highest_version(&self) -> i16 {
        if self.topics.values().all(|topic| topic.id.is_some()) {
            BY_ID
        } else {
            BY_ID - 1
        }
    }

    /// Appends the body in `version`, 7 to 13.
    ///
    /// # Source
    /// `ProduceRequest.json` of Kafka 4.1.
    pub(crate) fn write(&self, version: i16, parts: &mut Parts) {
        let flexible = version >= FLEXIBLE;
        let tail = parts.tail();
        // No transactional id.
        if flexible {
            tail.put_u8(0);
        } else {
            tail.put_i16(-1);
        }
        tail.put_i16(ACKS_ALL);
        tail.put_i32(self.timeout_ms);
        put_length(tail, self.topics.len(), flexible);
        for (name, topic) in &self.topics {
            let tail = parts.tail();
            match topic.id {
                Some(id) if version >= BY_ID => tail.put_slice(id.as_bytes()),
                Some(_) | None => put_name(tail, name, flexible),
            }
            put_length(tail, topic.batches.len(), flexible);
            for (partition, records) in &topic.batches {
                let tail = parts.tail();
                tail.put_i32(partition.0);
                let bytes = records.iter().map(Bytes::len).sum();
                put_length(tail, bytes, flexible);
                for part in records {
                    parts.share(part);
                }
                put_no_tags(parts.tail(), flexible);
            }
            put_no_tags(parts.tail(), flexible);
        }
        put_no_tags(parts.tail(), flexible);
    }
}

/// A length or count: compact ones are one more, because 0 stands for null.
fn put_length(out: &mut BytesMut, length: usize, flexible: bool) {
    // What does not fit here is far above the limit of a frame and never sent.
    let length = u32::try_from(length).unwrap_or(u32::MAX - 1);
    if !flexible {
        out.put_u32(length);
        return;
    }
    let mut value = length.saturating_add(1);
    while value >= 0x80 {
        out.put_u8((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn put_name(out: &mut BytesMut, name: &TopicName, flexible: bool) {
    let name = name.as_str().as_bytes();
    if flexible {
        put_length(out, name.len(), true);
    } else {
        // Names are at most 249 bytes.
        out.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
    }
    out.put_slice(name);
}

fn put_no_tags(out: &mut BytesMut, flexible: bool) {
    if flexible {
        out.put_u8(0);
    }
}

/// What was asked for, to make sense of the answer.
#[derive(Debug)]
pub(crate) struct Asked {
    ids: BTreeMap<TopicId, TopicName>,
    partitions: std::collections::BTreeSet<TopicPartition>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let topics = request.topics.iter();
        let ids = topics.filter_map(|(name, topic)| Some((topic.id?, name.clone())));
        let partitions = request.topics.iter().flat_map(|(name, topic)| {
            let numbers = topic.batches.keys();
            numbers.map(|partition| TopicPartition::new(name.clone(), *partition))
        });
        Self {
            ids: ids.collect(),
            partitions: partitions.collect(),
        }
    }
}

/// A produce request that was written and is not answered yet.
#[derive(Debug)]
#[must_use = "the answer tells whether it was written"]
pub struct InFlight {
    asked: Asked,
    pending: Pending<Request>,
    broker: std::sync::Arc<str>,
}

impl InFlight {
    /// Waits for the answer; it tells of every partition asked for.
    ///
    /// # Errors
    /// As [`Connection::send`]. Whether the batches were written is not known then.
    pub async fn answer(self) -> Result<Answer, Error> {
        let response = self.pending.answer().await?;
        Answer::read(response, &self.asked).map_err(|cause| Error::Malformed {
            broker: self.broker,
            api: "Produce",
            cause,
        })
    }
}

#[cfg(test)]
mod tests;
