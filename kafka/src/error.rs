//! What can go wrong with a cluster, sorted once: callers branch on [`Class`] and on variants, people
//! read the text, which names the thing at fault and what to do.

use kreplicator_model::ids::{ClusterId, TopicName};
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

use crate::secrets::SecretError;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same call may succeed later, without anybody doing anything.
    Retryable,
    /// Somebody has to change something first: settings, rights, the topic, the record.
    Terminal,
    /// Somebody else took over: stop.
    Fenced,
}

/// An error of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A password cannot be read.
    #[error("cluster {cluster}: a secret cannot be read")]
    Secret {
        /// The cluster.
        cluster: ClusterId,
        /// Which, why and what to do.
        #[source]
        fault: SecretError,
    },
    /// A TLS file cannot be read.
    #[error(
        "cluster {cluster}: {field} {path:?} cannot be read ({cause}); check its path, owner and mode"
    )]
    File {
        /// The cluster.
        cluster: ClusterId,
        /// The setting that names the file.
        field: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// The client library refuses the settings.
    #[error(
        "cluster {cluster}: the client refuses its settings ({detail}); \
         check `security` and `client_options`"
    )]
    Settings {
        /// The cluster.
        cluster: ClusterId,
        /// What the library said.
        detail: String,
    },
    /// No broker could be reached, or none answered in time.
    #[error("cluster {cluster} cannot be reached: {cause}")]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// Why, as the client saw it last.
        cause: String,
    },
    /// User or password refused.
    #[error(
        "authentication refused by cluster {cluster}: check sasl.username and its password ({detail})"
    )]
    Authentication {
        /// The cluster.
        cluster: ClusterId,
        /// What the client saw.
        detail: String,
    },
    /// The TLS handshake failed.
    #[error(
        "TLS with cluster {cluster} failed: check tls.ca_file, the certificates and the host names \
         ({detail})"
    )]
    Tls {
        /// The cluster.
        cluster: ClusterId,
        /// What the client saw.
        detail: String,
    },
    /// The user lacks a permission.
    #[error("cluster {cluster} does not permit {call}: grant the user {right}")]
    Denied {
        /// The cluster.
        cluster: ClusterId,
        /// What was tried.
        call: String,
        /// What it takes.
        right: &'static str,
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
    /// A topic that was to be created exists.
    #[error("topic {topic} exists on cluster {cluster} already")]
    AlreadyExists {
        /// The cluster.
        cluster: ClusterId,
        /// The topic.
        topic: TopicName,
    },
    /// A topic that has to exist does not.
    #[error("topic {topic} does not exist on cluster {cluster}; create it or check its name")]
    UnknownTopic {
        /// The cluster.
        cluster: ClusterId,
        /// The topic.
        topic: TopicName,
    },
    /// The cluster has no such call (mock clusters, very old brokers).
    #[error("cluster {cluster} does not support {call}")]
    Unsupported {
        /// The cluster.
        cluster: ClusterId,
        /// What was tried.
        call: String,
    },
    /// The cluster answered and said no.
    #[error("cluster {cluster} refused {call}: {detail}")]
    Refused {
        /// The cluster.
        cluster: ClusterId,
        /// What was tried.
        call: String,
        /// Why.
        detail: String,
        /// Whether it may say yes later.
        class: Class,
    },
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. } => Class::Retryable,
            Self::Refused { class, .. } => *class,
            Self::Secret { .. }
            | Self::File { .. }
            | Self::Settings { .. }
            | Self::Authentication { .. }
            | Self::Tls { .. }
            | Self::Denied { .. }
            | Self::WrongCluster { .. }
            | Self::AlreadyExists { .. }
            | Self::UnknownTopic { .. }
            | Self::Unsupported { .. } => Class::Terminal,
        }
    }

    /// The whole story on one line, for a status: the text and that of its source.
    #[must_use]
    pub fn full_text(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// An error of making a client.
    #[must_use]
    pub fn from_creation(cluster: &ClusterId, fault: &KafkaError) -> Self {
        let detail = match fault {
            KafkaError::ClientConfig(_, detail, name, _) => format!("{name}: {detail}"),
            KafkaError::ClientCreation(detail) => detail.clone(),
            other => other.to_string(),
        };
        Self::Settings {
            cluster: cluster.clone(),
            detail,
        }
    }
}

/// What to do about an error code of a client or a broker.
#[must_use]
pub fn class_of(code: Code) -> Class {
    match code {
        Code::Fenced
        | Code::ProducerFenced
        | Code::InvalidProducerEpoch
        | Code::FencedInstanceId
        | Code::FencedMemberEpoch => Class::Fenced,
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidTimestamp
        | Code::InvalidRecord
        | Code::InvalidMessage
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication
        | Code::SSL
        | Code::UnsupportedSASLMechanism
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType
        | Code::PolicyViolation
        | Code::InvalidConfig
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::InvalidRequest
        | Code::InvalidArgument
        | Code::InvalidGroupId
        | Code::InvalidRequiredAcks
        | Code::OffsetMetadataTooLarge
        | Code::SecurityDisabled
        | Code::TopicAlreadyExists
        | Code::AutoOffsetReset
        | Code::LogTruncation
        | Code::OffsetOutOfRange
        | Code::BadMessage
        | Code::BadCompression
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId => Class::Terminal,
        _ => Class::Retryable,
    }
}

