//! Which topics exist on the sources, as far as it is certain. Pure.
//!
//! A topic that is copied is believed to be gone when its cluster said so twice and still shows
//! others. A cluster that shows none of them any more has more likely taken away the right to see
//! them: no data means wait.

use std::collections::BTreeMap;

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, LinkTopic, TopicName},
    resolve::{Inventory, SourceTopic, TopicRecord},
};

use crate::discovery::Snapshot;

/// From how many topics on it is suspicious that all are gone at once. A guess: people delete one or
/// two topics at a time.
const SUSPICIOUS_FROM: usize = 3;

/// Topics by source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sources {
    /// What to plan with.
    pub(crate) inventory: Inventory,
    /// Clusters that show none of this many topics that are copied from them.
    pub(crate) suspicious: BTreeMap<ClusterId, usize>,
}

/// What exists, from what discovery sees and what was there before.
#[must_use]
pub(crate) fn sources(
    desired: &Desired,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    snapshot: &Snapshot,
) -> Sources {
    let mut copied: BTreeMap<&ClusterId, BTreeMap<&TopicName, i32>> = BTreeMap::new();
    for (id, record) in records {
        if let Some(link) = desired.links.get(&id.link)
            && !record.source_gone
        {
            let topics = copied.entry(&link.source).or_default();
            let partitions = topics.entry(&id.topic).or_default();
            *partitions = record.partitions.max(*partitions);
        }
    }
    let mut sources = Sources::default();
    for (cluster, seen) in snapshot {
        let Some(seen) = &seen.topics else {
            continue;
        };
        let mut topics = seen.topics.clone();
        let copied = copied.remove(cluster).unwrap_or_default();
        let all_gone = copied.len() >= SUSPICIOUS_FROM
            && !copied.keys().any(|topic| topics.contains_key(*topic));
        if all_gone && seen.confirmed {
            sources.suspicious.insert(cluster.clone(), copied.len());
        }
        if all_gone || !seen.confirmed {
            for (topic, partitions) in copied {
                let known = topics.entry(topic.clone()).or_insert(SourceTopic {
                    partitions,
                    topic_id: None,
                });
                known.partitions = known.partitions.max(partitions);
            }
        }
        sources.inventory.insert(cluster.clone(), topics);
    }
    sources
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        discovery::{ClusterSnapshot, ClusterTopics},
        reconcile::fixtures::{cluster, link, record, topic},
    };

    /// What is planned with, when `copied` were copied with 4 partitions each and `seen` is seen now.
    fn planned(
        copied: &[&str],
        seen: &[(&str, i32)],
        confirmed: bool,
    ) -> (Vec<(String, i32)>, bool) {
        let desired = Desired {
            links: [(link().id, link())].into(),
            ..Desired::default()
        };
        let records: BTreeMap<_, _> = copied
            .iter()
            .map(|name| (topic(name), record(name, 4, 4)))
            .collect();
        let seen = seen.iter().map(|(name, partitions)| {
            let source = SourceTopic {
                partitions: *partitions,
                topic_id: None,
            };
            (topic(name).topic, source)
        });
        let known = ClusterSnapshot {
            topics: Some(Arc::new(ClusterTopics {
                topics: seen.collect(),
                confirmed,
                kafka_cluster_id: None,
                brokers: 1,
            })),
            ..ClusterSnapshot::default()
        };
        let snapshot = [(cluster("a"), known)].into();
        let sources = sources(&desired, &records, &snapshot);
        let topics = sources.inventory[&cluster("a")].iter();
        let topics = topics.map(|(name, topic)| (name.to_string(), topic.partitions));
        (topics.collect(), !sources.suspicious.is_empty())
    }

    fn owned(topics: &[(&str, i32)]) -> Vec<(String, i32)> {
        let each = topics.iter();
        each.map(|(name, partitions)| ((*name).to_owned(), *partitions))
            .collect()
    }

    #[test]
    fn a_confirmed_look_is_believed() {
        let seen = [("t1", 2), ("x", 1)];
        assert_eq!(planned(&["t1", "t2"], &seen, true), (owned(&seen), false));
    }

    #[test]
    fn a_first_look_adds_and_takes_nothing_away() {
        let seen = [("t1", 2), ("x", 1)];
        let expected = owned(&[("t1", 4), ("t2", 4), ("x", 1)]);
        assert_eq!(planned(&["t1", "t2"], &seen, false), (expected, false));
    }

    #[test]
    fn a_cluster_that_shows_nothing_of_what_is_copied_any_more_is_not_believed() {
        let all = owned(&[("t1", 4), ("t2", 4), ("t3", 4), ("x", 1)]);
        let copied = ["t1", "t2", "t3"];
        assert_eq!(planned(&copied, &[("x", 1)], true), (all, true));
        let seen = [("t3", 4), ("x", 1)];
        assert_eq!(planned(&copied, &seen, true), (owned(&seen), false));
        assert_eq!(planned(&copied[..2], &[], true), (Vec::new(), false));
    }

    #[test]
    fn a_cluster_that_was_never_seen_is_absent() {
        let sources = sources(&Desired::default(), &BTreeMap::new(), &Snapshot::new());
        assert_eq!(sources, Sources::default());
    }
}
