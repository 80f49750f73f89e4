//! Records come from the replica in our own rack, and from the leader once that one is gone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kreplicator_model::spec::Security;
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    proxy::{Direction, Proxy},
    skip::{Tier, skip},
};
use kreplicator_worker::engine::Stopped;

use crate::{
    bench::{PATIENCE, Rec, caught_up, context_with, fill, quick, read, spec, values},
    engine::engine,
};

/// Places of the brokers in the cluster.
const LEADER: usize = 0;
const FOLLOWER: usize = 1;
const RECORDS: usize = 100;
const RECORD_BYTES: usize = 10_000;

/// KIP-392.
#[tokio::test(flavor = "multi_thread")]
async fn the_replica_in_our_rack_is_read_while_it_lives() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions {
        racks: true,
        ..KafkaOptions::triple("nearest")
    };
    let (mut cluster, proxies) = KafkaCluster::start_behind_proxies(options).await?;
    let small = [("min.insync.replicas", "1")];
    cluster.place_topic("orders", &[&[1, 2]], &small).await?;
    cluster.place_topic("copy.orders", &[&[3]], &small).await?;
    // The copy goes past the proxies.
    let mut context = context_with(cluster.bootstrap(), Security::default());
    context.target.bootstrap_servers = cluster.direct().split(',').map(str::to_owned).collect();
    let rack = format!("r{}", FOLLOWER + 1);
    context
        .source
        .client_options
        .insert("client.rack".to_owned(), rack);
    let engine = engine(quick());
    let task = engine.start(spec("orders", 0), Arc::new(context));
    let mut written = Vec::new();
    let mut write = |cluster: &KafkaCluster| -> Result<i64> {
        let numbers = written.len()..written.len() + RECORDS;
        let value = |n: usize| format!("{n}:{}", "x".repeat(RECORD_BYTES));
        let records: Vec<_> = numbers.map(|n| Rec::new(value(n))).collect();
        fill(cluster, "orders", 0, &records)?;
        written.extend(values(&records));
        Ok(i64::try_from(written.len())?)
    };
    // The leader is asked first; what it says of the rack comes with the first records at the latest.
    let end = write(&cluster)?;
    caught_up(task.as_ref(), end).await?;

    let before = [LEADER, FOLLOWER].map(|index| given(&proxies[index]));
    let end = write(&cluster)?;
    caught_up(task.as_ref(), end).await?;
    let [by_leader, by_follower] =
        [LEADER, FOLLOWER].map(|index| given(&proxies[index]) - before[index]);
    println!("the follower gave {by_follower} bytes, the leader {by_leader}");
    let volume = u64::try_from(RECORDS * RECORD_BYTES)?;
    ensure!(
        by_follower >= volume,
        "the follower gave {by_follower} bytes"
    );
    ensure!(by_leader < volume / 10, "the leader gave {by_leader} bytes");

    cluster.kill(FOLLOWER).await?;
    let before = given(&proxies[LEADER]);
    let end = write(&cluster)?;
    caught_up(task.as_ref(), end).await?;
    let by_leader = given(&proxies[LEADER]) - before;
    ensure!(by_leader >= volume, "the leader gave {by_leader} bytes");

    let copy = values(&read(&cluster, "copy.orders", 0).await?);
    ensure!(
        copy == written,
        "{} of {} records",
        copy.len(),
        written.len()
    );
    let stopped = task.stop(PATIENCE).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    Ok(())
}

/// Bytes that came from the broker behind a proxy.
fn given(proxy: &Proxy) -> u64 {
    proxy.bytes(Direction::FromTarget)
}
