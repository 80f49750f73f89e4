//! How a cluster's settings become properties of a librdkafka client, and which properties are ours
//! alone: those that carry the delivery guarantees, the identity of our group, security and memory.

mod files;
mod owned;

use std::{collections::BTreeMap, fmt};

use kreplicator_model::spec::{Cluster, Sasl, SaslMechanism, Tls};
use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

pub use kreplicator_model::spec::ALLOW_AUTO_CREATE;

use self::files::Digest;
pub use self::owned::{OwnedOption, check_client_options, owned_options};
use crate::{
    error::Error,
    secrets::{SecretError, SecretSource},
};

/// Settings of the network and of names that nobody should have to choose, each set on purpose.
/// A cluster's `client_options` may override them.
const DEFAULTS: &[(&str, &str)] = &[
    ("client.id", "kreplicator"),
    // A peer that vanished without a word is noticed while a connection is idle.
    ("socket.keepalive.enable", "true"),
    ("socket.timeout.ms", "30000"),
    // A black hole is given up sooner than the system's two minutes.
    ("socket.connection.setup.timeout.ms", "10000"),
    // Below the idle limits of common load balancers, which drop connections silently.
    ("connections.max.idle.ms", "240000"),
    ("reconnect.backoff.ms", "100"),
    ("reconnect.backoff.max.ms", "5000"),
    ("retry.backoff.ms", "100"),
    ("retry.backoff.max.ms", "1000"),
    // Brokers may come back under other addresses (C106).
    ("broker.address.ttl", "1000"),
    ("metadata.recovery.strategy", "rebootstrap"),
    ("metadata.recovery.rebootstrap.trigger.ms", "60000"),
    ("topic.metadata.refresh.interval.ms", "60000"),
    ("metadata.max.age.ms", "180000"),
    ("log.connection.close", "false"),
    ("enable.metrics.push", "false"),
    // The library creates topics on its own for producers unless told not to (C068).
    ("allow.auto.create.topics", "false"),
];

/// Properties common to every client of one cluster. `Debug` hides passwords.
///
/// Two are equal when clients made from them are: the content of the files that they name counts, as it
/// was when they were put together (C127).
#[derive(Clone, PartialEq, Eq)]
pub struct ClientProperties {
    values: BTreeMap<String, String>,
    /// What the library reads by itself, by the property that names the file.
    files: BTreeMap<&'static str, Digest>,
}

impl ClientProperties {
    /// The value of a property.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A configuration to add a client's own properties to. Of the library's log lines, warnings
    /// and worse are passed on.
    #[must_use]
    pub fn to_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.values {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }
}

impl fmt::Debug for ClientProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.values.iter().map(|(name, value)| {
            let secret = name.contains("password") || name.ends_with(".pem");
            (name, if secret { "***" } else { value })
        });
        f.debug_map().entries(shown).finish()
    }
}

/// The properties of a client of `cluster`, secrets included.
///
/// # Errors
/// A secret or a file that cannot be read, named with the remedy.
pub fn client_properties(
    cluster: &Cluster,
    secrets: &dyn SecretSource,
) -> Result<ClientProperties, Error> {
    let mut values = BTreeMap::new();
    let mut files = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        values.insert(name.to_owned(), value.to_owned());
    };
    for (name, value) in DEFAULTS {
        set(name, value);
    }
    for (name, value) in &cluster.client_options {
        if name != ALLOW_AUTO_CREATE {
            set(name, value);
        }
    }
    set("bootstrap.servers", &cluster.bootstrap_servers.join(","));
    let security = &cluster.security;
    set(
        "security.protocol",
        match (&security.tls, &security.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        },
    );
    let secret_fault = |fault: SecretError| Error::Secret {
        cluster: cluster.id.clone(),
        fault,
    };
    if let Some(tls) = &security.tls {
        files = set_tls(cluster, tls, &mut set)?;
        if let Some(reference) = &tls.key_password {
            let password = secrets.read(reference).map_err(secret_fault)?;
            set("ssl.key.password", password.expose());
        }
    }
    if let Some(sasl) = &security.sasl {
        set("sasl.mechanism", mechanism(sasl));
        set("sasl.username", &sasl.username);
        let password = secrets.read(&sasl.password).map_err(secret_fault)?;
        set("sasl.password", password.expose());
    }
    Ok(ClientProperties { values, files })
}

