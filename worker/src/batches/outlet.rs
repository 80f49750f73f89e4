//! Sends batches to one broker of a target, on one connection.
//!
//! Each request holds one batch for each of as many partitions as have one waiting; some requests are
//! under way at a time, since a broker answers one after the other and the way to it may be long. Batches
//! of a partition go out in the order they came.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesOrdered};
use kreplicator_batch::Batch;
use kreplicator_model::{
    exact::{Answer, BatchId},
    ids::Offset,
};
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    code::{Class, Code},
    error::Error,
    produce::{self, InFlight, PartitionAnswer, Request},
    topic::{BrokerId, Node, TopicId, TopicPartition},
};
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use super::lane::{Lane, Side};
use crate::fault::{Fault, Kind};

/// Requests under way. As many as a partition may have batches in flight.
const REQUESTS_MAX: usize = 5;
/// Bytes of records in one request, unless one batch alone has more.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Over the broker's own patience with its replicas.
const ANSWER_TIME: Duration = Duration::from_secs(15);

/// A batch to be sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) lane: Arc<Lane>,
    pub(super) run: u64,
    /// Number of the lane's way to the target.
    pub(super) way: u64,
    pub(super) id: BatchId,
    pub(super) attempt: u32,
    pub(super) topic_id: Option<TopicId>,
    pub(super) parts: [Bytes; 2],
}

/// The way to an outlet.
#[derive(Debug, Clone)]
pub(super) struct OutletHandle {
    items: mpsc::UnboundedSender<Item>,
}

impl OutletHandle {
    /// Hands a batch over; at most five of a lane are out at a time. False: the outlet has ended.
    #[must_use]
    pub(super) fn send(&self, item: Item) -> bool {
        self.items.send(item).is_ok()
    }

    /// Whether it runs.
    pub(super) fn is_alive(&self) -> bool {
        !self.items.is_closed()
    }
}

/// Sends to one broker.
pub(super) struct Outlet {
    client: ClusterClient,
    broker: BrokerId,
    purpose: Purpose,
    /// How long the broker may wait for its replicas.
    patience: Duration,
    items: mpsc::UnboundedReceiver<Item>,
    waiting: VecDeque<Item>,
}

/// One request under way.
type Sent = (Vec<Item>, Result<produce::Answer, Error>);

impl Outlet {
    /// An outlet and the way to it. It ends when all handles are gone.
    pub(super) fn new(
        client: ClusterClient,
        broker: BrokerId,
        purpose: Purpose,
        patience: Duration,
    ) -> (Self, OutletHandle) {
        let (sender, items) = mpsc::unbounded_channel();
        let outlet = Self {
            client,
            broker,
            purpose,
            patience,
            items,
            waiting: VecDeque::new(),
        };
        (outlet, OutletHandle { items: sender })
    }

    /// Sends until nobody can want anything any more.
    pub(super) async fn run(mut self) {
        let mut sent = FuturesOrdered::new();
        loop {
            while let Ok(item) = self.items.try_recv() {
                self.waiting.push_back(item);
            }
            if !self.waiting.is_empty() && sent.len() < REQUESTS_MAX {
                match self.submit().await {
                    Ok((items, in_flight)) => sent.push_back(await_answer(items, in_flight)),
                    Err((items, fault)) => self.unreachable(items, &fault),
                }
                continue;
            }
            tokio::select! {
                biased;
                Some((items, answer)) = sent.next(), if !sent.is_empty() => match answer {
                    Ok(answer) => self.answered(items, answer),
                    Err(fault) => self.lost(items, &fault),
                },
                item = self.items.recv(), if sent.len() < REQUESTS_MAX => match item {
                    Some(item) => self.waiting.push_back(item),
                    None if sent.is_empty() => return,
                    None => self.finish(&mut sent).await,
                },
            }
        }
    }

    /// Nothing more comes: waits for what is under way.
    async fn finish(&mut self, sent: &mut FuturesOrdered<impl Future<Output = Sent>>) {
        while let Some((items, answer)) = sent.next().await {
            match answer {
                Ok(answer) => self.answered(items, answer),
                Err(fault) => self.lost(items, &fault),
            }
        }
    }

    /// Sends the next request.
    async fn submit(&mut self) -> Result<(Vec<Item>, InFlight), (Vec<Item>, Error)> {
        let (items, request) = self.gather();
        let deadline = Instant::now() + self.patience + ANSWER_TIME;
        let connection = self
            .client
            .connection(self.broker, self.purpose, deadline)
            .await;
        let submitted = match connection {
            Ok(connection) => request.submit(&connection, deadline).await,
            Err(fault) => Err(fault),
        };
        match submitted {
            Ok(in_flight) => Ok((items, in_flight)),
            Err(fault) => Err((items, fault)),
        }
    }