/// What a code means and what to do about it, in words.
#[must_use]
pub fn explain(code: Code) -> String {
    let text = match code {
        Code::TopicAuthorizationFailed => "the user lacks a permission on the topic; grant it",
        Code::GroupAuthorizationFailed => "the user lacks READ on the group; grant it",
        Code::ClusterAuthorizationFailed => "the user lacks a permission on the cluster; grant it",
        Code::SaslAuthenticationFailed | Code::Authentication => {
            "authentication refused; check sasl.username and its password"
        }
        Code::SSL => "TLS handshake failed; check tls.ca_file, the certificates and the host names",
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => {
            "too large for the topic; raise its max.message.bytes"
        }
        Code::InvalidTimestamp => {
            "the timestamp is outside what the topic accepts; widen its \
             message.timestamp.before.max.ms and message.timestamp.after.max.ms"
        }
        Code::InvalidRecord => {
            "the record is not accepted by the topic (a compacted topic takes no record without key); \
             change its cleanup.policy or leave the topic out"
        }
        Code::InvalidMessage => "the broker found the batch damaged",
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId => "the topic or the partition does not exist; create it",
        Code::InvalidTopic => {
            "the topic's name is not legal there, or another topic's differs from it only in '.' and '_'"
        }
        Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend => {
            "fewer replicas are in sync than min.insync.replicas demands; bring brokers back"
        }
        Code::LeaderNotAvailable | Code::NotLeaderForPartition => {
            "the partition has no leader that answers"
        }
        Code::PolicyViolation => "a policy of the cluster forbids it; ask its operators",
        Code::InvalidConfig => "a setting is not accepted there; check target_topics.config",
        Code::InvalidPartitions => "the number of partitions is not accepted",
        Code::InvalidReplicationFactor => {
            "the replication factor is not possible there; set target_topics.replication_factor \
             to at most the number of brokers"
        }
        Code::UnsupportedVersion | Code::UnsupportedFeature => "the brokers do not support it",
        Code::KafkaStorageError => "a disk of the broker failed",
        Code::BadMessage => "a damaged batch was read",
        Code::BadCompression => "a batch cannot be decompressed",
        _ => return code.to_string(),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterId {
        ClusterId::new("east").expect("legal")
    }

    #[test]
    fn a_wrong_password_says_where_to_look() {
        let fault = Error::Authentication {
            cluster: cluster(),
            detail: "invalid credentials".into(),
        };
        let text = fault.to_string();
        assert!(
            text.starts_with(
                "authentication refused by cluster east: check sasl.username and its password"
            ),
            "{text}"
        );
        assert_eq!(fault.class(), Class::Terminal);
    }

    #[test]
    fn the_full_text_holds_the_source_once() {
        let fault = Error::Secret {
            cluster: cluster(),
            fault: SecretError::VariableMissing("PW".into()),
        };
        let text = fault.full_text();
        assert_eq!(text.matches("PW").count(), 1, "{text}");
        assert!(
            !fault.to_string().contains("PW"),
            "display leaves the source to itself"
        );
    }

    #[test]
    fn codes_are_sorted_by_what_helps() {
        for (code, class) in [
            (Code::BrokerTransportFailure, Class::Retryable),
            (Code::NotLeaderForPartition, Class::Retryable),
            (Code::NotEnoughReplicas, Class::Retryable),
            (Code::MessageSizeTooLarge, Class::Terminal),
            (Code::InvalidTimestamp, Class::Terminal),
            (Code::TopicAuthorizationFailed, Class::Terminal),
            (Code::UnknownTopicOrPartition, Class::Terminal),
            (Code::ProducerFenced, Class::Fenced),
        ] {
            assert_eq!(class_of(code), class, "{code}");
        }
    }

    #[test]
    fn explanations_name_the_setting_at_fault() {
        assert!(explain(Code::MessageSizeTooLarge).contains("max.message.bytes"));
        assert!(explain(Code::InvalidTimestamp).contains("message.timestamp.before.max.ms"));
        assert!(explain(Code::InvalidRecord).contains("without key"));
        assert!(!explain(Code::Fail).is_empty(), "every code has some text");
    }

    #[test]
    fn a_refused_setting_names_the_property() {
        let mut config = rdkafka::ClientConfig::new();
        config.set("linger.ms", "soon");
        let fault = config.create_native_config().err().expect("no number");
        let text = Error::from_creation(&cluster(), &fault).to_string();
        assert!(
            text.contains("east") && text.contains("linger.ms"),
            "{text}"
        );
    }
}