fn set_tls(
    cluster: &Cluster,
    tls: &Tls,
    set: &mut impl FnMut(&str, &str),
) -> Result<BTreeMap<&'static str, Digest>, Error> {
    let mut digests = BTreeMap::new();
    let named = [
        ("ssl.ca.location", "tls.ca_file", &tls.ca_file),
        ("ssl.certificate.location", "tls.cert_file", &tls.cert_file),
        ("ssl.key.location", "tls.key_file", &tls.key_file),
    ];
    for (property, field, path) in named {
        let Some(path) = path else { continue };
        // The library's own message about a missing file is a dump of OpenSSL's error queue, and it
        // would read a device for ever.
        let digest = Digest::of(path).map_err(|fault| Error::File {
            cluster: cluster.id.clone(),
            field,
            path: path.clone(),
            cause: fault.to_string(),
        })?;
        digests.insert(property, digest);
        set(property, path);
    }
    set("enable.ssl.certificate.verification", "true");
    let identification = if tls.skip_hostname_check {
        "none"
    } else {
        "https"
    };
    set("ssl.endpoint.identification.algorithm", identification);
    Ok(digests)
}

fn mechanism(sasl: &Sasl) -> &'static str {
    match sasl.mechanism {
        SaslMechanism::Plain => "PLAIN",
        SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::{
        ids::ClusterId,
        spec::{SecretRef, Security},
    };

    use super::*;
    use crate::secrets::{ProcessSecrets, Secret};

    /// Answers every reference with text that names it.
    #[derive(Debug)]
    struct NamedSecrets;

    impl SecretSource for NamedSecrets {
        fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
            match reference {
                SecretRef::Env(name) => Ok(Secret::new(format!("hidden-{name}"))),
                SecretRef::File(path) => Err(SecretError::FileEmpty(path.clone())),
            }
        }
    }

    fn cluster(security: Security) -> Cluster {
        Cluster {
            id: ClusterId::new("east").expect("legal"),
            bootstrap_servers: vec!["k1:9092".into(), "k2:9092".into()],
            security,
            client_options: BTreeMap::new(),
            expected_cluster_id: None,
        }
    }

    fn sasl(mechanism: SaslMechanism) -> Option<Sasl> {
        Some(Sasl {
            mechanism,
            username: "mirror".into(),
            password: SecretRef::Env("PW".into()),
        })
    }

    fn properties(cluster: &Cluster) -> ClientProperties {
        let properties = client_properties(cluster, &NamedSecrets).expect("complete");
        properties
            .to_config()
            .create_native_config()
            .expect("the library knows every name and value");
        properties
    }

    #[test]
    fn plain_clusters_get_addresses_and_our_network_settings() {
        let properties = properties(&cluster(Security::default()));
        assert_eq!(properties.get("bootstrap.servers"), Some("k1:9092,k2:9092"));
        assert_eq!(properties.get("security.protocol"), Some("plaintext"));
        assert_eq!(properties.get("socket.keepalive.enable"), Some("true"));
        assert_eq!(properties.get("sasl.mechanism"), None);
    }

    #[test]
    fn c068_no_client_creates_topics_on_its_own() {
        let properties = properties(&cluster(Security::default()));
        assert_eq!(properties.get("allow.auto.create.topics"), Some("false"));
    }

    #[test]
    fn each_kind_of_security_has_its_protocol_and_mechanism() {
        let tls = Some(Tls::default());
        for (security, protocol, mechanism) in [
            (
                Security {
                    tls: tls.clone(),
                    sasl: None,
                },
                "ssl",
                None,
            ),
            (
                Security {
                    tls: None,
                    sasl: sasl(SaslMechanism::Plain),
                },
                "sasl_plaintext",
                Some("PLAIN"),
            ),
            (
                Security {
                    tls: tls.clone(),
                    sasl: sasl(SaslMechanism::ScramSha256),
                },
                "sasl_ssl",
                Some("SCRAM-SHA-256"),
            ),
            (
                Security {
                    tls,
                    sasl: sasl(SaslMechanism::ScramSha512),
                },
                "sasl_ssl",
                Some("SCRAM-SHA-512"),
            ),
        ] {
            let properties = properties(&cluster(security));
            assert_eq!(properties.get("security.protocol"), Some(protocol));
            assert_eq!(properties.get("sasl.mechanism"), mechanism);
            if mechanism.is_some() {
                assert_eq!(properties.get("sasl.username"), Some("mirror"));
                assert_eq!(properties.get("sasl.password"), Some("hidden-PW"));
            }
        }
    }

    #[test]
    fn tls_files_and_the_host_name_check_are_passed_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "not looked into here").expect("written");
        let ca = ca.to_str().expect("text").to_owned();
        let tls = |skip_hostname_check| Tls {
            ca_file: Some(ca.clone()),
            key_password: Some(SecretRef::Env("KEYPW".into())),
            skip_hostname_check,
            ..Tls::default()
        };
        let strict = properties(&cluster(Security {
            tls: Some(tls(false)),
            sasl: None,
        }));
        assert_eq!(strict.get("ssl.ca.location"), Some(ca.as_str()));
        assert_eq!(strict.get("ssl.key.password"), Some("hidden-KEYPW"));
        assert_eq!(
            strict.get("ssl.endpoint.identification.algorithm"),
            Some("https")
        );
        let lax = properties(&cluster(Security {
            tls: Some(tls(true)),
            sasl: None,
        }));
        assert_eq!(
            lax.get("ssl.endpoint.identification.algorithm"),
            Some("none")
        );
        assert_eq!(lax.get("enable.ssl.certificate.verification"), Some("true"));
    }

    #[test]
    fn c127_every_new_client_takes_what_secrets_and_certificates_are_by_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        let (ca, password) = (path("ca.pem"), path("password"));
        std::fs::write(&ca, "first").expect("written");
        std::fs::write(&password, "first").expect("written");
        let mut login = sasl(SaslMechanism::Plain).expect("made above");
        login.password = SecretRef::File(password.clone());
        let cluster = cluster(Security {
            tls: Some(Tls {
                ca_file: Some(ca.clone()),
                ..Tls::default()
            }),
            sasl: Some(login),
        });
        let made = || client_properties(&cluster, &ProcessSecrets).expect("usable");
        let first = made();
        assert_eq!(first.get("sasl.password"), Some("first"));
        assert_eq!(made(), first, "nothing was renewed");
        std::fs::write(&password, "second").expect("written");
        let second = made();
        assert_eq!(second.get("sasl.password"), Some("second"));
        assert_ne!(second, first);
        // By name: the client reads the file when it is made.
        std::fs::write(&ca, "other").expect("written");
        let third = made();
        assert_eq!(third.get("ssl.ca.location"), Some(ca.as_str()));
        assert_ne!(third, second);
        std::fs::write(&ca, "first").expect("written");
        assert_eq!(made(), second, "the content counts, not the time");
    }

    #[test]
    fn a_device_is_no_certificate() {
        let tls = Tls {
            ca_file: Some("/dev/zero".into()),
            ..Tls::default()
        };
        let with_tls = cluster(Security {
            tls: Some(tls),
            sasl: None,
        });
        let fault = client_properties(&with_tls, &NamedSecrets).expect_err("no file");
        assert!(fault.to_string().contains("not a regular file"), "{fault}");
    }

    #[test]
    fn a_missing_file_or_secret_names_the_cluster_and_the_field() {
        let tls = Tls {
            ca_file: Some("/no/such/ca.pem".into()),
            ..Tls::default()
        };
        let with_tls = cluster(Security {
            tls: Some(tls),
            sasl: None,
        });
        let fault = client_properties(&with_tls, &NamedSecrets).expect_err("no such file");
        let text = fault.to_string();
        assert!(
            text.contains("east") && text.contains("tls.ca_file"),
            "{text}"
        );

        let mut by_file = sasl(SaslMechanism::Plain).expect("made above");
        by_file.password = SecretRef::File("/run/pw".into());
        let with_sasl = cluster(Security {
            tls: None,
            sasl: Some(by_file),
        });
        let fault = client_properties(&with_sasl, &NamedSecrets).expect_err("empty");
        let source = std::error::Error::source(&fault).expect("has a source");
        assert!(source.to_string().contains("/run/pw"), "{source}");
    }

    #[test]
    fn users_options_override_our_defaults_and_ours_alone_are_left_out() {
        let mut cluster = cluster(Security::default());
        cluster.client_options = BTreeMap::from([
            ("socket.timeout.ms".to_owned(), "5000".to_owned()),
            (ALLOW_AUTO_CREATE.to_owned(), "true".to_owned()),
        ]);
        let properties = properties(&cluster);
        assert_eq!(properties.get("socket.timeout.ms"), Some("5000"));
        assert_eq!(properties.get(ALLOW_AUTO_CREATE), None);
        assert!(cluster.allows_auto_create());
    }

    #[test]
    fn passwords_are_not_in_debug_output() {
        let security = Security {
            tls: Some(Tls {
                key_password: Some(SecretRef::Env("KEYPW".into())),
                ..Tls::default()
            }),
            sasl: sasl(SaslMechanism::Plain),
        };
        let properties = properties(&cluster(security));
        let shown = format!("{properties:?} {:?}", properties.to_config());
        assert!(
            shown.contains("mirror") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