    /// One batch of each partition, in the order of waiting.
    fn gather(&mut self) -> (Vec<Item>, Request) {
        let mut request = Request::new(self.patience);
        let mut items = Vec::new();
        let mut seen: HashSet<TopicPartition> = HashSet::new();
        let mut rest = VecDeque::with_capacity(self.waiting.len());
        let mut bytes = 0;
        while let Some(item) = self.waiting.pop_front() {
            let size: usize = item.parts.iter().map(Bytes::len).sum();
            let fits = items.is_empty() || bytes + size <= REQUEST_BYTES_MAX;
            let at = &item.lane.target;
            // Those behind a batch that has to wait wait too, or they would overtake it.
            if !fits || seen.contains(at) {
                seen.insert(at.clone());
                rest.push_back(item);
                continue;
            }
            seen.insert(at.clone());
            let batch = produce::Batch {
                topic: at.topic.clone(),
                topic_id: item.topic_id,
                partition: at.partition,
                records: item.parts.to_vec(),
            };
            match request.add(batch) {
                Ok(()) => {
                    bytes += size;
                    items.push(item);
                }
                Err(_) => rest.push_back(item),
            }
        }
        self.waiting = rest;
        (items, request)
    }

    fn answered(&self, items: Vec<Item>, answer: produce::Answer) {
        let nodes = answer.nodes;
        let mut answers: std::collections::HashMap<TopicPartition, PartitionAnswer> = answer
            .partitions
            .into_iter()
            .map(|one| (one.partition.clone(), one))
            .collect();
        for item in items {
            match answers.remove(&item.lane.target) {
                Some(told) => self.tell(&item, &told, &nodes),
                None => item.lane.connection_lost(item.run, item.way),
            }
        }
    }

    fn tell(&self, item: &Item, told: &PartitionAnswer, nodes: &[Node]) {
        let lane = &item.lane;
        let at = &lane.target;
        let answer = meaning(told);
        let mut leader_is_other = false;
        if told.code != Code::NONE {
            debug!(partition = %at, code = %told.code, message = told.message, "batch refused");
            leader_is_other = moves(told.code);
            if leader_is_other {
                let is_told = told
                    .leader
                    .is_some_and(|leader| self.client.note_leader(at, leader, nodes));
                if !is_told {
                    self.client.mark_stale(&at.topic);
                }
            }
        }
        if told.code == Code::CORRUPT_MESSAGE && !is_sound(&item.parts) {
            lane.refused(item.run, item.id, None, damaged);
        } else if answer == Answer::Terminal && !is_about_a_record(told.code) {
            let from = lane
                .checkpoint()
                .map_or(Offset(0), |saved| saved.place.offset);
            lane.fail_run(item.run, refusal(lane, from, told));
        } else if answer == Answer::Terminal {
            let index = told.record_errors.first().map(|error| error.index);
            let index = index.and_then(|index| usize::try_from(index).ok());
            lane.refused(item.run, item.id, index, |offset| {
                refusal(lane, offset, told)
            });
        } else {
            if matches!(answer, Answer::Refused | Answer::Unsure) && !leader_is_other {
                let cause = format!("target partition {at} takes no records: {}", told.code);
                lane.trouble(Side::Target, Some(&cause));
            }
            let sent = (item.id, item.attempt);
            lane.answered(item.run, item.way, sent, answer, leader_is_other);
        }
    }

    /// There is no connection: nothing that waits can be sent.
    fn unreachable(&mut self, items: Vec<Item>, fault: &Error) {
        let waiting = std::mem::take(&mut self.waiting);
        self.lost(items.into_iter().chain(waiting).collect(), fault);
    }

    /// The connection that these were on is gone. What waits behind them by the same way goes with them;
    /// what came by a newer one is sent.
    fn lost(&mut self, items: Vec<Item>, fault: &Error) {
        debug!(broker = self.broker.0, %fault, "cannot produce");
        let mut told: HashSet<(*const Lane, u64, u64)> = HashSet::new();
        for item in items {
            self.client.mark_stale(&item.lane.target.topic);
            if told.insert(item.by_way()) {
                item.lane.trouble(Side::Target, Some(&fault.to_string()));
                item.lane.connection_lost(item.run, item.way);
            }
        }
        self.waiting.retain(|item| !told.contains(&item.by_way()));
    }
}

impl Item {
    /// The lane's way that it came by.
    fn by_way(&self) -> (*const Lane, u64, u64) {
        (Arc::as_ptr(&self.lane), self.run, self.way)
    }
}

async fn await_answer(items: Vec<Item>, in_flight: InFlight) -> Sent {
    let answer = in_flight.answer().await;
    (items, answer)
}

