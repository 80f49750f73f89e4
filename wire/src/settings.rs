//! What a client needs to be told: where the cluster is, how to prove who we are, and limits.

use std::{fmt, sync::Arc, time::Duration};

use kreplicator_model::{
    backoff::Backoff,
    ids::ClusterId,
    spec::{self, SaslMechanism, SecretRef, Tls},
};

/// Settings of a client of one cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Our name of the cluster, for messages.
    pub cluster: ClusterId,
    /// `host:port`, at least one.
    pub bootstrap_servers: Vec<String>,
    /// Kafka's own cluster id, when it is pinned.
    pub expected_cluster_id: Option<String>,
    /// How to prove who we are, and to whom.
    pub security: Security,
    /// What brokers see in their logs and quotas.
    pub client_id: String,
    /// Limits of each connection.
    pub limits: Limits,
    /// Leaders are asked for anew when what is known is older.
    pub metadata_age_max: Duration,
    /// Topics that nobody needed for this long are asked for no more, until somebody does.
    pub metadata_idle_max: Duration,
    /// Leaders are not asked for more often than this, whatever happens.
    pub metadata_pause_min: Duration,
    /// How long one broker may take over a small call before the call is tried again, at another broker
    /// where one could answer too. A frozen broker so costs no more than this.
    pub attempt_timeout: Duration,
    /// Waits between attempts to reach a broker, and between attempts of a call.
    pub backoff: Backoff,
}

impl Settings {
    /// Settings of a declared cluster with the defaults of everything else.
    #[must_use]
    pub fn of(cluster: &spec::Cluster, client_id: impl Into<String>) -> Self {
        Self {
            cluster: cluster.id.clone(),
            bootstrap_servers: cluster.bootstrap_servers.clone(),
            expected_cluster_id: cluster.expected_cluster_id.clone(),
            security: Security::from(&cluster.security),
            client_id: client_id.into(),
            limits: Limits::default(),
            metadata_age_max: Duration::from_secs(60),
            metadata_idle_max: Duration::from_secs(300),
            metadata_pause_min: Duration::from_millis(100),
            attempt_timeout: Duration::from_secs(6),
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
        }
    }
}

/// Limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest frame in bytes, both ways, up to `i32::MAX`. An answer takes this much memory at most.
    pub frame_bytes_max: usize,
    /// Bytes of requests that may wait to be written.
    pub queue_bytes_max: u32,
    /// Requests that may wait for an answer or to be written.
    pub in_flight_max: usize,
    /// Time to connect to one address.
    pub connect_timeout: Duration,
    /// Time for everything from name look-up to the end of authentication.
    pub open_timeout: Duration,
    /// A connection that nobody used for so long is closed. Brokers close at 10 minutes by default.
    pub idle_max: Duration,
    /// For how long the system of a broker's machine may leave unanswered what the network should bring to it
    /// before the machine counts as vanished, 5 s or more. Brokers may be as slow as they like: it is not
    /// they who answer.
    pub silence_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 128 << 20,
            queue_bytes_max: 16 << 20,
            in_flight_max: 64,
            connect_timeout: Duration::from_secs(5),
            open_timeout: Duration::from_secs(15),
            idle_max: Duration::from_secs(4 * 60),
            silence_max: Duration::from_secs(5),
        }
    }
}

/// Transport and authentication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// None: no TLS.
    pub tls: Option<Tls>,
    /// None: no authentication.
    pub sasl: Option<Sasl>,
}

/// How we prove who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sasl {
    /// By a password.
    Password {
        /// How it is proven.
        mechanism: SaslMechanism,
        /// Who we are.
        username: String,
        /// Where the password is found.
        password: SecretRef,
    },
    /// By a token that somebody else renews (OAUTHBEARER, RFC 7628).
    Bearer {
        /// Where the token is found.
        token: SecretRef,
    },
}

impl From<&spec::Security> for Security {
    fn from(security: &spec::Security) -> Self {
        Self {
            tls: security.tls.clone(),
            sasl: security.sasl.as_ref().map(|sasl| Sasl::Password {
                mechanism: sasl.mechanism,
                username: sasl.username.clone(),
                password: sasl.password.clone(),
            }),
        }
    }
}

/// A password or token. `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Where secrets are read, anew at each connection and each re-authentication, so that rotated ones
/// are found. Calls are made where blocking is allowed.
pub trait Secrets: Send + Sync + fmt::Debug {
    /// The secret that `reference` names.
    ///
    /// # Errors
    /// Text that names the place and what to do there, never the value.
    fn read(&self, reference: &SecretRef) -> Result<Secret, String>;
}

/// No secrets: for clusters without passwords.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn read(&self, _reference: &SecretRef) -> Result<Secret, String> {
        Err("this client was given no secrets".to_owned())
    }
}

/// Secrets as the client keeps them.
pub(crate) type SharedSecrets = Arc<dyn Secrets>;
