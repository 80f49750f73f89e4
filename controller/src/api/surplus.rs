//! Target topics with more partitions than their source, as far as they are known when topics are
//! subscribed to (C067): they are used all the same, and whoever asked should know.

use std::collections::BTreeMap;

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, TopicName},
    selector::Matcher,
    spec::{Link, Selector, Subscription},
};

use super::{ClusterView, subscribe::Sources};

/// Most topics that are named one by one.
const NAMED_MAX: usize = 10;

/// What the leader last saw on target clusters. One that it does not know is absent.
pub(crate) type Known = BTreeMap<ClusterId, ClusterView>;

/// A line for each topic that these subscriptions mean and whose target topic has partitions that will
/// stay empty.
pub(crate) fn warnings<'a>(
    desired: &Desired,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
    sources: &Sources,
    targets: &Known,
) -> Vec<String> {
    // By target topic: several subscriptions may mean the same.
    let mut found: BTreeMap<(&ClusterId, TopicName), String> = BTreeMap::new();
    for subscription in subscriptions {
        let Some(link) = desired.links.get(&subscription.link) else {
            continue;
        };
        let (Some(Ok(source)), Some(target)) =
            (sources.0.get(&link.source), targets.get(&link.target))
        else {
            continue;
        };
        for (topic, wanted) in meant(&subscription.selector, source) {
            let Ok(name) = link.naming.target_of(topic) else {
                continue;
            };
            if let Some(has) = target.topics.get(&name).filter(|has| **has > wanted) {
                let line = describe(link, topic, &name, *has, wanted);
                found.insert((&link.target, name), line);
            }
        }
    }
    let more = found.len().saturating_sub(NAMED_MAX);
    let mut lines: Vec<String> = found.into_values().take(NAMED_MAX).collect();
    if more > 0 {
        lines.push(format!(
            "{more} more target topics have more partitions than their sources; `kreplicator get \
             subscriptions -o yaml` shows which"
        ));
    }
    lines
}

/// The topics of a source that a selector means, with their partitions.
fn meant<'a>(
    selector: &'a Selector,
    source: &'a ClusterView,
) -> Box<dyn Iterator<Item = (&'a TopicName, i32)> + 'a> {
    let with_count = |(topic, partitions): (&'a TopicName, &i32)| (topic, *partitions);
    match selector {
        Selector::Topic(topic) => Box::new(
            source
                .topics
                .get_key_value(topic)
                .into_iter()
                .map(with_count),
        ),
        Selector::Pattern(_) => {
            let matcher = Matcher::compile(selector).ok();
            let topics = source.topics.iter().map(with_count);
            Box::new(topics.filter(move |(topic, _)| {
                matcher
                    .as_ref()
                    .is_some_and(|matcher| matcher.matches(topic))
            }))
        }
    }
}

fn describe(link: &Link, topic: &TopicName, name: &TopicName, has: i32, wanted: i32) -> String {
    format!(
        "link {}: target topic {name} on cluster {} has {has} partitions and topic {topic} on cluster \
         {} has {wanted}: the last ones stay empty",
        link.id, link.target, link.source
    )
}
