//! What tests ask of a cluster: topics, partitions, offsets, committed positions.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{
        AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
    },
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    types::RDKafkaErrorCode,
};

use super::KafkaCluster;
use crate::wait;

/// Deadline of one call.
const CALL: Duration = Duration::from_secs(20);
/// How long a change of topics may take to be seen by everyone.
const VISIBLE: Duration = Duration::from_secs(60);

impl KafkaCluster {
    /// Creates a topic with the cluster's default replication and the settings given.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        config: &[(&str, &str)],
    ) -> Result<()> {
        self.create_topics(&[topic.to_owned()], partitions, config)
            .await
    }

    /// Creates many topics of the same shape, in requests of 100, and waits until they are seen.
    ///
    /// # Errors
    /// When the cluster refuses one.
    pub async fn create_topics(
        &self,
        topics: &[String],
        partitions: i32,
        config: &[(&str, &str)],
    ) -> Result<()> {
        let admin = self.admin()?;
        // -1: the cluster's default. Who does not know of that has one broker here.
        let has_default = self.version().has_default_replication();
        let replicas = if has_default { -1 } else { 1 };
        for chunk in topics.chunks(100) {
            let new = chunk.iter().map(|topic| NewTopic {
                name: topic,
                num_partitions: partitions,
                replication: TopicReplication::Fixed(replicas),
                config: config.to_vec(),
            });
            let new: Vec<NewTopic<'_>> = new.collect();
            let options = AdminOptions::new()
                .operation_timeout(Some(CALL * 3))
                .request_timeout(Some(CALL * 3));
            for result in admin.create_topics(&new, &options).await? {
                result.map_err(|(topic, code)| anyhow::anyhow!("cannot create {topic}: {code}"))?;
            }
        }
        if let Some(last) = topics.last() {
            self.wait_partitions(last, partitions).await?;
        }
        Ok(())
    }

    /// Creates a topic whose replicas are on given brokers, by id, for each partition; the first of them leads.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn place_topic(
        &self,
        topic: &str,
        replicas: &[&[i32]],
        config: &[(&str, &str)],
    ) -> Result<()> {
        let partitions = i32::try_from(replicas.len())?;
        let new = NewTopic {
            name: topic,
            num_partitions: partitions,
            replication: TopicReplication::Variable(replicas),
            config: config.to_vec(),
        };
        // Answers come only while it lives.
        let admin = self.admin()?;
        let options = AdminOptions::new().request_timeout(Some(CALL * 3));
        for result in admin.create_topics(&[new], &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("cannot create {topic}: {code}"))?;
        }
        self.wait_partitions(topic, partitions).await
    }

    /// Raises the number of partitions of a topic and waits until it is seen.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn grow_topic(&self, topic: &str, partitions: usize) -> Result<()> {
        let admin = self.admin()?;
        let grown = NewPartitions::new(topic, partitions);
        let options = AdminOptions::new().operation_timeout(Some(CALL));
        for result in admin.create_partitions([&grown], &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("cannot grow {topic}: {code}"))?;
        }
        self.wait_partitions(topic, i32::try_from(partitions)?)
            .await
    }

    /// Deletes topics.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn delete_topics(&self, topics: &[&str]) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(CALL));
        for result in self.admin()?.delete_topics(topics, &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("cannot delete {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Replaces the overrides of a topic's settings.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn configure_topic(&self, topic: &str, config: &[(&str, &str)]) -> Result<()> {
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
        for (key, value) in config {
            change = change.set(key, value);
        }
        let options = AdminOptions::new().request_timeout(Some(CALL));
        for result in self.admin()?.alter_configs([&change], &options).await? {
            result.map_err(|(_, code)| anyhow::anyhow!("cannot configure {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Settings of a topic, defaults included.
    ///
    /// # Errors
    /// When the cluster does not tell.
    pub async fn topic_config(&self, topic: &str) -> Result<BTreeMap<String, String>> {
        let options = AdminOptions::new().request_timeout(Some(CALL));
        let mut answers = self
            .admin()?
            .describe_configs([&ResourceSpecifier::Topic(topic)], &options)
            .await?;
        let resource = answers
            .pop()
            .context("no answer")?
            .map_err(|code| anyhow::anyhow!("cannot describe {topic}: {code}"))?;
        let entries = resource.entries.into_iter();
        Ok(entries
            .filter_map(|entry| Some((entry.name, entry.value?)))
            .collect())
    }

    /// Partition counts of all topics but Kafka's own.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn topics(&self) -> Result<BTreeMap<String, i32>> {
        let config = self.client_config();
        blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            let metadata = consumer.fetch_metadata(None, CALL)?;
            metadata
                .topics()
                .iter()
                .filter(|topic| !topic.name().starts_with("__"))
                .map(|topic| {
                    Ok((
                        topic.name().to_owned(),
                        i32::try_from(topic.partitions().len())?,
                    ))
                })
                .collect()
        })
        .await
    }

    /// Partitions of one topic; 0: there is none.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn partitions(&self, topic: &str) -> Result<i32> {
        let config = self.client_config();
        let topic = topic.to_owned();
        blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            partition_count(&consumer, &topic)
        })
        .await
    }

    /// First offset and end offset of each partition of a topic.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn watermarks(&self, topic: &str) -> Result<BTreeMap<i32, (i64, i64)>> {
        let config = self.client_config();
        let topic = topic.to_owned();
        blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            (0..partition_count(&consumer, &topic)?)
                .map(|partition| {
                    Ok((
                        partition,
                        consumer.fetch_watermarks(&topic, partition, CALL)?,
                    ))
                })
                .collect()
        })
        .await
    }

    /// Committed offsets of a group for partitions of topics, with their metadata; those without a
    /// commit are left out.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn committed(
        &self,
        group: &str,
        partitions: &[(String, i32)],
    ) -> Result<BTreeMap<(String, i32), (i64, String)>> {
        let mut config = self.client_config();
        config.set("group.id", group);
        let mut asked = TopicPartitionList::new();
        for (topic, partition) in partitions {
            asked.add_partition(topic, *partition);
        }
        blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            let committed = consumer.committed_offsets(asked, CALL)?;
            let mut found = BTreeMap::new();
            for element in committed.elements() {
                if let Offset::Offset(offset) = element.offset() {
                    found.insert(
                        (element.topic().to_owned(), element.partition()),
                        (offset, element.metadata().to_owned()),
                    );
                }
            }
            Ok(found)
        })
        .await
    }

    /// Commits an offset for a group that has no members, as `kafka-consumer-groups --reset-offsets` does.
    ///
    /// # Errors
    /// When the cluster refuses it.
    pub async fn commit(
        &self,
        group: &str,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<()> {
        let mut config = self.client_config();
        config.set("group.id", group);
        let mut committed = TopicPartitionList::new();
        committed.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            Ok(consumer.commit(&committed, CommitMode::Sync)?)
        })
        .await
    }

    /// Waits until a topic has at least `partitions` partitions, each with a leader.
    ///
    /// # Errors
    /// When it has not within 60 s.
    pub async fn wait_partitions(&self, topic: &str, partitions: i32) -> Result<()> {
        let what = format!("{partitions} partitions of {topic} on {}", self.name());
        wait::until_true(&what, VISIBLE, async || {
            Ok(self.partitions(topic).await? >= partitions)
        })
        .await
    }
}

/// Brokers that the cluster knows of.
pub(super) fn broker_count(config: &ClientConfig) -> Result<usize> {
    let consumer: BaseConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(2))?;
    Ok(metadata.brokers().len())
}

/// Partitions of a topic that have a leader; 0 for an unknown topic.
fn partition_count(consumer: &BaseConsumer, topic: &str) -> Result<i32> {
    let metadata = consumer.fetch_metadata(Some(topic), CALL)?;
    let topic = metadata.topics().first().context("an empty answer")?;
    match topic.error().map(RDKafkaErrorCode::from) {
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => return Ok(0),
        Some(code) => bail!("metadata of {}: {code}", topic.name()),
    }
    let led = topic.partitions().iter();
    let led = led.filter(|partition| partition.leader() >= 0);
    Ok(i32::try_from(led.count())?)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}
