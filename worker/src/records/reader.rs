//! Reads one link's source: one consumer, polled by one thread, which hands every record straight to
//! its lane and waits for nothing else.
//!
//! All changes of what is read are made on that thread too, between polls, so a record that was fetched
//! before a change never meets the lane after it; the library drops what is outdated. Flow control is
//! the pausing of single partitions.

mod backlog;
mod client;
mod damage;
mod nudge;
mod opening;
mod parts;
mod pump;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak, mpsc},
    thread,
    time::Duration,
};

use kreplicator_kafka::{
    diagnosis::Diagnosis, error::Error as ClusterError, properties::ClientProperties,
};
use kreplicator_model::{
    ids::{LinkId, Offset, TopicName},
    spec::Cluster,
};
use rdkafka::{
    consumer::{BaseConsumer, Consumer as _},
    error::RDKafkaErrorCode as Code,
};
use tokio::sync::{Notify, watch};

pub(super) use self::damage::fault as damaged;
use self::{client::Events, nudge::Nudger, pump::Pump};
use super::{
    lane::{Lane, LaneNumber},
    offsets,
};
use crate::budget::Reservation;
use crate::fault::{Fault, Kind};

/// What the thread is told.
pub(super) enum Command {
    Open {
        lane: Arc<Lane>,
        at: Offset,
        opening: u64,
    },
    Close(LaneNumber),
    Wake(LaneNumber),
    End,
}

/// A reader. Dropping it ends its thread, which drops the consumer.
pub(super) struct Reader {
    commands: mpsc::Sender<Command>,
    /// Weak: the consumer is dropped on its own thread (C109).
    consumer: Weak<BaseConsumer<Events>>,
    made_from: ClientProperties,
    news: Arc<News>,
    ended: watch::Receiver<bool>,
}

/// What the thread tells besides records.
pub(super) struct News {
    /// Something is wrong with some partition, or with everything.
    pub(super) alarm: Notify,
    pub(super) diagnosis: Diagnosis,
    state: std::sync::Mutex<NewsState>,
}

#[derive(Default)]
struct NewsState {
    fatal: Option<String>,
    last_error: Option<String>,
}

/// Tells the reader's thread that a lane can go on.
#[derive(Debug, Clone)]
pub(super) struct Waker {
    commands: mpsc::Sender<Command>,
    lane: LaneNumber,
}

impl Waker {
    pub(super) fn wake(&self) {
        // A reader that is gone needs no waking.
        drop(self.commands.send(Command::Wake(self.lane)));
    }

    /// A waker whose calls a test sees.
    #[cfg(test)]
    pub(super) fn for_tests(lane: LaneNumber) -> (Self, mpsc::Receiver<Command>) {
        let (commands, woken) = mpsc::channel();
        (Self { commands, lane }, woken)
    }
}

/// Settings of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    /// Time between statistics of the library, in whole seconds at least.
    pub(super) statistics_interval: Duration,
}

impl Reader {
    /// Makes a consumer and its thread. Blocks for some milliseconds, never for the network.
    pub(super) fn create(
        link: &LinkId,
        source: &Cluster,
        properties: &ClientProperties,
        memory: Reservation,
        settings: Settings,
    ) -> Result<Self, Fault> {
        let fault = |error: &ClusterError| Fault::from((Kind::Source, error));
        let news = Arc::new(News {
            alarm: Notify::new(),
            diagnosis: Diagnosis::new(source.id.clone()),
            state: std::sync::Mutex::default(),
        });
        let config = client::config(link, properties, memory.bytes(), settings);
        let consumer: BaseConsumer<Events> = config
            .create_with_context(Events::new(source.id.clone(), Arc::clone(&news)))
            .map_err(|error| fault(&ClusterError::from_creation(&source.id, &error)))?;
        let consumer = Arc::new(consumer);
        let weak = Arc::downgrade(&consumer);
        let (commands, orders) = mpsc::channel();
        let (end, ended) = watch::channel(false);
        let no_thread = |cause: std::io::Error| {
            fault(&ClusterError::Settings {
                cluster: source.id.clone(),
                detail: format!("no thread for the reader: {cause}"),
            })
        };
        let nudger =
            Nudger::start(format!("nudge-{link}"), Weak::clone(&weak)).map_err(no_thread)?;
        let backlog_bytes_max = client::backlog_bytes_max(memory.bytes());
        let mut pump = Pump::new(
            consumer,
            orders,
            Arc::clone(&news),
            nudger,
            backlog_bytes_max,
        );
        thread::Builder::new()
            .name(format!("reader-{link}"))
            .spawn(move || {
                pump.run();
                drop(pump);
                drop(memory);
                end.send_replace(true);
            })
            .map_err(no_thread)?;
        Ok(Self {
            commands,
            consumer: weak,
            made_from: properties.clone(),
            news,
            ended,
        })
    }

