//! What kind of cluster to start, and the broker settings that follow from it.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use super::{certificates::Certificates, version::KafkaVersion};

/// A cluster to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Name in messages and log files.
    pub name: String,
    /// The release that runs.
    pub version: KafkaVersion,
    /// Number of nodes; each is broker and controller. Odd.
    pub brokers: u16,
    /// Broker settings on top of ours.
    pub properties: BTreeMap<String, String>,
    /// Users and passwords of the client listener, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
    /// Empty: no authentication.
    pub users: BTreeMap<String, String>,
    /// TLS on the client listener.
    pub tls: TlsMode,
    /// Port that each broker tells its clients instead of its own, for a proxy in front; empty:
    /// its own.
    pub advertised_ports: Vec<u16>,
    /// Java heap of a broker.
    pub heap_mebibytes: u32,
    /// Brokers that run as fast as in production and take longer to start: for benchmarks.
    pub optimised: bool,
    /// Each broker stands in a rack of its own, `r1` and so on, and readers are sent to the replica in theirs.
    pub racks: bool,
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// TLS of the client listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Plain text.
    #[default]
    Off,
    /// The broker shows a certificate.
    Server,
    /// Clients must show one too.
    Mutual,
}

impl KafkaOptions {
    /// One broker, no security.
    #[must_use]
    pub fn single(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: KafkaVersion::default(),
            brokers: 1,
            properties: BTreeMap::new(),
            users: BTreeMap::new(),
            tls: TlsMode::Off,
            advertised_ports: Vec::new(),
            heap_mebibytes: 256,
            optimised: false,
            racks: false,
        }
    }

    /// Three brokers; topics have three replicas by default.
    #[must_use]
    pub fn triple(name: &str) -> Self {
        Self {
            brokers: 3,
            ..Self::single(name)
        }
    }

    /// The same in another release.
    #[must_use]
    pub fn version(self, version: KafkaVersion) -> Self {
        Self { version, ..self }
    }

    /// Sets a broker setting.
    #[must_use]
    pub fn property(mut self, key: &str, value: impl ToString) -> Self {
        self.properties.insert(key.to_owned(), value.to_string());
        self
    }

    /// Adds a user of the client listener.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.insert(name.to_owned(), password.to_owned());
        self
    }
}

/// Ports of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports {
    /// For the system under test.
    pub(super) client: u16,
    /// Among brokers, and for the harness itself: never behind a proxy, never secured.
    pub(super) direct: u16,
    /// Among controllers.
    pub(super) quorum: u16,
}

/// One node of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    /// Its place in the cluster, from 0.
    pub(super) index: usize,
    /// Ports of all nodes.
    pub(super) ports: &'a [Ports],
    /// Its data folder.
    pub(super) data: &'a Path,
    /// With TLS on.
    pub(super) certificates: Option<&'a Certificates>,
    /// Address of the cluster's ZooKeeper; None: KRaft.
    pub(super) zookeeper: Option<&'a str>,
}

/// The text of `server.properties` of a node.
pub(super) fn server_properties(options: &KafkaOptions, node: &Node<'_>) -> String {
    let own = node.ports[node.index];
    let advertised = options
        .advertised_ports
        .get(node.index)
        .copied()
        .unwrap_or(own.client);
    let protocol = match (options.tls, options.users.is_empty()) {
        (TlsMode::Off, true) => "PLAINTEXT",
        (TlsMode::Off, false) => "SASL_PLAINTEXT",
        (_, true) => "SSL",
        (_, false) => "SASL_SSL",
    };
    let mut settings = defaults(options.brokers);
    let mut listeners = format!(
        "CLIENT://127.0.0.1:{},DIRECT://127.0.0.1:{}",
        own.client, own.direct
    );
    let mut protocols = format!("CLIENT:{protocol},DIRECT:PLAINTEXT");
    let id = (node.index + 1).to_string();
    if let Some(zookeeper) = node.zookeeper {
        settings.extend(by_zookeeper(id, zookeeper));
    } else {
        settings.extend(by_quorum(id, node.ports));
        write!(listeners, ",QUORUM://127.0.0.1:{}", own.quorum).expect(INFALLIBLE);
        protocols.push_str(",QUORUM:PLAINTEXT");
    }
    let mut set = |key: &str, value: String| settings.insert(key.to_owned(), value);
    set("listeners", listeners);
    set(
        "advertised.listeners",
        format!(
            "CLIENT://127.0.0.1:{advertised},DIRECT://127.0.0.1:{}",
            own.direct
        ),
    );
    set("listener.security.protocol.map", protocols);
    set("log.dirs", node.data.display().to_string());
    if let Some(certificates) = node.certificates {
        set("listener.name.client.ssl.keystore.type", "PEM".to_owned());
        set(
            "listener.name.client.ssl.keystore.location",
            certificates.server_keystore().display().to_string(),
        );
        set("listener.name.client.ssl.truststore.type", "PEM".to_owned());
        set(
            "listener.name.client.ssl.truststore.location",
            certificates.ca().display().to_string(),
        );
        let client_auth = match options.tls {
            TlsMode::Mutual => "required",
            TlsMode::Off | TlsMode::Server => "none",
        };
        set(
            "listener.name.client.ssl.client.auth",
            client_auth.to_owned(),
        );
    }
    if !options.users.is_empty() {
        settings.extend(sasl(&options.users));
    }
    if options.racks {
        settings.extend(rack(node.index + 1));
    }
    settings.extend(options.properties.clone());
    let mut text = String::new();
    for (key, value) in &settings {
        writeln!(text, "{key}={value}").expect(INFALLIBLE);
    }
    text
}

fn rack(id: usize) -> [(String, String); 2] {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    [
        ("broker.rack".to_owned(), format!("r{id}")),
        ("replica.selector.class".to_owned(), selector.to_owned()),
    ]
}

