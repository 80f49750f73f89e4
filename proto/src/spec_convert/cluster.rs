//! Clusters, and how they are reached.

use kreplicator_model::{
    ids::ClusterId,
    spec::{Cluster, Sasl, SaslMechanism, SecretRef, Security, Tls},
};

use super::{BOOTSTRAP_SERVERS_MAX, OPTION_NAME_BYTES_MAX, TEXT_BYTES_MAX, check_options};
use crate::{
    fault::{Faults, FieldFault},
    stored::present,
    v1,
};

impl TryFrom<&v1::Cluster> for Cluster {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Cluster) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let id = faults.take("id", ClusterId::new(&message.id));
        check_bootstrap_servers(&mut faults, &message.bootstrap_servers);
        check_options(&mut faults, "client_options", &message.client_options);
        faults.text(
            "expected_cluster_id",
            &message.expected_cluster_id,
            OPTION_NAME_BYTES_MAX,
        );
        let security = match &message.security {
            None => Some(Security::default()),
            Some(security) => faults.part("security", Security::try_from(security)),
        };
        let whole = id.zip(security).map(|(id, security)| Self {
            id,
            bootstrap_servers: message.bootstrap_servers.clone(),
            security,
            client_options: message.client_options.clone(),
            expected_cluster_id: present(&message.expected_cluster_id),
        });
        faults.finish(whole)
    }
}

fn check_bootstrap_servers(faults: &mut Faults, servers: &[String]) {
    if servers.is_empty() {
        faults.add("bootstrap_servers", "is empty; give at least one host:port");
    }
    faults.at_most("bootstrap_servers", servers.len(), BOOTSTRAP_SERVERS_MAX);
    for (index, server) in servers.iter().enumerate() {
        if let Some(fault) = bootstrap_fault(server) {
            faults.add(
                format!("bootstrap_servers[{index}]"),
                format!("{server:?} {fault}"),
            );
        }
    }
}

/// What is wrong with one `host:port`, written to follow it.
fn bootstrap_fault(server: &str) -> Option<&'static str> {
    if server.contains("://") {
        return Some("holds a protocol; write host:port and say how to connect in `security`");
    }
    if server.contains(',') {
        return Some("holds several servers; give each its own entry");
    }
    let Some((host, port)) = server.rsplit_once(':') else {
        return Some("has no port; write host:port, for example kafka-1:9092");
    };
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Some("has no legal port; write host:port with a port from 1 to 65535");
    }
    let bare = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => return None,
            _ => return Some("has no legal IPv6 address between its brackets"),
        },
        None => host,
    };
    if bare.contains(':') {
        return Some("holds an IPv6 address without brackets; write [address]:port");
    }
    if bare.is_empty() || bare.len() > 253 {
        return Some("has no legal host; write host:port, for example kafka-1:9092");
    }
    if !bare
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return Some("has no legal host; a host holds letters, digits, '-', '_' and '.'");
    }
    None
}

impl TryFrom<&v1::Security> for Security {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Security) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let tls = message
            .tls
            .as_ref()
            .map(|tls| faults.part("tls", Tls::try_from(tls)));
        let sasl = message
            .sasl
            .as_ref()
            .map(|sasl| faults.part("sasl", Sasl::try_from(sasl)));
        faults.finish(Some(Self {
            tls: tls.flatten(),
            sasl: sasl.flatten(),
        }))
    }
}

impl TryFrom<&v1::Tls> for Tls {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Tls) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        for (path, file) in [
            ("ca_file", &message.ca_file),
            ("cert_file", &message.cert_file),
            ("key_file", &message.key_file),
        ] {
            faults.text(path, file, TEXT_BYTES_MAX);
        }
        match (message.cert_file.is_empty(), message.key_file.is_empty()) {
            (false, true) => faults.add("key_file", "is missing; cert_file needs its key"),
            (true, false) => faults.add("cert_file", "is missing; key_file needs its certificate"),
            (true, true) | (false, false) => {}
        }
        if message.key_password.is_some() && message.key_file.is_empty() {
            faults.add(
                "key_password",
                "is set without key_file; set key_file or remove it",
            );
        }
        let key_password = message
            .key_password
            .as_ref()
            .map(|secret| faults.part("key_password", SecretRef::try_from(secret)));
        faults.finish(Some(Self {
            ca_file: present(&message.ca_file),
            cert_file: present(&message.cert_file),
            key_file: present(&message.key_file),
            key_password: key_password.flatten(),
            skip_hostname_check: message.skip_hostname_check,
        }))
    }
}

