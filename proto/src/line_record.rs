//! The countings of a topic's partitions, and a link's producer id, as stored.

use std::collections::BTreeMap;

use kreplicator_model::{
    exact::{Line, ProducerEpoch, ProducerId},
    ids::{ClusterId, Offset, OwnerEpoch, Partition, TopicName, UnixMillis, WorkerId},
};

use crate::{
    fault::{Faults, FieldFault},
    stored::present,
    v1,
};

/// Value of `line/<link>/<topic>`: the lines of all partitions of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRecord {
    /// Our name of the cluster that the lines are for.
    pub target: ClusterId,
    /// Kafka's own id of it; None: not known.
    pub target_cluster_id: Option<String>,
    /// Topic that the lines are for.
    pub target_topic: TopicName,
    /// Kafka's id of that topic; None: not known.
    pub target_topic_id: Option<String>,
    /// The line of each partition that was ever begun.
    pub lines: BTreeMap<Partition, LineEntry>,
}

/// A line with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineEntry {
    /// The line.
    pub line: Line,
    /// When it was written, by the writer's clock. For people; nothing is decided by it.
    pub written_at: UnixMillis,
    /// Who wrote it.
    pub worker: WorkerId,
    /// The ownership under which it was written.
    pub owner_epoch: OwnerEpoch,
}

/// Value of `producer/<link>`: the producer id that serves all tasks of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerRecord {
    /// The id.
    pub producer_id: ProducerId,
    /// Our name of the cluster that gave it out.
    pub target: ClusterId,
    /// Kafka's own id of it; None: not known.
    pub target_cluster_id: Option<String>,
}

impl TryFrom<&v1::LineRecord> for LineRecord {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::LineRecord) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let target = faults.take("target", ClusterId::new(&message.target));
        let target_topic = faults.take("target_topic", TopicName::new(&message.target_topic));
        let mut lines = BTreeMap::new();
        for (index, partition) in message.partitions.iter().enumerate() {
            let path = format!("partitions[{index}]");
            let number = Partition(partition.partition);
            let entry = faults.part(&path, LineEntry::try_from(partition));
            if let Some(entry) = entry
                && lines.insert(number, entry).is_some()
            {
                faults.add(path, format!("partition {number} is given twice"));
            }
        }
        let whole = || {
            Some(Self {
                target: target?,
                target_cluster_id: present(&message.target_cluster_id),
                target_topic: target_topic?,
                target_topic_id: present(&message.target_topic_id),
                lines,
            })
        };
        faults.finish(whole())
    }
}

impl TryFrom<&v1::PartitionLine> for LineEntry {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::PartitionLine) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        for (path, number) in [
            ("partition", i64::from(message.partition)),
            ("producer_id", message.producer_id),
            ("base", message.base),
            ("target_from", message.target_from),
        ] {
            if number < 0 {
                faults.add(path, format!("{number} is negative"));
            }
        }
        let epoch = i16::try_from(message.producer_epoch).ok();
        let epoch = epoch.filter(|epoch| *epoch >= 0);
        if epoch.is_none() {
            let epoch = message.producer_epoch;
            faults.add("producer_epoch", format!("{epoch} is out of range"));
        }
        let worker = faults.take("worker", WorkerId::new(&message.worker));
        let whole = || {
            Some(Self {
                line: Line {
                    producer_id: ProducerId(message.producer_id),
                    producer_epoch: ProducerEpoch(epoch?),
                    base: Offset(message.base),
                    target_from: Offset(message.target_from),
                },
                written_at: UnixMillis(message.written_at_ms),
                worker: worker?,
                owner_epoch: OwnerEpoch(message.owner_epoch),
            })
        };
        faults.finish(whole())
    }
}

impl TryFrom<&v1::ProducerRecord> for ProducerRecord {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::ProducerRecord) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let target = faults.take("target", ClusterId::new(&message.target));
        if message.producer_id < 0 {
            let id = message.producer_id;
            faults.add("producer_id", format!("{id} is negative"));
        }
        faults.finish(target.map(|target| Self {
            producer_id: ProducerId(message.producer_id),
            target,
            target_cluster_id: present(&message.target_cluster_id),
        }))
    }
}

impl From<&LineRecord> for v1::LineRecord {
    fn from(record: &LineRecord) -> Self {
        let partitions = record.lines.iter();
        Self {
            target: record.target.to_string(),
            target_cluster_id: record.target_cluster_id.clone().unwrap_or_default(),
            target_topic: record.target_topic.to_string(),
            target_topic_id: record.target_topic_id.clone().unwrap_or_default(),
            partitions: partitions
                .map(|(partition, entry)| v1::PartitionLine {
                    partition: partition.0,
                    producer_id: entry.line.producer_id.0,
                    producer_epoch: i32::from(entry.line.producer_epoch.0),
                    base: entry.line.base.0,
                    target_from: entry.line.target_from.0,
                    written_at_ms: entry.written_at.0,
                    worker: entry.worker.to_string(),
                    owner_epoch: entry.owner_epoch.0,
                })
                .collect(),
        }
    }
}

impl From<&ProducerRecord> for v1::ProducerRecord {
    fn from(record: &ProducerRecord) -> Self {
        Self {
            producer_id: record.producer_id.0,
            target: record.target.to_string(),
            target_cluster_id: record.target_cluster_id.clone().unwrap_or_default(),
        }
    }
}
