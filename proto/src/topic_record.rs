//! What was learned about a topic of a link, as stored.

use kreplicator_model::{
    ids::{ClusterId, TopicName, UnixMillis},
    resolve::TopicRecord,
    spec::StartPolicy,
};

use crate::{
    fault::{Faults, FieldFault},
    stored::present,
    v1,
};

impl TryFrom<&v1::TopicRecord> for TopicRecord {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::TopicRecord) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let target = faults.take("target", ClusterId::new(&message.target));
        let target_topic = faults.take("target_topic", TopicName::new(&message.target_topic));
        let start = match &message.start {
            Some(start) => faults.part("start", StartPolicy::try_from(start)),
            None => {
                faults.add("start", "is missing");
                None
            }
        };
        for (path, partitions) in [
            ("first_partitions", message.first_partitions),
            ("partitions", message.partitions),
            ("target_partitions", message.target_partitions),
        ] {
            if partitions < 0 {
                faults.add(path, format!("{partitions} is negative"));
            }
        }
        let mut origin_clusters = Vec::with_capacity(message.origin_clusters.len());
        for (index, cluster) in message.origin_clusters.iter().enumerate() {
            let path = format!("origin_clusters[{index}]");
            origin_clusters.extend(faults.take(path, ClusterId::new(cluster)));
        }
        let whole = || {
            Some(Self {
                target: target?,
                target_topic: target_topic?,
                first_partitions: message.first_partitions,
                partitions: message.partitions,
                target_partitions: message.target_partitions,
                source_gone: message.source_gone,
                start: start?,
                first_seen: UnixMillis(message.first_seen_ms),
                origin_clusters,
                source_cluster_id: present(&message.source_cluster_id),
                target_cluster_id: present(&message.target_cluster_id),
                source_topic_id: present(&message.source_topic_id),
            })
        };
        faults.finish(whole())
    }
}

impl From<&TopicRecord> for v1::TopicRecord {
    fn from(record: &TopicRecord) -> Self {
        Self {
            target: record.target.to_string(),
            target_topic: record.target_topic.to_string(),
            first_partitions: record.first_partitions,
            start: Some(v1::StartPolicy::from(&record.start)),
            first_seen_ms: record.first_seen.0,
            source_cluster_id: record.source_cluster_id.clone().unwrap_or_default(),
            target_cluster_id: record.target_cluster_id.clone().unwrap_or_default(),
            source_topic_id: record.source_topic_id.clone().unwrap_or_default(),
            origin_clusters: record
                .origin_clusters
                .iter()
                .map(ToString::to_string)
                .collect(),
            partitions: record.partitions,
            target_partitions: record.target_partitions,
            source_gone: record.source_gone,
        }
    }
}
