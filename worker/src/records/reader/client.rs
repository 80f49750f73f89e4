//! The consumer's properties and callbacks.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kreplicator_kafka::{diagnosis::log_line, properties::ClientProperties};
use kreplicator_model::ids::{ClusterId, LinkId, Offset};
use rdkafka::{
    ClientConfig,
    client::ClientContext,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tracing::warn;

use super::{News, Settings, damage::Heard};
use crate::{checkpoint::group_of, records::positions};

/// Most bytes asked of one partition at a time.
const PARTITION_FETCH_BYTES_MAX: u64 = 512 << 10;

/// The part of a reader's memory for records that wait for their lanes.
pub(super) fn backlog_bytes_max(memory_bytes: u64) -> u64 {
    memory_bytes / 4
}

/// Properties of a link's consumer within `memory_bytes`.
///
/// Half of the memory is for answers on their way, a quarter for what is queued, a quarter for records
/// that wait for their lanes. The library counts bytes before decompression in the first and after it
/// in the second, so this is a measure, not a wall; the queue's part is shared by all partitions,
/// whatever their number (C107).
pub(super) fn config(
    link: &LinkId,
    properties: &ClientProperties,
    memory_bytes: u64,
    settings: Settings,
) -> ClientConfig {
    let half = memory_bytes / 2;
    let partition_bytes = PARTITION_FETCH_BYTES_MAX.min(half / 2);
    let mut config = properties.to_config();
    config
        .set("group.id", group_of(link))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // Only our own code moves a reader (C005).
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("enable.partition.eof", "false")
        .set("queued.max.messages.kbytes", (half / 2 / 1024).to_string())
        .set("message.max.bytes", partition_bytes.to_string())
        .set("fetch.message.max.bytes", partition_bytes.to_string())
        .set("fetch.max.bytes", half.to_string())
        .set("fetch.queue.backoff.ms", "20")
        .set("fetch.error.backoff.ms", "200")
        // One fetch at a time is under way to a broker: what is opened or resumed waits for its end.
        .set("fetch.wait.max.ms", "200")
        .set(
            "statistics.interval.ms",
            settings.statistics_interval.as_millis().to_string(),
        );
    config
}

/// The library's callbacks; they run on the reader's thread, inside a poll.
pub(super) struct Events {
    cluster: ClusterId,
    news: Arc<News>,
    /// Rises with every callback: a poll that gave nothing and served no callback found the queue
    /// empty.
    served: AtomicU64,
    statistics: Mutex<Option<HashMap<(String, i32), Offset>>>,
    diagnosed: AtomicBool,
    damaged: Heard,
}

impl Events {
    pub(super) fn new(cluster: ClusterId, news: Arc<News>) -> Self {
        Self {
            cluster,
            news,
            served: AtomicU64::new(0),
            statistics: Mutex::new(None),
            diagnosed: AtomicBool::new(false),
            damaged: Heard::default(),
        }
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Next offsets, if statistics came since the last call.
    pub(super) fn take_statistics(&self) -> Option<HashMap<(String, i32), Offset>> {
        self.statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Where the library found damage since the last call.
    pub(super) fn take_damaged(&self) -> Vec<Offset> {
        self.damaged.take()
    }

    /// A record came: whatever was wrong is over.
    pub(super) fn recovered(&self) {
        if self.diagnosed.swap(false, Ordering::AcqRel) {
            self.news.diagnosis.clear();
        }
    }
}

impl ClientContext for Events {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        log_line(&self.cluster, level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.served.fetch_add(1, Ordering::Relaxed);
        match positions::parse(statistics) {
            Ok(found) => {
                *self
                    .statistics
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(found);
            }
            Err(fault) => {
                warn!(cluster = %self.cluster, %fault, "statistics of the client cannot be read");
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        if code == Code::GroupAuthorizationFailed {
            // The group is there for the library's sake: this client neither joins nor commits.
            return;
        }
        self.damaged.hear(reason);
        match code {
            // Of single partitions: the inspection finds out which.
            Code::AutoOffsetReset | Code::LogTruncation | Code::OffsetOutOfRange => {}
            Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition => {}
            _ => {
                self.diagnosed.store(true, Ordering::Release);
                self.news.diagnosis.note(code, reason);
            }
        }
        self.news.complain(code, reason, code == Code::Fatal);
    }
}

impl ConsumerContext for Events {}
