//! Where settings come from, laid over each other value by value.

use std::sync::Arc;

use crate::yaml::{
    Content, Faults, Node, Path, Place,
    parse::{parse, parse_value},
};

/// Environment variables with this prefix are settings; `__` parts sections and keys.
const PREFIX: &str = "KREPLICATOR__";

/// What was given, as text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// Name and text of the file.
    pub(crate) file: Option<(String, String)>,
    /// The process's environment; what does not begin with the prefix is left alone.
    pub(crate) environment: Vec<(String, String)>,
    /// `section.key` and value, in the order given.
    pub(crate) flags: Vec<(String, String)>,
}

impl Sources {
    /// One tree in which each value knows where it came from.
    ///
    /// # Errors
    /// A file that is no YAML mapping.
    pub(super) fn tree(&self) -> Result<Node, Faults> {
        let mut root = match &self.file {
            Some((name, text)) => parse(name, text)?,
            None => Node::empty_map(Place::Flag(Arc::from("none"))),
        };
        if matches!(root.content, Content::Null) {
            root.content = Content::Map(Vec::new());
        }
        if !matches!(root.content, Content::Map(_)) {
            let mut faults = Faults::default();
            let message = format!("{} where a mapping belongs", root.describe());
            faults.push(&root.place, &Path::root(), message);
            return faults.or(None);
        }
        let mut environment: Vec<_> = self
            .environment
            .iter()
            .filter_map(|(name, value)| Some((name, name.strip_prefix(PREFIX)?, value)))
            .collect();
        // The order of the environment means nothing.
        environment.sort();
        for (name, path, value) in environment {
            let place = Place::Environment(Arc::from(name.as_str()));
            let keys: Vec<String> = path.split("__").map(str::to_ascii_lowercase).collect();
            root.set(&keys, parse_value(&place, value));
        }
        for (path, value) in &self.flags {
            let place = Place::Flag(Arc::from(format!("--set {path}")));
            let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
            root.set(&keys, parse_value(&place, value));
        }
        Ok(root)
    }
}
