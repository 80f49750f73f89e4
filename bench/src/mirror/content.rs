//! Whether a copy holds what its source does: spot checks at the start, the middle and the end of each
//! partition, over keys, values, headers and timestamps.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{kafka::KafkaCluster, record::Content};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};
use tokio::time::Instant;

use super::stage::Stage;

/// Records compared at each spot.
const SPOT_RECORDS: i64 = 100;
/// Deadline of reading a spot.
const READ: Duration = Duration::from_secs(30);

/// Compares a topic with its copy, which began empty; tells how many records were compared. Where the
/// copy holds records twice, so that offsets differ, only the first spot is compared.
///
/// # Errors
/// Names the first record that differs.
pub(crate) async fn compare(stage: &Stage, source: &str, target: &str) -> Result<u64> {
    let of_source = stage.source.watermarks(source).await?;
    let of_target = stage.target.watermarks(target).await?;
    let mut compared = 0;
    for (partition, (start, end)) in of_source {
        let copied = of_target.get(&partition).map(|(_, end)| *end);
        let copied = copied.with_context(|| format!("{target} has no partition {partition}"))?;
        ensure!(
            copied >= end - start,
            "{target} {partition} holds {copied} of {} records",
            end - start
        );
        for spot in spots(end - start, copied == end - start) {
            let count = usize::try_from(SPOT_RECORDS.min(end - start - spot))?;
            let (expected, found) = futures::try_join!(
                read(&stage.source, source, partition, start + spot, count),
                read(&stage.target, target, partition, spot, count),
            )?;
            for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
                ensure!(
                    expected == found,
                    "{target} {partition}: the record {index} after {spot} is not the source's:\n\
                     {expected:?}\n{found:?}"
                );
            }
            compared += u64::try_from(count)?;
        }
    }
    Ok(compared)
}

/// Where to look among `records` records.
fn spots(records: i64, same_offsets: bool) -> Vec<i64> {
    if records == 0 {
        return Vec::new();
    }
    let mut spots = vec![0];
    if same_offsets {
        spots.push(records / 2);
        spots.push((records - SPOT_RECORDS).max(0));
    }
    spots.dedup();
    spots
}

async fn read(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    from: i64,
    count: usize,
) -> Result<Vec<Content>> {
    let (config, topic) = (cluster.client_config(), topic.to_owned());
    tokio::task::spawn_blocking(move || read_blocking(config, &topic, partition, from, count))
        .await?
}

fn read_blocking(
    mut config: ClientConfig,
    topic: &str,
    partition: i32,
    from: i64,
    count: usize,
) -> Result<Vec<Content>> {
    config
        .set("group.id", "kreplicator-bench")
        .set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let mut assigned = TopicPartitionList::new();
    assigned.add_partition_offset(topic, partition, Offset::Offset(from))?;
    consumer.assign(&assigned)?;
    let end = Instant::now() + READ;
    let mut read = Vec::with_capacity(count);
    while read.len() < count {
        ensure!(
            Instant::now() < end,
            "{topic} {partition}: {} of {count} records from {from} read within {READ:?}",
            read.len()
        );
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            ensure!(message.offset() >= from, "{topic} {partition} went back");
            read.push(Content::of(&message));
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_are_the_start_the_middle_and_the_end() {
        assert_eq!(spots(1_000, true), [0, 500, 900]);
        assert_eq!(spots(1_000, false), [0]);
        assert_eq!(spots(1, true), [0]);
        assert!(spots(0, true).is_empty());
    }
}
