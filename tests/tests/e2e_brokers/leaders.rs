//! Which broker leads and keeps which partition, and how that is changed.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{checker::Lane, kafka::KafkaCluster, wait};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(20);
/// Longest wait until replicas have caught up or leaders are elected.
const SETTLED: Duration = Duration::from_secs(90);

/// Where a partition is, by index of brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    /// None: nobody leads it.
    pub(crate) leader: Option<usize>,
    pub(crate) replicas: Vec<usize>,
    pub(crate) in_sync: Vec<usize>,
}

/// Where each partition of some topics is.
pub(crate) async fn placed(
    cluster: &KafkaCluster,
    topics: &[&str],
) -> Result<BTreeMap<Lane, Placed>> {
    let config = cluster.client_config();
    let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let asked = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = config.create()?;
        let mut placed = BTreeMap::new();
        for name in &topics {
            let metadata = consumer.fetch_metadata(Some(name), DEADLINE)?;
            let topic = metadata.topics().first().context("an empty answer")?;
            for partition in topic.partitions() {
                let of = Placed {
                    leader: broker(partition.leader()),
                    replicas: brokers(partition.replicas()),
                    in_sync: brokers(partition.isr()),
                };
                placed.insert((name.clone(), partition.id()), of);
            }
        }
        Ok(placed)
    });
    asked.await?
}

/// Nodes are numbered from 1.
fn broker(node: i32) -> Option<usize> {
    usize::try_from(node).ok()?.checked_sub(1)
}

fn brokers(nodes: &[i32]) -> Vec<usize> {
    let mut all: Vec<usize> = nodes.iter().filter_map(|node| broker(*node)).collect();
    all.sort_unstable();
    all
}

/// Waits until every partition of some topics is placed as it should be.
pub(crate) async fn wait_placed(
    cluster: &KafkaCluster,
    topics: &[&str],
    what: &str,
    is_right: impl Fn(&Lane, &Placed) -> bool,
) -> Result<BTreeMap<Lane, Placed>> {
    wait::until(what, SETTLED, async || {
        let placed = placed(cluster, topics).await?;
        let wrong = placed.iter().find(|(lane, of)| !is_right(lane, of));
        ensure!(wrong.is_none() && !placed.is_empty(), "{wrong:?}");
        Ok(Some(placed))
    })
    .await
}

/// Index of the leading broker of each partition of a topic; partitions without one are left out.
pub(crate) async fn leaders(cluster: &KafkaCluster, topic: &str) -> Result<BTreeMap<i32, usize>> {
    let placed = placed(cluster, &[topic]).await?.into_iter();
    Ok(placed
        .filter_map(|((_, partition), of)| Some((partition, of.leader?)))
        .collect())
}

/// The broker that leads the first partition.
pub(crate) async fn leader_of_first(cluster: &KafkaCluster, topic: &str) -> Result<usize> {
    let leaders = leaders(cluster, topic).await?;
    leaders
        .get(&0)
        .copied()
        .with_context(|| format!("partition 0 of {topic} has no leader: {leaders:?}"))
}

/// Hands partitions to the first broker of their replicas, where it runs.
pub(crate) async fn elect_preferred(cluster: &KafkaCluster) -> Result<()> {
    let class = "org.apache.kafka.tools.LeaderElectionCommand";
    let args = ["--election-type", "PREFERRED", "--all-topic-partitions"];
    cluster.tool(class, &args).await?;
    Ok(())
}

/// Begins to move partitions to other replicas, the preferred leader first.
pub(crate) async fn reassign(
    cluster: &KafkaCluster,
    replicas: &BTreeMap<Lane, Vec<usize>>,
) -> Result<()> {
    let partitions = replicas.iter().map(|((topic, partition), replicas)| {
        let nodes: Vec<usize> = replicas.iter().map(|broker| broker + 1).collect();
        json!({"topic": topic, "partition": partition, "replicas": nodes})
    });
    let wanted = json!({"version": 1, "partitions": partitions.collect::<Vec<_>>()});
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("reassignment.json");
    fs::write(&file, wanted.to_string())?;
    let file = file.display().to_string();
    let class = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
    let args = ["--reassignment-json-file", &file, "--execute"];
    cluster.tool(class, &args).await?;
    Ok(())
}
