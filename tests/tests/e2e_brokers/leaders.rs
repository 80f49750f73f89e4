//! Which broker leads which partition.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use kreplicator_tests::kafka::KafkaCluster;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

const DEADLINE: Duration = Duration::from_secs(20);

/// Index of the leading broker of each partition of a topic; partitions without one are left out.
pub(crate) async fn leaders(cluster: &KafkaCluster, topic: &str) -> Result<BTreeMap<i32, usize>> {
    let config = cluster.client_config();
    let topic = topic.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = config.create()?;
        let metadata = consumer.fetch_metadata(Some(&topic), DEADLINE)?;
        let topic = metadata.topics().first().context("an empty answer")?;
        let led = topic.partitions().iter().filter_map(|partition| {
            // Nodes are numbered from 1.
            let broker = usize::try_from(partition.leader()).ok()?.checked_sub(1)?;
            Some((partition.id(), broker))
        });
        Ok(led.collect())
    });
    asked.await?
}

/// The broker that leads the first partition.
pub(crate) async fn leader_of_first(cluster: &KafkaCluster, topic: &str) -> Result<usize> {
    let leaders = leaders(cluster, topic).await?;
    leaders
        .get(&0)
        .copied()
        .with_context(|| format!("partition 0 of {topic} has no leader: {leaders:?}"))
}

/// Hands partitions back to the first broker of their replicas, where it runs.
pub(crate) async fn elect_preferred(cluster: &KafkaCluster) -> Result<()> {
    let class = "org.apache.kafka.tools.LeaderElectionCommand";
    let args = ["--election-type", "PREFERRED", "--all-topic-partitions"];
    cluster.tool(class, &args).await?;
    Ok(())
}
