//! What there is to compare: topics, partitions, settings that explain differences, offsets as of now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_kafka::error::Error as ClusterError;
use kreplicator_model::ids::{Offset, Partition, TopicName, UnixMillis};
use rdkafka::{
    Offset as Position, TopicPartitionList,
    admin::{AdminClient, AdminOptions, ConfigResourceResult, ResourceSpecifier},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::{
    error::{Error, Place},
    side::{Cluster, Events, Quiet},
};

/// Topics described in one request.
const DESCRIBE_CHUNK: usize = 200;

/// Asks one cluster. Clones share the client.
#[derive(Clone)]
pub struct Survey {
    cluster: Cluster,
    consumer: Arc<BaseConsumer<Events>>,
    deadline: Duration,
}

/// A log as of now: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first record there can be.
    pub start: Offset,
    /// The last stable offset: everything below is committed or aborted.
    pub end: Offset,
}

/// Whether a log keeps only the last record of each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// It keeps all.
    Off,
    /// It does.
    On,
    /// The setting cannot be read, or may not be.
    Unknown,
}

impl Compaction {
    /// Whether records with keys may be gone without having been lost.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self != Self::Off
    }

    fn from_answer(answer: ConfigResourceResult) -> Self {
        let Ok(resource) = answer else {
            return Self::Unknown;
        };
        let entry = resource.get("cleanup.policy");
        match entry.and_then(|entry| entry.value.as_deref()) {
            Some(policy) if policy.contains("compact") => Self::On,
            Some(_) => Self::Off,
            None => Self::Unknown,
        }
    }
}

