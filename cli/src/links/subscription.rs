//! A topic or pattern asked for on a link: plain text, or a mapping with more settings.

use kreplicator_model::ids::TopicName;
use kreplicator_proto::v1::{self, selector::By};

use super::start::start;
use crate::yaml::{
    Content, Faults, Fields, Node, Path,
    scalars::{boolean, parsed, text, texts},
};

/// Reads one item of a link's list.
pub(super) type Read = fn(&str, &Node, &Path, &mut Faults) -> Option<v1::Subscription>;

/// The id of a subscription: the topic's name, or the pattern between slashes.
pub(crate) fn id_of(selector: Option<&v1::Selector>) -> String {
    match selector.and_then(|selector| selector.by.as_ref()) {
        Some(By::Topic(topic)) => topic.clone(),
        Some(By::Pattern(pattern)) => format!("/{}/", pattern.include),
        None => String::new(),
    }
}

/// How faults name a subscription.
pub(super) fn subject(subscription: &v1::Subscription) -> String {
    let id = id_of(subscription.selector.as_ref());
    format!("subscription {}/{id}", subscription.link)
}

/// `orders` or `{topic: orders, start: latest, paused: true}`
pub(super) fn topic(
    link: &str,
    node: &Node,
    path: &Path,
    faults: &mut Faults,
) -> Option<v1::Subscription> {
    if let Content::Scalar { .. } = node.content {
        let topic = parsed::<TopicName>(node, path, faults)?;
        return Some(subscription(link, By::Topic(topic.to_string())));
    }
    let mut fields = Fields::of(node, path, faults)?;
    let topic = fields.required("topic", "name the topic", parsed::<TopicName>);
    let read = settings(&mut fields, link);
    fields.finish();
    Some(v1::Subscription {
        selector: selector(By::Topic(topic?.to_string())),
        ..read
    })
}

/// `"events\\..*"` or `{include: "events\\..*", exclude: ["events\\.debug"]}`
pub(super) fn pattern(
    link: &str,
    node: &Node,
    path: &Path,
    faults: &mut Faults,
) -> Option<v1::Subscription> {
    if let Content::Scalar { .. } = node.content {
        let include = text(node, path, faults)?;
        let exclude = Vec::new();
        return Some(subscription(
            link,
            By::Pattern(v1::Pattern { include, exclude }),
        ));
    }
    let mut fields = Fields::of(node, path, faults)?;
    let include = fields.required("include", "write the pattern of wanted topics", text);
    let exclude = fields.optional("exclude", texts_or_one).unwrap_or_default();
    let read = settings(&mut fields, link);
    fields.finish();
    let include = include?;
    Some(v1::Subscription {
        selector: selector(By::Pattern(v1::Pattern { include, exclude })),
        ..read
    })
}

/// A pattern may hold a comma, so one text is one pattern.
fn texts_or_one(node: &Node, path: &Path, faults: &mut Faults) -> Option<Vec<String>> {
    match node.content {
        Content::Scalar { .. } => Some(vec![text(node, path, faults)?]),
        Content::Null | Content::List(_) | Content::Map(_) => texts(node, path, faults),
    }
}

fn settings(fields: &mut Fields<'_, '_>, link: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: None,
        start: fields.optional("start", start),
        paused: fields.optional("paused", boolean).unwrap_or_default(),
    }
}

fn subscription(link: &str, by: By) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: selector(by),
        start: None,
        paused: false,
    }
}

fn selector(by: By) -> Option<v1::Selector> {
    Some(v1::Selector { by: Some(by) })
}
