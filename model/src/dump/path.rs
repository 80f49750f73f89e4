//! Paths below the root of a store.

use std::{fmt, sync::Arc};

/// Longest path, in bytes: half of what HDFS takes, the rest is left for the root.
pub const PATH_BYTES_MAX: usize = 4_000;
/// Longest component, in bytes: the default of `dfs.namenode.fs-limits.max-component-length`, and the limit of
/// usual local file systems.
pub const COMPONENT_BYTES_MAX: usize = 255;

/// A path that may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?} {rule}")]
pub struct PathError {
    /// The path as given, cut to 200 characters.
    pub path: String,
    /// The rule it breaks, written to follow the path.
    pub rule: &'static str,
}

/// A path relative to the root of a store: components between single slashes, none of them empty, `.` or `..`,
/// without control characters, backslashes and colons (which HDFS refuses). So it never leads out of the root.
///
/// # Source
/// `DFSUtilClient.isValidName` (Hadoop 3.4.2) for what HDFS refuses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorePath(Arc<str>);

impl StorePath {
    /// Checks `path` and wraps it.
    ///
    /// # Errors
    /// [`PathError`] with the rule that it breaks.
    pub fn new(path: impl AsRef<str>) -> Result<Self, PathError> {
        let path = path.as_ref();
        match fault(path) {
            None => Ok(Self(Arc::from(path))),
            Some(rule) => Err(PathError {
                path: path.chars().take(200).collect(),
                rule,
            }),
        }
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `name` in this folder.
    ///
    /// # Errors
    /// As [`StorePath::new`].
    pub fn join(&self, name: impl AsRef<str>) -> Result<Self, PathError> {
        Self::new(format!("{}/{}", self.0, name.as_ref()))
    }

    /// The folder it lies in; None: the root itself.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(Arc::from(parent)))
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Its components, from the root on.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether readers of tables pass over it: a component begins with `_` or `.`, as Spark, Hive and pyarrow
    /// understand hidden.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.components()
            .any(|component| component.starts_with(['_', '.']))
    }
}

fn fault(path: &str) -> Option<&'static str> {
    if path.len() > PATH_BYTES_MAX {
        return Some("is longer than 4000 bytes; shorten the directory pattern");
    }
    if path.chars().any(char::is_control) {
        return Some("holds a control character");
    }
    if path.contains([':', '\\']) {
        return Some("holds a colon or a backslash, which HDFS does not take");
    }
    for component in path.split('/') {
        if component.is_empty() {
            return Some("is empty, or has an empty component");
        }
        if component == "." || component == ".." {
            return Some("has a component '.' or '..'");
        }
        if component.len() > COMPONENT_BYTES_MAX {
            return Some("has a component of more than 255 bytes");
        }
    }
    None
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for StorePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leads_out_of_the_root() {
        for bad in [
            "", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a:b", "a\\b", "a\nb", "a\0",
        ] {
            assert!(StorePath::new(bad).is_err(), "{bad:?}");
        }
        let path = StorePath::new("orders/dt=2026-11-30/hour=09").expect("legal");
        assert_eq!(path.name(), "hour=09");
        assert_eq!(path.parent().expect("a parent").name(), "dt=2026-11-30");
        assert_eq!(StorePath::new("orders").expect("legal").parent(), None);
        assert!(path.join("..").is_err());
    }

    #[test]
    fn lengths_are_limited() {
        let longest = "x".repeat(COMPONENT_BYTES_MAX);
        assert!(StorePath::new(&longest).is_ok());
        assert!(StorePath::new(format!("{longest}x")).is_err());
        let deep = vec!["x"; PATH_BYTES_MAX].join("/");
        assert!(StorePath::new(deep).is_err());
    }

    #[test]
    fn c101_hidden_is_what_readers_pass_over() {
        for (path, is_hidden) in [
            ("_kreplicator/orders", true),
            ("orders/.x", true),
            ("orders/dt=__HIVE_DEFAULT_PARTITION__/a", false),
            ("orders/a_b.parquet", false),
        ] {
            let path = StorePath::new(path).expect("legal");
            assert_eq!(path.is_hidden(), is_hidden, "{path}");
        }
    }
}
