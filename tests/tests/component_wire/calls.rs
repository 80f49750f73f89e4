//! Metadata, offsets, producers, groups and settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::ids::{Offset, TopicName, UnixMillis};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_wire::{
    cluster::{
        group::Commit,
        offsets::{At, Isolation},
    },
    code::{Class, Code},
    error::Error,
};
use tokio::time::Instant;

use crate::{
    batch::{NOBODY, Producer, batch},
    bench::{at, client, produce, produced, settings, soon},
};

#[tokio::test(flavor = "multi_thread")]
async fn small_calls_find_their_broker_and_tell_what_the_cluster_knows() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("wire-calls")).await?;
    let limit = [("max.message.bytes", "54321")];
    cluster.create_topic("orders", 3, &limit).await?;
    metadata(&cluster).await?;
    offsets(&cluster).await?;
    producers(&cluster).await?;
    groups(&cluster).await
}

async fn metadata(cluster: &KafkaCluster) -> Result<()> {
    let client = client(cluster);
    let orders = TopicName::new("orders")?;
    let topic = client.topic(&orders, soon()).await?;
    ensure!(
        topic.id.is_some() && topic.partitions.len() == 3,
        "{topic:?}"
    );
    let leader = client.leader(&at("orders", 2), soon()).await?;
    ensure!(leader.broker.0 == 1 && leader.epoch.is_some(), "{leader:?}");
    ensure!(client.nodes().len() == 1, "{:?}", client.nodes());
    let id = client.cluster_id(soon()).await?.context("an id")?;
    ensure!(id.len() == 22, "{id}");
    let configs = client
        .topic_configs(&orders, &["max.message.bytes", "cleanup.policy"], soon())
        .await?;
    ensure!(configs["max.message.bytes"] == "54321", "{configs:?}");
    ensure!(configs["cleanup.policy"] == "delete", "{configs:?}");
    // What does not exist is said at once, and is not created by asking.
    let nothing = TopicName::new("nothing")?;
    let start = Instant::now();
    let fault = client.topic(&nothing, soon()).await.expect_err("unknown");
    ensure!(
        fault.code() == Some(Code::UNKNOWN_TOPIC_OR_PARTITION),
        "{fault}"
    );
    let fault = client.leader(&at("orders", 3), soon()).await;
    let fault = fault.expect_err("no such partition");
    ensure!(fault.to_string().contains("orders/3"), "{fault}");
    ensure!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    ensure!(!cluster.topics().await?.contains_key("nothing"));
    // A pinned id is compared before anything else is believed.
    let mut pinned = settings(cluster, kreplicator_model::spec::Security::default());
    pinned.expected_cluster_id = Some("another".to_owned());
    let other = kreplicator_wire::cluster::ClusterClient::new(
        pinned,
        std::sync::Arc::new(crate::bench::Vault::default()),
        tokio_util::task::TaskTracker::new(),
    );
    let fault = other.topic(&orders, soon()).await.expect_err("pinned");
    ensure!(matches!(fault, Error::WrongCluster { .. }), "{fault}");
    ensure!(fault.class() == Class::Terminal, "{fault}");
    Ok(())
}

async fn offsets(cluster: &KafkaCluster) -> Result<()> {
    let client = client(cluster);
    let lane = at("orders", 0);
    produced(
        &client,
        &lane,
        batch(NOBODY, 1_700_000_000_000, &["a", "b"]),
    )
    .await?;
    produced(&client, &lane, batch(NOBODY, 1_700_000_005_000, &["c"])).await?;
    let list = async |at: At| {
        let asked = BTreeMap::from([(lane.clone(), at)]);
        let mut told = client
            .list_offsets(asked, Isolation::Committed, soon())
            .await;
        told.remove(&lane)
            .context("told")?
            .map_err(anyhow::Error::from)
    };
    ensure!(list(At::Earliest).await?.offset == Some(Offset(0)));
    ensure!(list(At::Latest).await?.offset == Some(Offset(3)));
    let young = list(At::Timestamp(UnixMillis(1_700_000_001_000))).await?;
    ensure!(young.offset == Some(Offset(2)), "{young:?}");
    ensure!(
        young.timestamp == Some(UnixMillis(1_700_000_005_000)),
        "{young:?}"
    );
    let never = list(At::Timestamp(UnixMillis(1_800_000_000_000))).await?;
    ensure!(never.offset.is_none(), "{never:?}");
    // Faults are told of one partition alone, when the time is over.
    let missing = at("orders", 7);
    let asked = BTreeMap::from([(lane.clone(), At::Latest), (missing.clone(), At::Latest)]);
    let deadline = Instant::now() + Duration::from_secs(1);
    let told = client
        .list_offsets(asked, Isolation::Uncommitted, deadline)
        .await;
    ensure!(told[&lane].is_ok() && told[&missing].is_err(), "{told:?}");
    let epoch = client.leader(&lane, soon()).await?.epoch.context("epoch")?;
    let asked = BTreeMap::from([(lane.clone(), epoch)]);
    let ends = client.offset_for_leader_epoch(asked, soon()).await;
    let end = ends[&lane].clone()?.context("an end")?;
    ensure!(end.epoch == epoch && end.end == Offset(3), "{end:?}");
    Ok(())
}

