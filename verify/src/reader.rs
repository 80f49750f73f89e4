//! One partition of one side, read by a thread of the blocking pool: polls the library, hashes, and hands
//! fingerprints on by the chunk. A full channel holds the thread up, and with it the library, whose queue
//! has a limit in bytes.

use std::time::Duration;

use kreplicator_kafka::diagnosis::Diagnosis;
use kreplicator_model::{
    compare::Entry,
    ids::{Offset, Partition, TopicName},
};
use rdkafka::{
    ClientConfig, Message as _, Offset as Position, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    error::{Error, Place},
    fingerprint::Hasher,
    side::{Cluster, Events},
};

/// Most bytes that a reader's library keeps read ahead.
pub const QUEUE_BYTES_MAX: u64 = 16 << 20;
/// Bytes asked of a partition at a time. A larger record comes alone.
const FETCH_BYTES: u64 = 4 << 20;
/// Records handed on at a time.
const CHUNK: usize = 1024;
/// Chunks that may wait.
const CHUNKS_AHEAD: usize = 4;
/// How often a reader to which nothing comes looks whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Properties of a reader that the comparison rests on.
pub(crate) fn set_properties(config: &mut ClientConfig) {
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // Records that are gone are told, not jumped over.
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("enable.partition.eof", "true")
        .set("queued.min.messages", "100000")
        .set(
            "queued.max.messages.kbytes",
            (QUEUE_BYTES_MAX / 1024).to_string(),
        )
        .set("fetch.message.max.bytes", FETCH_BYTES.to_string())
        .set("fetch.max.bytes", QUEUE_BYTES_MAX.to_string())
        .set("fetch.queue.backoff.ms", "20")
        .set("fetch.error.backoff.ms", "200")
        .set("fetch.wait.max.ms", "100")
        .set("statistics.interval.ms", "0");
}

/// What a reader has to say.
#[derive(Debug)]
pub(crate) enum News {
    /// The next records.
    Records(Vec<Entry>),
    /// For now there are no more.
    AtEnd,
}

/// A reader; it ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    place: Place,
    diagnosis: Diagnosis,
    news: mpsc::Receiver<Result<News, Error>>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Begins to read at `from`.
    ///
    /// # Errors
    /// The client cannot be made.
    pub(crate) async fn start(
        cluster: &Cluster,
        topic: &TopicName,
        partition: Partition,
        from: Offset,
        hasher: Hasher,
    ) -> Result<Self, Error> {
        let place = Place {
            cluster: cluster.id().clone(),
            topic: topic.clone(),
            partition,
        };
        let consumer = cluster.consumer()?;
        let diagnosis = consumer.context().0.clone();
        let (sender, news) = mpsc::channel(CHUNKS_AHEAD);
        let reading = Reading {
            consumer,
            place: place.clone(),
            next: from,
            hasher,
            chunk: Vec::new(),
            sender,
        };
        let thread = tokio::task::spawn_blocking(move || reading.run());
        Ok(Self {
            place,
            diagnosis,
            news,
            thread,
        })
    }

    /// The next news. Can be dropped and called again.
    ///
    /// # Errors
    /// The partition cannot be read on.
    pub(crate) async fn next(&mut self) -> Result<News, Error> {
        self.news.recv().await.unwrap_or_else(|| {
            // The thread sends its fault before it ends.
            Err(Error::Unreadable {
                place: self.place.clone(),
                cause: "its reader ended".to_owned(),
            })
        })
    }

    /// The error of a reader that said nothing for so long.
    pub(crate) fn silent(&self, waited: Duration) -> Error {
        let cause = self.diagnosis.cause();
        Error::Silent {
            place: self.place.clone(),
            waited,
            cause: cause.map_or_else(
                || {
                    "the client tells no cause; check the cluster, or raise --stall-timeout"
                        .to_owned()
                },
                |cause| cause.to_string(),
            ),
        }
    }

    /// Ends the reader and waits for its client to be gone.
    pub(crate) async fn close(self) {
        drop(self.news);
        if let Err(fault) = self.thread.await {
            tracing::warn!(place = %self.place, %fault, "reader failed");
        }
    }
}

/// The thread's part.
struct Reading {
    consumer: BaseConsumer<Events>,
    place: Place,
    /// The next offset to come, or a lower one where there are holes.
    next: Offset,
    hasher: Hasher,
    chunk: Vec<Entry>,
    sender: mpsc::Sender<Result<News, Error>>,
}

/// Nobody listens any more.
struct Unwanted;

impl Reading {
    fn run(mut self) {
        let read = self.assign().and_then(|()| self.read());
        if let Err(fault) = read {
            // Nobody listens: then nobody misses it.
            drop(self.sender.blocking_send(Err(fault)));
        }
    }

    fn assign(&self) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        let position = Position::Offset(self.next.0);
        list.add_partition_offset(self.place.topic.as_str(), self.place.partition.0, position)
            .and_then(|()| self.consumer.assign(&list))
            .map_err(|fault| self.unreadable(&fault))
    }

    fn read(&mut self) -> Result<(), Error> {
        loop {
            // What is there is taken without waiting; what was taken is handed on before waiting.
            let timeout = match self.chunk.is_empty() {
                true => POLL_INTERVAL,
                false => Duration::ZERO,
            };
            let polled = match self.consumer.poll(timeout) {
                Some(Ok(message)) => {
                    let offset = Offset(message.offset());
                    let print = self.hasher.message(&message).map_err(|_| Error::Header {
                        place: self.place.clone(),
                        offset,
                    })?;
                    self.next = offset.next();
                    self.chunk.push(Entry { offset, print });
                    match self.chunk.len() >= CHUNK {
                        true => self.hand_on(),
                        false => Ok(()),
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    let handed_on = self.hand_on();
                    handed_on.and_then(|()| self.send(News::AtEnd))
                }
                Some(Err(fault)) => match self.fatal(&fault) {
                    Some(fatal) => return Err(fatal),
                    None => Ok(()),
                },
                None => self.hand_on(),
            };
            if polled.is_err() || self.sender.is_closed() {
                return Ok(());
            }
        }
    }

    fn hand_on(&mut self) -> Result<(), Unwanted> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.consumer.context().0.clear();
        let next = Vec::with_capacity(CHUNK);
        let chunk = std::mem::replace(&mut self.chunk, next);
        self.send(News::Records(chunk))
    }

    fn send(&self, news: News) -> Result<(), Unwanted> {
        self.sender.blocking_send(Ok(news)).map_err(|_| Unwanted)
    }

    /// The library heals by itself what is no fault of the partition; should it not, nothing comes, and
    /// that is noticed.
    fn fatal(&self, fault: &KafkaError) -> Option<Error> {
        match fault.rdkafka_error_code() {
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
                Some(Error::Deleted {
                    place: self.place.clone(),
                    from: self.next,
                })
            }
            Some(
                Code::TopicAuthorizationFailed
                | Code::BadMessage
                | Code::InvalidMessage
                | Code::BadCompression
                | Code::NotImplemented
                | Code::Fatal,
            )
            | None => Some(self.unreadable(fault)),
            Some(_) => None,
        }
    }

    fn unreadable(&self, fault: &KafkaError) -> Error {
        let cause = match fault.rdkafka_error_code() {
            Some(Code::TopicAuthorizationFailed) => {
                "not permitted: grant the user READ on the topic".to_owned()
            }
            Some(code) => code.to_string(),
            None => fault.to_string(),
        };
        Error::Unreadable {
            place: self.place.clone(),
            cause,
        }
    }
}
