//! Where the data of a topic came from.
//!
//! A topic that a link writes to holds data from the link's source, and from wherever that came from.
//! This is followed along records of what links have written, and along topics that are about to be
//! written in this very round.
//!
//! What a topic's own name looks like says nothing. A record says what was written whether or not it
//! is still subscribed to, so a pattern never brings data back. An exact subscription is the
//! operator's word: it is refused only while the other way is subscribed to as well, so after a
//! failover a topic can be sent back by naming it.

use std::collections::{BTreeMap, BTreeSet};

use super::{TopicRecord, select::Candidate};
use crate::{
    desired::{Desired, Identities},
    ids::{ClusterId, LinkTopic, TopicName},
    spec::Link,
};

/// Where the data of one topic of one link came from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// Clusters that it passed, nearest last, the link's source included.
    pub(super) chain: Vec<ClusterId>,
    /// The link's target is one of them.
    pub(super) would_loop: bool,
}

/// Works out origins, each once.
#[derive(Debug)]
pub(super) struct Origins<'a> {
    desired: &'a Desired,
    identities: &'a Identities,
    records: &'a BTreeMap<LinkTopic, TopicRecord>,
    candidates: &'a BTreeMap<LinkTopic, Candidate<'a>>,
    /// By cluster and topic: what is or will be written to it.
    writers: BTreeMap<(&'a ClusterId, &'a TopicName), BTreeSet<&'a LinkTopic>>,
    known: BTreeMap<&'a LinkTopic, Origin>,
    /// Being worked out: a way back to one of these is a ring.
    open: BTreeSet<&'a LinkTopic>,
}

impl<'a> Origins<'a> {
    pub(super) fn new(
        desired: &'a Desired,
        identities: &'a Identities,
        records: &'a BTreeMap<LinkTopic, TopicRecord>,
        candidates: &'a BTreeMap<LinkTopic, Candidate<'a>>,
    ) -> Self {
        let mut origins = Self {
            desired,
            identities,
            records,
            candidates,
            writers: BTreeMap::new(),
            known: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        for (id, record) in records {
            // A link made anew under an old name may go elsewhere.
            let link = desired.links.get(&id.link);
            let cluster = link.map_or(&record.target, |link| &link.target);
            origins.add_writer(id, cluster, &record.target_topic);
        }
        for (id, candidate) in candidates {
            if let Ok(topic) = &candidate.target {
                origins.add_writer(id, &candidate.link.target, topic);
            }
        }
        // What is recorded is settled first: what is new gives way to it.
        for id in records.keys() {
            if let Some(link) = desired.links.get(&id.link) {
                origins.work_out(id, link);
            }
        }
        for (id, candidate) in candidates {
            origins.work_out(id, candidate.link);
        }
        origins
    }

    /// The origin of a candidate.
    pub(super) fn of(&mut self, id: &LinkTopic) -> Origin {
        let origin = self.known.get(id);
        origin.expect("every candidate was worked out").clone()
    }

    fn add_writer(&mut self, id: &'a LinkTopic, cluster: &'a ClusterId, topic: &'a TopicName) {
        let cluster = self.identities.get(cluster);
        let writers = self.writers.entry((cluster, topic)).or_default();
        writers.insert(id);
    }

    /// Works out where a topic came from, after those that write to it.
    fn work_out(&mut self, id: &'a LinkTopic, link: &'a Link) -> Origin {
        if let Some(origin) = self.known.get(id) {
            return origin.clone();
        }
        self.open.insert(id);
        let candidate = self.candidates.get(id);
        let counts_dormant = candidate.is_none_or(|candidate| !candidate.is_exact);
        let mut chain = Vec::new();
        for cluster in self.written_to(&link.source, &id.topic, counts_dormant) {
            pass(&mut chain, &cluster);
        }
        if let Some(record) = self.records.get(id) {
            for cluster in &record.origin_clusters {
                pass(&mut chain, cluster);
            }
        }
        chain.retain(|cluster| *cluster != link.source);
        chain.push(link.source.clone());
        let mut clusters = chain.iter();
        let would_loop = clusters.any(|cluster| self.identities.are_same(cluster, &link.target));
        self.open.remove(id);
        let origin = Origin { chain, would_loop };
        self.known.insert(id, origin.clone());
        origin
    }

    /// Clusters whose data is, or is about to be, written to a topic.
    fn written_to(
        &mut self,
        cluster: &'a ClusterId,
        topic: &'a TopicName,
        counts_dormant: bool,
    ) -> Vec<ClusterId> {
        let key = (self.identities.get(cluster), topic);
        let writers = self.writers.get(&key).cloned().unwrap_or_default();
        let mut written = Vec::new();
        // As in `claims`: what is recorded goes on, and of what is new the first begins.
        let mut is_claimed = false;
        let (recorded, new): (Vec<_>, Vec<_>) = writers
            .into_iter()
            .partition(|writer| self.records.contains_key(*writer));
        for writer in recorded {
            let is_dormant = !self.candidates.contains_key(writer);
            if is_dormant && !counts_dormant {
                continue;
            }
            let (chain, would_loop) = self.brought_by(writer);
            written.extend(chain);
            is_claimed |= !is_dormant && !would_loop;
        }
        for writer in new {
            if is_claimed {
                break;
            }
            let (chain, would_loop) = self.brought_by(writer);
            if !would_loop {
                written.extend(chain);
                is_claimed = true;
            }
        }
        written
    }

    /// Clusters whose data a writer brings along, and whether it must not begin. On a ring, what was
    /// written is known and what is new gives way to the others.
    fn brought_by(&mut self, writer: &'a LinkTopic) -> (Vec<ClusterId>, bool) {
        let link = self.desired.links.get(&writer.link);
        let Some(link) = link.filter(|_| !self.open.contains(writer)) else {
            let record = self.records.get(writer);
            let origins = record.map(|record| record.origin_clusters.clone());
            return (origins.unwrap_or_default(), record.is_none());
        };
        let origin = self.work_out(writer, link);
        (origin.chain, origin.would_loop)
    }
}

fn pass(chain: &mut Vec<ClusterId>, cluster: &ClusterId) {
    if !chain.contains(cluster) {
        chain.push(cluster.clone());
    }
}
