//! Checkpoints that do not fit the source any more: the library never decides where to go on.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{kafka::KafkaCluster, rig::lanes, wait};
use rdkafka::{Offset, TopicPartitionList, admin::AdminOptions};

use crate::stage::{LINK, SOON, Stage, scenario, unsaid};

const PARTITIONS: i32 = 4;
const DEADLINE: Duration = Duration::from_secs(20);

/// C001 and C005: what retention took is counted to the record and told.
#[test]
fn c005_a_checkpoint_below_the_log_start_goes_on_there_and_tells_the_gap() {
    const TOPIC: &str = "logs";
    scenario(async |stage| {
        let saved = stop_in_the_middle(stage, TOPIC).await?;
        let log = stage.one.watermarks(TOPIC).await?;
        // Partition 3 keeps everything; the others lose a part of what was not copied.
        let mut gaps: BTreeMap<i32, u64> = BTreeMap::from([(3, 0)]);
        let mut starts = BTreeMap::new();
        for partition in 0..3 {
            let (at, (_, end)) = (saved[&partition], log[&partition]);
            let start = at + (end - at) / 2;
            ensure!(
                start > at,
                "{TOPIC}/{partition}: {at} is saved, {end} the end"
            );
            starts.insert(partition, start);
            gaps.insert(partition, u64::try_from(start - at)?);
        }
        delete_before(&stage.one, TOPIC, &starts).await?;
        stage.system.start_missing().await?;

        // A task runs before it has found that its first offset is gone.
        wait::until_true("the gaps in the status", SOON, async || {
            let tasks = stage.tasks_of(LINK, TOPIC).await?;
            let running = tasks
                .iter()
                .all(|task| task.state() == v1::TaskState::Running);
            let reports = tasks.into_iter().filter_map(|task| task.report);
            let told: BTreeMap<i32, u64> = reports
                .map(|report| (report.partition, report.gap_records_total))
                .collect();
            ensure!(told == gaps, "{told:?} is told, {gaps:?} is right");
            Ok(running)
        })
        .await?;
        // All that is left has come, and nothing else is missing.
        let produced = stage.counts_of(TOPIC);
        let lost: u64 = gaps.values().sum();
        let all_but_lost = format!("all but {lost} records");
        wait::until_true(&all_but_lost, SOON, async || {
            Ok(stage.tail.report(&produced).missing.count == lost)
        })
        .await?;
        let report = stage.tail.report(&produced);
        ensure!(
            report.reordered.count == 0 && report.repeated.count == 0 && report.altered.count == 0,
            "{report}"
        );
        stage.unsubscribe(LINK, TOPIC).await
    });
}

/// C005: a source that ends before what was copied is no reason to start anywhere else.
#[test]
fn c005_a_checkpoint_beyond_the_log_end_stops_its_task_until_it_is_reset() {
    const TOPIC: &str = "audits";
    scenario(async |stage| {
        let saved = stop_in_the_middle(stage, TOPIC).await?;
        let log = stage.one.watermarks(TOPIC).await?;
        let beyond = log[&1].1 + 1_000;
        let group = format!("kreplicator.{LINK}");
        stage.one.commit(&group, TOPIC, 1, beyond).await?;
        stage.system.start_missing().await?;

        let cause = wait::until("the fault of the task", SOON, async || {
            let tasks = stage.tasks_of(LINK, TOPIC).await?;
            let faulted = tasks[1].state() == v1::TaskState::Faulted;
            let report = tasks[1].report.clone().unwrap_or_default();
            Ok(faulted.then_some(report.cause))
        })
        .await?;
        let (end, at) = (log[&1].1.to_string(), beyond.to_string());
        let missing = unsaid(&cause, &[&end, &at, "checkpoint"]);
        ensure!(missing.is_empty(), "{missing:?} not in {cause:?}");
        let mut others = stage.counts_of(TOPIC);
        others.retain(|(_, partition), _| *partition != 1);
        let report = stage.tail.complete(&others, SOON).await?;
        ensure!(report.is_exact(), "{report}");
        let lane = (TOPIC.to_owned(), 1);
        let seen = stage.tail.seen()[&lane];
        ensure!(
            seen < stage.counts_of(TOPIC)[&lane],
            "it was copied: {seen}"
        );

        stage.one.commit(&group, TOPIC, 1, saved[&1]).await?;
        let produced = stage.counts_of(TOPIC);
        let report = stage.tail.complete(&produced, SOON).await?;
        ensure!(report.is_exact(), "{report}");
        stage.unsubscribe(LINK, TOPIC).await
    });
}

/// Has a topic mirrored for a while, stops all workers, and has some more written. Gives the
/// checkpoints, by partition.
async fn stop_in_the_middle(stage: &mut Stage, topic: &str) -> Result<BTreeMap<i32, i64>> {
    let all = lanes(topic, 0..PARTITIONS);
    stage.one.create_topic(topic, PARTITIONS, &[]).await?;
    stage.subscribe(LINK, topic, PARTITIONS).await?;
    stage.load.add(topic, PARTITIONS);
    for lane in &all {
        let now = tokio::time::Instant::now();
        stage.tail.first_arrival(lane, now, SOON).await?;
    }
    for worker in stage.system.workers().values_mut() {
        worker.terminate().await?;
    }
    let group = format!("kreplicator.{LINK}");
    let saved = stage.one.committed(&group, &all).await?;
    wait::until_true("records beyond the checkpoints", SOON, async || {
        let counts = stage.counts_of(topic);
        Ok(saved.iter().all(|(lane, (offset, _))| {
            i64::try_from(counts[lane]).is_ok_and(|count| count >= offset + 100)
        }))
    })
    .await?;
    stage.load.remove(topic);
    stage.load.settle(SOON).await?;
    let saved = saved.into_iter();
    Ok(saved
        .map(|((_, partition), (offset, _))| (partition, offset))
        .collect())
}

/// As retention does: `starts` are the first offsets kept.
async fn delete_before(
    cluster: &KafkaCluster,
    topic: &str,
    starts: &BTreeMap<i32, i64>,
) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for (partition, start) in starts {
        list.add_partition_offset(topic, *partition, Offset::Offset(*start))?;
    }
    let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
    let deleted = cluster.admin()?.delete_records(&list, &options).await?;
    for element in deleted.elements() {
        element
            .error()
            .with_context(|| format!("partition {}", element.partition()))?;
    }
    Ok(())
}
