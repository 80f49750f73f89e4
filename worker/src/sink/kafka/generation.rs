//! One producer, its thread, and the books of what is in it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use kreplicator_kafka::diagnosis::{Diagnosis, log_line};
use kreplicator_model::ids::{ClusterId, Offset, UnixMillis};
use rdkafka::{
    ClientConfig,
    client::ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::DeliveryResult,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig},
};
use tokio::{sync::watch, time::Instant};
use tracing::{debug, warn};

use super::outlet::Way;

/// How long the thread waits for receipts before it looks at its orders.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a record's receipt needs; travels through the library with the record.
pub(super) struct Ticket {
    pub(super) outlet: Arc<Way>,
    pub(super) offset: Offset,
    pub(super) payload_bytes: u64,
    pub(super) timestamp: Option<UnixMillis>,
}

/// A producer for some time.
pub(super) struct Generation {
    pub(super) number: u64,
    books: Arc<Books>,
    /// Taken out by the thread when it ends, so that it is dropped there (C109).
    producer: RwLock<Option<BaseProducer<Events>>>,
    ended: watch::Receiver<bool>,
    /// Partitions of each topic, as looked up last. The library refuses to send to a partition that its
    /// own metadata does not have, which may be a minute old.
    known: Mutex<BTreeMap<String, i32>>,
}

/// Most topics that are looked up one by one; beyond, one request for all is cheaper.
const TOPICS_ASKED_SINGLY_MAX: usize = 16;

/// Shared with the library's callbacks.
struct Books {
    cluster: ClusterId,
    number: u64,
    outstanding: AtomicU64,
    /// The part of `outstanding` that belongs to outlets that were thrown out.
    condemned: AtomicU64,
    broken: AtomicBool,
    /// No new records from outlets that have nothing outstanding; purged at this time at the latest.
    retire_at: Mutex<Option<Instant>>,
    diagnosis: Diagnosis,
    diagnosed: AtomicBool,
}

/// The library's callbacks.
pub(super) struct Events(Arc<Books>);

impl Generation {
    /// Makes the producer and its thread. Does not wait for the network.
    pub(super) fn create(
        number: u64,
        cluster: &ClusterId,
        config: &ClientConfig,
        diagnosis: Diagnosis,
    ) -> Result<Arc<Self>, kreplicator_kafka::error::Error> {
        let books = Arc::new(Books {
            cluster: cluster.clone(),
            number,
            outstanding: AtomicU64::new(0),
            condemned: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            retire_at: Mutex::new(None),
            diagnosis,
            diagnosed: AtomicBool::new(false),
        });
        let producer: BaseProducer<Events> = config
            .create_with_context(Events(Arc::clone(&books)))
            .map_err(|fault| kreplicator_kafka::error::Error::from_creation(cluster, &fault))?;
        let (end, ended) = watch::channel(false);
        let generation = Arc::new(Self {
            number,
            books,
            producer: RwLock::new(Some(producer)),
            ended,
            known: Mutex::default(),
        });
        let served = Arc::clone(&generation);
        thread::Builder::new()
            .name(format!("producer-{cluster}"))
            .spawn(move || {
                served.serve();
                end.send_replace(true);
            })
            .map_err(|fault| kreplicator_kafka::error::Error::Settings {
                cluster: cluster.clone(),
                detail: format!("no thread for the producer: {fault}"),
            })?;
        Ok(generation)
    }

    /// Whether new records may go in.
    pub(super) fn is_live(&self) -> bool {
        !self.is_broken() && self.retire_at().is_none()
    }

    /// Whether it refuses everything.
    pub(super) fn is_broken(&self) -> bool {
        self.books.broken.load(Ordering::Acquire)
    }

