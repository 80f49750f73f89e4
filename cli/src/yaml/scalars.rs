//! Text, numbers, durations, times and lists. Each takes a node, its path and the list of faults,
//! so it can be handed to [`Fields`](super::Fields) as it is.

use std::{fmt::Display, str::FromStr, time::Duration};

use super::{
    fault::Faults,
    node::{Content, Node, Path},
    suggest,
};

/// Any scalar as text: `5` and `true` are fine where text belongs.
pub(crate) fn text(node: &Node, path: &Path, faults: &mut Faults) -> Option<String> {
    match &node.content {
        Content::Scalar { text, .. } => Some(text.clone()),
        Content::Null | Content::List(_) | Content::Map(_) => {
            let message = format!("{} where text belongs", node.describe());
            faults.push(&node.place, path, message);
            None
        }
    }
}

/// `true` or `false`.
pub(crate) fn boolean(node: &Node, path: &Path, faults: &mut Faults) -> Option<bool> {
    match plain(node) {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => {
            let message = format!("{} is neither true nor false", node.describe());
            faults.push(&node.place, path, message);
            None
        }
    }
}

/// A whole number from 0 to 65,535.
pub(crate) fn number(node: &Node, path: &Path, faults: &mut Faults) -> Option<u16> {
    let number = plain(node).and_then(|text| text.parse().ok());
    if number.is_none() {
        let message = format!("{} where a number from 0 to 65535 belongs", node.describe());
        faults.push(&node.place, path, message);
    }
    number
}

/// `5s`, `500ms`, `1h 30m`.
pub(crate) fn duration(node: &Node, path: &Path, faults: &mut Faults) -> Option<Duration> {
    let text = text(node, path, faults)?;
    match humantime::parse_duration(&text) {
        Ok(duration) => Some(duration),
        Err(_) => {
            let message = format!("{text:?} is not a duration; write for example 5s or 500ms");
            faults.push(&node.place, path, message);
            None
        }
    }
}

/// Text that `T` accepts; `T`'s error tells why not.
pub(crate) fn parsed<T>(node: &Node, path: &Path, faults: &mut Faults) -> Option<T>
where
    T: FromStr,
    T::Err: Display,
{
    let text = text(node, path, faults)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            faults.push(&node.place, path, error.to_string());
            None
        }
    }
}

/// One of a few words.
pub(crate) fn word<T: Copy>(
    words: &'static [(&'static str, T)],
) -> impl FnOnce(&Node, &Path, &mut Faults) -> Option<T> {
    move |node, path, faults| {
        let given = text(node, path, faults)?;
        let found = words.iter().find(|(word, _)| *word == given);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let remedy = suggest::remedy(&given, &known);
            let message = format!("{given:?} is not known; {remedy}");
            faults.push(&node.place, path, message);
        }
        found.map(|(_, value)| *value)
    }
}

/// A list, each item by `read`. Items that cannot be read are faults and are left out.
pub(crate) fn list<'n, T>(
    node: &'n Node,
    path: &Path,
    faults: &mut Faults,
    mut read: impl FnMut(&'n Node, &Path, &mut Faults) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.content {
        Content::Null => Some(Vec::new()),
        Content::List(items) => {
            let items = items.iter().enumerate();
            Some(
                items
                    .filter_map(|(index, item)| read(item, &path.index(index), faults))
                    .collect(),
            )
        }
        Content::Scalar { .. } | Content::Map(_) => {
            let message = format!("{} where a list belongs; write [a, b]", node.describe());
            faults.push(&node.place, path, message);
            None
        }
    }
}

/// A list of texts, or one text with its items between commas.
pub(crate) fn texts(node: &Node, path: &Path, faults: &mut Faults) -> Option<Vec<String>> {
    if let Content::Scalar { text, .. } = &node.content {
        let items = text.split(',').map(str::trim);
        return Some(
            items
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect(),
        );
    }
    list(node, path, faults, text)
}

/// The text of a scalar without quotes.
fn plain(node: &Node) -> Option<&str> {
    match &node.content {
        Content::Scalar { text, plain: true } => Some(text),
        Content::Scalar { plain: false, .. }
        | Content::Null
        | Content::List(_)
        | Content::Map(_) => None,
    }
}
