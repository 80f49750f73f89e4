//! A broker of each release, and links between them.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use futures::future::try_join_all;
use kreplicator_model::spec::Security;
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions, KafkaVersion},
    skip::{Tier, skip, skip_without},
};
use kreplicator_worker::engine::LinkContext;

use crate::bench::context_with;

/// A cluster of each release.
#[derive(Debug)]
pub(crate) struct Clusters(BTreeMap<KafkaVersion, Arc<KafkaCluster>>);

impl Clusters {
    /// Starts them all at once.
    pub(crate) async fn start() -> Result<Self> {
        let started = KafkaVersion::ALL.map(|version| async move {
            let options = KafkaOptions::single(&format!("kafka-{version}")).version(version);
            let cluster = Arc::new(KafkaCluster::start(options).await?);
            Ok::<_, anyhow::Error>((version, cluster))
        });
        Ok(Self(try_join_all(started).await?.into_iter().collect()))
    }

    /// The cluster of a release.
    pub(crate) fn of(&self, version: KafkaVersion) -> &Arc<KafkaCluster> {
        &self.0[&version]
    }

    /// Keeps logs and data.
    pub(crate) fn failed(&self) {
        for cluster in self.0.values() {
            cluster.failed();
        }
    }
}

/// Whether a test must return at once, because this machine cannot run Kafka or get one of its `versions`;
/// says why.
pub(crate) async fn skipped(versions: &[KafkaVersion]) -> Result<bool> {
    if skip(Tier::Component) {
        return Ok(true);
    }
    let wanted = versions.to_vec();
    let missing = tokio::task::spawn_blocking(move || {
        let faults = wanted.into_iter().filter_map(|version| {
            let fault = version.fetch().err()?;
            Some(format!("Kafka {version} cannot be fetched: {fault:#}"))
        });
        faults.reduce(|all, fault| format!("{all}; {fault}"))
    });
    Ok(skip_without(Tier::Component, missing.await?))
}

/// A link between two clusters, past their client listeners.
pub(crate) fn link(source: &KafkaCluster, target: &KafkaCluster) -> Arc<LinkContext> {
    let mut context = context_with(servers(source), Security::default());
    context.target.bootstrap_servers = servers(target);
    Arc::new(context)
}

fn servers(cluster: &KafkaCluster) -> Vec<String> {
    cluster.direct().split(',').map(str::to_owned).collect()
}

/// Makes a topic at the source, with the settings given, and its copy at the target.
pub(crate) async fn topic_pair(
    source: &KafkaCluster,
    target: &KafkaCluster,
    topic: &str,
    partitions: i32,
    source_config: &[(&str, &str)],
) -> Result<()> {
    source
        .create_topic(topic, partitions, source_config)
        .await?;
    let copy = format!("copy.{topic}");
    target.create_topic(&copy, partitions, &[]).await
}
