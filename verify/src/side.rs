//! One of the two clusters and how to reach it.

use std::{collections::BTreeMap, sync::Arc};

use kreplicator_kafka::{
    diagnosis::{Diagnosis, log_line},
    properties::client_properties,
    secrets::SecretSource,
};
use kreplicator_model::{ids::ClusterId, spec};
use rdkafka::{
    ClientConfig,
    client::ClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode as Code},
};

use crate::{error::Error, reader};

/// The group that the library wants a reader to have. Nothing is ever committed and no group is joined.
const GROUP: &str = "kreplicator-verify";

/// A cluster to be read. Clones share the settings.
#[derive(Clone)]
pub struct Cluster {
    id: ClusterId,
    expected_cluster_id: Option<String>,
    config: Arc<ClientConfig>,
}

impl Cluster {
    /// A cluster as declared, with `options` of the client library on top (but for those that the
    /// comparison rests on). Reads secrets; does not wait for the network.
    ///
    /// # Errors
    /// Secrets or files that cannot be read; settings that the library refuses.
    pub fn new(
        cluster: &spec::Cluster,
        options: &BTreeMap<String, String>,
        secrets: &dyn SecretSource,
    ) -> Result<Self, Error> {
        let mut config = client_properties(cluster, secrets)?.to_config();
        for (name, value) in options {
            config.set(name, value);
        }
        config.set("group.id", GROUP);
        reader::set_properties(&mut config);
        let made = Self {
            id: cluster.id.clone(),
            expected_cluster_id: cluster.expected_cluster_id.clone(),
            config: Arc::new(config),
        };
        // Faults of the settings are told here, not by each partition.
        config_check(&made)?;
        Ok(made)
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// Kafka's own id of it, where one is pinned.
    pub(crate) fn expected_cluster_id(&self) -> Option<&str> {
        self.expected_cluster_id.as_deref()
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// A client for reading. Blocks shortly; so does dropping it.
    pub(crate) fn consumer(&self) -> Result<BaseConsumer<Events>, Error> {
        let events = Events(Diagnosis::new(self.id.clone()));
        let made = self.config.create_with_context(events);
        made.map_err(|fault| {
            kreplicator_kafka::error::Error::from_creation(&self.id, &fault).into()
        })
    }
}

fn config_check(cluster: &Cluster) -> Result<(), Error> {
    let made = cluster.config.create_native_config();
    made.map(drop)
        .map_err(|fault| kreplicator_kafka::error::Error::from_creation(&cluster.id, &fault).into())
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The settings hold passwords.
        f.debug_struct("Cluster")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Keeps what went wrong, for the case that nothing comes.
pub(crate) struct Events(pub(crate) Diagnosis);

impl ClientContext for Events {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The group is there for the library's sake; whether we may use it says nothing.
        if error.rdkafka_error_code() != Some(Code::GroupAuthorizationFailed) {
            ClientContext::error(&self.0, error, reason);
        }
    }
}

impl ConsumerContext for Events {}

/// For clients without a diagnosis of their own.
pub(crate) struct Quiet(pub(crate) ClusterId);

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(&self.0, level, facility, message);
    }
}
