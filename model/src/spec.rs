//! What operators ask for: clusters, links and topic subscriptions, as plain checked values.
//!
//! Built by `kreplicator-proto` from API messages and stored values; a value that exists here has
//! passed the checks that concern it alone. Checks across values are in `desired`.

use std::{collections::BTreeMap, fmt};

use crate::ids::{ClusterId, LinkId, TopicName, UnixMillis};

/// A Kafka cluster that links read from or write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Our name of it.
    pub id: ClusterId,
    /// `host:port`, at least one.
    pub bootstrap_servers: Vec<String>,
    /// How to reach it.
    pub security: Security,
    /// Extra client properties, already free of those we own.
    pub client_options: BTreeMap<String, String>,
    /// Kafka's own cluster id, when it is pinned.
    pub expected_cluster_id: Option<String>,
}

/// Transport and authentication of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// None: no TLS.
    pub tls: Option<Tls>,
    /// None: no authentication.
    pub sasl: Option<Sasl>,
}

/// TLS settings; files are read where the controller or worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// PEM file of trusted certificates; None: the system's.
    pub ca_file: Option<String>,
    /// PEM file of the client certificate.
    pub cert_file: Option<String>,
    /// PEM file of the client key.
    pub key_file: Option<String>,
    /// Password of `key_file`.
    pub key_password: Option<SecretRef>,
    /// Accept a certificate for another host name.
    pub skip_hostname_check: bool,
}

/// SASL settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sasl {
    /// How the password is proven.
    pub mechanism: SaslMechanism,
    /// Who we are.
    pub username: String,
    /// Where the password is found.
    pub password: SecretRef,
}

/// Supported SASL mechanisms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// RFC 4616.
    Plain,
    /// RFC 5802 with SHA-256.
    ScramSha256,
    /// RFC 5802 with SHA-512.
    ScramSha512,
}

/// Where a secret is found. The secret itself is never stored, sent or printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// Name of an environment variable.
    Env(String),
    /// Path of a file; one trailing line end is cut off.
    File(String),
}

/// One source cluster copied to one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Our name of it.
    pub id: LinkId,
    /// Cluster read from.
    pub source: ClusterId,
    /// Cluster written to; never `source`.
    pub target: ClusterId,
    /// How target topics are named.
    pub naming: Naming,
    /// Where topics are read from when no checkpoint exists.
    pub start: StartPolicy,
    /// What to do about source offsets that are gone.
    pub on_gap: GapPolicy,
    /// Which cluster holds the checkpoints.
    pub checkpoint_on: CheckpointSide,
    /// How target topics are made.
    pub target_topics: TargetTopics,
    /// Nothing of this link runs while set.
    pub paused: bool,
    /// Data path asked for. None: [`Engine::DEFAULT`], also when that changes with the software.
    pub engine: Option<Engine>,
}

/// The data path that carries a link's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// Decodes every record; at least once. Works with every cluster that librdkafka works with.
    Records,
    /// Passes compressed batches on unopened; exactly once where the target allows it.
    Batches,
}

/// A client option of ours: `true` lets a target create missing topics by itself when it has no call
/// to create them. Meant for mock clusters; topics made this way have the cluster's default settings,
/// so never set it where the data matters. The batch engine does not know it.
pub const ALLOW_AUTO_CREATE: &str = "kreplicator.allow.auto.create";

impl Engine {
    /// What carries a link that names none.
    pub const DEFAULT: Self = Self::Batches;

    /// The stable name, as written in files and shown in status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Batches => "batches",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Cluster {
    /// Whether missing topics may be left to the cluster's own automatic creation; see
    /// [`ALLOW_AUTO_CREATE`].
    #[must_use]
    pub fn allows_auto_create(&self) -> bool {
        let value = self.client_options.get(ALLOW_AUTO_CREATE);
        value.is_some_and(|value| value == "true")
    }
}

impl Link {
    /// The data path that carries the link.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine.unwrap_or(Engine::DEFAULT)
    }
}

/// Target name of a source topic: its entry in `rename`, else `prefix` followed by its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// Put before the source name; empty for identity.
    pub prefix: String,
    /// Source topic to target topic.
    pub rename: BTreeMap<TopicName, TopicName>,
}

/// Where a topic is read from when no checkpoint exists. Partitions (and, for patterns, topics)
/// that appear after the subscription began start at 0 whatever this says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartPolicy {
    /// The log start.
    #[default]
    Earliest,
    /// The log end at the time of subscribing.
    Latest,
    /// The first record at or after this time.
    Timestamp(UnixMillis),
}

/// What happens when source offsets below the log start were never copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GapPolicy {
    /// Go on at the log start; count and report the gap.
    #[default]
    ContinueAndReport,
    /// Stop the task until an operator decides.
    Halt,
}

/// Which cluster holds the group `kreplicator.<link>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointSide {
    /// The link's source.
    #[default]
    Source,
    /// The link's target, where the source may not be written to.
    Target,
}

/// How target topics are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetTopics {
    /// Target topics must exist already.
    pub refuse_create: bool,
    /// Partitions are never added to target topics.
    pub refuse_grow: bool,
    /// None: the target cluster's default.
    pub replication_factor: Option<u16>,
    /// Overrides on top of the source topic's settings.
    pub config: BTreeMap<String, String>,
}

/// Topics asked for on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The link.
    pub link: LinkId,
    /// Which topics.
    pub selector: Selector,
    /// None: the link's.
    pub start: Option<StartPolicy>,
    /// Nothing of this subscription runs while set.
    pub paused: bool,
}

/// Which topics of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Exactly this one; may be an internal topic of others, never one of ours.
    Topic(TopicName),
    /// Those that match; internal topics never do.
    Pattern(Pattern),
}

/// Anchored regular expressions in RE2 syntax.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    /// A topic must match this.
    pub include: String,
    /// And none of these.
    pub exclude: Vec<String>,
}
