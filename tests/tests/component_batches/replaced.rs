//! The source elects a leader that lacks what was copied, and its log grows past the checkpoint with other records.

use anyhow::{Result, ensure};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_worker::engine::Stopped;

use crate::{
    bench::{PATIENCE, Rec, caught_up, context, faulted, fill, quick, read, spec, values},
    engine::engine,
    suite::positions::commit,
};

/// Places of the brokers in the cluster.
const LEADER: usize = 0;
const FOLLOWER: usize = 1;
const RECORDS: usize = 50;

/// KIP-320. Nothing runs meanwhile, so only the checkpoint can tell.
#[tokio::test(flavor = "multi_thread")]
async fn c005_what_an_unclean_election_has_replaced_is_told_to_the_next_owner() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let mut cluster = KafkaCluster::start(KafkaOptions::triple("replaced")).await?;
    let unclean = [
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", "true"),
    ];
    cluster.place_topic("orders", &[&[1, 2]], &unclean).await?;
    cluster
        .place_topic("copy.orders", &[&[3]], &unclean[..1])
        .await?;
    let write = |cluster: &KafkaCluster, what: &str, count| -> Result<Vec<_>> {
        let records: Vec<_> = (0..count)
            .map(|n| Rec::new(format!("{what}:{n}")))
            .collect();
        fill(cluster, "orders", 0, &records)?;
        Ok(values(&records))
    };
    let first = engine(quick());
    let task = first.start(spec("orders", 0), context(&cluster));
    let mut written = write(&cluster, "kept", RECORDS)?;
    cluster.kill(FOLLOWER).await?;
    written.extend(write(&cluster, "lost", RECORDS)?);
    let copied = i64::try_from(written.len())?;
    caught_up(task.as_ref(), copied).await?;
    let stopped = task.stop(PATIENCE).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");

    cluster.kill(LEADER).await?;
    cluster.restart(FOLLOWER).await?;
    // At the offsets of the lost ones, and beyond.
    let replacing = write(&cluster, "other", 2 * RECORDS)?;

    let second = engine(quick());
    let task = second.start(spec("orders", 0), context(&cluster));
    let status = faulted(
        task.as_ref(),
        &["from 50 on", "up to offset 100", "reset the checkpoint"],
    )
    .await?;
    println!("{}", status.cause);
    let copy = values(&read(&cluster, "copy.orders", 0).await?);
    ensure!(copy == written, "{} records", copy.len());

    // Somebody has looked, and wants the others too.
    commit(&cluster, "orders", 0, 50)?;
    caught_up(task.as_ref(), copied + i64::try_from(RECORDS)?).await?;
    written.extend(replacing);
    let copy = values(&read(&cluster, "copy.orders", 0).await?);
    ensure!(copy == written, "{} records", copy.len());
    let stopped = task.stop(PATIENCE).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    Ok(())
}
