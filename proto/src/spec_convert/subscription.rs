//! Subscriptions.

use kreplicator_model::{
    ids::{LinkId, TopicName},
    selector::{check_syntax, is_ours},
    spec::{Pattern, Selector, StartPolicy, Subscription},
};

use super::{EXCLUDES_MAX, TEXT_BYTES_MAX};
use crate::{
    fault::{Faults, FieldFault},
    v1,
};

impl TryFrom<&v1::Subscription> for Subscription {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Subscription) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let link = faults.take("link", LinkId::new(&message.link));
        let selector = match &message.selector {
            Some(selector) => faults.part("selector", Selector::try_from(selector)),
            None => {
                faults.add("selector", "is missing; name a topic or give a pattern");
                None
            }
        };
        let start = match &message.start {
            None => Some(None),
            Some(start) => faults.part("start", StartPolicy::try_from(start)).map(Some),
        };
        let whole = || {
            Some(Self {
                link: link?,
                selector: selector?,
                start: start?,
                paused: message.paused,
            })
        };
        faults.finish(whole())
    }
}

impl TryFrom<&v1::Selector> for Selector {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Selector) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let whole = match &message.by {
            Some(v1::selector::By::Topic(topic)) => {
                let name = faults.take("topic", TopicName::new(topic));
                if name.as_ref().is_some_and(is_ours) {
                    faults.add(
                        "topic",
                        format!("{topic:?} is kept by KReplicator for itself; name another"),
                    );
                }
                name.map(Self::Topic)
            }
            Some(v1::selector::By::Pattern(pattern)) => faults
                .part("pattern", Pattern::try_from(pattern))
                .map(Self::Pattern),
            None => {
                faults.add("", "is empty; set `topic` or `pattern`");
                None
            }
        };
        faults.finish(whole)
    }
}

impl TryFrom<&v1::Pattern> for Pattern {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Pattern) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        check_expression(&mut faults, "include", &message.include);
        faults.at_most("exclude", message.exclude.len(), EXCLUDES_MAX);
        // Those beyond the limit are not even looked at.
        for (index, exclude) in message.exclude.iter().take(EXCLUDES_MAX).enumerate() {
            let path = format!("exclude[{index}]");
            check_expression(&mut faults, &path, exclude);
        }
        faults.finish(Some(Self {
            include: message.include.clone(),
            exclude: message.exclude.clone(),
        }))
    }
}

/// Notes what is no regular expression. What is too large once compiled shows when the whole is checked.
fn check_expression(faults: &mut Faults, path: &str, expression: &str) {
    if expression.is_empty() {
        faults.add(
            path,
            "is empty and matches nothing; use .* for every topic, or remove it",
        );
        return;
    }
    faults.text(path, expression, TEXT_BYTES_MAX);
    if expression.len() > TEXT_BYTES_MAX {
        return;
    }
    faults.take(path, check_syntax(expression));
}

impl From<&Subscription> for v1::Subscription {
    fn from(subscription: &Subscription) -> Self {
        Self {
            link: subscription.link.to_string(),
            selector: Some(v1::Selector::from(&subscription.selector)),
            start: subscription.start.as_ref().map(v1::StartPolicy::from),
            paused: subscription.paused,
        }
    }
}

impl From<&Selector> for v1::Selector {
    fn from(selector: &Selector) -> Self {
        let by = match selector {
            Selector::Topic(topic) => v1::selector::By::Topic(topic.to_string()),
            Selector::Pattern(pattern) => v1::selector::By::Pattern(v1::Pattern {
                include: pattern.include.clone(),
                exclude: pattern.exclude.clone(),
            }),
        };
        Self { by: Some(by) }
    }
}