async fn producers(cluster: &KafkaCluster) -> Result<()> {
    let client = client(cluster);
    let lane = at("orders", 1);
    let id = client.init_producer_id(soon()).await?;
    ensure!(id.epoch == 0 && id.id >= 0, "{id:?}");
    let other = client.init_producer_id(soon()).await?;
    ensure!(other.id != id.id, "two links, two ids");
    let producer = |epoch, sequence| Producer {
        id: id.id,
        epoch,
        sequence,
    };
    let first = batch(producer(0, 0), 1_700_000_000_000, &["a", "b", "c"]);
    ensure!(produced(&client, &lane, first.clone()).await? == 0);
    let second = batch(producer(0, 3), 1_700_000_000_000, &["d"]);
    ensure!(produced(&client, &lane, second).await? == 3);
    // The same batch again is acknowledged with its first offset, and written once.
    ensure!(produced(&client, &lane, first).await? == 0, "a duplicate");
    let asked = BTreeMap::from([(lane.clone(), At::Latest)]);
    let ends = client
        .list_offsets(asked, Isolation::Committed, soon())
        .await;
    ensure!(ends[&lane].clone()?.offset == Some(Offset(4)), "{ends:?}");
    // A gap is refused, and so is an old epoch once there is a newer one.
    let gap = batch(producer(0, 9), 1_700_000_000_000, &["x"]);
    let answer = produce(&client, &lane, gap).await?;
    ensure!(
        answer.code == Code::OUT_OF_ORDER_SEQUENCE_NUMBER,
        "{answer:?}"
    );
    let bumped = batch(producer(1, 0), 1_700_000_000_000, &["e"]);
    ensure!(produced(&client, &lane, bumped).await? == 4);
    let old = batch(producer(0, 4), 1_700_000_000_000, &["x"]);
    let answer = produce(&client, &lane, old).await?;
    ensure!(answer.code == Code::INVALID_PRODUCER_EPOCH, "{answer:?}");
    ensure!(answer.code.class() == Class::Fenced);
    // What the broker refuses for its content it explains.
    let mut bent = batch(NOBODY, 1_700_000_000_000, &["x"]);
    let mut header = bent[0].to_vec();
    header[16] = 1;
    bent[0] = header.into();
    let answer = produce(&client, &lane, bent).await?;
    ensure!(
        answer.code.fault().is_some() && answer.base_offset.is_none(),
        "{answer:?}"
    );
    let described = client
        .describe_producers(BTreeSet::from([lane.clone()]), soon())
        .await;
    let states = described[&lane].clone()?;
    let ours = states
        .iter()
        .find(|state| state.id == id.id)
        .context("ours")?;
    ensure!(ours.epoch == 1 && ours.last_sequence == Some(0), "{ours:?}");
    ensure!(ours.transaction_start.is_none(), "{ours:?}");
    let view = client.view(&lane, soon()).await?;
    let remembered = view.producers.context("it can tell")?;
    ensure!(remembered == states, "{remembered:?}");
    ensure!(view.log_end == Some(view.range.end), "all is replicated");
    ensure!(view.range.end > view.range.start, "{:?}", view.range);
    Ok(())
}

async fn groups(cluster: &KafkaCluster) -> Result<()> {
    let client = client(cluster);
    let lanes = BTreeSet::from([at("orders", 0), at("orders", 1)]);
    let none = client.committed_offsets("copy", &lanes, soon()).await?;
    ensure!(none.len() == 2, "{none:?}");
    ensure!(none.values().all(|none| *none == Ok(None)), "{none:?}");
    let commit = Commit {
        offset: Offset(2),
        leader_epoch: Some(0),
        metadata: "v1 e=12".to_owned(),
    };
    // A topic that the cluster lacks is refused for good, and delays nobody.
    let commits = BTreeMap::from([
        (at("nowhere", 0), commit.clone()),
        (at("orders", 0), commit),
    ]);
    let begin = Instant::now();
    let done = client.commit_offsets("copy", &commits, soon()).await;
    ensure!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    ensure!(done[&at("orders", 0)].is_ok(), "{done:?}");
    let fault = done[&at("nowhere", 0)].clone().expect_err("no such topic");
    ensure!(
        fault.code() == Some(Code::UNKNOWN_TOPIC_OR_PARTITION),
        "{fault}"
    );
    let committed = client.committed_offsets("copy", &lanes, soon()).await?;
    ensure!(committed[&at("orders", 1)] == Ok(None), "{committed:?}");
    let committed = committed[&at("orders", 0)].clone()?.context("committed")?;
    ensure!(committed.offset == Offset(2) && committed.metadata == "v1 e=12");
    ensure!(committed.leader_epoch == Some(0), "{committed:?}");
    // Kafka's own client reads the same.
    let seen = cluster
        .committed("copy", &[("orders".to_owned(), 0)])
        .await?;
    ensure!(seen[&("orders".to_owned(), 0)].0 == 2, "{seen:?}");
    let long = Commit {
        offset: Offset(3),
        leader_epoch: None,
        metadata: "x".repeat(10_000),
    };
    let commits = BTreeMap::from([(at("orders", 0), long)]);
    let done = client.commit_offsets("copy", &commits, soon()).await;
    let fault = done[&at("orders", 0)].clone().expect_err("too long");
    ensure!(
        fault.code() == Some(Code::OFFSET_METADATA_TOO_LARGE),
        "{fault}"
    );
    ensure!(fault.to_string().contains("copy"), "{fault}");
    Ok(())
}
