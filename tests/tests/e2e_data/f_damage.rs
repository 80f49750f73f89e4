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
/// The codec of each partition.
const CODECS: [&str; 4] = ["none", "none", "lz4", "zstd"];
const DAMAGED: [i32; 2] = [1, 3];
/// Records of a batch.
const BATCH: usize = 10;
const BATCHES: usize = 4;

#[test]
fn c024_a_damaged_batch_halts_its_partition_and_neither_it_nor_what_follows_is_copied() {
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, 4, &[]).await?;
        let records: Vec<Rec> = (0..BATCH * BATCHES)
            .map(|number| Rec::new(format!("record number {number}")))
            .collect();
        for (partition, codec) in (0..).zip(CODECS) {
            for batch in records.chunks(BATCH) {
                fill_batch(&stage.a, TOPIC, partition, codec, batch)?;
            }
        }
        let mut places = Vec::new();
        for partition in DAMAGED {
            let found = batches(&stage.a, TOPIC, partition)?;
            ensure!(found.len() == BATCHES, "{} batches", found.len());
            // Within the second batch: the value of its first record, or what it is compressed to.
            let position = found[0].size_bytes() + HEADER_BYTES + 20;
            ensure!(found[1].size_bytes() > HEADER_BYTES + 20);
            places.push((partition, u64::try_from(position)?));
        }
        stage.a.stop(0).await?;
        for (partition, position) in places {
            let segments = stage.a.segments(0, TOPIC, partition)?;
            let segment = segments.first().context("a segment")?;
            flip_byte(segment, position)?;
        }
        stage.a.restart(0).await?;

        stage.mirror(&[TOPIC]).await?;
        let at = i64::try_from(BATCH)?;
        for partition in DAMAGED {
            stage.halted(TOPIC, partition, at, &["damaged"]).await?;
            stage
                .check_copies(TOPIC, partition, &records[..BATCH])
                .await?;
        }
        let end = i64::try_from(records.len())?;
        for partition in [0, 2] {
            stage.caught_up(TOPIC, partition, end).await?;
            stage.check_copies(TOPIC, partition, &records).await?;
        }

        // As the cause advises.
        delete_before(&stage.a, 2 * at).await?;
        let sound = [&records[..BATCH], &records[2 * BATCH..]].concat();
        for partition in DAMAGED {
            let reports = stage.caught_up(TOPIC, partition, end).await?;
            for (report, side) in reports.iter().zip(SIDES) {
                let gap = report.gap_records_total;
                ensure!(gap == u64::try_from(at)?, "{}: {report:?}", side.link);
            }
            stage.check_copies(TOPIC, partition, &sound).await?;
        }
        stage.leave(&[TOPIC]).await
    });
}

async fn delete_before(cluster: &KafkaCluster, start: i64) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for partition in DAMAGED {
        list.add_partition_offset(TOPIC, partition, Offset::Offset(start))?;
    }
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
