//! A steady stream of records that carry the time at which they were written, and when each arrived on
//! the target.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::wait;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{record, stage::Stage};

/// Records a second.
pub(crate) const RATE: u32 = 1_000;
/// Time between two writes.
const TICK: Duration = Duration::from_millis(1);
/// Longest wait for the last acknowledgements.
const FLUSH: Duration = Duration::from_secs(30);
/// How long the reader waits for a record before it looks whether it shall end.
const POLL: Duration = Duration::from_millis(50);

/// An arrival of a record. Times count from the start of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Number of the record, from 0 without holes.
    pub(crate) number: u64,
    /// Partition on both sides.
    pub(crate) partition: i32,
    /// When it was written.
    pub(crate) sent: Duration,
    /// When a consumer of the target had it.
    pub(crate) arrived: Duration,
}

/// Everything of a stream that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Records written.
    pub(crate) sent: u64,
    /// Arrivals in order of time; records that came twice are in it twice.
    pub(crate) arrivals: Vec<Arrival>,
}

impl Ended {
    /// Records that never arrived.
    pub(crate) fn missing(&self) -> u64 {
        let arrived: BTreeSet<u64> = self.arrivals.iter().map(|found| found.number).collect();
        let arrived = u64::try_from(arrived.len()).expect("fits memory");
        self.sent.saturating_sub(arrived)
    }

    /// Arrivals beyond the first of a record.
    pub(crate) fn repeats(&self) -> u64 {
        let all = u64::try_from(self.arrivals.len()).expect("fits memory");
        all - (self.sent - self.missing())
    }
}

/// A stream under way. It ends when it is dropped.
pub(crate) struct Pulse {
    origin: Instant,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    partitions: i32,
    stop_writing: CancellationToken,
    writer: JoinHandle<Result<u64>>,
    reader: JoinHandle<Result<()>>,
    stop_reading: CancellationToken,
    _stop: [DropGuard; 2],
}

impl Pulse {
    /// Writes, compressed by `codec`, to partitions in turn of a topic that exists on both sides and is empty on the target.
    ///
    /// # Errors
    /// When librdkafka refuses its settings.
    pub(crate) fn start(
        stage: &Stage,
        codec: &str,
        source_topic: &str,
        target_topic: &str,
        partitions: i32,
    ) -> Result<Self> {
        let origin = Instant::now();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let (stop_writing, stop_reading) = (CancellationToken::new(), CancellationToken::new());

        let mut config = stage.source.client_config();
        // A record must not wait at the producer, since its time counts from its writing: no linger, and
        // no limit of records a batch, which would hold back what comes while requests are under way.
        config
            .set("enable.idempotence", "true")
            .set("compression.type", codec)
            .set("linger.ms", "0")
            .set("socket.nagle.disable", "true");
        let producer: ThreadedProducer<DefaultProducerContext> = config.create()?;
        let writer = Writer {
            origin,
            producer: Arc::new(producer),
            topic: source_topic.to_owned(),
            partitions,
        };
        let writer = tokio::spawn(writer.run(stop_writing.clone()));

        let reader = Reader {
            origin,
            consumer: consumer(stage.target.client_config(), target_topic, partitions)?,
            arrivals: Arc::clone(&arrivals),
        };
        let stop = stop_reading.clone();
        let reader = tokio::task::spawn_blocking(move || reader.run(&stop));
        Ok(Self {
            origin,
            arrivals,
            partitions,
            writer,
            reader,
            _stop: [
                stop_writing.clone().drop_guard(),
                stop_reading.clone().drop_guard(),
            ],
            stop_writing,
            stop_reading,
        })
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When, after `from`, the first record written after `from` arrived in each partition; shorter
    /// than the number of partitions while in one none has.
    pub(crate) fn first_after(&self, from: Duration) -> Vec<Duration> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        first_after(&arrivals, from, self.partitions)
    }

    /// Waits until each partition has brought a record written from now on; tells how long that took.
    ///
    /// # Errors
    /// When one has not within `deadline`.
    pub(crate) async fn flows(&self, deadline: Duration) -> Result<Duration> {
        let from = self.now();
        let all = usize::try_from(self.partitions)?;
        wait::until("records in all partitions", deadline, async || {
            ensure!(!self.writer.is_finished(), "the writer has ended");
            let first = self.first_after(from);
            let last = first.iter().max().copied().unwrap_or(from);
            Ok((first.len() == all).then_some(last - from))
        })
        .await
    }

    /// Stops writing, waits for what has not arrived yet, for `deadline` at most, and tells all.
    ///
    /// # Errors
    /// When the source does not acknowledge or the target cannot be read.
    pub(crate) async fn finish(self, deadline: Duration) -> Result<Ended> {
        self.stop_writing.cancel();
        let sent = self.writer.await?.context("cannot write to the source")?;
        let arrivals = || {
            let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            Ended {
                sent,
                arrivals: arrivals.clone(),
            }
        };
        // What is still missing then is told by the result.
        drop(
            wait::until_true("the last records", deadline, async || {
                Ok(arrivals().missing() == 0)
            })
            .await,
        );
        let ended = arrivals();
        self.stop_reading.cancel();
        self.reader.await?.context("cannot read the target")?;
        Ok(ended)
    }
}

