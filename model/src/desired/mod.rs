//! Checks over everything that was asked for: what each value cannot know of the others.
//!
//! [`Desired::check`] gives every fault at once, each naming the thing and the remedy. What depends on
//! which topics exist is judged later, by [`crate::resolve`].

mod clashes;
mod identity;
mod loops;
mod references;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    ids::{ClusterId, LinkId, TopicName},
    selector::{Matcher, Matchers},
    spec::{Cluster, Link, Selector, Subscription},
};

pub use identity::Identities;

/// Everything that operators asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Clusters by id.
    pub clusters: BTreeMap<ClusterId, Cluster>,
    /// Links by id.
    pub links: BTreeMap<LinkId, Link>,
    /// Subscriptions by link and [selector id](crate::spec::Selector::id).
    pub subscriptions: BTreeMap<(LinkId, String), Subscription>,
}

/// Why a desired state is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// What is at fault, for example `link a-b`.
    pub subject: String,
    /// The kind, for callers to branch on.
    pub kind: FaultKind,
    /// What is wrong and the remedy; names the things involved.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A link names a cluster that is not declared.
    UnknownCluster,
    /// A subscription names a link that is not declared.
    UnknownLink,
    /// A link's source and target are the same cluster.
    SameCluster,
    /// A pattern is no regular expression or too large.
    BadPattern,
    /// A target name is not allowed by Kafka.
    BadName,
    /// A topic of ours is named.
    OursTopic,
    /// A link asks for an engine that cannot carry it.
    EngineUnfit,
    /// Topics would be copied round and round.
    Loop,
    /// Two topics would be written to one target topic.
    NameClash,
}

impl Desired {
    /// Every fault, in order of subject; empty when the state can be run.
    #[must_use]
    pub fn check(&self) -> Vec<Fault> {
        self.check_with(&mut Matchers::default())
    }

    /// As [`Desired::check`], for several states that have selectors in common.
    #[must_use]
    pub fn check_with(&self, matchers: &mut Matchers) -> Vec<Fault> {
        let identities = Identities::of(&self.clusters);
        let mut faults = Vec::new();
        references::check(self, &identities, matchers, &mut faults);
        let views = LinkView::all(self, matchers);
        clashes::check(&views, &identities, &mut faults);
        loops::check(&views, &identities, &mut faults);
        faults.sort();
        faults
    }
}

/// A link with what is subscribed to on it, made ready to be asked.
struct LinkView<'a> {
    link: &'a Link,
    exact: BTreeSet<&'a TopicName>,
    patterns: Vec<Matcher>,
}

impl<'a> LinkView<'a> {
    /// Every link. Subscriptions of unknown links and bad patterns are left out: they are faults of
    /// their own.
    fn all(desired: &'a Desired, matchers: &mut Matchers) -> BTreeMap<&'a LinkId, Self> {
        let empty = |link| Self {
            link,
            exact: BTreeSet::new(),
            patterns: Vec::new(),
        };
        let mut views: BTreeMap<&LinkId, Self> = desired
            .links
            .iter()
            .map(|(id, link)| (id, empty(link)))
            .collect();
        for ((link, _), subscription) in &desired.subscriptions {
            let Some(view) = views.get_mut(link) else {
                continue;
            };
            match &subscription.selector {
                Selector::Topic(topic) => {
                    view.exact.insert(topic);
                }
                selector @ Selector::Pattern(_) => {
                    if let Ok(matcher) = matchers.get(selector) {
                        view.patterns.push(matcher);
                    }
                }
            }
        }
        views
    }

    /// Whether a subscription of the link means this topic.
    fn selects(&self, topic: &TopicName) -> bool {
        let mut patterns = self.patterns.iter();
        self.exact.contains(topic) || patterns.any(|matcher| matcher.matches(topic))
    }
}

#[cfg(test)]
mod tests;
