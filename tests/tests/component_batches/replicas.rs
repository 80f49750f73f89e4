//! A follower freezes: partitions that it replicates are not acknowledged, their neighbours on the same
//! leader are.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_model::ids::WorkerId;
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_worker::{
    batches::BatchConfig,
    engine::{RunningTask, Stopped},
};
use tokio::time::Instant;

use crate::{
    bench::{Rec, caught_up, context, fill, quick, read, spec, values},
    engine::{engine_with, lines},
};

/// Replicas of each partition of the copy, by broker; the first leads.
const REPLICAS: [[i32; 2]; 4] = [[1, 2], [1, 3], [1, 2], [1, 3]];
/// Place of broker 3 in the cluster.
const FOLLOWER: usize = 2;
const RECORDS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn c027_c104_a_frozen_follower_stops_its_own_partitions_alone() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    // It is neither taken out of the in-sync replicas nor given up as a broker.
    let options = KafkaOptions::triple("replicas")
        .property("replica.lag.time.max.ms", 300_000)
        .property("broker.session.timeout.ms", 300_000);
    let mut cluster = KafkaCluster::start(options).await?;
    // Those that are copied are followed by nobody.
    let small = [("min.insync.replicas", "1")];
    cluster
        .place_topic("orders", &[&[1][..]; REPLICAS.len()], &small)
        .await?;
    let copied = REPLICAS.each_ref().map(|of| &of[..]);
    cluster.place_topic("copy.orders", &copied, &small).await?;
    let (engine, _kill) = engine_with("worker-1", quick(), lines());
    let tasks: Vec<_> = (0..)
        .zip(REPLICAS)
        .map(|(partition, _)| engine.start(spec("orders", partition), context(&cluster)))
        .collect();
    let mut written = vec![Vec::new(); REPLICAS.len()];
    let mut write = |cluster: &KafkaCluster| -> Result<i64> {
        for (partition, written) in (0..).zip(&mut written) {
            let numbers = written.len()..written.len() + RECORDS;
            let records: Vec<_> = numbers
                .map(|n| Rec::new(format!("{partition}:{n}")))
                .collect();
            fill(cluster, "orders", partition, &records)?;
            written.extend(values(&records));
        }
        Ok(i64::try_from(written[0].len())?)
    };
    let end = write(&cluster)?;
    for task in &tasks {
        caught_up(task.as_ref(), end).await?;
    }

    cluster.freeze(FOLLOWER).await?;
    let frozen_at = Instant::now();
    for _ in 0..4 {
        let end = write(&cluster)?;
        for (task, replicas) in tasks.iter().zip(REPLICAS) {
            if !replicas.contains(&3) {
                caught_up(task.as_ref(), end).await?;
            }
        }
    }
    let took = frozen_at.elapsed();
    println!("four rounds of the others took {took:?}");
    // When all went by one connection, a single round waited for longer.
    let worker = WorkerId::new("worker-1")?;
    let patience = BatchConfig::new(worker).replica_patience;
    ensure!(took < patience, "{took:?}");
    let checkpoint = |task: &dyn RunningTask| task.status().checkpoint.map(|at| at.0);
    for (task, replicas) in tasks.iter().zip(REPLICAS) {
        let is_stuck = checkpoint(task.as_ref()) == Some(end);
        ensure!(is_stuck == replicas.contains(&3), "{:?}", task.status());
    }

    cluster.thaw(FOLLOWER)?;
    let thawed_at = Instant::now();
    let end = write(&cluster)?;
    for task in &tasks {
        caught_up(task.as_ref(), end).await?;
    }
    println!("all were level {:?} after the thaw", thawed_at.elapsed());
    for (partition, expected) in (0..).zip(&written) {
        let copy = values(&read(&cluster, "copy.orders", partition).await?);
        ensure!(
            copy == *expected,
            "partition {partition}: {} records",
            copy.len()
        );
    }
    let stops = tasks.iter().map(|task| task.stop(Duration::from_secs(10)));
    let stopped = futures::future::join_all(stops).await;
    ensure!(
        stopped.iter().all(|how| *how == Stopped::Clean),
        "{stopped:?}"
    );
    Ok(())
}
