//! Topics that would be written to one target topic, where exact names tell.

use std::collections::BTreeMap;

use super::{Fault, FaultKind, Identities, LinkView};
use crate::{
    ids::{ClusterId, LinkId, LinkTopic, TopicName},
    selector,
};

pub(super) fn check(
    views: &BTreeMap<&LinkId, LinkView<'_>>,
    identities: &Identities,
    faults: &mut Vec<Fault>,
) {
    let mut writers: BTreeMap<(&ClusterId, TopicName), LinkTopic> = BTreeMap::new();
    for (id, view) in views {
        let cluster = identities.get(&view.link.target);
        for topic in view.exact.iter().filter(|topic| !selector::is_ours(topic)) {
            // A name that is not allowed is a fault of its own.
            let Ok(target) = view.link.naming.target_of(topic) else {
                continue;
            };
            let writer = LinkTopic {
                link: (*id).clone(),
                topic: (*topic).clone(),
            };
            let key = (cluster, target);
            let Some(first) = writers.get(&key) else {
                writers.insert(key, writer);
                continue;
            };
            faults.push(Fault {
                subject: format!("subscription {writer}"),
                kind: FaultKind::NameClash,
                message: format!(
                    "{} on cluster {} would be written by {first} as well; rename one of them or \
                     give one link a prefix",
                    key.1, view.link.target
                ),
            });
        }
    }
}
