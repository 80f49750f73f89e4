//! Reads a mapping field by field.

use super::{
    fault::Faults,
    node::{Content, Field, Node, Path, Place},
    suggest,
};

/// A mapping that is being read. Every key that was not asked for by the time of
/// [`finish`](Self::finish) is an unknown one.
#[derive(Debug)]
pub(crate) struct Fields<'n, 'f> {
    place: &'n Place,
    path: Path,
    fields: &'n [Field],
    asked: Vec<&'static str>,
    faults: &'f mut Faults,
}

impl<'n, 'f> Fields<'n, 'f> {
    /// Begins to read; nothing is as good as an empty mapping. Anything else is a fault.
    pub(crate) fn of(node: &'n Node, path: &Path, faults: &'f mut Faults) -> Option<Self> {
        let fields: &[Field] = match &node.content {
            Content::Map(fields) => fields,
            Content::Null => &[],
            Content::Scalar { .. } | Content::List(_) => {
                let message = format!("{} where a mapping belongs", node.describe());
                faults.push(&node.place, path, message);
                return None;
            }
        };
        Some(Self {
            place: &node.place,
            path: path.clone(),
            fields,
            asked: Vec::new(),
            faults,
        })
    }

    /// The value under `key`, if it is given and can be read. A given null is as good as absent.
    pub(crate) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'n Node, &Path, &mut Faults) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(key);
        let field = self.fields.iter().find(|field| field.key == key)?;
        if field.value.content == Content::Null {
            return None;
        }
        read(&field.value, &self.path.key(key), self.faults)
    }

    /// As [`optional`](Self::optional), but its absence is a fault.
    pub(crate) fn required<T>(
        &mut self,
        key: &'static str,
        remedy: &str,
        read: impl FnOnce(&'n Node, &Path, &mut Faults) -> Option<T>,
    ) -> Option<T> {
        let given = self
            .fields
            .iter()
            .any(|field| field.key == key && field.value.content != Content::Null);
        if !given {
            let message = format!("`{key}` is missing; {remedy}");
            self.faults.push(self.place, &self.path, message);
        }
        self.optional(key, read)
    }

    /// Whether the key is given, null included.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.fields.iter().any(|field| field.key == key)
    }

    /// Adds a fault of the mapping as a whole.
    pub(crate) fn fault(&mut self, message: impl Into<String>) {
        self.faults.push(self.place, &self.path, message);
    }

    /// Adds a fault of the value under `key`.
    pub(crate) fn fault_at(&mut self, key: &str, message: impl Into<String>) {
        let field = self.fields.iter().find(|field| field.key == key);
        let place = field.map_or(self.place, |field| &field.value.place);
        self.faults.push(place, &self.path.key(key), message);
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self) {
        for field in self.fields {
            if self.asked.contains(&field.key.as_str()) {
                continue;
            }
            let remedy = suggest::remedy(&field.key, &self.asked);
            let path = self.path.key(&field.key);
            let message = format!("unknown key; {remedy}");
            self.faults.push(&field.place, &path, message);
        }
    }
}

/// Reads a mapping whose keys are names, each value by `read`; keys and values that cannot be read
/// are faults and are left out.
pub(crate) fn entries<'n, T>(
    node: &'n Node,
    path: &Path,
    faults: &mut Faults,
    mut read: impl FnMut(&'n Field, &Path, &mut Faults) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.content {
        Content::Null => Some(Vec::new()),
        Content::Map(fields) => {
            let read = |field| read(field, &path.key(&Field::key_of(field)), faults);
            Some(fields.iter().filter_map(read).collect())
        }
        Content::Scalar { .. } | Content::List(_) => {
            let message = format!(
                "{} where a mapping from name to value belongs",
                node.describe()
            );
            faults.push(&node.place, path, message);
            None
        }
    }
}

impl Field {
    /// The key as it stands in a path: quoted where it holds a dot.
    fn key_of(field: &Field) -> String {
        if field.key.contains('.') {
            return format!("{:?}", field.key);
        }
        field.key.clone()
    }
}
