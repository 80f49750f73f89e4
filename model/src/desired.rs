//! Checks over everything that was asked for.

use std::{collections::BTreeMap, fmt};

use crate::{
    ids::{ClusterId, LinkId},
    spec::{Cluster, Link, Subscription},
};

/// Everything that operators asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Clusters by id.
    pub clusters: BTreeMap<ClusterId, Cluster>,
    /// Links by id.
    pub links: BTreeMap<LinkId, Link>,
    /// Subscriptions by link and [selector id](crate::spec::Selector::id).
    pub subscriptions: BTreeMap<(LinkId, String), Subscription>,
}

/// Why a desired state is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The kind, for callers to branch on.
    pub kind: FaultKind,
    /// What is at fault, for example `link a-b`.
    pub subject: String,
    /// What is wrong and the remedy; names the things involved.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A link names a cluster that is not declared.
    UnknownCluster,
    /// A subscription names a link that is not declared.
    UnknownLink,
    /// A link's source and target are the same cluster.
    SameCluster,
    /// A pattern is no regular expression or too large.
    BadPattern,
    /// A target name is not allowed by Kafka.
    BadName,
    /// A topic of ours is named.
    OursTopic,
    /// Topics would be copied round and round.
    Loop,
    /// Two topics would be written to one target topic.
    NameClash,
}

impl Desired {
    /// Every fault, in order of subject; empty when the state can be run.
    #[must_use]
    pub fn check(&self) -> Vec<Fault> {
        todo!()
    }
}
