//! Writes the records of a load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use rdkafka::{
    ClientConfig, ClientContext,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
    types::RDKafkaErrorCode,
};

use super::{options::Load, record};

/// Records written between two looks at acknowledgements.
const LOOK_RECORDS: u64 = 500;
/// Longest wait for the last acknowledgements.
const FLUSH: Duration = Duration::from_secs(120);

/// How the producer makes batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Codec and number of records a batch.
    pub(crate) load: Load,
    /// Most bytes of a batch before compression.
    pub(crate) batch_bytes: u32,
}

impl Shape {
    /// The producer's settings.
    pub(crate) fn apply(self, config: &mut ClientConfig) {
        config
            .set("enable.idempotence", "true")
            .set("compression.type", self.load.codec())
            .set("queue.buffering.max.messages", "200000");
        match self.load {
            Load::Single => config.set("batch.num.messages", "1").set("linger.ms", "0"),
            Load::Lz4 | Load::Zstd | Load::None => config
                .set("batch.size", self.batch_bytes.to_string())
                .set("linger.ms", "50"),
        };
    }
}

/// Writes records `0..records` to partitions in turn and waits until all are acknowledged; tells the
/// bytes of their keys and values.
///
/// # Errors
/// When one is not acknowledged.
pub(crate) async fn fill(
    mut config: ClientConfig,
    shape: Shape,
    topic: String,
    partitions: i32,
    records: u64,
) -> Result<u64> {
    shape.apply(&mut config);
    tokio::task::spawn_blocking(move || write(&config, &topic, partitions, records)).await?
}

fn write(config: &ClientConfig, topic: &str, partitions: i32, records: u64) -> Result<u64> {
    let failed = Arc::new(AtomicU64::new(0));
    let producer: BaseProducer<Failures> =
        config.create_with_context(Failures(Arc::clone(&failed)))?;
    let (mut key, mut value) = (String::new(), String::new());
    let mut bytes = 0;
    let lanes = u64::try_from(partitions)?;
    for number in 0..records {
        record::key(number, &mut key);
        record::value(number, &mut value);
        bytes += u64::try_from(key.len() + value.len())?;
        let partition = i32::try_from(number % lanes)?;
        let mut record = BaseRecord::to(topic)
            .partition(partition)
            .key(&key)
            .payload(&value);
        while let Err((fault, back)) = producer.send(record) {
            ensure!(
                fault == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull),
                "cannot write record {number} to {topic}: {fault}"
            );
            record = back;
            producer.poll(Duration::from_millis(20));
        }
        if number % LOOK_RECORDS == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(FLUSH).map_err(|fault| {
        anyhow!("{topic} is not acknowledged within {FLUSH:?}: {fault}; look at the broker's log")
    })?;
    let failed = failed.load(Ordering::Relaxed);
    ensure!(failed == 0, "{failed} records were not written to {topic}");
    Ok(bytes)
}

/// Counts records that were not acknowledged.
struct Failures(Arc<AtomicU64>);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
