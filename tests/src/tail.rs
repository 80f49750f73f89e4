//! Reads topics of a cluster live, from their beginning, into a checker and a record of arrivals.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};
use tokio::time::Instant;

use crate::{
    arrivals::{Arrivals, Latency, Pause, Window},
    checker::{Arrival, Checker, Counts, Lane, Report},
    load::unix_millis,
    record::Content,
    wait,
};

/// Longest wait of one poll, and so the delay of a stop or of new topics.
const POLL: Duration = Duration::from_millis(50);
/// How often partitions of followed topics are looked up, while some topic does not exist yet.
const LOOKUP_INTERVAL_MISSING: Duration = Duration::from_millis(200);
/// The same once all exist: only growth is looked for.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// Deadline of one look-up.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);

/// A live reader of a cluster.
#[derive(Debug)]
pub struct Tail {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    topics: Mutex<BTreeSet<String>>,
}

/// What is read.
#[derive(Debug)]
enum Change {
    /// These partitions of a topic too, from their beginning.
    Added(String, Range<i32>),
    /// The topic no more, of which so many partitions are read.
    Left(String, i32),
}

#[derive(Debug, Default)]
struct State {
    checker: Checker,
    arrivals: Arrivals,
    last_error: Option<String>,
    stopped: bool,
}

impl Tail {
    /// Starts reading with the given client properties; nothing is read until topics are followed.
    ///
    /// # Errors
    /// When librdkafka refuses its settings.
    pub fn start(config: &ClientConfig) -> Result<Self> {
        let mut config = config.clone();
        config
            // Positions are not kept; the name is only asked for by the client.
            .set("group.id", "kreplicator-tests-tail")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "50")
            .set("fetch.error.backoff.ms", "50")
            .set("allow.auto.create.topics", "false");
        let reader: BaseConsumer = config.create()?;
        let lookup: BaseConsumer = config.create()?;
        let shared = Arc::new(Shared::default());
        let (changed, changes) = mpsc::channel();
        let read = {
            let shared = shared.clone();
            move || read(&reader, &changes, &shared)
        };
        let look_up = {
            let shared = shared.clone();
            move || look_up(&lookup, &changed, &shared)
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
        };
        let threads = vec![
            spawn("tail-read", Box::new(read))?,
            spawn("tail-look-up", Box::new(look_up))?,
        ];
        Ok(Self { shared, threads })
    }

    /// Reads also this topic, whenever it appears, with every partition that appears.
    pub fn follow(&self, topic: &str) {
        lock(&self.shared.topics).insert(topic.to_owned());
    }

    /// Reads this topic no more, soon; what has arrived stays known. To be called before a topic is deleted: the
    /// library has crashed in clients that held on to topics which were deleted (librdkafka#5093, #4907).
    pub fn leave(&self, topic: &str) {
        lock(&self.shared.topics).remove(topic);
    }

    /// Compares what has arrived with what was produced, by target topic.
    #[must_use]
    pub fn report(&self, produced: &Counts) -> Report {
        self.state().checker.report(produced)
    }

    /// Waits until nothing of `produced` is missing and reports.
    ///
    /// # Errors
    /// When something is still missing after `deadline`; the report is in the error.
    pub async fn complete(&self, produced: &Counts, deadline: Duration) -> Result<Report> {
        let waited = wait::until("all records at the target", deadline, async || {
            let report = self.report(produced);
            Ok((report.missing.count == 0).then_some(report))
        })
        .await;
        waited.or_else(|_| {
            let error = self.state().last_error.clone().unwrap_or_default();
            bail!(
                "not complete within {deadline:?}: {} (last read error: {error:?})",
                self.report(produced)
            )
        })
    }

    /// Waits for the first arrival in a partition at or after `from`.
    ///
    /// # Errors
    /// When there is none within `deadline`.
    pub async fn first_arrival(
        &self,
        lane: &Lane,
        from: Instant,
        deadline: Duration,
    ) -> Result<Instant> {
        let what = format!("a record in {}/{}", lane.0, lane.1);
        wait::until(&what, deadline, async || {
            Ok(self.state().arrivals.first_since(lane, from))
        })
        .await
    }

    /// Records seen in each partition, each counted once.
    #[must_use]
    pub fn seen(&self) -> Counts {
        self.state().checker.seen()
    }

    /// Numbers of the records that arrived again at or after `since`, by partition.
    #[must_use]
    pub fn repeats_since(&self, since: Instant) -> BTreeMap<Lane, Vec<u64>> {
        self.state().checker.repeats_since(since)
    }

    /// The longest pause of each of `lanes` within `window`.
    #[must_use]
    pub fn pauses<'a>(
        &self,
        lanes: impl IntoIterator<Item = &'a Lane>,
        window: &Window,
    ) -> BTreeMap<Lane, Duration> {
        let pauses = self.pauses_at(lanes, window).into_iter();
        pauses.map(|(lane, pause)| (lane, pause.length)).collect()
    }

    /// The same with the time at which each began.
    #[must_use]
    pub fn pauses_at<'a>(
        &self,
        lanes: impl IntoIterator<Item = &'a Lane>,
        window: &Window,
    ) -> BTreeMap<Lane, Pause> {
        let state = self.state();
        let pause = |lane: &Lane| state.arrivals.longest_pause(lane, window);
        lanes
            .into_iter()
            .map(|lane| (lane.clone(), pause(lane)))
            .collect()
    }

    /// Number of arrivals in a partition within `window`.
    #[must_use]
    pub fn count(&self, lane: &Lane, window: &Window) -> usize {
        self.state().arrivals.count(lane, window)
    }

    /// Latency of one partition within `window`.
    #[must_use]
    pub fn latency(&self, lane: &Lane, window: &Window) -> Latency {
        self.state().arrivals.latency(lane, window)
    }

    /// Latency of all partitions within `window`.
    #[must_use]
    pub fn latency_of_all(&self, window: &Window) -> Latency {
        self.state().arrivals.latency_of_all(window)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.state().stopped = true;
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() && !std::thread::panicking() {
                eprintln!("a thread of the tail has panicked");
            }
        }
    }
}

