//! How many records topics hold, asked by one request, so that asking often costs little.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use kreplicator_tests::wait;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};

/// Deadline of one question.
const CALL: Duration = Duration::from_secs(20);
/// Longest time in which questions fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks for the log ends of topics.
pub(crate) struct Ends {
    consumer: Arc<BaseConsumer>,
    asked: TopicPartitionList,
}

impl Ends {
    /// Partitions `0..partitions` of each topic, all of which exist.
    pub(crate) fn of(config: &ClientConfig, topics: &[String], partitions: i32) -> Result<Self> {
        let mut asked = TopicPartitionList::with_capacity(topics.len());
        for topic in topics {
            for partition in 0..partitions {
                asked.add_partition_offset(topic, partition, Offset::End)?;
            }
        }
        Ok(Self {
            consumer: Arc::new(config.create()?),
            asked,
        })
    }

    /// Log end of each partition, in the order of topics and partitions given. A broker that does not
    /// tell (it may not lead a topic yet that was made a moment ago) is asked again.
    ///
    /// # Errors
    /// When it has not told within a minute.
    pub(crate) async fn each(&self) -> Result<Vec<i64>> {
        wait::until("log ends of the target", PATIENCE, async || {
            self.ask().await.map(Some)
        })
        .await
    }

    async fn ask(&self) -> Result<Vec<i64>> {
        let (consumer, asked) = (Arc::clone(&self.consumer), self.asked.clone());
        tokio::task::spawn_blocking(move || {
            // "End" is what the protocol calls the latest time: -1.
            let answered = consumer.offsets_for_times(asked, CALL)?;
            let elements = answered.elements();
            let ends = elements.iter().map(|element| {
                element.error().with_context(|| {
                    format!("log end of {} {}", element.topic(), element.partition())
                })?;
                match element.offset() {
                    Offset::Offset(end) => Ok(end),
                    other => bail!(
                        "log end of {} {} is {other:?}",
                        element.topic(),
                        element.partition()
                    ),
                }
            });
            ends.collect()
        })
        .await?
    }

    /// Sum of all log ends: the records in topics from which nothing was deleted.
    pub(crate) async fn sum(&self) -> Result<u64> {
        let sum: i64 = self.each().await?.iter().sum();
        Ok(u64::try_from(sum)?)
    }
}
