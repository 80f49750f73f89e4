//! Every release as source of every other.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaVersion},
    settings,
};
use kreplicator_worker::engine::{Delivery, Weakness};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::{
    batches,
    bench::{Rec, Times, quick},
    clusters::{Clusters, link, skipped, topic_pair},
    load::{CODECS, compare, fill, record},
    owner::Owner,
    records,
};

const PARTITIONS: i32 = 2;

/// All releases are the source of all others at the same time, by both engines. Of the oldest, topics in
/// formats that are older still.
#[tokio::test(flavor = "multi_thread")]
async fn all_pairs_of_releases_copy_every_record() -> Result<()> {
    if skipped(&KafkaVersion::ALL).await? {
        return Ok(());
    }
    let clusters = Clusters::start().await?;
    let result = all_pairs(&clusters).await;
    if result.is_err() {
        clusters.failed();
    }
    result
}

async fn all_pairs(clusters: &Clusters) -> Result<()> {
    let pairs = KafkaVersion::ALL.into_iter().flat_map(|source| {
        let targets = KafkaVersion::ALL.into_iter();
        let others = targets.filter(move |target| *target != source);
        others.map(move |target| (source, target))
    });
    let copies = pairs.map(|(source, target)| async move {
        let name = format!("{source} to {target}");
        let (from, to) = (clusters.of(source), clusters.of(target));
        let torn = owners_come_and_go(from, to)
            .await
            .with_context(|| format!("batches, {name}"))?;
        println!("{name}: {torn} tasks were killed with work left");
        records_engine(from, to)
            .await
            .with_context(|| format!("records, {name}"))?;
        if source == KafkaVersion::V2_1 {
            old_formats(from, to)
                .await
                .with_context(|| format!("old formats, {name}"))?;
        }
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(copies).await?;
    Ok(())
}

fn topic_of(what: &str, source: &KafkaCluster, target: &KafkaCluster) -> String {
    format!("{what}-{}-to-{}", source.version(), target.version())
}

fn none_sent() -> Vec<Vec<Rec>> {
    (0..PARTITIONS).map(|_| Vec::new()).collect()
}

/// Begins to write more records to every partition, and adds them to what is `sent`.
fn write(
    source: &Arc<KafkaCluster>,
    topic: &str,
    sent: &mut [Vec<Rec>],
    records: usize,
) -> Vec<JoinHandle<Result<()>>> {
    let mut writing = Vec::new();
    for (partition, sent) in (0..).zip(sent) {
        let new: Vec<Rec> = (sent.len()..sent.len() + records).map(record).collect();
        sent.extend(new.clone());
        let (source, topic) = (Arc::clone(source), topic.to_owned());
        writing.push(spawn_blocking(move || {
            fill(&source, &topic, partition, &CODECS, &new)
        }));
    }
    writing
}

async fn written(writing: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    for one in writing {
        one.await??;
    }
    Ok(())
}

/// The batch engine, while records are written. Every second owner is killed in the middle, having saved
/// nothing; the others live on until the next one, which does not know of them, is in the middle of its own. At
/// the end every record is there once, and the last owner says so. Tells how many tasks had work left when they
/// were killed.
async fn owners_come_and_go(
    source: &Arc<KafkaCluster>,
    target: &Arc<KafkaCluster>,
) -> Result<usize> {
    let topic = topic_of("batches", source, target);
    topic_pair(source, target, &topic, PARTITIONS, &[]).await?;
    let context = link(source, target);
    let lines = batches::lines();
    let forgetful = Times {
        checkpoint_interval: Duration::from_secs(600),
        ..quick()
    };
    let records = settings::length(600, 20_000);
    let mut sent = none_sent();
    let mut torn = 0;
    let mut before: Option<Owner> = None;
    for round in 0..settings::length(3, 11) {
        let half = sent[0].len() + records / 2;
        let writing = write(source, &topic, &mut sent, records);
        let lives_on = round % 2 == 1;
        let times = if lives_on { quick() } else { forgetful };
        let name = format!("worker-{round}");
        let engine = batches::engine_with(&name, times, Arc::clone(&lines));
        let owner = Owner::start(engine, &context, &topic, PARTITIONS, 7 + round);
        owner.reached(half).await?;
        if let Some(before) = before.take() {
            before.kill(&sent);
        }
        if lives_on {
            before = Some(owner);
        } else {
            torn += owner.kill(&sent);
        }
        written(writing).await?;
    }
    ensure!(torn > 0, "every owner had finished when it was killed");
    let engine = batches::engine_with("worker-last", quick(), lines);
    let last = Owner::start(engine, &context, &topic, PARTITIONS, 100);
    last.finish(&sent, Delivery::ExactlyOnce).await?;
    for (partition, sent) in (0..).zip(&sent) {
        compare(source, target, &topic, partition, sent).await?;
    }
    Ok(torn)
}

/// The records engine, without disturbance.
async fn records_engine(source: &Arc<KafkaCluster>, target: &Arc<KafkaCluster>) -> Result<()> {
    let topic = topic_of("records", source, target);
    topic_pair(source, target, &topic, PARTITIONS, &[]).await?;
    let mut sent = none_sent();
    let writing = write(source, &topic, &mut sent, settings::length(300, 10_000));
    let engine = (records::engine(quick()), CancellationToken::new());
    let owner = Owner::start(engine, &link(source, target), &topic, PARTITIONS, 7);
    written(writing).await?;
    let delivery = Delivery::AtLeastOnce(Weakness::RecordsEngine);
    owner.finish(&sent, delivery).await?;
    for (partition, sent) in (0..).zip(&sent) {
        compare(source, target, &topic, partition, sent).await?;
    }
    Ok(())
}

/// Topics that the oldest release keeps in the message formats 0 and 1, without headers, by the batch engine.
async fn old_formats(source: &Arc<KafkaCluster>, target: &Arc<KafkaCluster>) -> Result<()> {
    let before_zstd = &CODECS[..4];
    for (format, keeps_times) in [("0.10.2", true), ("0.9.0", false)] {
        let topic = topic_of(&format!("format-{format}"), source, target);
        let config = [("message.format.version", format)];
        topic_pair(source, target, &topic, 1, &config).await?;
        let records = 0..settings::length(400, 10_000);
        let plain = records.map(|number| Rec {
            headers: Vec::new(),
            ..record(number)
        });
        let sent: Vec<Rec> = plain.collect();
        let (cluster, name, new) = (Arc::clone(source), topic.clone(), sent.clone());
        spawn_blocking(move || fill(&cluster, &name, 0, before_zstd, &new)).await??;
        let engine = batches::engine_with("worker-1", quick(), batches::lines());
        let owner = Owner::start(engine, &link(source, target), &topic, 1, 7);
        owner.reached(sent.len()).await?;
        let kept: Vec<Rec> = sent
            .into_iter()
            .map(|record| Rec {
                timestamp: record.timestamp.filter(|_| keeps_times),
                ..record
            })
            .collect();
        compare(source, target, &topic, 0, &kept).await?;
    }
    Ok(())
}
