//! Which subscription asks for which topic.

use std::collections::BTreeMap;

use super::{Inventory, SourceTopic, TopicRecord};
use crate::{
    desired::Desired,
    ids::{LinkId, LinkTopic, NameError, TopicName},
    selector::{self, Matcher, Matchers},
    spec::{Link, Selector, StartPolicy, Subscription},
};

/// A topic that a subscription asks for.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) link: &'a Link,
    /// Id of the subscription.
    pub(super) subscription: &'a str,
    /// The subscription names the topic.
    pub(super) is_exact: bool,
    /// Subscription or link is paused.
    pub(super) is_paused: bool,
    /// Where the subscription would have it start.
    pub(super) start: StartPolicy,
    pub(super) record: Option<&'a TopicRecord>,
    /// The topic as found now.
    pub(super) source: Option<&'a SourceTopic>,
    /// The source was looked at, and the topic is not there.
    pub(super) is_gone: bool,
    /// Its name on the target.
    pub(super) target: Result<TopicName, NameError>,
}

/// What is asked for, and what of it was never seen.
#[derive(Debug, Default)]
pub(super) struct Selected<'a> {
    pub(super) candidates: BTreeMap<LinkTopic, Candidate<'a>>,
    pub(super) missing: BTreeMap<(LinkId, String), TopicName>,
}

/// The subscriptions of one link, ready to be asked.
struct Asked<'a> {
    exact: BTreeMap<&'a TopicName, (&'a str, &'a Subscription)>,
    /// In order of id.
    patterns: Vec<(Matcher, &'a str, &'a Subscription)>,
}

pub(super) fn select<'a>(
    desired: &'a Desired,
    inventory: &'a Inventory,
    records: &'a BTreeMap<LinkTopic, TopicRecord>,
    matchers: &mut Matchers,
) -> Selected<'a> {
    let mut asked = by_link(desired, matchers);
    let mut recorded: BTreeMap<&LinkId, BTreeMap<&TopicName, &TopicRecord>> = BTreeMap::new();
    for (id, record) in records {
        recorded
            .entry(&id.link)
            .or_default()
            .insert(&id.topic, record);
    }
    let mut selected = Selected::default();
    for (id, link) in &desired.links {
        if let Some(asked) = asked.remove(id) {
            let recorded = recorded.remove(id).unwrap_or_default();
            select_link(
                link,
                &asked,
                inventory.get(&link.source),
                &recorded,
                &mut selected,
            );
        }
    }
    selected
}

/// Patterns that do not compile are left out: they were refused when they came in.
fn by_link<'a>(desired: &'a Desired, matchers: &mut Matchers) -> BTreeMap<&'a LinkId, Asked<'a>> {
    let mut links: BTreeMap<&LinkId, Asked<'a>> = BTreeMap::new();
    for ((link, id), subscription) in &desired.subscriptions {
        let asked = links.entry(link).or_insert_with(|| Asked {
            exact: BTreeMap::new(),
            patterns: Vec::new(),
        });
        match &subscription.selector {
            Selector::Topic(topic) => {
                asked.exact.insert(topic, (id, subscription));
            }
            selector @ Selector::Pattern(_) => {
                if let Ok(matcher) = matchers.get(selector) {
                    asked.patterns.push((matcher, id, subscription));
                }
            }
        }
    }
    matchers.forget_unused();
    links
}

fn select_link<'a>(
    link: &'a Link,
    asked: &Asked<'a>,
    found: Option<&'a BTreeMap<TopicName, SourceTopic>>,
    recorded: &BTreeMap<&'a TopicName, &'a TopicRecord>,
    selected: &mut Selected<'a>,
) {
    let mut topics: BTreeMap<&TopicName, Option<&SourceTopic>> =
        recorded.keys().map(|topic| (*topic, None)).collect();
    topics.extend(
        found
            .into_iter()
            .flatten()
            .map(|(topic, source)| (topic, Some(source))),
    );
    for (topic, source) in topics {
        let Some((id, subscription, is_exact)) = asked.by(topic) else {
            continue;
        };
        let record = recorded.get(topic).copied();
        let target = record.map_or_else(
            || link.naming.target_of(topic),
            |record| Ok(record.target_topic.clone()),
        );
        let candidate = Candidate {
            link,
            subscription: id,
            is_exact,
            is_paused: subscription.paused || link.paused,
            start: subscription.start.unwrap_or(link.start),
            record,
            source,
            is_gone: found.is_some() && source.is_none(),
            target,
        };
        let key = LinkTopic {
            link: link.id.clone(),
            topic: topic.clone(),
        };
        selected.candidates.insert(key, candidate);
    }
    let Some(found) = found else {
        return;
    };
    for (topic, (id, _)) in &asked.exact {
        let is_known = found.contains_key(*topic) || recorded.contains_key(*topic);
        if !is_known && !selector::is_ours(topic) {
            let key = (link.id.clone(), (*id).to_owned());
            selected.missing.insert(key, (*topic).clone());
        }
    }
}

impl<'a> Asked<'a> {
    /// The subscription that asks for a topic, and whether by its name.
    fn by(&self, topic: &TopicName) -> Option<(&'a str, &'a Subscription, bool)> {
        if selector::is_ours(topic) {
            return None;
        }
        if let Some((id, subscription)) = self.exact.get(topic) {
            return Some((id, subscription, true));
        }
        let mut patterns = self.patterns.iter();
        let (_, id, subscription) = patterns.find(|(matcher, _, _)| matcher.matches(topic))?;
        Some((id, subscription, false))
    }
}
