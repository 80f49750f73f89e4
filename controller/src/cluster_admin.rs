//! What the leader asks of a Kafka cluster, as an interface, so that everything above it can be
//! tried without one.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_kafka::{
    admin::{Admin, ClusterMetadata, ConfigValue, NewTopic},
    error::{Class, Error},
    renewal::Renewal,
    secrets::SecretSource,
};
use kreplicator_model::{ids::TopicName, spec::Cluster};
use tokio::sync::Mutex;

/// Settings of a topic by name.
pub type TopicSettings = BTreeMap<String, ConfigValue>;

/// Why a cluster did not do what was asked. The text names the cluster and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The cluster cannot do this at all.
    #[error("{0}")]
    Unsupported(String),
    /// The topic exists already.
    #[error("{0}")]
    AlreadyExists(String),
    /// It is another cluster than the one declared: nothing may be copied from or to it.
    #[error("{0}")]
    WrongCluster(String),
    /// May work later: not reachable, no answer in time, login refused for now…
    #[error("{0}")]
    Unavailable(String),
    /// The cluster refused this request (no permission, illegal setting…): somebody has to act.
    #[error("{0}")]
    Refused(String),
}

/// One cluster. Every call ends by its timeout, give or take a scheduler's delay.
#[async_trait]
pub trait ClusterAdmin: Debug + Send + Sync + 'static {
    /// Every topic and who the cluster is.
    async fn metadata(&self, timeout: Duration) -> Result<ClusterMetadata, AdminError>;

    /// The settings in force of these topics. Those that the cluster does not tell are left out: the
    /// topic is gone, has only just been made, or may not be described.
    async fn topic_settings(
        &self,
        topics: &[TopicName],
        timeout: Duration,
    ) -> Result<BTreeMap<TopicName, TopicSettings>, AdminError>;

    /// Makes a topic.
    async fn create_topic(&self, topic: &NewTopic, timeout: Duration) -> Result<(), AdminError>;

    /// Makes topics, by one request where the cluster can: a result for each, in order.
    async fn create_topics(
        &self,
        topics: &[NewTopic],
        timeout: Duration,
    ) -> Vec<Result<(), AdminError>> {
        let mut results = Vec::with_capacity(topics.len());
        for topic in topics {
            results.push(self.create_topic(topic, timeout).await);
        }
        results
    }

    /// Raises the number of partitions to `total`.
    async fn grow_topic(
        &self,
        topic: &TopicName,
        total: i32,
        timeout: Duration,
    ) -> Result<(), AdminError>;

    /// Whether the cluster's spec says that topics are made by asking for them: only for clusters
    /// that know no other way (librdkafka's mock cluster in the demo).
    fn may_create_by_asking(&self) -> bool;

    /// Asks for a topic so that the cluster makes it.
    async fn ask_for_topic(&self, topic: &TopicName, timeout: Duration) -> Result<(), AdminError>;

    /// A client made anew from renewed certificates or passwords, which the cluster has let in (C127).
    /// None: they are what this client was made from.
    ///
    /// # Errors
    /// They cannot be used; this client is to be kept.
    async fn renewed(&self, timeout: Duration)
    -> Result<Option<Arc<dyn ClusterAdmin>>, AdminError>;
}

/// Makes the client of a cluster; never waits for the network.
pub trait AdminConnector: Debug + Send + Sync + 'static {
    /// A client that reaches the cluster by exactly this spec.
    ///
    /// # Errors
    /// A secret that cannot be read, a setting that the client refuses.
    fn connect(&self, cluster: &Cluster) -> Result<Arc<dyn ClusterAdmin>, AdminError>;
}

/// Connects by `kreplicator_kafka`.
#[derive(Debug, Clone)]
pub struct KafkaConnector(Arc<dyn SecretSource>);

impl KafkaConnector {
    /// Reads secrets from `secrets`.
    #[must_use]
    pub fn new(secrets: Arc<dyn SecretSource>) -> Self {
        Self(secrets)
    }
}

impl AdminConnector for KafkaConnector {
    fn connect(&self, cluster: &Cluster) -> Result<Arc<dyn ClusterAdmin>, AdminError> {
        let admin = Admin::connect(cluster, self.0.as_ref())?;
        let renewal = Renewal::new(cluster.clone(), Arc::clone(&self.0));
        Ok(Arc::new(KafkaAdmin {
            admin,
            renewal: Arc::new(Mutex::new(renewal)),
        }))
    }
}

/// A cluster by `kreplicator_kafka`.
#[derive(Debug)]
struct KafkaAdmin {
    admin: Admin,
    /// Goes on to the client that comes after this one.
    renewal: Arc<Mutex<Renewal>>,
}

#[async_trait]
impl ClusterAdmin for KafkaAdmin {
    async fn metadata(&self, timeout: Duration) -> Result<ClusterMetadata, AdminError> {
        let admin = self.admin.clone().with_deadline(timeout);
        Ok(admin.metadata().await?)
    }

    async fn topic_settings(
        &self,
        topics: &[TopicName],
        timeout: Duration,
    ) -> Result<BTreeMap<TopicName, TopicSettings>, AdminError> {
        let admin = self.admin.clone().with_deadline(timeout);
        Ok(admin.topic_configs(topics).await?)
    }

    async fn create_topic(&self, topic: &NewTopic, timeout: Duration) -> Result<(), AdminError> {
        let admin = self.admin.clone().with_deadline(timeout);
        Ok(admin.create_topic(topic.clone(), false).await?)
    }

    async fn create_topics(
        &self,
        topics: &[NewTopic],
        timeout: Duration,
    ) -> Vec<Result<(), AdminError>> {
        let admin = self.admin.clone().with_deadline(timeout);
        match admin.create_topics(topics, false).await {
            Ok(results) => results.into_iter().map(|result| Ok(result?)).collect(),
            Err(error) => {
                let error = AdminError::from(error);
                topics.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    async fn grow_topic(
        &self,
        topic: &TopicName,
        total: i32,
        timeout: Duration,
    ) -> Result<(), AdminError> {
        let admin = self.admin.clone().with_deadline(timeout);
        Ok(admin.grow_topic(topic, total).await?)
    }

    fn may_create_by_asking(&self) -> bool {
        self.admin.allows_auto_create()
    }

    async fn ask_for_topic(&self, topic: &TopicName, timeout: Duration) -> Result<(), AdminError> {
        let admin = self.admin.clone().with_deadline(timeout);
        admin.topic_auto(topic).await?;
        Ok(())
    }

    async fn renewed(
        &self,
        timeout: Duration,
    ) -> Result<Option<Arc<dyn ClusterAdmin>>, AdminError> {
        let running = self.admin.properties();
        let found = self.renewal.lock().await.look(running, timeout).await?;
        Ok(found.map(|admin| {
            let renewal = Arc::clone(&self.renewal);
            Arc::new(Self { admin, renewal }) as Arc<dyn ClusterAdmin>
        }))
    }
}

impl From<Error> for AdminError {
    fn from(error: Error) -> Self {
        let text = error.full_text();
        match error {
            Error::Unsupported { .. } => Self::Unsupported(text),
            Error::AlreadyExists { .. } => Self::AlreadyExists(text),
            Error::WrongCluster { .. } => Self::WrongCluster(text),
            error => match error.class() {
                Class::Retryable => Self::Unavailable(text),
                Class::Terminal | Class::Fenced => Self::Refused(text),
            },
        }
    }
}
