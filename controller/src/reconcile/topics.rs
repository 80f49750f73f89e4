//! What is noted down about topics, and which topics must not run because something is not what it was.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, LinkId, LinkTopic, UnixMillis},
    resolve::{Resolved, ResolvedTopic, TopicProblem, TopicRecord},
    spec::Link,
};

use crate::{discovery::Snapshot, targets::TargetState};

/// Kafka's own id of a cluster as seen now.
fn kafka_id<'a>(snapshot: &'a Snapshot, cluster: &ClusterId) -> Option<&'a str> {
    let topics = snapshot.get(cluster)?.topics.as_ref()?;
    topics.kafka_cluster_id.as_deref()
}

/// Records of topics that have none yet.
#[must_use]
pub(crate) fn new_records(
    desired: &Desired,
    resolved: &Resolved,
    snapshot: &Snapshot,
    now: UnixMillis,
) -> Vec<(LinkTopic, TopicRecord)> {
    let topics = resolved.topics.iter();
    topics
        .filter(|(_, topic)| topic.is_new && topic.problem.is_none())
        .filter_map(|(id, topic)| {
            let link = desired.links.get(&id.link)?;
            let record = TopicRecord {
                target: link.target.clone(),
                target_topic: topic.target_topic.clone(),
                first_partitions: topic.first_partitions,
                partitions: topic.partitions,
                target_partitions: 0,
                source_gone: false,
                start: topic.start,
                first_seen: now,
                origin_clusters: topic.origin_clusters.clone(),
                source_cluster_id: kafka_id(snapshot, &link.source).map(ToOwned::to_owned),
                target_cluster_id: kafka_id(snapshot, &link.target).map(ToOwned::to_owned),
                source_topic_id: None,
            };
            Some((id.clone(), record))
        })
        .collect()
}

/// Records that have to be brought up to date.
#[must_use]
pub(crate) fn changed_records(
    desired: &Desired,
    resolved: &Resolved,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    halted: &BTreeMap<LinkTopic, String>,
    frozen: &BTreeSet<LinkId>,
    targets: &BTreeMap<LinkTopic, TargetState>,
    snapshot: &Snapshot,
) -> Vec<(LinkTopic, TopicRecord)> {
    let mut changed = Vec::new();
    for (id, before) in records {
        let Some(link) = desired.links.get(&id.link) else {
            continue;
        };
        let after = match resolved.topics.get(id) {
            Some(topic) if topic.problem.is_none() && !halted.contains_key(id) => {
                up_to_date(before, topic, link, targets.get(id), snapshot)
            }
            Some(topic) => TopicRecord {
                source_gone: before.source_gone
                    || matches!(topic.problem, Some(TopicProblem::SourceGone { .. })),
                ..before.clone()
            },
            // What cannot be read was perhaps not unsubscribed.
            None if frozen.contains(&id.link) => continue,
            None => unsubscribed(id, before, link, snapshot),
        };
        if after != *before {
            changed.push((id.clone(), after));
        }
    }
    changed
}

fn up_to_date(
    before: &TopicRecord,
    topic: &ResolvedTopic,
    link: &Link,
    target: Option<&TargetState>,
    snapshot: &Snapshot,
) -> TopicRecord {
    let begun = has_begun(before);
    let kafka_id_of = |known: &Option<String>, cluster| {
        let now = || kafka_id(snapshot, cluster).map(ToOwned::to_owned);
        let known = || known.clone();
        if begun {
            known().or_else(now)
        } else {
            now().or_else(known)
        }
    };
    let mut after = before.clone();
    after.partitions = topic.partitions;
    after.source_cluster_id = kafka_id_of(&before.source_cluster_id, &link.source);
    after.target_cluster_id = kafka_id_of(&before.target_cluster_id, &link.target);
    if !begun {
        // Whatever the link and its clusters are now is as good as what they were.
        after.target = link.target.clone();
        after.origin_clusters.clone_from(&topic.origin_clusters);
        after.source_gone = false;
    }
    let verified = target.filter(|target| target.problem.is_none());
    if let Some(partitions) = verified.and_then(|target| target.partitions) {
        after.target_partitions = partitions;
    }
    after
}

