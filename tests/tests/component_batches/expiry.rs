//! A target that forgets who has written to it.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_model::{exact, ids::OwnerEpoch};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    settings,
    skip::{Tier, skip},
    wait,
};
use kreplicator_worker::{
    batches::BatchConfig,
    budget::Budget,
    engine::{Delivery, Engine, Status, Stopped, TaskSpec},
    lines::LineBook,
};

use crate::{
    bench::{
        Rec, Times, caught_up, context, producer, quick, read, send, spec, status_where,
        topic_pair, values, written,
    },
    engine::{config, engine_of, lines},
};

/// How long the target remembers. By default it is a day.
const EXPIRATION: Duration = Duration::from_secs(20);
/// Longest wait until it has forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
const RECORDS: usize = 300;

/// A task is idle for longer than the target remembers its producer; then it goes on, and so does a second
/// owner that nothing was saved for and that finds out from the log alone where to go on. Every record comes
/// once, and that is what both promise.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_target_has_forgotten_is_neither_repeated_nor_left_out_by_two_owners() -> Result<()>
{
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions::single("forgetful")
        .property("producer.id.expiration.ms", EXPIRATION.as_millis())
        .property("producer.id.expiration.check.interval.ms", 200);
    let cluster = KafkaCluster::start(options).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let lines = lines();
    // Nothing is saved, so whoever comes second has everything to find out.
    let forgetful = Times {
        checkpoint_interval: Duration::from_secs(3_600),
        ..quick()
    };
    let first = engine("worker-1", forgetful, Arc::clone(&lines));
    let task = first.start(owned(7), context(&cluster));
    let mut sent = write(&cluster, 0)?;
    caught_up(task.as_ref(), i64::try_from(sent)?).await?;
    ensure!(remembered(&cluster).await? == 1, "one producer has written");

    let mut owners = vec![task];
    for round in 0..settings::length(1, 4) {
        wait::until_true("the target to forget", FORGOTTEN, async || {
            Ok(remembered(&cluster).await? == 0)
        })
        .await?;
        let name = format!("other-{round}");
        let other = engine(&name, forgetful, Arc::clone(&lines));
        owners.push(other.start(owned(8 + round), context(&cluster)));
        sent += write(&cluster, sent)?;
        for owner in &owners {
            caught_up(owner.as_ref(), i64::try_from(sent)?).await?;
            let exactly_once = |status: &Status| status.delivery == Some(Delivery::ExactlyOnce);
            status_where(owner.as_ref(), "the promise", exactly_once).await?;
        }
        ensure!(remembered(&cluster).await? == 1, "one line has gone on");
        let copy = values(&read(&cluster, "copy.orders", 0).await?);
        let expected: Vec<String> = (0..sent).map(text).collect();
        ensure!(copy == expected, "{} copied, of {sent}", copy.len());
    }
    for owner in owners {
        let stopped = owner.stop(Duration::from_secs(10)).await;
        ensure!(stopped == Stopped::Clean, "{stopped:?}");
    }
    Ok(())
}

/// An engine that knows how long the target remembers: the same parts of it as by default.
fn engine(worker: &str, times: Times, lines: Arc<dyn LineBook>) -> Arc<dyn Engine> {
    let base = config(worker, times);
    let config = BatchConfig {
        sender: exact::Settings {
            state_lifetime: EXPIRATION / 4,
            unheard_max: EXPIRATION / 24,
            ..base.sender
        },
        ..base
    };
    engine_of(config, Budget::new(64 << 20), lines).0
}

fn owned(epoch: u64) -> TaskSpec {
    TaskSpec {
        epoch: OwnerEpoch(epoch),
        ..spec("orders", 0)
    }
}

fn text(number: usize) -> String {
    format!("value-{number:08} with some words around it to give it a size")
}

/// Writes records of now in batches of ten, from `from` on; tells how many.
fn write(cluster: &KafkaCluster, from: usize) -> Result<usize> {
    let producer = producer(cluster, &[("batch.num.messages", "10")])?;
    let numbers = from..from + RECORDS;
    let records: Vec<Rec> = numbers.map(|number| Rec::new(text(number))).collect();
    send(&producer, "orders", 0, &records)?;
    written(&producer)?;
    Ok(RECORDS)
}

/// How many producers the target remembers in the copy.
async fn remembered(cluster: &KafkaCluster) -> Result<usize> {
    let class = "org.apache.kafka.tools.TransactionsCommand";
    let of = ["--topic", "copy.orders", "--partition", "0"];
    let told = cluster
        .tool(class, &[&["describe-producers"][..], &of].concat())
        .await?;
    let mut lines = told.lines().filter(|line| !line.trim().is_empty());
    let head = lines.next().unwrap_or_default();
    ensure!(head.contains("ProducerId"), "no table: {told}");
    Ok(lines.count())
}
