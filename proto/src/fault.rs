//! What is wrong with a message, field by field: everything at once, so that a person corrects a
//! file in one go.

use std::fmt;

/// One field that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldFault {
    /// The field, from the message's root: `security.sasl.username`, `bootstrap_servers[2]`.
    /// Empty for the message as a whole.
    pub path: String,
    /// What is wrong and what to do, lower case, without a full stop.
    pub message: String,
}

impl FieldFault {
    /// A fault of the field at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    /// The same fault seen from the message that holds this one in its field `parent`.
    #[must_use]
    pub fn within(self, parent: &str) -> Self {
        Self {
            path: join(parent, &self.path),
            message: self.message,
        }
    }
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// All faults in one line, in the order found.
#[must_use]
pub fn summary(faults: &[FieldFault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn join(parent: &str, path: &str) -> String {
    match (parent.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => parent.to_owned(),
        (false, false) if path.starts_with('[') => format!("{parent}{path}"),
        (false, false) => format!("{parent}.{path}"),
    }
}

/// Collects faults while a message is translated.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldFault>);

impl Faults {
    /// Notes a fault.
    pub(crate) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldFault::new(path, message));
    }

    /// The value, or None with its fault noted.
    pub(crate) fn take<T, E: fmt::Display>(
        &mut self,
        path: impl Into<String>,
        result: Result<T, E>,
    ) -> Option<T> {
        result
            .map_err(|error| self.add(path, error.to_string()))
            .ok()
    }

    /// The translated part at `parent`, or None with its faults noted.
    pub(crate) fn part<T>(
        &mut self,
        parent: &str,
        result: Result<T, Vec<FieldFault>>,
    ) -> Option<T> {
        result
            .map_err(|faults| {
                self.0
                    .extend(faults.into_iter().map(|fault| fault.within(parent)));
            })
            .ok()
    }

    /// Notes a fault when there are more than `limit` of something.
    pub(crate) fn at_most(&mut self, path: &str, count: usize, limit: usize) {
        if count > limit {
            self.add(path, format!("has {count} entries; at most {limit} fit"));
        }
    }

    /// Notes a fault when the text is longer than `limit` bytes or holds control characters.
    pub(crate) fn text(&mut self, path: &str, text: &str, limit: usize) {
        if text.len() > limit {
            self.add(
                path,
                format!("is {} bytes long; at most {limit} fit", text.len()),
            );
        }
        if text.chars().any(char::is_control) {
            self.add(path, "holds control characters; remove them");
        }
    }

    /// The whole value when nothing was at fault.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<FieldFault>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            Some(_) | None => {
                assert!(!self.0.is_empty(), "a part is missing without a fault");
                Err(self.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_join_with_dots_and_brackets() {
        let path = |parent, path| FieldFault::new(path, "x").within(parent).path;
        assert_eq!(path("link", "naming.prefix"), "link.naming.prefix");
        assert_eq!(path("clusters", "[3].id"), "clusters[3].id");
        assert_eq!(path("", "id"), "id");
        assert_eq!(path("selector", ""), "selector");
    }
}
