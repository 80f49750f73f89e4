//! Reads the target from the beginning and books every arrival.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaResult,
};
use tokio::time::{Instant, sleep};

use super::{
    event::{self, Read},
    producer::{SharedLedger, book},
};

/// Longest wait for one record before new topics are looked at.
const POLL: Duration = Duration::from_millis(50);

/// Longest wait for the target to tell how much it holds.
const ENDS_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for what it holds to be read.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between looks at the book.
const LOOK: Duration = Duration::from_millis(20);

/// The reading thread; ends when dropped.
pub(super) struct Tail {
    consumer: Arc<BaseConsumer>,
    topics: mpsc::Sender<(String, u32)>,
    followed: Vec<(String, u32)>,
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
        let consumer = Arc::new(consumer);
        let (topics, added) = mpsc::channel::<(String, u32)>();
        thread::Builder::new().name("tail".to_owned()).spawn({
            let consumer = consumer.clone();
            move || read(&consumer, &added, &ledger, start)
        })?;
        Ok(Self {
            consumer,
            topics,
            followed: Vec::new(),
        })
    }

    /// Reads one topic more, from its beginning.
    pub(super) fn add(&mut self, topic: &str, partitions: u32) -> anyhow::Result<()> {
        let topic = (topic.to_owned(), partitions);
        self.followed.push(topic.clone());
        self.topics
            .send(topic)
            .context("the verifying consumer has ended")
    }

    /// Reads what is left, now that nobody writes any more, and gives the number of records that the
    /// target itself says were written to it.
    pub(super) async fn finish(self, ledger: &SharedLedger) -> anyhow::Result<u64> {
        let (consumer, followed) = (self.consumer.clone(), self.followed.clone());
        let ends = tokio::task::spawn_blocking(move || ends(&consumer, &followed));
        let on_target = ends
            .await?
            .context("the target does not tell how much it holds")?;
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while book(ledger).arrivals() < on_target && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        Ok(on_target)
    }
}

/// The sum of the ends of all partitions.
fn ends(consumer: &BaseConsumer, topics: &[(String, u32)]) -> KafkaResult<u64> {
    let mut sum = 0;
    for (topic, partitions) in topics {
        for partition in 0..i32::try_from(*partitions).unwrap_or(i32::MAX) {
            let (_, end) = consumer.fetch_watermarks(topic, partition, ENDS_TIMEOUT)?;
            sum += u64::try_from(end).unwrap_or_default();
        }
    }
    Ok(sum)
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
