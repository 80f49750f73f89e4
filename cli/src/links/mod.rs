//! The file that declares clusters, links and subscriptions (`apply -f links.yaml`).
//!
//! ```yaml
//! clusters:
//!   east: {bootstrap_servers: [east-1:9092, east-2:9092]}
//!   west:
//!     bootstrap_servers: west-1:9093
//!     tls: {ca_file: /etc/kafka/ca.pem}
//!     sasl: {mechanism: SCRAM-SHA-512, username: mirror, password: {env: WEST_PASSWORD}}
//! links:
//!   east-west:
//!     source: east
//!     target: west
//!     naming: {prefix: "east."}
//!     start: latest
//!     topics: [orders, {topic: payments, start: 2026-01-01T00:00:00Z}]
//!     patterns: ["events\\..*", {include: "logs-.*", exclude: [logs-debug]}]
//! ```
//!
//! - [`cluster`], [`link`], [`subscription`]: what each part may hold.
//! - [`check`]: what a controller would refuse, found here where the line is known.
//! - [`start`]: where reading begins.
//! - [`places`]: where each thing was declared, so that a refusal of the server can name the line.

mod check;
mod cluster;
mod link;
mod places;
mod start;
mod subscription;

use kreplicator_proto::v1;

pub(crate) use self::{places::Places, start::start_of};
use crate::yaml::{Faults, Fields, Path, fields::entries, parse::parse};

/// What a file declares.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Declared {
    /// In the order written.
    pub(crate) clusters: Vec<v1::Cluster>,
    /// In the order written.
    pub(crate) links: Vec<v1::Link>,
    /// In the order written.
    pub(crate) subscriptions: Vec<v1::Subscription>,
    /// Where each was written.
    pub(crate) places: Places,
}

impl Declared {
    /// Whether nothing at all is declared.
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.links.is_empty() && self.subscriptions.is_empty()
    }
}

/// Reads a file's text.
///
/// # Errors
/// Everything in it that is wrong by itself. What is wrong only together with what the server
/// knows (an unknown cluster, clashing names) is for the server to say.
pub(crate) fn read(name: &str, text: &str) -> Result<Declared, Faults> {
    let root = parse(name, text)?;
    let mut faults = Faults::default();
    let mut declared = Declared::default();
    let path = Path::root();
    if let Some(mut fields) = Fields::of(&root, &path, &mut faults) {
        fields.optional("clusters", |node, path, faults| {
            entries(node, path, faults, |field, path, faults| {
                let read = cluster::read(field, path, faults)?;
                check::cluster(&read, &field.value, path, faults);
                declared
                    .places
                    .declare(format!("cluster {}", read.id), &field.place);
                let index = declared.clusters.len();
                declared
                    .places
                    .declare_item("clusters", index, &field.place);
                declared.clusters.push(read);
                Some(())
            })
        });
        fields.optional("links", |node, path, faults| {
            entries(node, path, faults, |field, path, faults| {
                link::read(field, path, faults, &mut declared)
            })
        });
        fields.finish();
    }
    faults.or(Some(declared))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
clusters:
  east: {bootstrap_servers: [east-1:9092, east-2:9092]}
  west:
    bootstrap_servers: west-1:9093
    tls: {ca_file: /etc/kafka/ca.pem}
    sasl: {mechanism: SCRAM-SHA-512, username: mirror, password: {env: WEST_PASSWORD}}
    client_options: {client.rack: 5}
    expected_cluster_id: abc
links:
  east-west:
    source: east
    target: west
    naming: {prefix: "east.", rename: {orders: all-orders}}
    start: latest
    on_gap: halt
    checkpoint_on: target
    engine: batches
    target_topics: {refuse_grow: true, replication_factor: 3, config: {retention.ms: 1000}}
    topics: [orders, {topic: payments, start: 2026-01-01T00:00:00Z, paused: true}]
    patterns: ["events\\..*", {include: "logs-.*", exclude: [logs-debug]}]
"#;

    #[test]
    fn a_full_file_is_read() {
        let declared = read("links.yaml", FULL).expect("no faults");
        let ids: Vec<_> = declared
            .clusters
            .iter()
            .map(|cluster| &cluster.id)
            .collect();
        assert_eq!(ids, ["east", "west"]);
        let west = &declared.clusters[1];
        assert_eq!(west.bootstrap_servers, ["west-1:9093"]);
        assert_eq!(west.client_options["client.rack"], "5");
        let security = west.security.as_ref().expect("given");
        let sasl = security.sasl.as_ref().expect("given");
        assert_eq!(sasl.mechanism(), v1::SaslMechanism::ScramSha512);
        let from = sasl
            .password
            .as_ref()
            .and_then(|secret| secret.from.clone());
        assert_eq!(
            from,
            Some(v1::secret_ref::From::Env("WEST_PASSWORD".to_owned()))
        );

        let link = &declared.links[0];
        assert_eq!(
            (link.source.as_str(), link.target.as_str()),
            ("east", "west")
        );
        assert_eq!(link.on_gap(), v1::GapPolicy::Halt);
        assert_eq!(link.checkpoint_on(), v1::CheckpointSide::Target);
        assert_eq!(link.engine(), v1::Engine::Batches);
        let naming = link.naming.as_ref().expect("given");
        assert_eq!(naming.rename["orders"], "all-orders");
        let target = link.target_topics.as_ref().expect("given");
        assert_eq!((target.replication_factor, target.refuse_grow), (3, true));

        let starts: Vec<_> = declared
            .subscriptions
            .iter()
            .map(|subscription| subscription.start.and_then(|start| start.at))
            .collect();
        let at = v1::start_policy::At::TimestampMs(1_767_225_600_000);
        assert_eq!(starts, [None, Some(at), None, None]);
        assert!(declared.subscriptions[1].paused);
        let place = declared.places.of("subscription east-west/payments");
        assert_eq!(place.expect("declared").to_string(), "links.yaml:20:22");
        let place = declared.places.of("subscription east-west//logs-.*/");
        assert_eq!(place.expect("declared").to_string(), "links.yaml:21:31");
    }

    #[test]
    fn every_fault_of_a_file_is_told_at_once() {
        let text = r#"
cluster: {}
clusters:
  East: {bootstrap_servers: [a:1]}
  west:
    bootstrap_server: b:1
  north: {bootstrap_servers: ["n:1"], client_options: {acks: 1}}
  south:
    bootstrap_servers: ["s:1"]
    sasl: {mechanism: SCRAM, username: u, password: hunter2}
links:
  a-b:
    source: [x]
    target: west
    start: yesterday
    on_gap: stop
    engine: batch
    topics: [orders, "a b", orders, {start: latest}]
    patterns: [{exclude: [x]}, "a("]
    target_topics: {replication_factor: -1, refuse_crate: maybe}
"#;
        let faults = read("links.yaml", text).expect_err("full of faults");
        let shown = faults.to_string();
        assert!(!shown.contains("hunter2"), "a secret was shown: {shown}");
        let expected = include_str!("golden/faults.txt");
        assert_eq!(shown.trim_end(), expected.trim_end(), "\n{shown}");
    }

    #[test]
    fn an_empty_file_declares_nothing() {
        assert_eq!(read("links.yaml", "").expect("fine"), Declared::default());
    }
}
