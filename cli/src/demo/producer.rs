//! Writes sample events to the source at a steady rate and books what the source acknowledges.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use rdkafka::{
    ClientConfig, ClientContext, Message as _,
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer},
};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use super::{
    event,
    ledger::{Ledger, Slot},
};

/// Time between bursts.
const TICK: Duration = Duration::from_millis(10);
/// Longest wait for the last acknowledgements.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(15);

/// The book, shared between those who write and those who read.
pub(super) type SharedLedger = Arc<Mutex<Ledger>>;

/// The book for a moment. It holds plain numbers, so what a panic elsewhere left is still sound.
pub(super) fn book(ledger: &SharedLedger) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Topics being written to, with their partitions; more may be added.
pub(super) type Topics = Arc<Mutex<Vec<(String, u32)>>>;

/// Books deliveries.
struct Deliveries {
    ledger: SharedLedger,
    start: Instant,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        // What the source refused was never produced; the idempotent producer retries the rest.
        if let Ok(message) = result {
            let slot = (message.topic().to_owned(), message.partition());
            book(&self.ledger).produced(&slot, self.start.elapsed());
        }
    }
}

/// Writes until `stop`, then waits for what is under way.
pub(super) async fn produce(
    bootstrap: &str,
    topics: Topics,
    rate: u32,
    ledger: SharedLedger,
    start: Instant,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let producer: ThreadedProducer<Deliveries> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "5")
        .create_with_context(Deliveries { ledger, start })
        .context("the sample producer could not be made")?;
    let mut ticks = interval(TICK);
    let mut turn = 0_u64;
    let mut next: BTreeMap<Slot, u64> = BTreeMap::new();
    let began = Instant::now();
    let mut sent = 0_u64;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of records of one run"
        )]
        let due = due as u64;
        let topics = topics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        while sent < due {
            let (topic, partition) = pick(&topics, turn);
            let slot = (topic.to_owned(), partition);
            let seq = next.get(&slot).copied().unwrap_or_default();
            let (key, value) = (event::key(seq), event::value(topic, partition, seq));
            let record = BaseRecord::to(topic)
                .partition(partition)
                .key(&key)
                .payload(&value);
            match producer.send(record) {
                Ok(()) => {}
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => break,
                Err((error, _)) => return Err(error).context("the source took no record"),
            }
            next.insert(slot, seq + 1);
            turn += 1;
            sent += 1;
        }
    }
    let flush = tokio::task::spawn_blocking(move || producer.flush(FLUSH_TIMEOUT));
    flush
        .await?
        .context("the source did not acknowledge the last records")
}

/// The topic and partition whose turn it is: topics in turn, and each topic's partitions in turn.
fn pick(topics: &[(String, u32)], turn: u64) -> (&str, i32) {
    let count = topics.len() as u64;
    let index = usize::try_from(turn % count).expect("below the number of topics");
    let (topic, partitions) = &topics[index];
    let partition = (turn / count) % u64::from(*partitions);
    (
        topic,
        i32::try_from(partition).expect("below the number of partitions"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_partition_has_its_turn() {
        let topics = [("a".to_owned(), 3), ("b".to_owned(), 3)];
        let picked: BTreeSet<(&str, i32)> = (0..6).map(|turn| pick(&topics, turn)).collect();
        assert_eq!(picked.len(), 6);
    }
}
