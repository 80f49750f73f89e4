//! What each link wants of its target. Pure.

use std::collections::BTreeMap;

use kreplicator_model::{
    ids::{LinkId, LinkTopic},
    resolve::Resolved,
};

use super::book::Book;
use crate::{
    discovery::Snapshot,
    targets::{LinkWants, Want},
};

/// The topics that shall run and are noted down, by link.
#[must_use]
pub(crate) fn wants(
    book: &Book,
    resolved: &Resolved,
    halted: &BTreeMap<LinkTopic, String>,
    snapshot: &Snapshot,
) -> BTreeMap<LinkId, LinkWants> {
    let links = book.desired.links.iter();
    let mut wants: BTreeMap<LinkId, LinkWants> = links
        .map(|(id, link)| {
            let target = snapshot.get(&link.target);
            let wants = LinkWants {
                link: link.clone(),
                topics: BTreeMap::new(),
                seen: target.and_then(|target| target.topics.clone()),
            };
            (id.clone(), wants)
        })
        .collect();
    for (id, topic) in &resolved.topics {
        let record = book.records.get(id);
        let (Some(wants), Some(record)) = (wants.get_mut(&id.link), record) else {
            continue;
        };
        if !topic.runs() || halted.contains_key(id) {
            continue;
        }
        let want = Want {
            target_topic: topic.target_topic.clone(),
            partitions: topic.partitions,
            verified_before: record.target_partitions > 0,
        };
        wants.topics.insert(id.clone(), want);
    }
    wants
}
