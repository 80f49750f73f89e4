//! The configuration of services: defaults < YAML file < environment < flags.
//!
//! ```yaml
//! store:
//!   etcd:
//!     endpoints: [http://etcd-0:2379, http://etcd-1:2379]
//! log: {format: json, filter: info}
//! controller: {listen_grpc: "0.0.0.0:7070"}
//! worker: {memory_budget_bytes: 1GiB}
//! ```
//!
//! Every setting can also be given as `KREPLICATOR__SECTION__KEY=value` and `--set
//! section.key=value`. Unknown keys are refused, and all faults are told at once with their places.
//!
//! - [`sources`]: lays file, environment and flags over each other.
//! - [`store`], [`log`]: sections that belong to the process; those of the controller and the worker
//!   are their own.

pub(crate) mod log;
pub(crate) mod sources;
pub(crate) mod store;

use std::net::SocketAddr;

use serde::Serialize;

pub(crate) use self::{log::Log, sources::Sources, store::Store};
use crate::yaml::{Content, Fault, Faults, Fields, Node, Path, section::section};

/// What the process is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A controller of a fleet.
    Controller,
    /// A worker of a fleet.
    Worker,
    /// Both, on a store of its own.
    Standalone,
}

/// The configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Config {
    /// Where everything that must outlive processes is kept.
    pub(crate) store: Store,
    /// What is logged and how.
    pub(crate) log: Log,
    /// The controller's settings.
    pub(crate) controller: kreplicator_controller::config::Config,
    /// The worker's settings.
    pub(crate) worker: kreplicator_worker::config::Config,
}

/// Reads the configuration. `host` names controller and worker where the settings do not.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn load(sources: &Sources, role: Role, host: &str) -> Result<Config, Faults> {
    let root = sources.tree()?;
    let mut faults = Faults::default();
    let config = read(&root, role, host, &mut faults);
    if let Some(config) = &config {
        check(config, &root, role, &mut faults);
    }
    faults.or(config)
}

fn read(root: &Node, role: Role, host: &str, faults: &mut Faults) -> Option<Config> {
    let mut fields = Fields::of(root, &Path::root(), faults)?;
    let store = fields.optional("store", |node, path, faults| {
        store::read(node, path, faults, role)
    });
    let log = fields.optional("log", log::read);
    let controller = fields.optional("controller", section);
    let worker = fields.optional("worker", section);
    fields.finish();
    let mut config = Config {
        store: store.unwrap_or_else(|| Store::default_of(role)),
        log: log.unwrap_or_default(),
        controller: controller.unwrap_or_default(),
        worker: worker.unwrap_or_default(),
    };
    for id in [&mut config.controller.id, &mut config.worker.id] {
        if id.is_empty() {
            host.clone_into(id);
        }
    }
    if role == Role::Standalone {
        listen_on_loopback(&mut config, root);
    }
    Some(config)
}

/// A standalone process is for one machine: unless told otherwise it listens there alone.
fn listen_on_loopback(config: &mut Config, root: &Node) {
    let is_set = |section: &str, key: &str| root.get(section).and_then(|s| s.get(key)).is_some();
    let loopback = |address: &mut SocketAddr| address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    if !is_set("controller", "listen_grpc") {
        loopback(&mut config.controller.listen_grpc);
    }
    if !is_set("controller", "listen_http") {
        loopback(&mut config.controller.listen_http);
    }
    if !is_set("worker", "listen") {
        loopback(&mut config.worker.listen);
    }
}

/// Adds what the sections themselves find wrong, at the place where it was written.
fn check(config: &Config, root: &Node, role: Role, faults: &mut Faults) {
    let mut found: Vec<(&str, String, String)> = Vec::new();
    if role != Role::Worker {
        let of = config.controller.validate().into_iter();
        found.extend(of.map(|fault| ("controller", fault.path, fault.message)));
    }
    if role != Role::Controller {
        let of = config.worker.validate().into_iter();
        found.extend(of.map(|fault| ("worker", fault.path, fault.message)));
    }
    for (section, path, message) in found {
        let mut node = root.get(section);
        for key in path.split('.') {
            node = node.and_then(|node| node.get(key));
        }
        faults.add(Fault {
            place: node.map(|node| node.place.clone()),
            path: format!("{section}.{path}"),
            message,
        });
    }
}

