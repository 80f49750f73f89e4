//! Which topics run on which link, and where they start.
//!
//! Problem: subscriptions name topics and patterns; sources hold topics that come, go and grow; some
//! topics are copies of others. Out of these the topics that shall run are worked out anew each time,
//! with what was learned about a topic when it first ran, so that the answer does not drift.
//!
//! Shape: `select` finds the subscription of each topic, `origins` tells where its data came from and
//! whether it would go back there, `claims` gives each target topic to one writer.
//!
//! # Rules
//! - An exact subscription goes before patterns, among patterns the first by id.
//! - What is recorded of a topic stays as it was: its target name, start and first partitions do not
//!   follow later changes of the link. Running topics are not renamed under their readers; a topic that
//!   shall have another name is copied anew by another link.
//! - A topic that appears after the first discovery pass of its subscription is read from offset 0,
//!   whatever the start policy (C006). So is one that an exact subscription has waited for.
//! - Without news of a source, its recorded topics stay as they were.
//! - Data is not copied to a cluster that it came from (C074). Origins are recorded, never guessed from
//!   names.
//! - A target topic is written by one topic of one link.

mod claims;
mod origins;
mod select;

use std::collections::{BTreeMap, BTreeSet};

use self::{origins::Origins, select::Candidate};
use crate::{
    desired::{Desired, Identities},
    ids::{ClusterId, LinkId, LinkTopic, NameError, TopicName, UnixMillis},
    selector::Matchers,
    spec::StartPolicy,
};

/// A topic as found on a source cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTopic {
    /// Number of partitions, at least 1.
    pub partitions: i32,
    /// Kafka's id of it, where the client can tell it.
    pub topic_id: Option<String>,
}

/// Topics by cluster. A cluster that was never discovered (or could not be reached since the start)
/// is absent: no data means wait.
pub type Inventory = BTreeMap<ClusterId, BTreeMap<TopicName, SourceTopic>>;

/// What was learned about a topic of a link when it first ran, and since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRecord {
    /// The cluster written to: outlives the link, so that what it wrote is still known for a copy.
    pub target: ClusterId,
    /// Its name on the target.
    pub target_topic: TopicName,
    /// Partitions from this one on start at offset 0.
    pub first_partitions: i32,
    /// Partitions last known on the source.
    pub partitions: i32,
    /// Partitions of the target topic when it was last verified; 0: never yet. Once it is above 0, a
    /// missing target topic was deleted and is not made again silently (C068).
    pub target_partitions: i32,
    /// The source topic was seen to be gone: what has its name later is another topic (C002).
    pub source_gone: bool,
    /// Where partitions below `first_partitions` start when there is no checkpoint.
    pub start: StartPolicy,
    /// When it was first seen.
    pub first_seen: UnixMillis,
    /// Clusters this data passed before it reached the target, nearest last, the source included.
    pub origin_clusters: Vec<ClusterId>,
    /// Kafka's id of the source cluster.
    pub source_cluster_id: Option<String>,
    /// Kafka's id of the target cluster.
    pub target_cluster_id: Option<String>,
    /// Kafka's id of the source topic.
    pub source_topic_id: Option<String>,
}

/// A topic of a link as it shall run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTopic {
    /// Id of the subscription that asks for it.
    pub subscription: String,
    /// Its name on the target.
    pub target_topic: TopicName,
    /// Partitions on the source.
    pub partitions: i32,
    /// Partitions from this one on start at offset 0.
    pub first_partitions: i32,
    /// Where partitions below `first_partitions` start when there is no checkpoint.
    pub start: StartPolicy,
    /// Subscription or link is paused: it does not run.
    pub paused: bool,
    /// Why it does not run though it is asked for.
    pub problem: Option<TopicProblem>,
    /// Clusters the data passed, nearest last, the source included.
    pub origin_clusters: Vec<ClusterId>,
    /// There is no record of it yet: one must be written before it runs.
    pub is_new: bool,
}

impl ResolvedTopic {
    /// Whether tasks shall run for it.
    #[must_use]
    pub fn runs(&self) -> bool {
        !self.paused && self.problem.is_none()
    }
}

