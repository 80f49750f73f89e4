//! Deciding on a subscribe request: what it comes to on the sources, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    ids::{ClusterId, LinkId, TopicName, UnixMillis},
    selector::Matcher,
    spec::{Cluster, Link, Selector, Subscription},
};
use kreplicator_proto::{fault::FieldFault, status::Refusal, v1};

use super::{
    clusters::count,
    core::{Look, refuse_faults, unreachable_warning},
    draft::{Draft, Step},
    loaded::Loaded,
};

/// The clusters that subscriptions read from.
pub(crate) fn sources_of<'a>(
    loaded: &'a Loaded,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
) -> Vec<&'a Cluster> {
    let sources: BTreeSet<&ClusterId> = subscriptions
        .into_iter()
        .filter_map(|subscription| loaded.desired.links.get(&subscription.link))
        .map(|link| &link.source)
        .collect();
    sources
        .into_iter()
        .filter_map(|id| loaded.desired.clusters.get(id))
        .collect()
}

/// Topics on their sources, as looked at for one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources(pub(crate) BTreeMap<ClusterId, Look>);

impl Sources {
    /// Whether a topic is on a cluster; None: it could not be looked at.
    fn has(&self, cluster: &ClusterId, topic: &TopicName) -> Option<bool> {
        let view = self.0.get(cluster)?.as_ref().ok()?;
        Some(view.topics.contains_key(topic))
    }

    /// How many topics a selector means on a cluster now; 0 where it could not be looked at.
    pub(crate) fn matched(&self, cluster: &ClusterId, selector: &Selector) -> i32 {
        let Some(Ok(view)) = self.0.get(cluster) else {
            return 0;
        };
        let Ok(matcher) = Matcher::compile(selector) else {
            return 0;
        };
        match selector {
            Selector::Topic(topic) => i32::from(view.topics.contains_key(topic)),
            Selector::Pattern(_) => count(
                view.topics
                    .keys()
                    .filter(|topic| matcher.matches(topic))
                    .count(),
            ),
        }
    }

    /// A warning for each cluster that could not be looked at.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let cause = |(id, look): (&ClusterId, &Look)| {
            let cause = look.as_ref().err()?;
            Some(unreachable_warning(id, cause))
        };
        self.0.iter().filter_map(cause).collect()
    }
}

/// Exact topics that do not exist where they shall be read.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// A line for each.
    pub(crate) lines: Vec<String>,
    /// A line for each cluster that could not be asked.
    pub(crate) unknown: BTreeSet<String>,
}

impl Missing {
    /// Looks for the topic of a subscription.
    pub(crate) fn look_for(&mut self, sources: &Sources, link: &Link, subscription: &Subscription) {
        let Selector::Topic(topic) = &subscription.selector else {
            return;
        };
        let source = &link.source;
        match sources.has(source, topic) {
            Some(true) => {}
            Some(false) => self.lines.push(format!(
                "subscription {}/{topic}: topic {topic} does not exist on cluster {source}; create it, \
                 correct the name, or allow missing topics",
                link.id
            )),
            None => {
                let cause = match sources.0.get(source) {
                    Some(Err(cause)) => cause.as_str(),
                    Some(Ok(_)) | None => "it was declared just now",
                };
                self.unknown.insert(format!(
                    "cluster {source}, the source of link {}, is not reachable: {cause}; try again, or \
                     allow missing topics",
                    link.id
                ));
            }
        }
    }

    /// Refuses when anything is missing or cannot be told.
    pub(crate) fn refuse(self) -> Result<(), Refusal> {
        if !self.lines.is_empty() {
            return Err(Refusal::Precondition(self.lines));
        }
        if !self.unknown.is_empty() {
            let lines: Vec<String> = self.unknown.into_iter().collect();
            return Err(Refusal::Unavailable(lines.join("\n")));
        }
        Ok(())
    }
}

/// Checks what concerns each subscription alone.
pub(crate) fn check(messages: &[v1::Subscription]) -> Result<Vec<Subscription>, Vec<FieldFault>> {
    let mut faults = Vec::new();
    let mut checked = Vec::with_capacity(messages.len());
    let mut seen: BTreeMap<(LinkId, String), usize> = BTreeMap::new();
    for (index, message) in messages.iter().enumerate() {
        let path = format!("subscriptions[{index}]");
        match Subscription::try_from(message) {
            Ok(subscription) => {
                let place = (subscription.link.clone(), subscription.selector.id());
                if let Some(first) = seen.insert(place, index) {
                    faults.push(FieldFault::new(
                        path,
                        format!("asks for the same as subscriptions[{first}]; leave one out"),
                    ));
                }
                checked.push(subscription);
            }
            Err(found) => faults.extend(found.into_iter().map(|fault| fault.within(&path))),
        }
    }
    if faults.is_empty() {
        Ok(checked)
    } else {
        Err(faults)
    }
}

/// Adds subscriptions to a draft and tells what was changed, in the order given.
pub(crate) fn put_all(
    loaded: &Loaded,
    now: UnixMillis,
    subscriptions: &[Subscription],
    sources: &Sources,
    allow_missing: bool,
) -> Result<(Vec<bool>, Vec<Step>), Refusal> {
    let mut draft = Draft::new(loaded, now);
    let changed: Vec<bool> = subscriptions
        .iter()
        .map(|subscription| draft.put_subscription(subscription.clone()))
        .collect();
    refuse_faults(draft.new_faults())?;
    if !allow_missing {
        let mut missing = Missing::default();
        for subscription in subscriptions {
            let place = (subscription.link.clone(), subscription.selector.id());
            let is_new = !loaded.desired.subscriptions.contains_key(&place);
            let link = draft.after().links.get(&subscription.link);
            if let Some(link) = link.filter(|_| is_new) {
                missing.look_for(sources, link, subscription);
            }
        }
        missing.refuse()?;
    }
    Ok((changed, draft.into_steps()))
}
