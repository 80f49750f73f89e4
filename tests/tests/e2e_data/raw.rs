//! Partitions batch by batch, as they lie on the disk of a broker.

use std::fs;

use anyhow::{Result, bail};
use kreplicator_batch::{
    Batch,
    split::{self, Entry},
};
use kreplicator_tests::kafka::KafkaCluster;

/// All batches of a partition of a cluster's only broker, checked against their checksums.
pub(crate) fn batches(cluster: &KafkaCluster, topic: &str, partition: i32) -> Result<Vec<Batch>> {
    let mut found = Vec::new();
    for segment in cluster.segments(0, topic, partition)? {
        for entry in split::entries(fs::read(segment)?.into()) {
            match entry? {
                Entry::Batch(batch) => {
                    batch.verify()?;
                    found.push(batch);
                }
                Entry::Message(_) => bail!("{topic}/{partition} has an old message"),
                // One that is being appended.
                Entry::Partial(_) => break,
            }
        }
    }
    Ok(found)
}

/// Records of data in batches, whatever became of their transactions.
pub(crate) fn record_count<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> i64 {
    let data = batches
        .into_iter()
        .filter(|batch| !batch.shape().is_control());
    data.map(|batch| i64::from(batch.header().record_count))
        .sum()
}

/// The offset after the last batch; 0 without any.
pub(crate) fn end(batches: &[Batch]) -> i64 {
    batches
        .last()
        .map_or(0, |batch| batch.header().next_offset())
}
