//! A batch is damaged on the disk of the source.

use anyhow::{Context as _, Result, ensure};
use kreplicator_batch::header::HEADER_BYTES;
use kreplicator_tests::{
    contents::{Rec, fill_batch},
    kafka::{KafkaCluster, flip_byte},
    wait,
};
use rdkafka::{Offset, TopicPartitionList, admin::AdminOptions};

use crate::{
    raw::batches,
    sides::SIDES,
    stage::{SOON, scenario},
};

const TOPIC: &str = "worn";
const PARTITIONS: i32 = 3;
const DAMAGED: i32 = 1;
/// Records of a batch.
const BATCH: usize = 10;
const BATCHES: usize = 4;

#[test]
fn c024_a_damaged_batch_halts_its_partition_and_neither_it_nor_what_follows_is_copied() {
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, PARTITIONS, &[]).await?;
        let records: Vec<Rec> = (0..BATCH * BATCHES)
            .map(|number| Rec::new(format!("record number {number}")))
            .collect();
        for partition in 0..PARTITIONS {
            for batch in records.chunks(BATCH) {
                fill_batch(&stage.a, TOPIC, partition, "none", batch)?;
            }
        }
        let found = batches(&stage.a, TOPIC, DAMAGED)?;
        ensure!(found.len() == BATCHES, "{} batches", found.len());
        stage.a.stop(0).await?;
        let segments = stage.a.segments(0, TOPIC, DAMAGED)?;
        let segment = segments.first().context("a segment")?;
        // Within the value of the second batch's first record.
        let position = found[0].size_bytes() + HEADER_BYTES + 20;
        flip_byte(segment, u64::try_from(position)?)?;
        stage.a.restart(0).await?;

        stage.mirror(&[TOPIC]).await?;
        let at = i64::try_from(BATCH)?;
        stage.halted(TOPIC, DAMAGED, at, &["damaged"]).await?;
        stage
            .check_copies(TOPIC, DAMAGED, &records[..BATCH])
            .await?;
        let end = i64::try_from(records.len())?;
        for partition in [0, 2] {
            stage.caught_up(TOPIC, partition, end).await?;
            stage.check_copies(TOPIC, partition, &records).await?;
        }

        // As the cause advises.
        delete_before(&stage.a, 2 * at).await?;
        let reports = stage.caught_up(TOPIC, DAMAGED, end).await?;
        for (report, side) in reports.iter().zip(SIDES) {
            let gap = report.gap_records_total;
            ensure!(gap == u64::try_from(at)?, "{}: {report:?}", side.link);
        }
        let sound = [&records[..BATCH], &records[2 * BATCH..]].concat();
        stage.check_copies(TOPIC, DAMAGED, &sound).await?;
        stage.leave(&[TOPIC]).await
    });
}

async fn delete_before(cluster: &KafkaCluster, start: i64) -> Result<()> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(TOPIC, DAMAGED, Offset::Offset(start))?;
    let options = AdminOptions::new().operation_timeout(Some(SOON));
    let admin = cluster.admin()?;
    // A client that was just made may not know the leader yet.
    wait::until_true("the deletion", SOON, async || {
        let deleted = admin.delete_records(&list, &options).await?;
        for element in deleted.elements() {
            element.error()?;
        }
        Ok(true)
    })
    .await
}
