//! What a worker shall run (`plan/assignment/…`) and what it runs (`owned/…`), chunk by chunk, as
//! checked maps.

use std::{collections::BTreeMap, time::Duration};

use kreplicator_model::{
    ids::{LinkId, LinkTopic, OwnerEpoch, Partition, PlanGeneration, TaskId, TopicName},
    ownership::Owned,
    spec::StartPolicy,
    target_limits::TargetLimits,
};

use crate::{
    fault::{Faults, FieldFault},
    v1,
};

/// One chunk of a worker's assignment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    /// The plan that wrote this value last.
    pub generation: PlanGeneration,
    /// The topics of this chunk.
    pub topics: BTreeMap<LinkTopic, AssignedTopic>,
}

/// One topic of a link as assigned to one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedTopic {
    /// Topic written to.
    pub target_topic: TopicName,
    /// Where partitions below `first_partitions` begin when no checkpoint exists.
    pub start: StartPolicy,
    /// Partitions from here on appeared later and begin at offset 0.
    pub first_partitions: i32,
    /// The partitions assigned, with the plan generation that gave each to this worker.
    pub partitions: BTreeMap<Partition, OwnerEpoch>,
    /// What the target topic refuses.
    pub limits: TargetLimits,
}

impl AssignedTopic {
    /// Where this partition begins when no checkpoint exists.
    #[must_use]
    pub fn start_of(&self, partition: Partition) -> StartPolicy {
        if partition.0 < self.first_partitions {
            self.start
        } else {
            StartPolicy::Earliest
        }
    }
}

impl Assignment {
    /// Every task of the chunk with its epoch.
    #[must_use]
    pub fn tasks(&self) -> BTreeMap<TaskId, OwnerEpoch> {
        self.topics
            .iter()
            .flat_map(|(topic, assigned)| {
                assigned
                    .partitions
                    .iter()
                    .map(|(partition, epoch)| (task_id(topic, *partition), *epoch))
            })
            .collect()
    }
}

/// One chunk of what a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ownership {
    /// Mod revision of the assignment chunk that was acted on; 0: none yet.
    pub applied_revision: i64,
    /// The registration that this belongs to.
    pub incarnation: String,
    /// The tasks that run, or may still run.
    pub tasks: BTreeMap<TaskId, Owned>,
}

fn task_id(topic: &LinkTopic, partition: Partition) -> TaskId {
    TaskId {
        link: topic.link.clone(),
        topic: topic.topic.clone(),
        partition,
    }
}

/// Link and topic of one entry.
fn link_topic(faults: &mut Faults, path: &str, link: &str, topic: &str) -> Option<LinkTopic> {
    let link = faults.take(format!("{path}.link"), LinkId::new(link));
    let topic = faults.take(format!("{path}.topic"), TopicName::new(topic));
    link.zip(topic)
        .map(|(link, topic)| LinkTopic { link, topic })
}

/// Notes a negative partition.
fn partition(faults: &mut Faults, path: &str, number: i32) -> Partition {
    if number < 0 {
        faults.add(path, format!("partition {number} is negative"));
    }
    Partition(number)
}

impl TryFrom<&v1::AssignmentChunk> for Assignment {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::AssignmentChunk) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let mut topics = BTreeMap::new();
        for (index, entry) in message.topics.iter().enumerate() {
            let path = format!("topics[{index}]");
            let topic = link_topic(&mut faults, &path, &entry.link, &entry.topic);
            let assigned = faults.part(&path, AssignedTopic::try_from(entry));
            if let Some((topic, assigned)) = topic.zip(assigned) {
                if let Some(epoch) = assigned
                    .partitions
                    .values()
                    .find(|epoch| epoch.0 > message.generation)
                {
                    faults.add(
                        path.clone(),
                        format!("epoch {epoch} is above generation {}", message.generation),
                    );
                }
                if topics.insert(topic.clone(), assigned).is_some() {
                    faults.add(path, format!("topic {topic} is listed twice"));
                }
            }
        }
        faults.finish(Some(Self {
            generation: PlanGeneration(message.generation),
            topics,
        }))
    }
}

impl TryFrom<&v1::AssignedTopic> for AssignedTopic {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::AssignedTopic) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let target_topic = faults.take("target_topic", TopicName::new(&message.target_topic));
        let start = match &message.start {
            Some(start) => faults.part("start", StartPolicy::try_from(start)),
            None => {
                faults.add("start", "is missing");
                None
            }
        };
        if message.first_partitions < 0 {
            faults.add("first_partitions", "is negative");
        }
        let mut partitions = BTreeMap::new();
        for (index, entry) in message.partitions.iter().enumerate() {
            let path = format!("partitions[{index}]");
            let partition = partition(&mut faults, &path, entry.partition);
            if partitions
                .insert(partition, OwnerEpoch(entry.epoch))
                .is_some()
            {
                faults.add(path, format!("partition {partition} is listed twice"));
            }
        }
        let limits = match &message.target_limits {
            Some(limits) => faults.part("target_limits", TargetLimits::try_from(limits)),
            None => Some(TargetLimits::default()),
        };
        let whole = || {
            Some(Self {
                target_topic: target_topic?,
                start: start?,
                first_partitions: message.first_partitions,
                partitions,
                limits: limits?,
            })
        };
        faults.finish(whole())
    }
}

