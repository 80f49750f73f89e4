//! Sends batches to one broker of a target, so that a partition that is acknowledged late holds up no other.
//!
//! Each request holds one batch for each of as many partitions as have one waiting. A broker takes up
//! the next request of a connection when it has answered the one before. It answers when all partitions
//! of a request are acknowledged, or when the time is over that the request gives to replicas, and then it says
//! which were not. So one partition whose replicas do not keep up holds up all that share its
//! connection. Therefore that time is short, and who was not acknowledged in it goes by a second
//! connection until it is well again:
//!
//! - *Main*, for all others. Some requests are under way at a time, since the way to the broker may be
//!   long. Where a partition that is found slow is in further ones of them, the connection is given
//!   up, or all would wait for that partition again: what is not answered is sent again, as after any
//!   loss.
//! - *Apart*, for the slow. One request is under way at a time, and it ends within the same time: they
//!   hold up each other only so long.
//!
//! Batches of a partition go out in the order they came, and are on one connection at a time: nothing of
//! a partition stays on the main one when it is found slow, and the last that went apart was answered
//! when it is well again. Which partitions are slow is in [`standing`].
//!
//! # Source
//! `DelayedProduce` and `SocketServer` (core, 2.1.1 to 4.1): at the time-out each partition that still
//! waits is answered with `REQUEST_TIMED_OUT`, the others with what became of them; a connection is not
//! read while a request of it is unanswered.

mod answers;
mod pipe;
mod queue;
mod standing;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use kreplicator_model::exact::BatchId;
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    code::Code,
    error::Error,
    produce::{self, PartitionAnswer},
    topic::{BrokerId, TopicId, TopicPartition},
};
use tokio::{sync::mpsc, time::Instant};
use tracing::{debug, info};

use self::{
    pipe::{Destination, End, News, Pipe, PipeId, Teller},
    queue::Queue,
    standing::{Change, Pace, Standing},
};
use super::lane::{Lane, Side};

/// Connections of one outlet.
const CONNECTIONS_MAX: usize = 2;
const MAIN: usize = 0;
const APART: usize = 1;

/// Requests under way on the main connection. As many as a partition may have batches in flight.
const REQUESTS_MAX: usize = 5;

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

/// How long a broker may wait for its replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Where it usually answers at once.
    pub(super) least: Duration,
    /// However long it usually takes.
    pub(super) most: Duration,
}

/// Sends to one broker.
pub(super) struct Outlet {
    client: ClusterClient,
    broker: BrokerId,
    /// Number of the main connection; the other follows.
    number: u32,
    /// Longest answer of the broker to be expected.
    patience_max: Duration,
    items: mpsc::UnboundedReceiver<Item>,
    /// No more items come.
    is_closed: bool,
    /// Batches for the main connection.
    waiting: Queue,
    /// Batches of slow partitions.
    apart: Queue,
    standing: Standing,
    pace: Pace,
    pipes: [Option<Pipe>; CONNECTIONS_MAX],
    pipes_made: u64,
    carriers: FuturesUnordered<BoxFuture<'static, End>>,
    teller: Teller,
    news: mpsc::UnboundedReceiver<(PipeId, News)>,
}

impl Outlet {
    /// An outlet and the way to it. It ends when all handles are gone. `number` tells the outlet's connections
    /// from those of other links.
    pub(super) fn new(
        client: ClusterClient,
        broker: BrokerId,
        number: u32,
        patience: Patience,
    ) -> (Self, OutletHandle) {
        let (sender, items) = mpsc::unbounded_channel();
        let (teller, news) = mpsc::unbounded_channel();
        let outlet = Self {
            client,
            broker,
            number: number.wrapping_mul(CONNECTIONS_MAX as u32),
            patience_max: patience.most,
            items,
            is_closed: false,
            waiting: Queue::default(),
            apart: Queue::default(),
            standing: Standing::default(),
            pace: Pace::new(patience.least, patience.most),
            pipes: Default::default(),
            pipes_made: 0,
            carriers: FuturesUnordered::new(),
            teller,
            news,
        };
        (outlet, OutletHandle { items: sender })
    }

