//! Names and numbers of the domain, each a type of its own so that they cannot be mixed up.
//!
//! Names are cheap to clone (`Arc<str>`), compare by their bytes and are checked when they are
//! made by [`ClusterId::new`] and its siblings.

use std::{fmt, sync::Arc};

/// A name that may not be used, with the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} {rule}")]
pub struct NameError {
    /// What was being named, for example `cluster id`.
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// The rule it breaks, written to follow the name.
    pub rule: &'static str,
}

/// Lower-case DNS-like names: they appear in keys, metrics and group ids.
fn check_slug(kind: &'static str, name: &str) -> Result<(), NameError> {
    let fault = |rule| {
        Err(NameError {
            kind,
            name: name.to_owned(),
            rule,
        })
    };
    if name.is_empty() {
        return fault("is empty; give it a name");
    }
    if name.len() > 63 {
        return fault("is longer than 63 characters; shorten it");
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    if !name.chars().all(allowed) {
        return fault("may hold only lower-case letters, digits, '-', '_' and '.'");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return fault("must start with a letter or a digit");
    }
    Ok(())
}

/// Kafka's rule for topic names (`org.apache.kafka.common.internals.Topic`).
fn check_topic(kind: &'static str, name: &str) -> Result<(), NameError> {
    let fault = |rule| {
        Err(NameError {
            kind,
            name: name.to_owned(),
            rule,
        })
    };
    if name.is_empty() {
        return fault("is empty; name a topic");
    }
    if name == "." || name == ".." {
        return fault("is not a legal topic name");
    }
    if name.len() > 249 {
        return fault("is longer than Kafka's limit of 249 characters");
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return fault(
            "may hold only ASCII letters, digits, '-', '_' and '.'; a pattern goes in `pattern`",
        );
    }
    Ok(())
}

/// Any printable name without a slash.
fn check_host_like(kind: &'static str, name: &str) -> Result<(), NameError> {
    let fault = |rule| {
        Err(NameError {
            kind,
            name: name.to_owned(),
            rule,
        })
    };
    if name.is_empty() {
        return fault("is empty; give it a name");
    }
    if name.len() > 253 {
        return fault("is longer than 253 characters; shorten it");
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
    {
        return fault("may hold only ASCII letters, digits, '-', '_', '.' and ':'");
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `name` and wraps it.
            ///
            /// # Errors
            /// [`NameError`] with the rule that `name` breaks.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                $check($kind, name)?;
                Ok(Self(Arc::from(name)))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }
    };
}

name_type!(
    /// Our name of a Kafka cluster.
    ClusterId,
    "cluster id",
    check_slug
);
name_type!(
    /// Our name of a link (one source cluster to one target).
    LinkId,
    "link id",
    check_slug
);
name_type!(
    /// A Kafka topic.
    TopicName,
    "topic",
    check_topic
);
name_type!(
    /// A worker process; stable across restarts (a pod's name).
    WorkerId,
    "worker id",
    check_host_like
);
name_type!(
    /// A controller process.
    ControllerId,
    "controller id",
    check_host_like
);

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number_type!(
    /// Partition of a topic, from 0.
    Partition,
    i32
);
number_type!(
    /// Offset of a record in a partition, from 0. Ranges are half-open `[from, to)`.
    Offset,
    i64
);
number_type!(
    /// Number of a published plan; rises with every publication.
    PlanGeneration,
    u64
);
number_type!(
    /// Number of one task's ownership: the generation of the plan that gave the task to its worker,
    /// so it rises with every new owner.
    OwnerEpoch,
    u64
);
number_type!(
    /// Wall-clock time in milliseconds since the Unix epoch.
    UnixMillis,
    i64
);

impl Offset {
    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One topic of one link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkTopic {
    /// The link.
    pub link: LinkId,
    /// The topic on the link's source.
    pub topic: TopicName,
}

impl fmt::Display for LinkTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.link, self.topic)
    }
}

/// One source topic-partition on one link: the unit of assignment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The link.
    pub link: LinkId,
    /// The topic on the link's source.
    pub topic: TopicName,
    /// The partition, the same number on source and target.
    pub partition: Partition,
}

impl TaskId {
    /// The topic this task belongs to.
    #[must_use]
    pub fn link_topic(&self) -> LinkTopic {
        LinkTopic {
            link: self.link.clone(),
            topic: self.topic.clone(),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.link, self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_by_the_rule_of_their_kind() {
        assert!(ClusterId::new("dc-1.prod").is_ok());
        assert!(ClusterId::new("DC1").is_err());
        assert!(LinkId::new("a/b").is_err());
        assert!(TopicName::new("Orders.v1_x").is_ok());
        let fault = TopicName::new("orders.*").expect_err("a pattern is no topic name");
        assert!(fault.to_string().contains("orders.*"), "{fault}");
        assert!(TopicName::new("x".repeat(250)).is_err());
        assert!(WorkerId::new("worker-0.kreplicator:9000").is_ok());
        assert!(WorkerId::new("").is_err());
    }
}