impl TryFrom<&v1::TargetLimits> for TargetLimits {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::TargetLimits) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let mut number = |path: &str, value: Option<i64>| {
            let value = value?;
            let number = u64::try_from(value).ok();
            if number.is_none() {
                faults.add(path, format!("{value} is negative"));
            }
            number
        };
        let max_message_bytes = number("max_message_bytes", message.max_message_bytes);
        let before = number("timestamp_before_max_ms", message.timestamp_before_max_ms);
        let after = number("timestamp_after_max_ms", message.timestamp_after_max_ms);
        faults.finish(Some(Self {
            max_message_bytes,
            timestamp_before_max: before.map(Duration::from_millis),
            timestamp_after_max: after.map(Duration::from_millis),
            compacted: message.compacted,
            log_append_time: message.log_append_time,
        }))
    }
}

impl TryFrom<&v1::OwnedChunk> for Ownership {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::OwnedChunk) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        if message.applied_revision < 0 {
            faults.add("applied_revision", "is negative");
        }
        let mut tasks = BTreeMap::new();
        for (index, entry) in message.topics.iter().enumerate() {
            let path = format!("topics[{index}]");
            let Some(topic) = link_topic(&mut faults, &path, &entry.link, &entry.topic) else {
                continue;
            };
            for owned in &entry.partitions {
                let partition = partition(&mut faults, &path, owned.partition);
                let task = Owned {
                    epoch: OwnerEpoch(owned.epoch),
                    stopping: owned.stopping,
                };
                let id = task_id(&topic, partition);
                if tasks.insert(id, task).is_some() {
                    faults.add(
                        path.clone(),
                        format!("partition {partition} is listed twice"),
                    );
                }
            }
        }
        faults.finish(Some(Self {
            applied_revision: message.applied_revision,
            incarnation: message.incarnation.clone(),
            tasks,
        }))
    }
}

impl From<&Assignment> for v1::AssignmentChunk {
    fn from(assignment: &Assignment) -> Self {
        let topics = assignment.topics.iter();
        Self {
            generation: assignment.generation.0,
            topics: topics
                .map(|(topic, assigned)| v1::AssignedTopic {
                    link: topic.link.to_string(),
                    topic: topic.topic.to_string(),
                    target_topic: assigned.target_topic.to_string(),
                    start: Some(v1::StartPolicy::from(&assigned.start)),
                    first_partitions: assigned.first_partitions,
                    partitions: assigned
                        .partitions
                        .iter()
                        .map(|(partition, epoch)| v1::AssignedPartition {
                            partition: partition.0,
                            epoch: epoch.0,
                        })
                        .collect(),
                    target_limits: (assigned.limits != TargetLimits::default())
                        .then(|| v1::TargetLimits::from(&assigned.limits)),
                })
                .collect(),
        }
    }
}

impl From<&TargetLimits> for v1::TargetLimits {
    fn from(limits: &TargetLimits) -> Self {
        let millis = |duration: Option<Duration>| {
            duration.map(|duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
        };
        Self {
            max_message_bytes: limits
                .max_message_bytes
                .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            timestamp_before_max_ms: millis(limits.timestamp_before_max),
            timestamp_after_max_ms: millis(limits.timestamp_after_max),
            compacted: limits.compacted,
            log_append_time: limits.log_append_time,
        }
    }
}

impl From<&Ownership> for v1::OwnedChunk {
    fn from(owned: &Ownership) -> Self {
        let mut topics: Vec<v1::OwnedTopic> = Vec::new();
        for (id, task) in &owned.tasks {
            let partition = v1::OwnedPartition {
                partition: id.partition.0,
                epoch: task.epoch.0,
                stopping: task.stopping,
            };
            match topics.last_mut() {
                Some(last) if last.link == id.link.as_str() && last.topic == id.topic.as_str() => {
                    last.partitions.push(partition);
                }
                Some(_) | None => topics.push(v1::OwnedTopic {
                    link: id.link.to_string(),
                    topic: id.topic.to_string(),
                    partitions: vec![partition],
                }),
            }
        }
        Self {
            applied_revision: owned.applied_revision,
            incarnation: owned.incarnation.clone(),
            topics,
        }
    }
}