    /// Sends until nobody can want anything any more.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(item) = self.items.try_recv() {
                self.accept(item);
            }
            while let Ok((id, news)) = self.news.try_recv() {
                self.hear(id, news);
            }
            self.fill();
            if self.is_closed && self.is_done() {
                return;
            }
            tokio::select! {
                biased;
                Some((id, news)) = self.news.recv() => self.hear(id, news),
                Some(end) = self.carriers.next(), if !self.carriers.is_empty() => self.ended(&end),
                item = self.items.recv(), if !self.is_closed => match item {
                    Some(item) => self.accept(item),
                    None => self.is_closed = true,
                },
            }
        }
    }

    fn is_done(&self) -> bool {
        let is_idle = self.pipes.iter().flatten().all(Pipe::is_idle);
        is_idle && self.waiting.is_empty() && self.apart.is_empty()
    }

    fn accept(&mut self, item: Item) {
        if self.standing.is_slow(&item.lane.target) {
            self.apart.push(item);
        } else {
            self.waiting.push(item);
        }
    }

    /// Sends whatever may be sent now.
    fn fill(&mut self) {
        let patience = self.pace.patience();
        while self.has_room(MAIN, REQUESTS_MAX)
            && let Some((items, request)) = self.waiting.gather(patience)
        {
            self.pipe(MAIN).send(items, request);
        }
        if self.has_room(APART, 1)
            && let Some((items, request)) = self.apart.gather(patience)
        {
            self.pipe(APART).send(items, request);
        }
    }

    fn has_room(&self, place: usize, requests_max: usize) -> bool {
        let pipe = self.pipes[place].as_ref();
        pipe.is_none_or(|pipe| pipe.has_room(requests_max))
    }

    fn pipe(&mut self, place: usize) -> &mut Pipe {
        self.pipes[place].get_or_insert_with(|| {
            self.pipes_made += 1;
            let id = PipeId {
                place,
                number: self.pipes_made,
            };
            let to = Destination {
                client: self.client.clone(),
                broker: self.broker,
                purpose: Purpose::Produce(self.number.wrapping_add(place as u32)),
                patience: self.patience_max,
            };
            let (pipe, carrier) = Pipe::new(to, id, self.teller.clone());
            self.carriers.push(carrier);
            pipe
        })
    }

    /// The pipe, unless another has taken its place.
    fn current(&mut self, id: PipeId) -> Option<&mut Pipe> {
        let pipe = self.pipes[id.place].as_mut();
        pipe.filter(|pipe| pipe.id == id)
    }

    fn hear(&mut self, id: PipeId, news: News) {
        let now = Instant::now();
        let Some(pipe) = self.current(id) else {
            return;
        };
        match news {
            News::Written => pipe.note_written(now),
            News::Answered(answer) => {
                let (items, took) = pipe.note_answered(now);
                let mut partitions = answer.partitions.iter();
                if id.place == MAIN && partitions.all(|told| told.code == Code::NONE) {
                    self.pace.acknowledged(took);
                }
                let (slow, well) = self.judge(&items, &answer.partitions, now);
                self.answered(items, answer);
                self.set_apart(&slow);
                self.bring_back(&well);
            }
        }
    }

    /// Which partitions are found slow by an answer, and which to be well again.
    fn judge(
        &mut self,
        items: &[Item],
        answers: &[PartitionAnswer],
        now: Instant,
    ) -> (Partitions, Partitions) {
        let attempts = items.iter().map(|item| (&item.lane.target, item.attempt));
        let attempts: HashMap<_, _> = attempts.collect();
        let (mut slow, mut well) = (Partitions::new(), Partitions::new());
        for told in answers {
            let at = &told.partition;
            let attempt = attempts.get(at).copied().unwrap_or_default();
            match self.standing.answered(at, told.code, attempt, now) {
                Some(Change::Slow) => slow.insert(at.clone()),
                Some(Change::Well) => well.insert(at.clone()),
                None => continue,
            };
        }
        (slow, well)
    }

    /// These do not go by the main connection any more.
    fn set_apart(&mut self, slow: &Partitions) {
        if slow.is_empty() {
            return;
        }
        info!(
            broker = self.broker.0,
            partitions = slow.len(),
            first = %slow.first().map_or_else(String::new, ToString::to_string),
            "replicas of target partitions do not keep up; these are sent apart from others"
        );
        let main = self.pipes[MAIN].as_ref();
        if main.is_some_and(|pipe| pipe.partitions().any(|at| slow.contains(at)))
            && let Some(pipe) = self.pipes[MAIN].take()
        {
            self.lose(pipe.give_up());
        }
        for item in self.waiting.take_of(|at| slow.contains(at)) {
            self.apart.push(item);
        }
    }

    /// These go by the main connection from now on.
    fn bring_back(&mut self, well: &Partitions) {
        if well.is_empty() {
            return;
        }
        info!(
            broker = self.broker.0,
            partitions = well.len(),
            first = %well.first().map_or_else(String::new, ToString::to_string),
            "replicas of target partitions keep up again"
        );
        for item in self.apart.take_of(|at| well.contains(at)) {
            self.waiting.push(item);
        }
    }

    /// A connection has ended by itself, or could not be opened.
    fn ended(&mut self, end: &End) {
        // What it told before comes first.
        while let Ok((id, news)) = self.news.try_recv() {
            self.hear(id, news);
        }
        if self.current(end.id).is_none() {
            return;
        }
        let (Some(pipe), Some(fault)) = (self.pipes[end.id.place].take(), &end.fault) else {
            return;
        };
        let items = pipe.give_up();
        match (end.was_open, end.id.place) {
            (true, _) => self.lost(items, fault),
            (false, MAIN) => self.unreachable(items, fault),
            (false, _) => {
                // A broker that takes no second connection is better served by one than not at all.
                let slow: Partitions = items.iter().map(|item| item.lane.target.clone()).collect();
                slow.iter().for_each(|at| self.standing.excuse(at));
                self.bring_back(&slow);
                self.lost(items, fault);
            }
        }
    }

    fn answered(&mut self, items: Vec<Item>, answer: produce::Answer) {
        let nodes = answer.nodes;
        let mut answers: HashMap<TopicPartition, PartitionAnswer> = answer
            .partitions
            .into_iter()
            .map(|one| (one.partition.clone(), one))
            .collect();
        for item in items {
            match answers.remove(&item.lane.target) {
                Some(told) => answers::tell(&self.client, &item, &told, &nodes),
                None => self.lose(vec![item]),
            }
        }
    }

    /// There is no connection: nothing that waits for it can be sent.
    fn unreachable(&mut self, items: Vec<Item>, fault: &Error) {
        let waiting = self.waiting.take_all();
        self.lost(items.into_iter().chain(waiting).collect(), fault);
    }

    /// The connection that these were on is gone.
    fn lost(&mut self, items: Vec<Item>, fault: &Error) {
        debug!(broker = self.broker.0, %fault, "cannot produce");
        let mut troubled = HashSet::new();
        for item in &items {
            self.client.mark_stale(&item.lane.target.topic);
            if troubled.insert(item.by_way()) {
                item.lane.trouble(Side::Target, Some(&fault.to_string()));
            }
        }
        self.lose(items);
    }

    /// Nobody will know the answers to these. What waits behind them by the same way goes with them; what came by
    /// a newer one is sent.
    fn lose(&mut self, items: Vec<Item>) {
        let mut told = HashSet::new();
        for item in items {
            if told.insert(item.by_way()) {
                item.lane.connection_lost(item.run, item.way);
            }
        }
        // From here on nothing comes by these ways, but something may have come meanwhile.
        while let Ok(item) = self.items.try_recv() {
            self.accept(item);
        }
        self.waiting.retain(|item| !told.contains(&item.by_way()));
        self.apart.retain(|item| !told.contains(&item.by_way()));
    }
}

/// The lane's way that a batch came by.
type ByWay = (*const Lane, u64, u64);
type Partitions = BTreeSet<TopicPartition>;

impl Item {
    /// The lane's way that it came by.
    fn by_way(&self) -> ByWay {
        (Arc::as_ptr(&self.lane), self.run, self.way)
    }
}

#[cfg(test)]
#[path = "outlet_tests.rs"]
pub(super) mod tests;
