//! A value and where it was written.

use std::{fmt, sync::Arc};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A position in a file.
    File {
        /// The file's name as the user gave it.
        name: Arc<str>,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
    },
    /// An environment variable.
    Environment(Arc<str>),
    /// A flag of the command line.
    Flag(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Where it begins.
    pub(crate) place: Place,
    /// What it is.
    pub(crate) content: Content,
}

/// The kinds of value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing, `~` or `null`.
    Null,
    /// Text; numbers and booleans are text until somebody asks for one.
    Scalar {
        /// As read, without quotes.
        text: String,
        /// Written without quotes, so it may stand for a number or a boolean.
        plain: bool,
    },
    /// `[a, b]`
    List(Vec<Node>),
    /// `{a: 1}`, in the order written; keys are unique.
    Map(Vec<Field>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) key: String,
    /// Where the key is written.
    pub(crate) place: Place,
    /// Its value.
    pub(crate) value: Node,
}

impl Node {
    /// An empty mapping.
    pub(crate) fn empty_map(place: Place) -> Self {
        Self {
            place,
            content: Content::Map(Vec::new()),
        }
    }

    /// The value under a key of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(fields) => fields
                .iter()
                .find(|field| field.key == key)
                .map(|field| &field.value),
            Content::Null | Content::Scalar { .. } | Content::List(_) => None,
        }
    }

    /// Puts `value` at `keys`, making mappings on the way and replacing what is in the way.
    pub(crate) fn set(&mut self, keys: &[String], value: Node) {
        let Some((key, rest)) = keys.split_first() else {
            *self = value;
            return;
        };
        if !matches!(self.content, Content::Map(_)) {
            *self = Self::empty_map(value.place.clone());
        }
        let Content::Map(fields) = &mut self.content else {
            unreachable!("was made a mapping above");
        };
        if let Some(field) = fields.iter_mut().find(|field| field.key == *key) {
            if rest.is_empty() {
                field.place = value.place.clone();
            }
            field.value.set(rest, value);
            return;
        }
        let mut made = Self::empty_map(value.place.clone());
        let place = value.place.clone();
        made.set(rest, value);
        fields.push(Field {
            key: key.clone(),
            place,
            value: made,
        });
    }

    /// What it is, for messages: `a list`, `"5s"`, … Long text is cut.
    pub(crate) fn describe(&self) -> String {
        match &self.content {
            Content::Null => "nothing".to_owned(),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a mapping".to_owned(),
            Content::Scalar { text, .. } => {
                let mut short: String = text.chars().take(60).collect();
                if short.len() < text.len() {
                    short.push('…');
                }
                format!("{short:?}")
            }
        }
    }
}

/// The way to a value, written `worker.listen` and `links.a-b.topics[2]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(String);

impl Path {
    /// The whole document.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The value under a key.
    pub(crate) fn key(&self, key: &str) -> Self {
        if self.0.is_empty() {
            return Self(key.to_owned());
        }
        Self(format!("{}.{key}", self.0))
    }

    /// An item of a list, counted from 0.
    pub(crate) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: usize) -> Place {
        Place::File {
            name: Arc::from("f.yaml"),
            line,
            column: 1,
        }
    }

    fn text(line: usize, text: &str) -> Node {
        Node {
            place: place(line),
            content: Content::Scalar {
                text: text.to_owned(),
                plain: true,
            },
        }
    }

    #[test]
    fn setting_a_value_makes_the_way_and_keeps_the_neighbours() {
        let mut root = Node::empty_map(place(1));
        let keys = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
        root.set(&keys("worker.listen"), text(2, "a"));
        root.set(&keys("worker.id"), text(3, "b"));
        root.set(&keys("worker.listen"), text(4, "c"));
        let worker = root.get("worker").expect("made");
        assert_eq!(worker.get("id"), Some(&text(3, "b")));
        assert_eq!(worker.get("listen"), Some(&text(4, "c")));
    }

    #[test]
    fn setting_below_a_scalar_replaces_it() {
        let mut root = Node::empty_map(place(1));
        root.set(&["a".to_owned()], text(1, "x"));
        root.set(&["a".to_owned(), "b".to_owned()], text(2, "y"));
        assert_eq!(root.get("a").and_then(|a| a.get("b")), Some(&text(2, "y")));
    }

    #[test]
    fn long_text_is_cut_in_messages() {
        let described = text(1, &"ä".repeat(100)).describe();
        assert_eq!(described.chars().count(), 63, "{described}");
    }
}
