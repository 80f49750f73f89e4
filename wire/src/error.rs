//! What can go wrong between us and a cluster, each with the thing at fault and the remedy.

use std::sync::Arc;

use kreplicator_model::ids::ClusterId;

use crate::code::{Class, Code};

/// An error of a connection or a call. Cheap to clone: all who wait on a connection get the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The host name has no address.
    #[error(
        "host name of broker {broker} cannot be resolved ({cause}); check it and the name service"
    )]
    Resolve {
        /// Address as configured or advertised.
        broker: Arc<str>,
        /// What the system said.
        cause: String,
    },
    /// No address of the broker took the connection.
    #[error(
        "broker {broker} cannot be reached ({cause}); check its address, that it runs, and firewalls"
    )]
    Connect {
        /// Address as configured or advertised.
        broker: Arc<str>,
        /// What the system said.
        cause: String,
    },
    /// The TLS handshake failed.
    #[error(
        "TLS with broker {broker} failed: check tls.ca_file, the certificates and the host name ({cause})"
    )]
    Tls {
        /// The broker.
        broker: Arc<str>,
        /// What was seen.
        cause: String,
    },
    /// A TLS file cannot be used.
    #[error("{field} {path:?} cannot be used ({cause}); check its path, mode and content")]
    TlsFile {
        /// The setting that names the file.
        field: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A password or token cannot be read.
    #[error("a secret cannot be read: {cause}")]
    Secret {
        /// Which, why and what to do; never its value.
        cause: String,
    },
    /// User, password or token refused.
    #[error(
        "authentication refused by broker {broker}: check user and password of {mechanism} ({cause})"
    )]
    Authentication {
        /// The broker.
        broker: Arc<str>,
        /// The SASL mechanism.
        mechanism: &'static str,
        /// What was seen.
        cause: String,
    },
    /// No answer before the deadline.
    #[error("broker {broker} did not answer {api} in time")]
    Timeout {
        /// The broker.
        broker: Arc<str>,
        /// The call.
        api: &'static str,
    },
    /// The broker asked for a pause that outlasts the deadline; nothing was sent.
    #[error(
        "broker {broker} throttles this client: {api} had to wait for longer than its deadline; see its quotas"
    )]
    Throttled {
        /// The broker.
        broker: Arc<str>,
        /// The call.
        api: &'static str,
    },
    /// The connection ended. The request may or may not have been carried out.
    #[error("connection to broker {broker} ended ({cause})")]
    Disconnected {
        /// The broker.
        broker: Arc<str>,
        /// Why.
        cause: String,
    },
    /// The machine of the broker has fallen silent. The request may or may not have been carried out.
    #[error(
        "the machine of broker {broker} no longer answers; check that it runs, and the network"
    )]
    Silent {
        /// The broker.
        broker: Arc<str>,
    },
    /// A frame is larger than allowed.
    #[error(
        "broker {broker} announces an answer of {bytes} bytes, more than the {limit} that are taken: check \
         that the port speaks Kafka, and TLS only where tls is set; if it does, lower max.message.bytes of \
         the topics"
    )]
    Oversize {
        /// The broker.
        broker: Arc<str>,
        /// Length announced.
        bytes: u64,
        /// Our limit.
        limit: u64,
    },
    /// An answer that breaks the protocol.
    #[error(
        "broker {broker} answers {api} with what is no answer ({cause}); check that the port speaks Kafka"
    )]
    Malformed {
        /// The broker.
        broker: Arc<str>,
        /// The call.
        api: &'static str,
        /// What is wrong.
        cause: String,
    },
    /// The broker lacks the call, or every version of it that we speak.
    #[error("broker {broker} does not support {api} as this program speaks it; upgrade the broker")]
    Unsupported {
        /// The call.
        api: &'static str,
        /// The broker.
        broker: Arc<str>,
    },
    /// A request that cannot be expressed.
    #[error("{api} cannot be sent to broker {broker}: {cause}")]
    Request {
        /// The call.
        api: &'static str,
        /// The broker.
        broker: Arc<str>,
        /// Why.
        cause: String,
    },
    /// The broker answered and said no.
    #[error("{what}: {code}")]
    Refused {
        /// What was asked, naming topic, partition or group.
        what: String,
        /// Why.
        code: Code,
    },
    /// A topic or partition without a known leader.
    #[error("{what} has no leader on cluster {cluster} that could be found in time")]
    NoLeader {
        /// The topic and partition.
        what: String,
        /// The cluster.
        cluster: ClusterId,
    },
    /// A broker that something points to is not among the brokers of its cluster.
    #[error(
        "cluster {cluster} has no broker {broker}: it has left or has not registered yet; check that it runs"
    )]
    NoBroker {
        /// The cluster.
        cluster: ClusterId,
        /// Number of the broker.
        broker: i32,
    },
    /// No broker of the cluster could be used in time.
    #[error("cluster {cluster} cannot be reached: no broker could be used in time ({cause})")]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// The last fault seen.
        cause: String,
    },
    /// The cluster is another one than was pinned.
    #[error(
        "cluster {cluster} answers with id {found}, but expected_cluster_id is {expected}: \
         check bootstrap_servers, or change expected_cluster_id if the cluster was replaced on purpose"
    )]
    WrongCluster {
        /// The cluster.
        cluster: ClusterId,
        /// The pinned id.
        expected: String,
        /// The id it answered with.
        found: String,
    },
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Throttled { .. } | Self::Unreachable { .. } => Class::Retryable,
            // The broker may be gone for good and its partitions elsewhere.
            Self::Timeout { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::Silent { .. }
            | Self::NoBroker { .. }
            | Self::NoLeader { .. } => Class::Refresh,
            Self::Refused { code, .. } => code.class(),
            Self::Tls { .. }
            | Self::TlsFile { .. }
            | Self::Secret { .. }
            | Self::Authentication { .. }
            | Self::Oversize { .. }
            | Self::Malformed { .. }
            | Self::Unsupported { .. }
            | Self::Request { .. }
            | Self::WrongCluster { .. } => Class::Terminal,
        }
    }

    /// Whether the same call may succeed later by itself.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.class(), Class::Retryable | Class::Refresh)
    }

    /// Whether the user lacks a right on the topic or the cluster.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(
            self.code(),
            Some(Code::TOPIC_AUTHORIZATION_FAILED | Code::CLUSTER_AUTHORIZATION_FAILED)
        )
    }

    /// The broker's code, when it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The refusal of `what` with `code`; Ok for no error.
    pub(crate) fn check(code: i16, what: impl FnOnce() -> String) -> Result<(), Self> {
        match Code(code).fault() {
            None => Ok(()),
            Some(code) => Err(Self::Refused { what: what(), code }),
        }
    }
}