impl TryFrom<&v1::Sasl> for Sasl {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Sasl) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let mechanism = match v1::SaslMechanism::try_from(message.mechanism) {
            Ok(v1::SaslMechanism::Plain) => Some(SaslMechanism::Plain),
            Ok(v1::SaslMechanism::ScramSha256) => Some(SaslMechanism::ScramSha256),
            Ok(v1::SaslMechanism::ScramSha512) => Some(SaslMechanism::ScramSha512),
            Ok(v1::SaslMechanism::Unspecified) | Err(_) => {
                faults.add(
                    "mechanism",
                    "is not known; use PLAIN, SCRAM_SHA_256 or SCRAM_SHA_512",
                );
                None
            }
        };
        if message.username.is_empty() {
            faults.add("username", "is empty; name the user");
        }
        faults.text("username", &message.username, TEXT_BYTES_MAX);
        let password = match &message.password {
            Some(secret) => faults.part("password", SecretRef::try_from(secret)),
            None => {
                faults.add(
                    "password",
                    "is missing; say where it is found with `env` or `file`",
                );
                None
            }
        };
        let whole = mechanism.zip(password).map(|(mechanism, password)| Self {
            mechanism,
            username: message.username.clone(),
            password,
        });
        faults.finish(whole)
    }
}

impl TryFrom<&v1::SecretRef> for SecretRef {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::SecretRef) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let whole = match &message.from {
            Some(v1::secret_ref::From::Env(name)) => {
                // Never echoes the text: someone may have written the secret itself.
                let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if name.is_empty()
                    || name.starts_with(|c: char| c.is_ascii_digit())
                    || !name.chars().all(allowed)
                {
                    faults.add(
                        "env",
                        "is no name of an environment variable; use letters, digits and '_'",
                    );
                }
                faults.text("env", name, OPTION_NAME_BYTES_MAX);
                Some(Self::Env(name.clone()))
            }
            Some(v1::secret_ref::From::File(path)) => {
                if path.is_empty() {
                    faults.add("file", "is empty; give the path of the file");
                }
                faults.text("file", path, TEXT_BYTES_MAX);
                Some(Self::File(path.clone()))
            }
            None => {
                faults.add("", "says nowhere to find the secret; set `env` or `file`");
                None
            }
        };
        faults.finish(whole)
    }
}

impl From<&Cluster> for v1::Cluster {
    fn from(cluster: &Cluster) -> Self {
        Self {
            id: cluster.id.to_string(),
            bootstrap_servers: cluster.bootstrap_servers.clone(),
            security: (cluster.security != Security::default())
                .then(|| v1::Security::from(&cluster.security)),
            client_options: cluster.client_options.clone(),
            expected_cluster_id: cluster.expected_cluster_id.clone().unwrap_or_default(),
        }
    }
}

impl From<&Security> for v1::Security {
    fn from(security: &Security) -> Self {
        Self {
            tls: security.tls.as_ref().map(v1::Tls::from),
            sasl: security.sasl.as_ref().map(v1::Sasl::from),
        }
    }
}

impl From<&Tls> for v1::Tls {
    fn from(tls: &Tls) -> Self {
        Self {
            ca_file: tls.ca_file.clone().unwrap_or_default(),
            cert_file: tls.cert_file.clone().unwrap_or_default(),
            key_file: tls.key_file.clone().unwrap_or_default(),
            key_password: tls.key_password.as_ref().map(v1::SecretRef::from),
            skip_hostname_check: tls.skip_hostname_check,
        }
    }
}

impl From<&Sasl> for v1::Sasl {
    fn from(sasl: &Sasl) -> Self {
        let mechanism = match sasl.mechanism {
            SaslMechanism::Plain => v1::SaslMechanism::Plain,
            SaslMechanism::ScramSha256 => v1::SaslMechanism::ScramSha256,
            SaslMechanism::ScramSha512 => v1::SaslMechanism::ScramSha512,
        };
        Self {
            mechanism: mechanism.into(),
            username: sasl.username.clone(),
            password: Some(v1::SecretRef::from(&sasl.password)),
        }
    }
}

impl From<&SecretRef> for v1::SecretRef {
    fn from(secret: &SecretRef) -> Self {
        let from = match secret {
            SecretRef::Env(name) => v1::secret_ref::From::Env(name.clone()),
            SecretRef::File(path) => v1::secret_ref::From::File(path.clone()),
        };
        Self { from: Some(from) }
    }
}
