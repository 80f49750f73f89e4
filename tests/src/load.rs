//! A steady load: test records written to partitions in turn, acknowledged by all replicas.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use rdkafka::{
    ClientConfig, ClientContext,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer},
    types::RDKafkaErrorCode,
    util::Timeout,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::{
    arrivals::{Arrivals, Pause, Window},
    checker::{Counts, Lane},
    record::Stamp,
    wait,
};

/// How often the producer wakes up to write its share.
const TICK: Duration = Duration::from_millis(10);
/// Records that one partition gets at a time, as most producers write them. One at a time, 2,000 a second kept
/// two cores busy with brokers that did little else than answer the load.
const BURST: u32 = 4;
/// Rest before another try on a partition that the producer does not know yet.
const UNKNOWN_REST: Duration = Duration::from_millis(200);
/// Bits of a delivery's tag that number the record; the others number the lane.
const SEQ_BITS: u32 = 40;

/// How much to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Records a second, over all partitions.
    pub records_per_second: u32,
    /// Bytes added to each value.
    pub padding: usize,
}

/// A running load. What it could not write while brokers are away it does not make up for, so the
/// rate never exceeds the one asked for.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    stop: CancellationToken,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    lanes: Mutex<Vec<LaneState>>,
    /// When records were acknowledged.
    written: Mutex<Arrivals>,
    faults: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct LaneState {
    lane: Lane,
    /// Number of the next record.
    next: u64,
    /// Acknowledged: `0..acknowledged`.
    acknowledged: u64,
    active: bool,
    rest_until: Option<Instant>,
}