    /// Hands a record to the library. Never waits: while the thread waits to take the producer away,
    /// there is none.
    pub(super) fn send(&self, record: BaseRecord<'_, [u8], [u8], Box<Ticket>>) -> Result<(), Code> {
        let producer = match self.producer.try_read() {
            Ok(producer) => producer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Code::Fatal),
        };
        let Some(producer) = producer.as_ref() else {
            return Err(Code::Fatal);
        };
        // Before, since the receipt may come from another thread at once.
        self.books.outstanding.fetch_add(1, Ordering::AcqRel);
        producer.send(record).map_err(|(fault, _)| {
            self.books.outstanding.fetch_sub(1, Ordering::AcqRel);
            let code = fault.rdkafka_error_code().unwrap_or(Code::Fail);
            if code == Code::Fatal {
                self.books.break_down("a fatal error was met while sending");
            }
            code
        })
    }

    /// Takes in no new outlets any more, and throws out what is left at `at`, or as soon as only
    /// condemned records are left. An earlier time wins.
    pub(super) fn retire(&self, at: Instant) {
        let mut retire_at = self.books.retire_at();
        *retire_at = Some(retire_at.map_or(at, |before| before.min(at)));
    }

    /// Counts records of an outlet that was thrown out.
    pub(super) fn condemn(&self, records: u64) {
        self.books.condemned.fetch_add(records, Ordering::AcqRel);
    }

    /// Whether the topics are known to have so many partitions.
    pub(super) fn knows(&self, partitions: &BTreeMap<String, i32>) -> bool {
        let known = self.known();
        partitions
            .iter()
            .all(|(topic, count)| known.get(topic).is_some_and(|known| known >= count))
    }

    /// Looks up topics that are not known to have so many partitions. What cannot be found out is met
    /// again when a record is sent. Blocks.
    pub(super) fn learn(&self, partitions: &BTreeMap<String, i32>, deadline: Duration) {
        let end = Instant::now() + deadline;
        let unknown: Vec<&str> = {
            let known = self.known();
            let news = partitions
                .iter()
                .filter(|(topic, count)| known.get(*topic).is_none_or(|known| known < count));
            news.map(|(topic, _)| topic.as_str()).collect()
        };
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = producer.as_ref() else {
            return;
        };
        let asked: Vec<Option<&str>> = if unknown.len() > TOPICS_ASKED_SINGLY_MAX {
            vec![None]
        } else {
            unknown.into_iter().map(Some).collect()
        };
        for topic in asked {
            let left = end.saturating_duration_since(Instant::now());
            let metadata = match producer.client().fetch_metadata(topic, left) {
                Ok(metadata) => metadata,
                Err(error) => {
                    debug!(cluster = %self.books.cluster, %error, "topics cannot be looked up");
                    return;
                }
            };
            let found = metadata.topics().iter().filter_map(|topic| {
                let count = i32::try_from(topic.partitions().len()).ok()?;
                Some((topic.name().to_owned(), count))
            });
            self.known().extend(found);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, i32>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's own id, asked for within `deadline`. Blocks.
    pub(super) fn cluster_id(&self, deadline: Duration) -> Option<String> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        producer.as_ref()?.client().fetch_cluster_id(deadline)
    }

    /// Resolves when the thread has dropped the producer.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    fn retire_at(&self) -> Option<Instant> {
        *self.books.retire_at()
    }

    fn serve(&self) {
        let mut purged = false;
        loop {
            {
                let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
                let Some(producer) = producer.as_ref() else {
                    return;
                };
                producer.poll(POLL_INTERVAL);
                if !self.is_broken()
                    && let Some((code, reason)) = producer.client().fatal_error()
                {
                    self.books.break_down(&format!("{code}: {reason}"));
                }
                if !purged && self.is_due_for_purge() {
                    self.books.broken.store(true, Ordering::Release);
                    producer.purge(PurgeConfig::default().queue().inflight());
                    purged = true;
                }
            }
            if purged && self.books.outstanding.load(Ordering::Acquire) == 0 {
                break;
            }
        }
        let producer = self
            .producer
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(producer);
        debug!(cluster = %self.books.cluster, generation = self.number, "producer dropped");
    }

    fn is_due_for_purge(&self) -> bool {
        if self.is_broken() {
            return true;
        }
        let Some(at) = self.retire_at() else {
            return false;
        };
        let outstanding = self.books.outstanding.load(Ordering::Acquire);
        let condemned = self.books.condemned.load(Ordering::Acquire);
        outstanding <= condemned || Instant::now() >= at
    }
}

impl Books {
    fn retire_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.retire_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn break_down(&self, reason: &str) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            warn!(
                cluster = %self.cluster,
                generation = self.number,
                reason,
                "producer is broken and will be replaced"
            );
        }
    }
}

impl ClientContext for Events {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(&self.0.cluster, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        if code == Code::Fatal {
            self.0.break_down(reason);
            return;
        }
        self.0.diagnosed.store(true, Ordering::Release);
        self.0.diagnosis.note(code, reason);
    }
}

impl ProducerContext for Events {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let books = &self.0;
        books.outstanding.fetch_sub(1, Ordering::AcqRel);
        let code = match result {
            Ok(_) => {
                if books.diagnosed.swap(false, Ordering::AcqRel) {
                    books.diagnosis.clear();
                }
                None
            }
            Err((fault, _)) => Some(fault.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        let condemned = ticket.outlet.receipt(&ticket, code);
        if condemned {
            books.condemned.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("number", &self.number)
            .field("outstanding", &self.books.outstanding)
            .field("condemned", &self.books.condemned)
            .field("broken", &self.books.broken)
            .finish_non_exhaustive()
    }
}