/// Unsubscribing is how an operator says that what was found to be different is all right: what
/// does not fit any more is forgotten, and noted anew when somebody subscribes again.
fn unsubscribed(
    id: &LinkTopic,
    before: &TopicRecord,
    link: &Link,
    snapshot: &Snapshot,
) -> TopicRecord {
    let mut after = TopicRecord {
        source_gone: false,
        ..before.clone()
    };
    let differs = |known: &Option<String>, cluster| {
        let now = kafka_id(snapshot, cluster);
        known.is_some() && now.is_some() && known.as_deref() != now
    };
    if differs(&before.source_cluster_id, &link.source) {
        after.source_cluster_id = None;
    }
    if differs(&before.target_cluster_id, &link.target) {
        after.target_cluster_id = None;
        after.target_partitions = 0;
    }
    let target = snapshot.get(&link.target);
    if let Some(seen) = target.and_then(|target| target.topics.as_ref())
        && seen.confirmed
        && !seen.topics.contains_key(&before.target_topic)
    {
        after.target_partitions = 0;
    }
    let source = snapshot.get(&link.source);
    let seen = source.and_then(|source| source.topics.as_ref());
    if let Some(now) = seen.and_then(|seen| seen.topics.get(&id.topic)) {
        after.partitions = after.partitions.min(now.partitions);
    }
    after
}

/// Topics that must not run, with the reason: a cluster answers as another one, or a topic was
/// made again (C073, C002).
#[must_use]
pub(crate) fn halted(
    desired: &Desired,
    resolved: &Resolved,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    snapshot: &Snapshot,
) -> BTreeMap<LinkTopic, String> {
    let refused: BTreeMap<&LinkId, &String> = desired
        .links
        .iter()
        .filter_map(|(id, link)| {
            let refused = |cluster| snapshot.get(cluster)?.refused.as_ref();
            let cause = refused(&link.source).or_else(|| refused(&link.target))?;
            Some((id, cause))
        })
        .collect();
    let mut halted = BTreeMap::new();
    for (id, topic) in &resolved.topics {
        if let Some(cause) = refused.get(&id.link) {
            halted.insert(id.clone(), (*cause).clone());
            continue;
        }
        let known = desired.links.get(&id.link).zip(records.get(id));
        if let Some((link, record)) = known
            && let Some(cause) = not_what_it_was(topic, link, record, snapshot)
        {
            halted.insert(id.clone(), cause);
        }
    }
    halted
}

/// Whether anything can have been copied: tasks begin once their target is noted down as verified.
fn has_begun(record: &TopicRecord) -> bool {
    record.target_partitions > 0
}

fn not_what_it_was(
    topic: &ResolvedTopic,
    link: &Link,
    record: &TopicRecord,
    snapshot: &Snapshot,
) -> Option<String> {
    if !has_begun(record) {
        return None;
    }
    let source = record.origin_clusters.last();
    for (verb, was, is) in [
        ("reads from", source, &link.source),
        ("writes to", Some(&record.target), &link.target),
    ] {
        if let Some(was) = was
            && was != is
        {
            return Some(format!(
                "link {} {verb} cluster {is} now and the topic was copied with {was}: copying stopped; put \
                 the link back as it was, or make one with another id for the new cluster",
                link.id
            ));
        }
    }
    let remedy = "to go on at the checkpoint, unsubscribe the topic (or exclude it from its pattern) and \
                  subscribe it again; to copy it from the beginning, subscribe it on a link with another id";
    if record.source_gone && topic.problem.is_none() {
        return Some(format!(
            "source topic was deleted and made again: copying stopped; {remedy}"
        ));
    }
    for (side, cluster, known) in [
        ("source", &link.source, &record.source_cluster_id),
        ("target", &link.target, &record.target_cluster_id),
    ] {
        let now = kafka_id(snapshot, cluster);
        if let (Some(known), Some(now)) = (known, now)
            && known != now
        {
            return Some(format!(
                "{side} cluster {cluster} is Kafka cluster {now} now and was {known}: copying stopped; {remedy}"
            ));
        }
    }
    (topic.partitions < record.partitions).then(|| {
        format!(
            "source topic has {} partitions and had {}, so it was deleted and made again: copying \
             stopped; {remedy}",
            topic.partitions, record.partitions
        )
    })
}

#[cfg(test)]
#[path = "topics_tests.rs"]
mod tests;