impl Load {
    /// Starts writing with the given client properties; nothing is written until topics are added.
    ///
    /// # Errors
    /// When librdkafka refuses its settings.
    pub fn start(config: &ClientConfig, options: LoadOptions) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut config = config.clone();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // A record that was begun is delivered or the test fails: holes would look like losses.
            .set("message.timeout.ms", "0")
            .set("linger.ms", "5")
            .set("queue.buffering.max.messages", "20000");
        let producer = config.create_with_context(Acknowledgements(shared.clone()))?;
        let stop = CancellationToken::new();
        let writer = Writer {
            producer: Arc::new(producer),
            shared: shared.clone(),
            options,
            stop: stop.clone(),
            turn: 0,
            left: 0,
        };
        Ok(Self {
            shared,
            stop,
            writer: Some(tokio::spawn(writer.run())),
        })
    }

    /// Writes also to partitions `0..partitions` of a topic; those written to already go on.
    pub fn add(&self, topic: &str, partitions: i32) {
        let mut lanes = lock(&self.shared.lanes);
        for partition in 0..partitions {
            let lane = (topic.to_owned(), partition);
            match lanes.iter_mut().find(|state| state.lane == lane) {
                Some(state) => state.active = true,
                None => lanes.push(LaneState {
                    lane,
                    next: 0,
                    acknowledged: 0,
                    active: true,
                    rest_until: None,
                }),
            }
        }
    }

    /// Writes no more to a topic; [`Self::add`] takes it up again.
    pub fn remove(&self, topic: &str) {
        for state in lock(&self.shared.lanes).iter_mut() {
            state.active &= state.lane.0 != topic;
        }
    }

    /// What was acknowledged so far, by partition of the source.
    #[must_use]
    pub fn acknowledged(&self) -> Counts {
        let lanes = lock(&self.shared.lanes);
        lanes
            .iter()
            .map(|state| (state.lane.clone(), state.acknowledged))
            .collect()
    }

    /// Acknowledged records of one topic, over all partitions.
    #[must_use]
    pub fn acknowledged_of(&self, topic: &str) -> u64 {
        let counts = self.acknowledged();
        let of_topic = counts.iter().filter(|(lane, _)| lane.0 == topic);
        of_topic.map(|(_, count)| count).sum()
    }

    /// The longest time in `window` in which nothing was acknowledged of a partition: nothing can have been
    /// copied of it then, however well that goes.
    #[must_use]
    pub fn longest_pause(&self, lane: &Lane, window: &Window) -> Pause {
        lock(&self.shared.written).longest_pause(lane, window)
    }

    /// Waits until everything written so far is acknowledged, while writing goes on.
    ///
    /// # Errors
    /// When it is not within `deadline`, or a record failed.
    pub async fn settle(&self, deadline: Duration) -> Result<Counts> {
        let begun: BTreeMap<Lane, u64> = lock(&self.shared.lanes)
            .iter()
            .map(|state| (state.lane.clone(), state.next))
            .collect();
        wait::until_true("acknowledgements of the load", deadline, async || {
            self.check()?;
            let acknowledged = self.acknowledged();
            Ok(begun
                .iter()
                .all(|(lane, next)| acknowledged.get(lane).is_some_and(|count| count >= next)))
        })
        .await?;
        Ok(begun)
    }

    /// Stops writing, waits for all acknowledgements and tells what was written.
    ///
    /// # Errors
    /// When a record failed or is not acknowledged within `deadline`.
    pub async fn finish(mut self, deadline: Duration) -> Result<Counts> {
        self.stop.cancel();
        if let Some(writer) = self.writer.take() {
            writer.await.context("the load's writer failed")?;
        }
        self.settle(deadline).await
    }

    fn check(&self) -> Result<()> {
        let faults = lock(&self.shared.faults);
        ensure!(faults.is_empty(), "the load failed: {}", faults.join("; "));
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Writer {
    producer: Arc<ThreadedProducer<Acknowledgements>>,
    shared: Arc<Shared>,
    options: LoadOptions,
    stop: CancellationToken,
    turn: usize,
    /// Records that are left of this turn.
    left: u32,
}

impl Writer {
    async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut last = Instant::now();
        let mut due = 0.0;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                now = ticks.tick() => {
                    // A stall of this machine is not made up for by a burst.
                    let elapsed = now.duration_since(last).min(TICK * 20);
                    last = now;
                    due += elapsed.as_secs_f64() * f64::from(self.options.records_per_second);
                    while due >= 1.0 && self.write_one() {
                        due -= 1.0;
                    }
                    due = due.fract();
                }
            }
        }
        // The producer's destructor drops what is queued, so the queue is emptied first.
        let producer = self.producer.clone();
        let flushed =
            tokio::task::spawn_blocking(move || producer.flush(Timeout::After(FLUSH_DEADLINE)));
        if let Ok(Err(fault)) = flushed.await {
            lock(&self.shared.faults).push(format!("flush: {fault}"));
        }
    }

    /// Writes the next record of the partition whose turn it is, or of the next one that is ready; false:
    /// nothing can be written now.
    fn write_one(&mut self) -> bool {
        let now = Instant::now();
        let mut lanes = lock(&self.shared.lanes);
        if lanes.is_empty() {
            return false;
        }
        // Once more for one whose turn ends early.
        for _ in 0..=lanes.len() {
            let left = std::mem::take(&mut self.left);
            let is_over = left == 0;
            self.turn = (self.turn + usize::from(is_over)) % lanes.len();
            let left = if is_over { BURST } else { left };
            let index = self.turn;
            let state = &mut lanes[index];
            if !state.active || state.rest_until.is_some_and(|until| until > now) {
                continue;
            }
            // A broker that has not heard of a new partition yet refuses the first batch and may take
            // the second; the library takes that for proof of the first, which is lost.
            if state.acknowledged == 0 && state.next > 0 {
                continue;
            }
            match self.send(index, state) {
                Ok(()) => {
                    state.next += 1;
                    self.left = left - 1;
                    return true;
                }
                Err(RDKafkaErrorCode::QueueFull) => return false,
                Err(RDKafkaErrorCode::UnknownPartition | RDKafkaErrorCode::UnknownTopic) => {
                    state.rest_until = Some(now + UNKNOWN_REST);
                }
                Err(code) => {
                    lock(&self.shared.faults).push(format!("{:?}: {code}", state.lane));
                    state.active = false;
                }
            }
        }
        false
    }

    fn send(&self, index: usize, state: &LaneState) -> Result<(), RDKafkaErrorCode> {
        let (topic, partition) = &state.lane;
        let stamp = Stamp {
            topic: topic.clone(),
            partition: *partition,
            seq: state.next,
            timestamp_ms: unix_millis(),
            padding: self.options.padding,
        };
        let content = stamp.content();
        let tag = (index << SEQ_BITS) | usize::try_from(state.next).expect("64 bit");
        let mut record: BaseRecord<'_, [u8], [u8], usize> = BaseRecord::with_opaque_to(topic, tag)
            .partition(*partition)
            .timestamp(stamp.timestamp_ms);
        record.key = content.key.as_deref();
        record.payload = content.value.as_deref();
        record.headers = content.kafka_headers();
        self.producer
            .send(record)
            .map_err(|(fault, _)| match fault {
                KafkaError::MessageProduction(code) => code,
                _ => RDKafkaErrorCode::Fail,
            })
    }
}

/// How long a stopped load may need to empty its queue.
const FLUSH_DEADLINE: Duration = Duration::from_secs(120);

/// Counts acknowledgements; refuses any out of order.
#[derive(Debug)]
struct Acknowledgements(Arc<Shared>);

impl ClientContext for Acknowledgements {}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: usize) {
        let (index, seq) = (tag >> SEQ_BITS, (tag & ((1 << SEQ_BITS) - 1)) as u64);
        let mut lanes = lock(&self.0.lanes);
        let state = &mut lanes[index];
        let fault = match result {
            Ok(_) if seq == state.acknowledged => {
                state.acknowledged += 1;
                let (topic, partition) = &state.lane;
                let mut written = lock(&self.0.written);
                written.observe(Instant::now(), topic, *partition, Duration::ZERO);
                return;
            }
            Ok(_) => format!("{:?}: {seq} acknowledged out of order", state.lane),
            Err((fault, _)) => format!("{:?}: {seq} failed: {fault}", state.lane),
        };
        lock(&self.0.faults).push(fault);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Holders only count; a panic between two steps leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wall-clock time in milliseconds since the Unix epoch.
#[must_use]
pub fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