/// Reads what is assigned until stopped.
fn read(consumer: &BaseConsumer, changes: &mpsc::Receiver<Change>, shared: &Shared) {
    loop {
        for change in changes.try_iter() {
            let mut list = TopicPartitionList::new();
            let changed = match change {
                Change::Added(topic, partitions) => {
                    for partition in partitions {
                        list.add_partition_offset(&topic, partition, Offset::Beginning)
                            .expect("the beginning is a legal offset");
                    }
                    consumer.incremental_assign(&list)
                }
                Change::Left(topic, count) => {
                    list.add_partition_range(&topic, 0, count - 1);
                    consumer.incremental_unassign(&list)
                }
            };
            if let Err(fault) = changed {
                lock(&shared.state).last_error = Some(format!("assign: {fault}"));
            }
        }
        let polled = consumer.poll(POLL);
        let mut state = lock(&shared.state);
        if state.stopped {
            return;
        }
        match polled {
            None => {}
            Some(Err(fault)) => state.last_error = Some(fault.to_string()),
            Some(Ok(message)) => {
                let at = Instant::now();
                let (topic, partition) = (message.topic(), message.partition());
                let content = Content::of(&message);
                let arrival = state.checker.observe(at, topic, partition, &content);
                if let (Arrival::New | Arrival::Late, Some(written)) =
                    (arrival, content.timestamp_ms)
                {
                    let millis = u64::try_from(unix_millis() - written).unwrap_or(0);
                    let latency = Duration::from_millis(millis);
                    state.arrivals.observe(at, topic, partition, latency);
                }
            }
        }
    }
}

/// Looks for partitions of followed topics until stopped.
fn look_up(consumer: &BaseConsumer, changes: &mpsc::Sender<Change>, shared: &Shared) {
    let mut known: BTreeMap<String, i32> = BTreeMap::new();
    loop {
        let topics = lock(&shared.topics).clone();
        let left = known.extract_if(.., |topic, _| !topics.contains(topic));
        for (topic, count) in left.filter(|(_, count)| *count > 0) {
            if changes.send(Change::Left(topic, count)).is_err() {
                return;
            }
        }
        for topic in &topics {
            match partitions(consumer, topic) {
                Ok(count) => {
                    let before = known.insert(topic.clone(), count).unwrap_or(0);
                    let added = Change::Added(topic.clone(), before..count);
                    if count > before && changes.send(added).is_err() {
                        return;
                    }
                    // A topic never shrinks; a count of 0 means that it is not seen now.
                    known.insert(topic.clone(), count.max(before));
                }
                Err(fault) => lock(&shared.state).last_error = Some(format!("{fault:#}")),
            }
        }
        let all_exist = topics
            .iter()
            .all(|topic| known.get(topic).is_some_and(|count| *count > 0));
        let rest = if all_exist {
            LOOKUP_INTERVAL
        } else {
            LOOKUP_INTERVAL_MISSING
        };
        std::thread::park_timeout(rest);
        if lock(&shared.state).stopped {
            return;
        }
    }
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<i32> {
    let metadata = consumer.fetch_metadata(Some(topic), LOOKUP_DEADLINE)?;
    let topic = metadata.topics().first().context("an empty answer")?;
    if topic.error().is_some() {
        return Ok(0);
    }
    ensure!(!topic.partitions().is_empty(), "no partitions");
    Ok(i32::try_from(topic.partitions().len())?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Holders only count; a panic between two steps leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