/// Why a topic does not run though it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicProblem {
    /// It was there and is not any more (C068).
    #[error(
        "source topic is gone from cluster {cluster}; its copy is kept, unsubscribe to forget it"
    )]
    SourceGone {
        /// The source cluster.
        cluster: ClusterId,
    },
    /// The data came from the cluster it would be copied to (C074).
    #[error("topic came from cluster {target} and would loop; drop the subscription")]
    WouldLoop {
        /// The cluster that the data came from and would go to.
        target: ClusterId,
    },
    /// Another topic is written to the same target topic.
    #[error("target topic {target_topic} is written by {other}; rename one of them on its link")]
    NameClash {
        /// The target topic that both map to.
        target_topic: TopicName,
        /// The one that keeps it.
        other: LinkTopic,
    },
    /// Its target name is not allowed by Kafka.
    #[error("target name is not allowed; rename it on the link: {0}")]
    BadTargetName(NameError),
}

/// What runs, and what is asked for in vain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Topics that a subscription asks for.
    pub topics: BTreeMap<LinkTopic, ResolvedTopic>,
    /// Exact subscriptions whose topic was never seen on a discovered source.
    pub missing: BTreeMap<(LinkId, String), TopicName>,
}

/// Works out which topics run. `baseline` holds the subscriptions whose first discovery pass is over;
/// `matchers` are kept from one call to the next.
#[must_use]
pub fn resolve(
    desired: &Desired,
    inventory: &Inventory,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    baseline: &BTreeSet<(LinkId, String)>,
    matchers: &mut Matchers,
) -> Resolved {
    let identities = Identities::of(&desired.clusters);
    let selected = select::select(desired, inventory, records, matchers);
    let mut origins = Origins::new(desired, &identities, records, &selected.candidates);
    let mut topics = BTreeMap::new();
    for (id, candidate) in &selected.candidates {
        let origin = origins.of(id);
        // A copy on its way back is not what a pattern means. Once recorded it ran, so it is shown why
        // it does not any more.
        let is_meant = candidate.is_exact || candidate.record.is_some();
        if !origin.would_loop || is_meant {
            let mut topic = describe(id, candidate, baseline);
            topic.problem = problem_of(candidate, origin.would_loop);
            topic.origin_clusters = origin.chain;
            topics.insert(id.clone(), topic);
        }
    }
    claims::settle(desired, &identities, &mut topics);
    Resolved {
        topics,
        missing: selected.missing,
    }
}

/// A topic as it would run if nothing stood against it.
fn describe(
    id: &LinkTopic,
    candidate: &Candidate<'_>,
    baseline: &BTreeSet<(LinkId, String)>,
) -> ResolvedTopic {
    let found = candidate.source.map(|source| source.partitions);
    let recorded = candidate.record.map(|record| record.partitions);
    let partitions = found.or(recorded).unwrap_or(0);
    let key = (id.link.clone(), candidate.subscription.to_owned());
    let (start, first_partitions) = match candidate.record {
        Some(record) => (record.start, record.first_partitions),
        None if baseline.contains(&key) => (StartPolicy::Earliest, 0),
        None => (candidate.start, partitions),
    };
    ResolvedTopic {
        subscription: candidate.subscription.to_owned(),
        // A name that is not allowed is never used: the topic has a problem.
        target_topic: candidate
            .target
            .clone()
            .unwrap_or_else(|_| id.topic.clone()),
        partitions,
        first_partitions,
        start,
        paused: candidate.is_paused,
        problem: None,
        origin_clusters: Vec::new(),
        is_new: candidate.record.is_none(),
    }
}

fn problem_of(candidate: &Candidate<'_>, would_loop: bool) -> Option<TopicProblem> {
    if candidate.is_gone {
        let cluster = candidate.link.source.clone();
        return Some(TopicProblem::SourceGone { cluster });
    }
    if let Err(fault) = &candidate.target {
        return Some(TopicProblem::BadTargetName(fault.clone()));
    }
    let target = candidate.link.target.clone();
    would_loop.then_some(TopicProblem::WouldLoop { target })
}

#[cfg(test)]
mod tests;
