//! A change of the desired state before it is written: what it comes to, whether that is sound, and
//! the transactions that bring it about.

use std::collections::BTreeSet;

use kreplicator_model::{
    desired::{Desired, Fault},
    ids::{ClusterId, LinkId, UnixMillis},
    selector::Matchers,
    spec::{Cluster, Link, Subscription},
};
use kreplicator_proto::{stored::Stored, subscription_record::SubscriptionRecord};
use kreplicator_store::{Compare, Key, Op, keys};

use super::loaded::Loaded;

/// Most operations of one step. Below the store's limit of 128, with room for what the writer adds.
const STEP_OPS_MAX: usize = 100;
/// Most bytes of one step, with room for the answer that is stored with the last.
const STEP_BYTES_MAX: usize = 600_000;

/// Changes that are written together. After each step the desired state is sound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// What must still be as it was read.
    pub(crate) compares: Vec<Compare>,
    /// What is written.
    pub(crate) ops: Vec<Op>,
}

/// One key to be written or deleted.
#[derive(Debug, Clone)]
struct Write {
    compare: Option<Compare>,
    op: Op,
}

/// A change of the desired state that is being put together.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    before: &'a Loaded,
    after: Desired,
    now: UnixMillis,
    clusters: BTreeSet<ClusterId>,
    links: BTreeSet<LinkId>,
    subscriptions: BTreeSet<(LinkId, String)>,
    /// What is checked before and after has most selectors in common.
    matchers: Matchers,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(before: &'a Loaded, now: UnixMillis) -> Self {
        Self {
            before,
            after: before.desired.clone(),
            now,
            clusters: BTreeSet::new(),
            links: BTreeSet::new(),
            subscriptions: BTreeSet::new(),
            matchers: Matchers::default(),
        }
    }

    /// The desired state that the draft comes to.
    pub(crate) fn after(&self) -> &Desired {
        &self.after
    }

    /// Adds or replaces a cluster. False: it is so already.
    pub(crate) fn put_cluster(&mut self, cluster: Cluster) -> bool {
        let changed = self.before.desired.clusters.get(&cluster.id) != Some(&cluster);
        if changed {
            self.clusters.insert(cluster.id.clone());
            self.after.clusters.insert(cluster.id.clone(), cluster);
        }
        changed
    }

    /// Adds or replaces a link. False: it is so already.
    pub(crate) fn put_link(&mut self, link: Link) -> bool {
        let changed = self.before.desired.links.get(&link.id) != Some(&link);
        if changed {
            self.links.insert(link.id.clone());
            self.after.links.insert(link.id.clone(), link);
        }
        changed
    }

    /// Adds or replaces a subscription. False: it is so already.
    pub(crate) fn put_subscription(&mut self, subscription: Subscription) -> bool {
        let place = (subscription.link.clone(), subscription.selector.id());
        let changed = self.before.desired.subscriptions.get(&place) != Some(&subscription);
        if changed {
            self.subscriptions.insert(place.clone());
            self.after.subscriptions.insert(place, subscription);
        }
        changed
    }

    /// Deletes a cluster.
    pub(crate) fn delete_cluster(&mut self, id: &ClusterId) {
        self.after.clusters.remove(id);
        self.clusters.insert(id.clone());
    }

    /// Deletes a link with its subscriptions.
    pub(crate) fn delete_link(&mut self, id: &LinkId) {
        self.after.links.remove(id);
        self.after.subscriptions.retain(|(link, _), _| link != id);
        self.links.insert(id.clone());
    }

    /// Deletes a subscription.
    pub(crate) fn delete_subscription(&mut self, link: &LinkId, id: &str) {
        let place = (link.clone(), id.to_owned());
        self.after.subscriptions.remove(&place);
        self.subscriptions.insert(place);
    }

    /// What would be wrong afterwards and is not wrong already: so an old fault never stands in the
    /// way of a change that has nothing to do with it.
    pub(crate) fn new_faults(&mut self) -> Vec<Fault> {
        let before = self.before.desired.check_with(&mut self.matchers);
        let before: BTreeSet<Fault> = before.into_iter().collect();
        let mut faults = self.after.check_with(&mut self.matchers);
        faults.retain(|fault| !before.contains(fault));
        faults
    }

    /// The transactions, in an order that is sound at every point: clusters before the links that need
    /// them before their subscriptions, deletions the other way round. What fits into one transaction
    /// is one. Deletions come last, so that what takes over a topic is there before what had it is gone,
    /// unless both together would be unsound.
    pub(crate) fn into_steps(mut self) -> Vec<Step> {
        let puts = self.puts();
        let deletes = self.deletes();
        let mut writes = Vec::with_capacity(puts.len() + deletes.len());
        if deletes.is_empty() || self.is_sound_with_both() {
            writes.extend(puts);
            writes.extend(deletes);
        } else {
            writes.extend(deletes);
            writes.extend(puts);
        }
        pack(writes)
    }

    fn puts(&self) -> Vec<Write> {
        let clusters = self.clusters.iter().filter_map(|id| {
            let cluster = self.after.clusters.get(id)?;
            Some((keys::cluster(id), cluster.encode()))
        });
        let links = self.links.iter().filter_map(|id| {
            let link = self.after.links.get(id)?;
            Some((keys::link(id), link.encode()))
        });
        let subscriptions = self.subscriptions.iter().filter_map(|place| {
            let subscription = self.after.subscriptions.get(place)?;
            let record = self.record(place, subscription);
            Some((keys::subscription(&place.0, &place.1), record.encode()))
        });
        clusters
            .chain(links)
            .chain(subscriptions)
            .map(|(key, value)| Write {
                compare: Some(self.unchanged(&key)),
                op: Op::Put {
                    key,
                    value,
                    lease: None,
                },
            })
            .collect()
    }

    fn deletes(&self) -> Vec<Write> {
        let subscriptions = self
            .subscriptions
            .iter()
            .filter(|place| !self.after.subscriptions.contains_key(*place))
            // Those of a link that goes are deleted with it.
            .filter(|(link, _)| !self.is_deleted(link))
            .map(|(link, id)| Op::Delete(keys::subscription(link, id)));
        let links = self
            .links
            .iter()
            .filter(|id| self.is_deleted(id))
            .flat_map(|id| {
                [
                    Op::DeletePrefix(keys::subscriptions_of(id)),
                    Op::Delete(keys::link(id)),
                    Op::DeletePrefix(keys::lines_of(id)),
                    Op::Delete(keys::producer(id)),
                ]
            });
        let clusters = self
            .clusters
            .iter()
            .filter(|id| !self.after.clusters.contains_key(*id))
            .map(|id| Op::Delete(keys::cluster(id)));
        subscriptions
            .chain(links)
            .chain(clusters)
            // What is deleted may have been written since: it goes all the same.
            .map(|op| Write { compare: None, op })
            .collect()
    }

    fn is_deleted(&self, link: &LinkId) -> bool {
        self.links.contains(link) && !self.after.links.contains_key(link)
    }

    /// The stored form: what was noted about a subscription stays, but topics that a new pattern
    /// takes in count as there from the beginning, not as new.
    fn record(&self, place: &(LinkId, String), subscription: &Subscription) -> SubscriptionRecord {
        let before = self.before.subscriptions.get(place);
        SubscriptionRecord {
            subscription: subscription.clone(),
            created_at: before.map_or(self.now, |before| before.created_at),
            baseline: before.is_some_and(|before| {
                before.baseline && before.subscription.selector == subscription.selector
            }),
        }
    }

    fn unchanged(&self, key: &Key) -> Compare {
        match self.before.revisions.get(key) {
            Some(revision) => Compare::ModifiedAt(key.clone(), *revision),
            None => Compare::Absent(key.clone()),
        }
    }

    /// Whether the state with everything put and nothing deleted yet has no fault of its own.
    fn is_sound_with_both(&mut self) -> bool {
        let mut both = self.before.desired.clone();
        both.clusters.extend(self.after.clusters.clone());
        both.links.extend(self.after.links.clone());
        both.subscriptions.extend(self.after.subscriptions.clone());
        let known: BTreeSet<Fault> = self
            .before
            .desired
            .check_with(&mut self.matchers)
            .into_iter()
            .chain(self.after.check_with(&mut self.matchers))
            .collect();
        both.check_with(&mut self.matchers)
            .iter()
            .all(|fault| known.contains(fault))
    }
}

/// Fills steps up to their limits, in order.
fn pack(writes: Vec<Write>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        let size = size_of_op(&write.op);
        let full = steps
            .last()
            .is_none_or(|step| step.ops.len() >= STEP_OPS_MAX || bytes + size > STEP_BYTES_MAX);
        if full {
            steps.push(Step::default());
            bytes = 0;
        }
        bytes += size;
        let step = steps.last_mut().expect("one was pushed above");
        step.compares.extend(write.compare);
        step.ops.push(write.op);
    }
    steps
}

/// Bytes in a transaction, keys counted twice: in the comparison and in the operation.
fn size_of_op(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => 2 * key.len() + value.len() + 32,
        Op::Delete(key) | Op::DeletePrefix(key) => 2 * key.len() + 32,
    }
}

#[cfg(test)]
mod tests;
