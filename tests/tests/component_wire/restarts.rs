//! A broker that goes away and comes back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::ids::UnixMillis;
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_wire::{
    cluster::{
        ClusterClient,
        offsets::{At, Isolation},
    },
    code::Code,
};
use tokio::time::{Instant, sleep};

use crate::{
    batch::{Producer, batch},
    bench::{at, client, produce, soon},
};

/// How long a batch is tried.
const OUTAGE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn c027_a_broker_killed_and_started_again_is_ridden_through() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let mut cluster = KafkaCluster::start(KafkaOptions::single("wire-restart")).await?;
    cluster.create_topic("orders", 1, &[]).await?;
    let client = client(&cluster);
    let producer = client.init_producer_id(soon()).await?.id;
    deliver(&client, producer, 0..20).await?;
    let writing = tokio::spawn({
        let client = client.clone();
        async move { deliver(&client, producer, 20..200).await }
    });
    sleep(Duration::from_millis(200)).await;
    cluster.kill(0).await?;
    // While it is away a call takes its time and no longer.
    let start = Instant::now();
    let asked = [(at("orders", 0), At::Latest)].into();
    let deadline = Instant::now() + Duration::from_secs(2);
    let told = client
        .list_offsets(asked, Isolation::Committed, deadline)
        .await;
    let fault = told[&at("orders", 0)].clone().expect_err("it is away");
    ensure!(fault.is_retryable(), "{fault}");
    ensure!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    cluster.restart(0).await?;
    writing.await??;
    let asked = [(at("orders", 0), At::Latest)].into();
    let told = client
        .list_offsets(asked, Isolation::Committed, soon())
        .await;
    let end = told[&at("orders", 0)].clone()?.offset.context("an end")?;
    ensure!(end.0 == 200, "each record once: {end:?}");
    Ok(())
}

/// Sends records one by one under their sequence, each until it is acknowledged.
async fn deliver(
    client: &ClusterClient,
    producer: i64,
    sequences: std::ops::Range<i32>,
) -> Result<()> {
    let lane = at("orders", 0);
    let end = Instant::now() + OUTAGE;
    // Brokers forget producers by the time stamps of their records: with old ones a broker that starts
    // knows none, and takes a repeat for a new batch.
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed()?;
    let now = UnixMillis(i64::try_from(since.as_millis())?);
    for sequence in sequences {
        let from = Producer {
            id: producer,
            epoch: 0,
            sequence,
        };
        loop {
            let records = batch(from, now.0, &["x"]);
            match produce(client, &lane, records).await {
                Ok(told) if told.code == Code::NONE => {
                    let base = told.base_offset.context("an offset")?.0;
                    ensure!(base == i64::from(sequence), "{sequence}: {told:?}");
                    break;
                }
                Ok(told) => {
                    client.mark_stale(&lane.topic);
                    ensure!(Instant::now() < end, "{told:?}");
                }
                Err(fault) => {
                    client.mark_stale(&lane.topic);
                    ensure!(Instant::now() < end, "{fault}");
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
