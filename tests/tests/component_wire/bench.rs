//! What all tests of the client share.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use kreplicator_model::{
    ids::{ClusterId, Offset, Partition, TopicName},
    spec::{self, SecretRef},
};
use kreplicator_tests::kafka::KafkaCluster;
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    code::Code,
    fetch,
    produce::{Batch, PartitionAnswer, Request},
    settings::{Secret, Secrets, Settings},
    topic::TopicPartition,
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Time of a call.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What the client calls itself.
pub(crate) const CLIENT: &str = "kreplicator-wire-test";

/// A deadline from now.
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Partition `partition` of `topic`.
pub(crate) fn at(topic: &str, partition: i32) -> TopicPartition {
    let topic = TopicName::new(topic).expect("a legal name");
    TopicPartition::new(topic, Partition(partition))
}

/// Secrets by the name of their variable, exchangeable while in use.
#[derive(Debug, Default)]
pub(crate) struct Vault(std::sync::Mutex<BTreeMap<String, String>>);

impl Vault {
    pub(crate) fn put(&self, name: &str, value: &str) {
        let mut secrets = self.0.lock().expect("no panic");
        secrets.insert(name.to_owned(), value.to_owned());
    }
}

impl Secrets for Vault {
    fn read(&self, reference: &SecretRef) -> Result<Secret, String> {
        let SecretRef::Env(name) = reference else {
            return Err("only variables here".to_owned());
        };
        let secrets = self.0.lock().expect("no panic");
        let secret = secrets.get(name).ok_or("no such variable")?;
        Ok(Secret::new(secret))
    }
}

/// Settings of a client of `cluster`.
pub(crate) fn settings(cluster: &KafkaCluster, security: spec::Security) -> Settings {
    let cluster = spec::Cluster {
        id: ClusterId::new(cluster.name()).expect("a legal name"),
        bootstrap_servers: cluster.bootstrap(),
        security,
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    Settings::of(&cluster, CLIENT)
}

/// A client of an open cluster.
pub(crate) fn client(cluster: &KafkaCluster) -> ClusterClient {
    let settings = settings(cluster, spec::Security::default());
    ClusterClient::new(settings, Arc::new(Vault::default()), TaskTracker::new())
}

/// Sends one batch to the leader of a partition and gives the broker's answer.
pub(crate) async fn produce(
    client: &ClusterClient,
    to: &TopicPartition,
    records: Vec<Bytes>,
) -> Result<PartitionAnswer> {
    let topic = client.topic(&to.topic, soon()).await?;
    let mut request = Request::new(Duration::from_secs(10));
    let batch = Batch {
        topic: to.topic.clone(),
        topic_id: topic.id,
        partition: to.partition,
        records,
    };
    request.add(batch).ok().context("one batch")?;
    let leader = client.leader(to, soon()).await?;
    let connection = client
        .connection(leader.broker, Purpose::Produce(0), soon())
        .await?;
    let answer = request.submit(&connection, soon()).await?.answer().await?;
    let answer = answer.partitions.into_iter().next();
    answer.context("an answer for the partition")
}

/// As [`produce`], and it must be acknowledged; its first offset.
pub(crate) async fn produced(
    client: &ClusterClient,
    to: &TopicPartition,
    records: Vec<Bytes>,
) -> Result<i64> {
    let answer = produce(client, to, records).await?;
    ensure!(answer.code == Code::NONE, "{answer:?}");
    Ok(answer.base_offset.context("an offset")?.0)
}

/// Reading of a partition from `offset` on.
pub(crate) fn from(offset: i64) -> fetch::Position {
    fetch::Position {
        offset: Offset(offset),
        leader_epoch: None,
        last_fetched_epoch: None,
        bytes_max: 1 << 20,
    }
}
