//! Every record once, whatever happens to owners.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_model::{ids::OwnerEpoch, target_limits::TargetLimits};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_worker::engine::{Stopped, TaskSpec};
use tokio::time::{sleep, timeout};

use crate::{
    bench::{
        PATIENCE, Rec, caught_up, context, fill, now_ms, producer, quick, read, send, spec,
        topic_pair, values, written,
    },
    engine::{engine_with, lines},
};

fn numbered(from: usize, to: usize) -> Vec<Rec> {
    let record = |number: usize| Rec {
        key: Some(format!("key-{}", number % 97).into_bytes()),
        timestamp: Some(now_ms()),
        ..Rec::new(format!(
            "value-{number:08} with some words around it to give it a size"
        ))
    };
    (from..to).map(record).collect()
}

/// Writes records in batches of ten, which are too large to be joined: copying them takes some hundred
/// requests.
fn fill_slowly(cluster: &KafkaCluster, records: &[Rec]) -> Result<()> {
    let producer = producer(cluster, &[("batch.num.messages", "10")])?;
    send(&producer, "orders", 0, records)?;
    written(&producer)
}

fn owned(topic: &str, epoch: u64) -> TaskSpec {
    TaskSpec {
        epoch: OwnerEpoch(epoch),
        limits: TargetLimits {
            max_message_bytes: Some(1 << 20),
            ..TargetLimits::default()
        },
        ..spec(topic, 0)
    }
}

/// Owners are killed at any moment and others take over from what is saved by then; at the end every
/// record is there once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn owners_killed_at_any_moment_leave_every_record_once() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("exact")).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let lines = lines();
    let mut count = 0;
    let mut torn = 0;
    for round in 0..12_u64 {
        let records = numbered(count, count + 5_000);
        count += records.len();
        fill_slowly(&cluster, &records)?;
        let name = format!("worker-{round}");
        let (engine, kill) = engine_with(&name, quick(), Arc::clone(&lines));
        let task = engine.start(owned("orders", 7 + round), context(&cluster));
        // From before the first send on.
        let enough = 300 * round;
        let so_far = async {
            while task.status().records_total < enough {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, so_far).await?;
        kill.cancel();
        let at = task.status().checkpoint.map(|at| at.0);
        torn += usize::from(enough > 0 && at < Some(i64::try_from(count)?));
        drop(task);
        drop(engine);
    }
    println!("{torn} of 12 owners were killed with work left");
    ensure!(torn >= 3, "only {torn} owners were killed with work left");
    let (engine, _kill) = engine_with("worker-last", quick(), lines);
    let task = engine.start(owned("orders", 100), context(&cluster));
    caught_up(task.as_ref(), i64::try_from(count)?).await?;
    let stopped = task.stop(Duration::from_secs(10)).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    let (source, copy) = (
        values(&read(&cluster, "orders", 0).await?),
        values(&read(&cluster, "copy.orders", 0).await?),
    );
    ensure!(source.len() == count, "{} at the source", source.len());
    ensure!(
        copy.len() == count,
        "{} at the target, of {count}",
        copy.len()
    );
    ensure!(source == copy, "not the same order");
    Ok(())
}

/// Split brain: two owners of the same task copy at the same time from beginning to end.
#[tokio::test(flavor = "multi_thread")]
async fn two_owners_at_once_leave_every_record_once() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("split")).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let records = numbered(0, 60_000);
    fill(&cluster, "orders", 0, &records)?;
    let lines = lines();
    let (first, _kill_first) = engine_with("worker-1", quick(), Arc::clone(&lines));
    let (second, _kill_second) = engine_with("worker-2", quick(), lines);
    let first_task = first.start(owned("orders", 7), context(&cluster));
    let second_task = second.start(owned("orders", 7), context(&cluster));
    caught_up(first_task.as_ref(), 60_000).await?;
    caught_up(second_task.as_ref(), 60_000).await?;
    let copy = read(&cluster, "copy.orders", 0).await?;
    ensure!(copy.len() == 60_000, "{} records", copy.len());
    ensure!(values(&copy) == values(&records), "not the same order");
    first_task.stop(Duration::from_secs(10)).await;
    second_task.stop(Duration::from_secs(10)).await;
    Ok(())
}