impl Config {
    /// As YAML, secrets as the places where they are found.
    pub(crate) fn to_yaml(&self) -> anyhow::Result<String> {
        Ok(serde_saphyr::to_string(self)?)
    }
}

/// Whether a node holds nothing.
pub(crate) fn is_empty(node: &Node) -> bool {
    matches!(&node.content, Content::Null)
        || matches!(&node.content, Content::Map(fields) if fields.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sources(file: &str) -> Sources {
        Sources {
            file: Some(("kreplicator.yaml".to_owned(), file.to_owned())),
            ..Sources::default()
        }
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn later_sources_win_value_by_value() {
        let mut sources = sources(
            "worker: {lease_ttl: 4s, capacity_tasks: 7, report_interval: 3s}\n\
             store: {etcd: {endpoints: [http://a:1]}}\n",
        );
        sources.environment = vec![
            pair("KREPLICATOR__WORKER__LEASE_TTL", "6s"),
            pair("KREPLICATOR__WORKER__CAPACITY_TASKS", "8"),
            pair(
                "KREPLICATOR__STORE__ETCD__ENDPOINTS",
                "[http://b:1, http://c:1]",
            ),
            pair("KREPLICATOR_ENDPOINT", "not ours"),
            pair("PATH", "not ours"),
        ];
        sources.flags = vec![pair("worker.capacity_tasks", "9")];
        let config = load(&sources, Role::Worker, "host-1").expect("no faults");
        assert_eq!(config.worker.report_interval, Duration::from_secs(3));
        assert_eq!(config.worker.lease_ttl, Duration::from_secs(6));
        assert_eq!(config.worker.capacity_tasks, 9);
        assert_eq!(config.worker.id, "host-1");
        let Store::Etcd(etcd) = &config.store else {
            panic!("{:?}", config.store);
        };
        assert_eq!(etcd.endpoints, ["http://b:1", "http://c:1"]);
    }

    #[test]
    fn all_faults_are_told_at_once_with_line_and_remedy() {
        let mut sources = sources(include_str!("golden/faults.yaml"));
        sources.environment = vec![
            pair("KREPLICATOR__LOG__FORMAT", "xml"),
            pair("KREPLICATOR__WORKR__ID", "x"),
        ];
        sources.flags = vec![pair("controller.lease_ttl", "1ms")];
        let faults = load(&sources, Role::Standalone, "host-1").expect_err("full of faults");
        let shown = faults.to_string();
        assert!(!shown.contains("hunter2"), "a secret was shown: {shown}");
        let expected = include_str!("golden/faults.txt");
        assert_eq!(shown.trim_end(), expected.trim_end(), "\n{shown}");
    }

    #[test]
    fn the_printed_configuration_reads_back_as_itself_and_holds_no_secret() {
        let text = "store:\n  etcd:\n    endpoints: [https://a:1]\n    user: k\n    \
                    password: {env: ETCD_PASSWORD}\n    tls: {ca_file: /ca.pem}\n\
                    log: {format: json, filter: 'info,kreplicator_worker=debug'}\n";
        let config = load(&sources(text), Role::Controller, "host-1").expect("no faults");
        let printed = config.to_yaml().expect("printable");
        assert!(printed.contains("env: ETCD_PASSWORD"), "{printed}");
        let again = load(&sources(&printed), Role::Controller, "other").expect("no faults");
        assert_eq!(again, config);
    }

    #[test]
    fn standalone_keeps_to_its_machine_unless_told_otherwise() {
        let config = load(&Sources::default(), Role::Standalone, "h").expect("no faults");
        assert!(config.controller.listen_grpc.ip().is_loopback());
        assert!(config.worker.listen.ip().is_loopback());
        assert!(matches!(config.store, Store::Embedded(_)));
        let sources = sources("controller: {listen_grpc: '0.0.0.0:7070'}\n");
        let config = load(&sources, Role::Standalone, "h").expect("no faults");
        assert!(config.controller.listen_grpc.ip().is_unspecified());
        assert!(config.controller.listen_http.ip().is_loopback());
    }

    #[test]
    fn a_fleet_needs_a_store_that_processes_can_share() {
        let sources = sources("store: {embedded: {path: x.redb}}\n");
        let faults = load(&sources, Role::Worker, "h").expect_err("refused");
        assert!(
            faults.to_string().contains("use `kreplicator standalone`"),
            "{faults}"
        );
        assert!(load(&sources, Role::Standalone, "h").is_ok());
    }
}
