//! Which topic writes to a target topic that several map to.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{ResolvedTopic, TopicProblem};
use crate::{
    desired::{Desired, Identities},
    ids::{ClusterId, LinkTopic, TopicName},
};

/// Gives each target topic to one writer: one that is recorded before one that is new, then the first
/// by link and topic. A topic that is gone keeps its claim, since its records are in the target topic.
pub(super) fn settle(
    desired: &Desired,
    identities: &Identities,
    topics: &mut BTreeMap<LinkTopic, ResolvedTopic>,
) {
    let mut owners: BTreeMap<(&ClusterId, TopicName), LinkTopic> = BTreeMap::new();
    let mut clashes = Vec::new();
    let recorded = topics.iter().filter(|(_, topic)| !topic.is_new);
    let new = topics.iter().filter(|(_, topic)| topic.is_new);
    for (id, topic) in recorded.chain(new) {
        let may_claim = matches!(topic.problem, None | Some(TopicProblem::SourceGone { .. }));
        let Some(link) = desired.links.get(&id.link).filter(|_| may_claim) else {
            continue;
        };
        let cluster = identities.get(&link.target);
        match owners.entry((cluster, topic.target_topic.clone())) {
            Entry::Vacant(free) => {
                free.insert(id.clone());
            }
            Entry::Occupied(owner) => clashes.push((id.clone(), owner.get().clone())),
        }
    }
    for (id, other) in clashes {
        if let Some(topic) = topics.get_mut(&id)
            && topic.problem.is_none()
        {
            let target_topic = topic.target_topic.clone();
            topic.problem = Some(TopicProblem::NameClash {
                target_topic,
                other,
            });
        }
    }
}
