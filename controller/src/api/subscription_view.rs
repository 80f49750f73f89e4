//! Subscriptions as they are shown.

use std::collections::BTreeMap;

use kreplicator_model::{
    desired::Desired,
    ids::{LinkId, LinkTopic},
    resolve::ResolvedTopic,
    spec::Subscription,
};
use kreplicator_proto::v1;

use super::{clusters::count, health::Asked, picture::Picture};

/// Most topics shown of one subscription in lists.
pub(crate) const TOPICS_LISTED_MAX: usize = 100;

/// Topics by the subscription that asks for them.
pub(crate) type TopicsOf<'a> =
    BTreeMap<(&'a LinkId, &'a str), Vec<(&'a LinkTopic, &'a ResolvedTopic)>>;

/// The topics of the subscriptions on the links wanted.
pub(crate) fn topics_of<'a>(
    picture: Picture<'a>,
    is_wanted: impl Fn(&LinkId) -> bool,
) -> TopicsOf<'a> {
    let mut topics = TopicsOf::new();
    for (topic, resolved) in &picture.fleet.resolved.topics {
        if is_wanted(&topic.link) {
            topics
                .entry((&topic.link, resolved.subscription.as_str()))
                .or_default()
                .push((topic, resolved));
        }
    }
    topics
}

/// A subscription with how it stands, and at most `topics_max` of its topics.
pub(crate) fn info<'a>(
    desired: &'a Desired,
    picture: Picture<'a>,
    topics: &TopicsOf<'a>,
    id: &'a str,
    subscription: &'a Subscription,
    topics_max: usize,
) -> v1::SubscriptionInfo {
    let none = Vec::new();
    let topics = topics.get(&(&subscription.link, id)).unwrap_or(&none);
    v1::SubscriptionInfo {
        id: id.to_owned(),
        subscription: Some(v1::Subscription::from(subscription)),
        status: Some(status(
            desired,
            picture,
            topics,
            id,
            subscription,
            topics_max,
        )),
    }
}

fn status<'a>(
    desired: &'a Desired,
    picture: Picture<'a>,
    topics: &[(&'a LinkTopic, &'a ResolvedTopic)],
    id: &'a str,
    subscription: &'a Subscription,
    topics_max: usize,
) -> v1::SubscriptionStatus {
    let Some(link) = desired.links.get(&subscription.link) else {
        return v1::SubscriptionStatus {
            health: v1::Health::Down.into(),
            cause: format!("link {} does not exist; declare it", subscription.link),
            ..v1::SubscriptionStatus::default()
        };
    };
    let asked = Asked {
        link,
        id,
        selector: &subscription.selector,
        paused: subscription.paused,
    };
    let condition = picture.subscription(asked, topics);
    let topic_status = |(topic, resolved): &(&LinkTopic, &ResolvedTopic)| v1::TopicStatus {
        topic: topic.topic.to_string(),
        target_topic: resolved.target_topic.to_string(),
        partitions: resolved.partitions,
        problem: match (&resolved.problem, picture.fleet.target_problems.get(topic)) {
            (Some(problem), _) => problem.to_string(),
            (None, Some(problem)) => problem.message.clone(),
            (None, None) => String::new(),
        },
        note: picture
            .fleet
            .target_notes
            .get(topic)
            .cloned()
            .unwrap_or_default(),
    };
    v1::SubscriptionStatus {
        health: condition.health.into(),
        cause: condition.cause,
        since_ms: condition.since_ms,
        topics: topics.iter().take(topics_max).map(topic_status).collect(),
        topics_total: count(topics.len()),
        tasks: Some(condition.tasks),
        lag_records: condition.lag_records,
    }
}