    /// Reads the lane's partition from `at` on.
    pub(super) fn open(&self, lane: &Arc<Lane>, at: Offset, opening: u64) {
        let waker = Waker {
            commands: self.commands.clone(),
            lane: lane.number,
        };
        lane.open(opening, waker);
        self.send(Command::Open {
            lane: Arc::clone(lane),
            at,
            opening,
        });
    }

    /// Reads the lane's partition no more. The lane takes nothing more from this moment on.
    pub(super) fn close(&self, lane: &Lane) {
        lane.close();
        self.send(Command::Close(lane.number));
    }

    /// What its consumer was made from.
    pub(super) fn made_from(&self) -> &ClientProperties {
        &self.made_from
    }

    /// What the thread tells.
    pub(super) fn news(&self) -> &Arc<News> {
        &self.news
    }

    /// A handle for questions, which block.
    pub(super) fn questions(&self) -> Questions {
        Questions {
            consumer: Weak::clone(&self.consumer),
            news: Arc::clone(&self.news),
        }
    }

    /// Resolves when the consumer is gone.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    fn send(&self, command: Command) {
        // The thread ends before this value only by a panic.
        drop(self.commands.send(command));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.send(Command::End);
    }
}

impl News {
    pub(super) fn fatal(&self) -> Option<String> {
        self.lock().fatal.clone()
    }

    /// What the consumer complained about last, and forgets it.
    pub(super) fn take_last_error(&self) -> Option<String> {
        self.lock().last_error.take()
    }

    fn complain(&self, code: Code, reason: &str, is_fatal: bool) {
        let text = if reason.is_empty() {
            code.to_string()
        } else {
            reason.to_owned()
        };
        {
            let mut state = self.lock();
            if is_fatal {
                state.fatal = Some(text.clone());
            }
            state.last_error = Some(text);
        }
        self.alarm.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NewsState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Offsets of partitions of the source.
pub(super) type Ranges = HashMap<(TopicName, i32), Result<(Offset, Offset), Fault>>;

/// First offsets at or after a time; None: no such record yet.
pub(super) type AtTimes = HashMap<(TopicName, i32), Result<Option<Offset>, Fault>>;

/// Questions to the source, through the reader's consumer. Every answer is waited for on the calling
/// thread.
#[derive(Clone)]
pub(super) struct Questions {
    consumer: Weak<BaseConsumer<Events>>,
    news: Arc<News>,
}

impl Questions {
    /// Log starts and last stable offsets.
    pub(super) fn ranges(
        &self,
        partitions: &[(TopicName, i32)],
        deadline: Duration,
    ) -> Result<Ranges, Fault> {
        let consumer = self.consumer()?;
        offsets::ranges(&consumer, partitions, deadline).map_err(|code| self.fault(code))
    }

    /// As [`Self::ranges`], for partitions that may have been made a moment ago.
    pub(super) fn fresh_ranges(
        &self,
        partitions: &[(TopicName, i32)],
        deadline: Duration,
    ) -> Result<Ranges, Fault> {
        let consumer = self.consumer()?;
        offsets::fresh_ranges(&consumer, partitions, deadline).map_err(|code| self.fault(code))
    }

    /// First offsets at or after times; None: no such record yet.
    pub(super) fn at_times(
        &self,
        times: &[((TopicName, i32), i64)],
        deadline: Duration,
    ) -> Result<AtTimes, Fault> {
        let consumer = self.consumer()?;
        offsets::at_times(&consumer, times, deadline).map_err(|code| self.fault(code))
    }

    /// The cluster's own id.
    pub(super) fn cluster_id(&self, deadline: Duration) -> Option<String> {
        self.consumer.upgrade()?.client().fetch_cluster_id(deadline)
    }

    /// The error behind a question that nobody answered.
    pub(super) fn fault(&self, code: Code) -> Fault {
        Fault::from((Kind::Source, &self.news.diagnosis.unreachable(code)))
    }

    fn consumer(&self) -> Result<Arc<BaseConsumer<Events>>, Fault> {
        self.consumer
            .upgrade()
            .ok_or_else(|| Fault::new(Kind::Source, "the reader of the source was replaced"))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News").finish_non_exhaustive()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { lane, at, .. } => write!(f, "open {} at {at}", lane.spec.id),
            Self::Close(lane) => write!(f, "close {lane}"),
            Self::Wake(lane) => write!(f, "wake {lane}"),
            Self::End => f.write_str("end"),
        }
    }
}