fn sasl(users: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let plain_users: String = users
        .iter()
        .map(|(user, password)| format!(" user_{user}=\"{password}\""))
        .collect();
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    [
        (
            "listener.name.client.sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.client.plain.sasl.jaas.config",
            format!(
                "org.apache.kafka.common.security.plain.PlainLoginModule required{plain_users};"
            ),
        ),
        (
            "listener.name.client.scram-sha-256.sasl.jaas.config",
            scram.to_owned(),
        ),
        (
            "listener.name.client.scram-sha-512.sasl.jaas.config",
            scram.to_owned(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Settings of a small broker that starts fast and creates nothing by itself.
fn defaults(brokers: u16) -> BTreeMap<String, String> {
    let replicas = brokers.min(3).to_string();
    let replicas_in_sync = brokers.min(2).to_string();
    [
        ("inter.broker.listener.name", "DIRECT"),
        ("default.replication.factor", &replicas),
        ("min.insync.replicas", &replicas_in_sync),
        ("offsets.topic.replication.factor", &replicas),
        ("offsets.topic.num.partitions", "4"),
        ("transaction.state.log.replication.factor", &replicas),
        ("transaction.state.log.min.isr", &replicas_in_sync),
        ("transaction.state.log.num.partitions", "4"),
        (
            "share.coordinator.state.topic.replication.factor",
            &replicas,
        ),
        ("share.coordinator.state.topic.min.isr", &replicas_in_sync),
        ("group.initial.rebalance.delay.ms", "0"),
        ("auto.create.topics.enable", "false"),
        ("controlled.shutdown.enable", "true"),
        ("num.network.threads", "2"),
        ("num.io.threads", "4"),
        ("num.replica.fetchers", "1"),
        // 10 MiB of index mapped for each of thousands of partitions would be most of the memory.
        ("log.index.size.max.bytes", "262144"),
        ("log.cleaner.dedupe.buffer.size", "4194304"),
        ("log.cleaner.io.buffer.size", "65536"),
        ("log.cleaner.threads", "1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Settings of a node that is broker and controller.
fn by_quorum(id: String, ports: &[Ports]) -> BTreeMap<String, String> {
    let voters: Vec<String> = (1..)
        .zip(ports)
        .map(|(node, ports)| format!("{node}@127.0.0.1:{}", ports.quorum))
        .collect();
    [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", id),
        ("controller.listener.names", "QUORUM".to_owned()),
        ("controller.quorum.voters", voters.join(",")),
        // Brokers of three nodes must notice a killed one before the test's patience ends.
        ("broker.session.timeout.ms", "3000".to_owned()),
        ("broker.heartbeat.interval.ms", "500".to_owned()),
        ("controller.quorum.election.timeout.ms", "500".to_owned()),
        ("controller.quorum.fetch.timeout.ms", "1500".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Settings of a broker that finds its controller by ZooKeeper. They are started at the same time, so it
/// has to wait.
fn by_zookeeper(id: String, address: &str) -> BTreeMap<String, String> {
    [
        ("broker.id", id),
        ("zookeeper.connect", address.to_owned()),
        ("zookeeper.connection.timeout.ms", "60000".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(first: u16) -> Ports {
        Ports {
            client: first,
            direct: first + 1,
            quorum: first + 2,
        }
    }

    fn node<'a>(index: usize, ports: &'a [Ports]) -> Node<'a> {
        Node {
            index,
            ports,
            data: Path::new("/d"),
            certificates: None,
            zookeeper: None,
        }
    }

    #[test]
    fn clients_are_sent_to_the_advertised_port_and_brokers_to_their_own() {
        let options = KafkaOptions {
            advertised_ports: vec![7],
            ..KafkaOptions::single("a")
        };
        let text = server_properties(&options, &node(0, &[ports(10)]));
        assert!(
            text.contains("advertised.listeners=CLIENT://127.0.0.1:7,DIRECT://127.0.0.1:11\n"),
            "{text}"
        );
        assert!(text.contains("listeners=CLIENT://127.0.0.1:10,"), "{text}");
    }

    #[test]
    fn settings_of_a_test_win_over_ours() {
        let options = KafkaOptions::triple("a").property("min.insync.replicas", 1);
        let all = [ports(10), ports(20), ports(30)];
        let text = server_properties(&options, &node(1, &all));
        assert!(text.contains("\nmin.insync.replicas=1\n"), "{text}");
        assert!(text.contains("\nnode.id=2\n"), "{text}");
        assert!(text.contains("=1@127.0.0.1:12,2@127.0.0.1:22,3@127.0.0.1:32\n"));
    }

    #[test]
    fn users_turn_authentication_on() {
        let options = KafkaOptions::single("a").user("alice", "secret");
        let text = server_properties(&options, &node(0, &[ports(10)]));
        assert!(text.contains("CLIENT:SASL_PLAINTEXT"), "{text}");
        assert!(text.contains("user_alice=\"secret\";"), "{text}");
    }

    #[test]
    fn an_old_broker_is_told_of_its_zookeeper_and_of_no_quorum() {
        let options = KafkaOptions::single("a").version(KafkaVersion::V2_1);
        let ports = [ports(10)];
        let old = Node {
            zookeeper: Some("127.0.0.1:9"),
            ..node(0, &ports)
        };
        let text = server_properties(&options, &old);
        assert!(text.contains("\nzookeeper.connect=127.0.0.1:9\n"), "{text}");
        assert!(text.contains("broker.id=1\n"), "{text}");
        for unknown in ["QUORUM", "quorum", "process.roles", "node.id"] {
            assert!(!text.contains(unknown), "{unknown} in {text}");
        }
    }
}
