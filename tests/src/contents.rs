//! Whole partitions, record by record: to write them and to read them back.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rdkafka::{
    ClientConfig, TopicPartitionList,
    client::ClientContext,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, Headers as _, Message as _, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
};
use tokio::time::Instant;

use crate::{kafka::KafkaCluster, load::unix_millis};

/// Longest wait for a cluster.
const PATIENCE: Duration = Duration::from_secs(60);

/// A record as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rec {
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the Unix epoch.
    pub timestamp: Option<i64>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Rec {
    /// A record of now with the key `k`.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self {
            key: Some(b"k".to_vec()),
            value: Some(value.into()),
            timestamp: Some(unix_millis()),
            headers: Vec::new(),
        }
    }
}

/// Counts records that were not written.
#[derive(Debug, Default)]
pub struct Failures(AtomicUsize);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A producer of the harness.
pub type Producer = BaseProducer<Failures>;

/// A producer of the harness with further settings.
///
/// # Errors
/// When librdkafka refuses them.
pub fn producer(cluster: &KafkaCluster, settings: &[(&str, &str)]) -> Result<Producer> {
    let mut config = cluster.client_config();
    config
        .set("message.max.bytes", "10485760")
        .set("linger.ms", "1");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    Ok(config.create_with_context(Failures::default())?)
}

/// Hands records to a producer.
///
/// # Errors
/// When its queue is full.
pub fn send(producer: &Producer, topic: &str, partition: i32, records: &[Rec]) -> Result<()> {
    for record in records {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &record.headers {
            headers = headers.insert(Header {
                key,
                value: value.as_ref(),
            });
        }
        let message = BaseRecord::<[u8], [u8]> {
            topic,
            partition: Some(partition),
            payload: record.value.as_deref(),
            key: record.key.as_deref(),
            timestamp: record.timestamp,
            headers: (!record.headers.is_empty()).then_some(headers),
            delivery_opaque: (),
        };
        producer
            .send(message)
            .map_err(|(fault, _)| fault)
            .context("not queued")?;
    }
    Ok(())
}

/// Writes records and waits until they are there.
///
/// # Errors
/// When one is refused.
pub fn fill(cluster: &KafkaCluster, topic: &str, partition: i32, records: &[Rec]) -> Result<()> {
    let producer = producer(cluster, &[])?;
    send(&producer, topic, partition, records)?;
    written(&producer)
}

/// Writes records as one batch with a codec, `none` for no compression, and waits until it is there.
///
/// # Errors
/// When it is refused.
pub fn fill_batch(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    codec: &str,
    records: &[Rec],
) -> Result<()> {
    // Sent when the last record is in it, and not before.
    let count = records.len().to_string();
    let settings = [
        ("compression.type", codec),
        ("batch.num.messages", count.as_str()),
        ("linger.ms", "10000"),
    ];
    let producer = producer(cluster, &settings)?;
    send(&producer, topic, partition, records)?;
    written(&producer)
}

/// Waits until everything that was sent is written.
///
/// # Errors
/// When something is refused.
pub fn written(producer: &Producer) -> Result<()> {
    producer.flush(PATIENCE)?;
    let failures = producer.context().0.load(Ordering::Relaxed);
    ensure!(
        failures == 0,
        "{failures} records were refused by the source"
    );
    Ok(())
}

/// Everything in a partition that a reader of committed records gets.
///
/// # Errors
/// When the partition cannot be read to its end.
pub async fn read(cluster: &KafkaCluster, topic: &str, partition: i32) -> Result<Vec<Rec>> {
    let mut config = cluster.client_config();
    let topic = topic.to_owned();
    config
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true");
    tokio::task::spawn_blocking(move || read_blocking(&config, &topic, partition)).await?
}

fn read_blocking(config: &ClientConfig, topic: &str, partition: i32) -> Result<Vec<Rec>> {
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, rdkafka::Offset::Beginning)?;
    consumer.assign(&list)?;
    let mut found = Vec::new();
    let begun_at = Instant::now();
    loop {
        match consumer.poll(PATIENCE).context("no end of the partition")? {
            Ok(message) => found.push(Rec {
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                timestamp: message.timestamp().to_millis(),
                headers: message.headers().map_or_else(Vec::new, |headers| {
                    let headers = headers.iter();
                    let owned = headers
                        .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)));
                    owned.collect()
                }),
            }),
            Err(KafkaError::PartitionEOF(_)) => return Ok(found),
            // A broker is away, which need not be the one that leads the partition.
            Err(KafkaError::MessageConsumption(
                Code::BrokerTransportFailure | Code::AllBrokersDown,
            )) if begun_at.elapsed() < PATIENCE => {}
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// The values of records, as text.
#[must_use]
pub fn values(records: &[Rec]) -> Vec<String> {
    let values = records.iter().map(|record| record.value.clone());
    values
        .map(|value| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
        .collect()
}