fn first_after(arrivals: &[Arrival], from: Duration, partitions: i32) -> Vec<Duration> {
    (0..partitions)
        .filter_map(|partition| {
            arrivals
                .iter()
                .filter(|found| found.partition == partition && found.sent > from)
                .map(|found| found.arrived)
                .min()
        })
        .collect()
}

struct Writer {
    origin: Instant,
    producer: Arc<ThreadedProducer<DefaultProducerContext>>,
    topic: String,
    partitions: i32,
}

impl Writer {
    async fn run(self, stop: CancellationToken) -> Result<u64> {
        let mut tick = interval(TICK);
        // After a pause the rate is kept, and nothing is made up for.
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let a_tick = u64::from(RATE) * u64::try_from(TICK.as_micros())? / 1_000_000;
        let mut sent = 0;
        let (mut key, mut filler) = (String::new(), String::new());
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            for _ in 0..a_tick {
                record::key(sent, &mut key);
                record::value(sent, &mut filler);
                let payload = stamped(sent, self.origin.elapsed(), &filler);
                let partition = i32::try_from(sent % u64::try_from(self.partitions)?)?;
                let record = BaseRecord::to(&self.topic)
                    .partition(partition)
                    .key(&key)
                    .payload(&payload);
                self.producer.send(record).map_err(|(fault, _)| fault)?;
                sent += 1;
            }
        }
        let producer = Arc::clone(&self.producer);
        tokio::task::spawn_blocking(move || producer.flush(FLUSH)).await??;
        Ok(sent)
    }
}

/// A value: number and time in 16 bytes, then something that looks like data.
fn stamped(number: u64, sent: Duration, filler: &str) -> Vec<u8> {
    let nanos = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
    let mut bytes = Vec::with_capacity(16 + filler.len());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&nanos.to_be_bytes());
    bytes.extend_from_slice(filler.as_bytes());
    bytes
}

/// Number and time of a value.
fn stamp(value: &[u8]) -> Option<(u64, Duration)> {
    let (number, rest) = value.split_first_chunk::<8>()?;
    let (nanos, _) = rest.split_first_chunk::<8>()?;
    let sent = Duration::from_nanos(u64::from_be_bytes(*nanos));
    Some((u64::from_be_bytes(*number), sent))
}

struct Reader {
    origin: Instant,
    consumer: BaseConsumer,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Reader {
    fn run(self, stop: &CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            let Some(message) = self.consumer.poll(POLL) else {
                continue;
            };
            let arrived = self.origin.elapsed();
            let message = message?;
            let value = message.payload().unwrap_or_default();
            let (number, sent) = stamp(value).context("a record without a stamp on the target")?;
            let arrival = Arrival {
                number,
                partition: message.partition(),
                sent,
                arrived,
            };
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.push(arrival);
        }
        Ok(())
    }
}

fn consumer(mut config: ClientConfig, topic: &str, partitions: i32) -> Result<BaseConsumer> {
    config
        .set("group.id", "kreplicator-bench")
        .set("enable.auto.commit", "false")
        // Partitions in which nothing has come yet must not hold others up.
        .set("fetch.wait.max.ms", "20")
        .set("socket.nagle.disable", "true");
    let consumer: BaseConsumer = config.create()?;
    let mut assigned = TopicPartitionList::new();
    for partition in 0..partitions {
        assigned.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&assigned)?;
    Ok(consumer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(number: u64, partition: i32, sent: u64, arrived: u64) -> Arrival {
        Arrival {
            number,
            partition,
            sent: Duration::from_millis(sent),
            arrived: Duration::from_millis(arrived),
        }
    }

    #[test]
    fn a_stamp_reads_back_and_hostile_bytes_have_none() {
        let sent = Duration::from_nanos(123_456_789);
        assert_eq!(stamp(&stamped(7, sent, "{}")), Some((7, sent)));
        assert_eq!(stamp(b"too short"), None);
    }

    #[test]
    fn missing_and_repeated_records_are_counted() {
        let ended = Ended {
            sent: 4,
            arrivals: vec![
                arrival(0, 0, 0, 1),
                arrival(1, 1, 1, 2),
                arrival(1, 1, 1, 3),
                arrival(0, 0, 0, 4),
                arrival(0, 0, 0, 5),
                arrival(3, 1, 3, 6),
            ],
        };
        assert_eq!((ended.missing(), ended.repeats()), (1, 3));
    }

    #[test]
    fn a_partition_flows_again_with_a_record_written_after_the_fault() {
        let arrivals = [
            arrival(0, 0, 10, 30),
            arrival(1, 1, 21, 40),
            arrival(2, 0, 22, 50),
            arrival(3, 1, 23, 45),
        ];
        let from = Duration::from_millis(20);
        let first = first_after(&arrivals, from, 2);
        assert_eq!(first, [50, 40].map(Duration::from_millis));
        assert_eq!(
            first_after(&arrivals, from, 3).len(),
            2,
            "none in the third"
        );
    }
}