impl Survey {
    /// A client of `cluster` whose calls end within `deadline`.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(cluster: &Cluster, deadline: Duration) -> Result<Self, Error> {
        Ok(Self {
            cluster: cluster.clone(),
            consumer: Arc::new(cluster.consumer()?),
            deadline,
        })
    }

    /// Every topic this user may see, with its number of partitions.
    ///
    /// # Errors
    /// The cluster does not answer, or is another one than was pinned.
    pub async fn topics(&self) -> Result<BTreeMap<TopicName, i32>, Error> {
        let (id, topics) = self
            .call(|consumer, deadline| {
                let metadata = consumer.fetch_metadata(None, deadline)?;
                let topics = metadata.topics().iter().filter_map(|topic| {
                    let partitions = i32::try_from(topic.partitions().len()).ok()?;
                    let name = TopicName::new(topic.name()).ok()?;
                    topic.error().is_none().then_some((name, partitions))
                });
                let topics = topics.collect::<BTreeMap<_, _>>();
                Ok((consumer.client().fetch_cluster_id(deadline), topics))
            })
            .await?;
        match (self.cluster.expected_cluster_id(), id) {
            (Some(expected), Some(found)) if expected != found => {
                Err(Error::Cluster(ClusterError::WrongCluster {
                    cluster: self.cluster.id().clone(),
                    expected: expected.to_owned(),
                    found,
                }))
            }
            _ => Ok(topics),
        }
    }

    /// Whether the records of each topic are compacted. What cannot be read within the deadline is
    /// [`Compaction::Unknown`].
    pub async fn compaction(&self, topics: &[TopicName]) -> BTreeMap<TopicName, Compaction> {
        let unknown = topics
            .iter()
            .map(|topic| (topic.clone(), Compaction::Unknown));
        let mut found = unknown.collect();
        if let Err(fault) = self.describe(topics, &mut found).await {
            debug!(cluster = %self.cluster.id(), %fault, "settings of topics cannot be read");
        }
        found
    }

    /// Adds what can be found out. A fault with some topics takes nothing away from others.
    ///
    /// # Errors
    /// The last fault there was.
    async fn describe(
        &self,
        topics: &[TopicName],
        found: &mut BTreeMap<TopicName, Compaction>,
    ) -> KafkaResult<()> {
        let deadline = Instant::now() + self.deadline;
        let mut config = self.cluster.config().clone();
        // Nobody can serve the admin client's log queue, so it must not fill.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        let admin: AdminClient<Quiet> =
            config.create_with_context(Quiet(self.cluster.id().clone()))?;
        let options = AdminOptions::new().request_timeout(Some(self.deadline));
        let mut outcome = Ok(());
        for chunk in topics.chunks(DESCRIBE_CHUNK) {
            let names = chunk
                .iter()
                .map(|topic| ResourceSpecifier::Topic(topic.as_str()));
            let names: Vec<_> = names.collect();
            let answers = timeout_at(deadline, admin.describe_configs(&names, &options)).await;
            let timed_out = KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut);
            match answers.unwrap_or(Err(timed_out)) {
                // Answers come in the order asked for.
                Ok(answers) => found.extend(
                    chunk
                        .iter()
                        .cloned()
                        .zip(answers.into_iter().map(Compaction::from_answer)),
                ),
                Err(fault) => outcome = Err(fault),
            }
        }
        // Dropping it waits for its threads.
        drop(tokio::task::spawn_blocking(move || drop(admin)).await);
        outcome
    }

    /// Where the log of a partition begins and ends.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn extent(&self, topic: &TopicName, partition: Partition) -> Result<Extent, Error> {
        let name = topic.clone();
        let (start, end) = self
            .call(move |consumer, deadline| {
                consumer.fetch_watermarks(name.as_str(), partition.0, deadline)
            })
            .await?;
        Ok(Extent {
            start: Offset(start),
            end: Offset(end),
        })
    }

    /// The first offset whose record has this time or a later one; None when there is no such record.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn offset_at(
        &self,
        topic: &TopicName,
        partition: Partition,
        time: UnixMillis,
    ) -> Result<Option<Offset>, Error> {
        let name = topic.clone();
        self.call(move |consumer, deadline| {
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(name.as_str(), partition.0, Position::Offset(time.0))?;
            let found = consumer.offsets_for_times(list, deadline)?;
            let found = found.find_partition(name.as_str(), partition.0);
            Ok(match found.map(|found| found.offset()) {
                Some(Position::Offset(offset)) => Some(Offset(offset)),
                _ => None,
            })
        })
        .await
    }

    /// The place of a partition, for messages.
    #[must_use]
    pub fn place(&self, topic: &TopicName, partition: Partition) -> Place {
        Place {
            cluster: self.cluster.id().clone(),
            topic: topic.clone(),
            partition,
        }
    }

    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&BaseConsumer<Events>, Duration) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T, Error> {
        let consumer = Arc::clone(&self.consumer);
        let deadline = self.deadline;
        let called = tokio::task::spawn_blocking(move || {
            let called = call(&consumer, deadline);
            if called.is_err() {
                // Brings the client's error events to the diagnosis.
                while consumer.poll(Duration::from_millis(1)).is_some() {}
            }
            called
        });
        let called = called
            .await
            .map_err(|fault| self.refused(&fault.to_string()))?;
        called.map_err(|fault: KafkaError| match fault.rdkafka_error_code() {
            Some(code) => Error::Cluster(self.consumer.context().0.unreachable(code)),
            None => self.refused(&fault.to_string()),
        })
    }

    fn refused(&self, detail: &str) -> Error {
        Error::Cluster(ClusterError::Unreachable {
            cluster: self.cluster.id().clone(),
            cause: detail.to_owned(),
        })
    }

    /// Lets go of the client off the runtime's threads: dropping it waits for its own.
    pub async fn close(self) {
        drop(tokio::task::spawn_blocking(move || drop(self)).await);
    }
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::admin::{ConfigEntry, ConfigResource, ConfigSource, OwnedResourceSpecifier};

    use super::*;

    fn answer(name: &str, value: Option<&str>) -> ConfigResourceResult {
        Ok(ConfigResource {
            specifier: OwnedResourceSpecifier::Topic("ants".to_owned()),
            entries: vec![ConfigEntry {
                name: name.to_owned(),
                value: value.map(str::to_owned),
                source: ConfigSource::DynamicTopic,
                is_read_only: false,
                is_default: false,
                is_sensitive: false,
            }],
        })
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_neither_on_nor_off() {
        let of = Compaction::from_answer;
        assert_eq!(
            of(answer("cleanup.policy", Some("delete"))),
            Compaction::Off
        );
        let both = answer("cleanup.policy", Some("compact,delete"));
        assert_eq!(of(both), Compaction::On);
        assert_eq!(of(answer("cleanup.policy", None)), Compaction::Unknown);
        assert_eq!(of(answer("retention.ms", Some("1"))), Compaction::Unknown);
        let refused = Err(RDKafkaErrorCode::TopicAuthorizationFailed);
        assert_eq!(of(refused), Compaction::Unknown);
    }
}
