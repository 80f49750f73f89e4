//! Clusters.

use kreplicator_proto::v1;
use serde::Serialize;

use super::{Listed, units};

/// A cluster as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cluster {
    id: String,
    bootstrap_servers: Vec<String>,
    tls: bool,
    sasl_mechanism: Option<&'static str>,
    client_options: std::collections::BTreeMap<String, String>,
    expected_cluster_id: Option<String>,
    /// `reachable`, `unreachable` or `unknown`.
    state: &'static str,
    cause: Option<String>,
    since: Option<String>,
    brokers: i32,
    topics: i32,
    partitions: i32,
    kafka_cluster_id: Option<String>,
    discovered_at: Option<String>,
}

/// Text that is empty when there is none.
pub(super) fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<v1::ClusterInfo> for Cluster {
    fn from(info: v1::ClusterInfo) -> Self {
        let cluster = info.cluster.unwrap_or_default();
        let status = info.status.unwrap_or_default();
        let security = cluster.security.unwrap_or_default();
        let state = match (status.reachable, status.since_ms) {
            (true, _) => "reachable",
            (false, 0) => "unknown",
            (false, _) => "unreachable",
        };
        Self {
            id: cluster.id,
            bootstrap_servers: cluster.bootstrap_servers,
            tls: security.tls.is_some(),
            sasl_mechanism: security.sasl.map(|sasl| mechanism(sasl.mechanism())),
            client_options: cluster.client_options.into_iter().collect(),
            expected_cluster_id: some(cluster.expected_cluster_id),
            state,
            cause: some(status.cause),
            since: units::time(status.since_ms),
            brokers: status.brokers,
            topics: status.topics,
            partitions: status.partitions,
            kafka_cluster_id: some(status.kafka_cluster_id),
            discovered_at: units::time(status.discovered_at_ms),
        }
    }
}

fn mechanism(mechanism: v1::SaslMechanism) -> &'static str {
    match mechanism {
        v1::SaslMechanism::Unspecified => "unspecified",
        v1::SaslMechanism::Plain => "PLAIN",
        v1::SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        v1::SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
    }
}

impl Listed for Cluster {
    const PLURAL: &'static str = "clusters";
    const HEADINGS: &'static [&'static str] =
        &["NAME", "STATE", "BROKERS", "TOPICS", "PARTITIONS", "CAUSE"];
    const WIDE: &'static [&'static str] =
        &["SERVERS", "SECURITY", "KAFKA ID", "SINCE", "DISCOVERED"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            self.state.to_owned(),
            self.brokers.to_string(),
            self.topics.to_string(),
            self.partitions.to_string(),
            self.cause.clone().unwrap_or_default(),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let tls = self.tls.then_some("TLS");
        let security: Vec<&str> = tls.into_iter().chain(self.sasl_mechanism).collect();
        vec![
            self.bootstrap_servers.join(","),
            security.join(" "),
            self.kafka_cluster_id.clone().unwrap_or_default(),
            units::time_cell(self.since.as_ref()),
            units::time_cell(self.discovered_at.as_ref()),
        ]
    }
}