/// What an answer means to the sender.
fn meaning(told: &PartitionAnswer) -> Answer {
    match (told.code, told.base_offset) {
        (Code::NONE, Some(base_offset)) => Answer::Acked { base_offset },
        (Code::NONE, None) | (Code::DUPLICATE_SEQUENCE_NUMBER, _) => Answer::Duplicate,
        (Code::OUT_OF_ORDER_SEQUENCE_NUMBER, _) => Answer::OutOfOrder,
        (Code::INVALID_PRODUCER_EPOCH | Code::PRODUCER_FENCED, _) => Answer::OldEpoch,
        (Code::UNKNOWN_PRODUCER_ID, _) => Answer::UnknownProducer,
        // Checked before anything is appended.
        (
            Code::NOT_ENOUGH_REPLICAS
            | Code::CORRUPT_MESSAGE
            | Code::UNKNOWN_TOPIC_OR_PARTITION
            | Code::UNKNOWN_TOPIC_ID
            | Code::INCONSISTENT_TOPIC_ID
            | Code::THROTTLING_QUOTA_EXCEEDED,
            _,
        ) => Answer::Refused,
        (code, _) => match code.class() {
            Class::Retryable | Class::Refresh => Answer::Unsure,
            Class::Terminal | Class::Fenced => Answer::Terminal,
        },
    }
}

/// Whether the partition is to be looked for at another broker.
fn moves(code: Code) -> bool {
    code.class() == Class::Refresh
}

/// Whether a batch is as its checksum says: what is not was damaged before it came to us, or here.
fn is_sound([header, payload]: &[Bytes; 2]) -> bool {
    Batch::parse([&header[..], &payload[..]].concat().into())
        .is_ok_and(|batch| batch.verify().is_ok())
}

fn damaged(offset: Offset) -> Fault {
    Fault::new(
        Kind::Source,
        format!(
            "the batch of source offset {offset} is damaged: its checksum does not fit its records; \
             delete the records below the next good batch on the source, or repair its log"
        ),
    )
}

/// Whether a refusal for good is about a record of the batch. Every other would meet each record
/// alike: no need to find out which.
fn is_about_a_record(code: Code) -> bool {
    matches!(
        code,
        Code::MESSAGE_TOO_LARGE
            | Code::RECORD_LIST_TOO_LARGE
            | Code::INVALID_TIMESTAMP
            | Code::INVALID_RECORD
    )
}

/// The fault behind a record that will never be taken.
fn refusal(lane: &Lane, offset: Offset, told: &PartitionAnswer) -> Fault {
    let TopicPartition { topic, partition } = &lane.target;
    let limits = &lane.spec.limits;
    let now =
        |value: Option<String>| value.map_or(String::new(), |value| format!(" (now {value})"));
    let millis =
        |limit: Option<Duration>| now(limit.map(|limit| format!("{} ms", limit.as_millis())));
    let code = told.code;
    let (kind, what) = match code {
        Code::MESSAGE_TOO_LARGE | Code::RECORD_LIST_TOO_LARGE => {
            let limit = now(limits.max_message_bytes.map(|limit| limit.to_string()));
            let what = format!("too large; raise its max.message.bytes{limit}");
            (Kind::Refused, what)
        }
        Code::INVALID_TIMESTAMP => {
            let before = millis(limits.timestamp_before_max);
            let after = millis(limits.timestamp_after_max);
            let what = format!(
                "its timestamp is too far from now; widen the topic's \
                 message.timestamp.before.max.ms{before} or message.timestamp.after.max.ms{after}"
            );
            (Kind::Refused, what)
        }
        Code::TOPIC_AUTHORIZATION_FAILED | Code::CLUSTER_AUTHORIZATION_FAILED => {
            let what = "the user lacks the permission WRITE; grant it on the topic".to_owned();
            (Kind::Target, what)
        }
        code => {
            let words = told
                .record_errors
                .first()
                .and_then(|error| error.message.clone());
            let words = words.or_else(|| told.message.clone());
            let words = words.map_or(String::new(), |words| format!(" ({words})"));
            let what = match code {
                Code::INVALID_RECORD => {
                    "the record is not accepted by the topic (a compacted topic takes no record without \
                     key); give it a key, or change cleanup.policy"
                        .to_owned()
                }
                other => other.to_string(),
            };
            (Kind::Refused, format!("{what}{words}"))
        }
    };
    Fault::new(
        kind,
        format!(
            "target topic {topic} partition {partition} refuses source offset {offset}: {what}"
        ),
    )
}

#[cfg(test)]
#[path = "outlet_tests.rs"]
pub(super) mod tests;
