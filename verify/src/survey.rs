//! What there is to compare: topics, partitions, settings that explain differences, offsets as of now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_kafka::error::Error as ClusterError;
use kreplicator_model::ids::{Offset, Partition, TopicName, UnixMillis};
use rdkafka::{
    Offset as Position, TopicPartitionList,
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult},
};
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

    /// Those of the topics whose records are compacted. Where the settings may not be read, none.
    pub async fn compacted(&self, topics: &[TopicName]) -> Vec<TopicName> {
        let found = tokio::time::timeout(self.deadline, self.describe(topics)).await;
        match found {
            Ok(Ok(compacted)) => compacted,
            Ok(Err(fault)) => {
                debug!(cluster = %self.cluster.id(), %fault, "settings of topics cannot be read");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    async fn describe(&self, topics: &[TopicName]) -> KafkaResult<Vec<TopicName>> {
        let mut config = self.cluster.config().clone();
        // Nobody can serve the admin client's log queue, so it must not fill.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        let admin: AdminClient<Quiet> =
            config.create_with_context(Quiet(self.cluster.id().clone()))?;
        let options = AdminOptions::new().request_timeout(Some(self.deadline));
        let mut compacted = Vec::new();
        let mut fault = None;
        for chunk in topics.chunks(DESCRIBE_CHUNK) {
            let names = chunk
                .iter()
                .map(|topic| ResourceSpecifier::Topic(topic.as_str()));
            let names: Vec<_> = names.collect();
            match admin.describe_configs(&names, &options).await {
                Ok(answers) => {
                    // Answers come in the order asked for.
                    for (topic, answer) in chunk.iter().zip(answers) {
                        let policy = answer.ok().and_then(|resource| {
                            let entry = resource.get("cleanup.policy")?;
                            entry.value.clone()
                        });
                        if policy.is_some_and(|policy| policy.contains("compact")) {
                            compacted.push(topic.clone());
                        }
                    }
                }
                Err(error) => fault = Some(error),
            }
        }
        // Dropping it waits for its threads.
        drop(tokio::task::spawn_blocking(move || drop(admin)).await);
        fault.map_or(Ok(compacted), Err)
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
