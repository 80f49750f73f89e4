//! Reads the target from the beginning and books every arrival.

use std::{sync::mpsc, thread, time::Duration};

use anyhow::Context as _;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};
use tokio::time::Instant;

use super::{
    event::{self, Read},
    producer::{SharedLedger, book},
};

/// Longest wait for one record before new topics are looked at.
const POLL: Duration = Duration::from_millis(50);

/// The reading thread; ends when dropped.
#[derive(Debug)]
pub(super) struct Tail {
    topics: mpsc::Sender<(String, u32)>,
}

impl Tail {
    /// Begins to read.
    pub(super) fn start(
        bootstrap: &str,
        ledger: SharedLedger,
        start: Instant,
    ) -> anyhow::Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "demo-tail")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "20")
            .create()
            .context("the verifying consumer could not be made")?;
        let (topics, added) = mpsc::channel::<(String, u32)>();
        thread::Builder::new()
            .name("tail".to_owned())
            .spawn(move || read(&consumer, &added, &ledger, start))?;
        Ok(Self { topics })
    }

    /// Reads one topic more, from its beginning.
    pub(super) fn add(&self, topic: &str, partitions: u32) -> anyhow::Result<()> {
        let topic = (topic.to_owned(), partitions);
        self.topics
            .send(topic)
            .context("the verifying consumer has ended")
    }
}

fn read(
    consumer: &BaseConsumer,
    added: &mpsc::Receiver<(String, u32)>,
    ledger: &SharedLedger,
    start: Instant,
) {
    loop {
        match added.try_recv() {
            Ok((topic, partitions)) => {
                let mut list = TopicPartitionList::new();
                for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
                    list.add_partition_offset(&topic, partition, Offset::Beginning)
                        .expect("beginning is an offset");
                }
                if let Err(error) = consumer.incremental_assign(&list) {
                    tracing::error!(%error, topic, "the verifying consumer cannot read a topic");
                }
            }
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => return,
        }
        match consumer.poll(POLL) {
            None => {}
            Some(Err(error)) => tracing::warn!(%error, "the verifying consumer has a problem"),
            Some(Ok(message)) => {
                let slot = (message.topic().to_owned(), message.partition());
                let now = start.elapsed();
                match event::read(&slot.0, slot.1, message.key(), message.payload()) {
                    Read::Intact(seq) => book(ledger).arrived(&slot, seq, now),
                    Read::Altered => book(ledger).altered(&slot),
                }
            }
        }
    }
}
