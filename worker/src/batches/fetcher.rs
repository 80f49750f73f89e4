//! Reads the partitions of one link from one broker, in one fetch session.
//!
//! A partition whose lane has no room leaves the session until the lane calls it back, so that it can hold
//! up nobody else; the answer that there was no room for stays with the lane, and the next answers are
//! asked for smaller by as much.

mod busy;
mod handle;
mod pace;
mod room;

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use kreplicator_model::backoff::Backoff;
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    code::{Class, Code},
    error::Error,
    fetch::{Answer, Fetched, Position, Session, Settings},
    topic::{BrokerId, TopicPartition},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::debug;

use self::{
    busy::Busy,
    handle::Order,
    room::{ROOM_MIN, Room},
};
pub(super) use self::{
    handle::{FetcherHandle, Place},
    room::Occupied,
};
use super::{
    ends,
    lane::{Lane, Next, Side},
};
use crate::{
    budget::FetcherPart,
    fault::{Fault, Kind},
};

/// How long the broker may wait for news while every lane reads.
const WAIT_QUIET: Duration = Duration::from_millis(500);
/// The same while some lane may want to be called back any moment.
const WAIT_BUSY: Duration = Duration::from_millis(50);
/// The same shortly after a partition was added, since more may follow.
const WAIT_GROWING: Duration = Duration::from_millis(100);
/// How long a partition counts as new.
const GROWING: Duration = Duration::from_secs(2);
/// Over the broker's own wait.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// A fetcher without lanes ends after this time: they move for a moment more often than for good.
const IDLE_MAX: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// How long a question may go unanswered before its partitions are looked for elsewhere.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads from one broker.
pub(super) struct Fetcher {
    client: ClusterClient,
    broker: BrokerId,
    purpose: Purpose,
    orders: mpsc::UnboundedReceiver<Order>,
    room: Arc<Room>,
    heard: Arc<std::sync::Mutex<Option<Instant>>>,
    /// Where lanes go whose partition is led by another broker.
    homeless: mpsc::WeakUnboundedSender<Arc<Lane>>,
    session: Session,
    settings: Settings,
    lanes: HashMap<TopicPartition, Reading>,
    paused: usize,
    busy: Busy,
    grown_at: Instant,
    /// The broker is not asked before.
    ask_at: Instant,
    failures: u32,
    /// Trouble of lanes is over with the next answer, which says nothing of those without news.
    clears_trouble: bool,
}

struct Reading {
    lane: Arc<Lane>,
    place: Place,
    is_paused: bool,
}

impl Fetcher {
    /// A fetcher of a broker, on a connection of its own, and the way to it. It ends when all handles are
    /// gone, or when it has had no lane for a while.
    pub(super) fn new(
        client: ClusterClient,
        broker: BrokerId,
        purpose: Purpose,
        rack: Option<String>,
        part: FetcherPart,
        homeless: mpsc::WeakUnboundedSender<Arc<Lane>>,
    ) -> (Self, FetcherHandle) {
        let (sender, orders) = mpsc::unbounded_channel();
        let room = Room::new(part);
        let heard = Arc::default();
        let handle = FetcherHandle {
            orders: sender,
            room: Arc::downgrade(&room),
            heard: Arc::clone(&heard),
        };
        let settings = Settings {
            rack,
            ..Settings::default()
        };
        let fetcher = Self {
            client,
            broker,
            purpose,
            orders,
            room,
            heard,
            homeless,
            session: Session::new(settings.clone()),
            settings,
            lanes: HashMap::new(),
            paused: 0,
            busy: Busy::new(Instant::now()),
            grown_at: Instant::now(),
            ask_at: Instant::now(),
            failures: 0,
            clears_trouble: false,
        };
        (fetcher, handle)
    }

    /// Reads until nobody can want anything any more.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order);
            }
            if self.session.is_empty() {
                match self.next_order().await {
                    Some(order) => self.obey(order),
                    None => return,
                }
                continue;
            }
            if self.orders.is_closed() && self.orders.is_empty() {
                return;
            }
            if self.rests().await {
                continue;
            }
            let Some(room) = self.room.for_an_answer() else {
                // Lanes that free memory also call back, so a lost wake-up costs no more than this.
                drop(timeout(WAIT_BUSY, self.room.freed.notified()).await);
                continue;
            };
            let asked_at = Instant::now();
            match self.fetch(room).await {
                Ok(answer) => {
                    self.failures = 0;
                    self.note_heard();
                    self.take(answer, asked_at);
                    if std::mem::take(&mut self.clears_trouble) {
                        for reading in self.lanes.values() {
                            reading.lane.source_answers();
                        }
                    }
                }
                Err(fault) => {
                    self.trouble(&fault, asked_at.elapsed());
                    self.pause(asked_at).await;
                }
            }
        }
    }

    /// Waits for the next order or until the broker may be asked again; false: it may.
    async fn rests(&mut self) -> bool {
        if Instant::now() >= self.ask_at {
            return false;
        }
        if let Ok(Some(order)) = timeout_at(self.ask_at, self.orders.recv()).await {
            self.obey(order);
        }
        true
    }

    /// What is to be done while nothing is read; None: it is over. What came meanwhile is looked for
    /// elsewhere.
    async fn next_order(&mut self) -> Option<Order> {
        if !self.lanes.is_empty() {
            return self.orders.recv().await;
        }
        if let Ok(order) = timeout(IDLE_MAX, self.orders.recv()).await {
            return order;
        }
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Read(lane, _) | Order::Resume(lane) => self.send_away(lane),
                Order::Stop(_) => {}
            }
        }
        None
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Read(lane, place) => {
                let at = lane.source.clone();
                self.grown_at = Instant::now();
                self.clears_trouble = true;
                self.forget(&at);
                let reading = Reading {
                    lane,
                    place,
                    is_paused: true,
                };
                self.paused += 1;
                self.lanes.insert(at.clone(), reading);
                self.go_on(&at);
            }
            Order::Resume(lane) => {
                let is_current = self
                    .lanes
                    .get(&lane.source)
                    .is_some_and(|reading| Arc::ptr_eq(&reading.lane, &lane));
                if is_current {
                    self.go_on(&lane.source);
                } else {
                    // It was sent away while it had no room, when nobody could take it.
                    self.send_away(lane);
                }
            }
            Order::Stop(at) => self.forget(&at),
        }
    }

    /// Reads a partition on from where its lane wants.
    fn go_on(&mut self, at: &TopicPartition) {
        let Some(reading) = self.lanes.get(at) else {
            return;
        };
        // One that was closed since is not kept: nobody would ever stop it.
        self.follow(at, reading.lane.reading_at());
    }

    fn follow(&mut self, at: &TopicPartition, next: Next) {
        let Some(reading) = self.lanes.get_mut(at) else {
            return;
        };
        match next {
            Next::Read {
                offset,
                leader_epoch,
                bytes_max,
            } => {
                if std::mem::take(&mut reading.is_paused) {
                    self.paused -= 1;
                }
                let part = self.busy.part(self.room.whole(), ROOM_MIN);
                let bytes_max = bytes_max.min(i32::try_from(part).unwrap_or(i32::MAX));
                let position = Position {
                    offset,
                    leader_epoch: reading.place.leader_epoch,
                    last_fetched_epoch: leader_epoch,
                    bytes_max,
                };
                let topic_id = reading.place.topic_id;
                self.session.update(at.clone(), topic_id, position);
            }
            Next::Pause => {
                if !std::mem::replace(&mut reading.is_paused, true) {
                    self.paused += 1;
                }
                self.session.remove(at);
            }
            Next::Gone => self.forget(at),
        }
    }

    fn forget(&mut self, at: &TopicPartition) {
        if let Some(reading) = self.lanes.remove(at)
            && reading.is_paused
        {
            self.paused -= 1;
        }
        self.session.remove(at);
    }

    async fn fetch(&mut self, room: usize) -> Result<Answer, Error> {
        let wait_max = if self.paused > 0 {
            WAIT_BUSY
        } else if self.grown_at.elapsed() < GROWING {
            WAIT_GROWING
        } else {
            WAIT_QUIET
        };
        let bytes_max = i32::try_from(room).unwrap_or(i32::MAX);
        if (wait_max, bytes_max) != (self.settings.wait_max, self.settings.bytes_max) {
            self.settings.wait_max = wait_max;
            self.settings.bytes_max = bytes_max;
            self.session.set_settings(self.settings.clone());
        }
        let deadline = Instant::now() + ANSWER_TIME + wait_max;
        let connection = self
            .client
            .connection(self.broker, self.purpose, deadline)
            .await?;
        let version = connection.version::<kreplicator_wire::fetch::Request>()?;
        let request = self.session.next_request(version);
        let response = connection.send(request, deadline).await;
        match response {
            Ok(response) => self.session.apply(response),
            Err(fault) => {
                self.session.lost();
                Err(fault)
            }
        }
    }

    /// Hands an answer out, and sees how soon the next may be asked for.
    fn take(&mut self, answer: Answer, asked_at: Instant) {
        let partitions = self.session.len();
        let bytes = answer.partitions.iter().map(|one| one.records.len()).sum();
        let is_full = |one: &Fetched| {
            let position = self.session.position(&one.partition);
            position.is_some_and(|asked| pace::may_have_more(one.records.len(), asked.bytes_max))
        };
        let may_have_more = pace::may_have_more(bytes, self.settings.bytes_max)
            || answer.partitions.iter().any(is_full);
        self.hand_out(answer, bytes);
        self.ask_at = pace::ask_again_at(asked_at, partitions, bytes, may_have_more);
    }

    fn hand_out(&mut self, answer: Answer, whole: usize) {
        for mut fetched in answer.partitions {
            let at = fetched.partition.clone();
            let Some(reading) = self.lanes.get(&at) else {
                continue;
            };
            let is_refused = fetched.code != Code::NONE || fetched.diverging.is_some();
            let nearer = fetched.preferred_replica;
            let nearer = nearer.filter(|replica| *replica != self.broker);
            if is_refused {
                self.refused(&at, &fetched, &answer.nodes);
            } else if let Some(replica) = nearer.filter(|_| fetched.records.is_empty()) {
                debug!(partition = %at, replica = replica.0, "a replica is nearer");
                let lane = Arc::clone(&reading.lane);
                lane.nearer(replica, Instant::now());
                self.forget(&at);
                self.send_away(lane);
            } else {
                if !fetched.records.is_empty() {
                    self.busy.note(reading.lane.number, Instant::now());
                }
                // A small slice would keep the whole answer in memory for as long as it waits.
                if fetched.records.len() * 2 < whole {
                    fetched.records = Bytes::copy_from_slice(&fetched.records);
                }
                let lane = Arc::clone(&reading.lane);
                let occupied = self.room.occupy(fetched.records.len());
                let next = lane.fetched(fetched, occupied);
                self.follow(&at, next);
            }
        }
    }

    /// The broker gives no records of a partition.
    fn refused(
        &mut self,
        at: &TopicPartition,
        fetched: &Fetched,
        nodes: &[kreplicator_wire::topic::Node],
    ) {
        let Some(reading) = self.lanes.get(at) else {
            return;
        };
        let lane = Arc::clone(&reading.lane);
        let code = fetched.code;
        if reading.place.is_follower {
            // It may lag, or be none any more: only the leader's word counts.
            debug!(partition = %at, broker = self.broker.0, %code, "back to the leader");
            if code.class() == Class::Refresh {
                self.client.mark_stale(&at.topic);
            }
            let cause = match code.fault() {
                Some(code) => format!("source partition {at} at a follower: {code}"),
                None => format!("source partition {at} at a follower lacks what was read"),
            };
            lane.turned_away(&cause, Instant::now());
            self.forget(at);
            self.send_away(lane);
            return;
        }
        if let Some(diverging) = fetched.diverging {
            lane.cut_off(Some(diverging.end));
            self.forget(at);
            return;
        }
        if code == Code::OFFSET_OUT_OF_RANGE {
            lane.out_of_range();
            self.forget(at);
            return;
        }
        let is_told = fetched
            .leader
            .is_some_and(|leader| self.client.note_leader(at, leader, nodes));
        if !is_told {
            self.client.mark_stale(&at.topic);
        }
        let cause = format!("source partition {at} cannot be read: {code}");
        match code.class() {
            Class::Retryable | Class::Refresh => {
                debug!(partition = %at, %code, "source partition is read elsewhere");
                lane.turned_away(&cause, Instant::now());
                self.send_away(lane);
            }
            Class::Terminal | Class::Fenced => lane.fail(Fault::new(Kind::Source, cause)),
        }
        self.forget(at);
    }

    /// The broker cannot be asked, as was seen after `took`: its partitions may be led by another one by
    /// now.
    fn trouble(&mut self, fault: &Error, took: Duration) {
        debug!(broker = self.broker.0, %fault, "cannot fetch");
        let is_vanished = matches!(fault, Error::Silent { .. });
        let is_long = self.failures > 0 || took >= PATIENCE || is_vanished;
        let is_final = fault.class() == Class::Terminal;
        let lanes = self.lanes.values();
        let lanes: Vec<_> = lanes
            .map(|one| (Arc::clone(&one.lane), one.place.is_follower))
            .collect();
        for (lane, is_follower) in lanes {
            self.client.mark_stale(&lane.source.topic);
            if is_follower {
                lane.turned_away(&fault.to_string(), Instant::now());
            } else if is_final {
                lane.fail(ends::fault(Kind::Source, &self.client, fault));
            } else if is_long {
                lane.trouble(Side::Source, Some(&fault.to_string()));
            } else {
                continue;
            }
            self.forget(&lane.source);
            self.send_away(lane);
        }
        self.clears_trouble = true;
    }

    /// Waits before the broker is asked again, longer each time in a row.
    async fn pause(&mut self, asked_at: Instant) {
        let wait = BACKOFF.delay(self.failures, rand::random());
        self.failures += 1;
        sleep(wait.saturating_sub(asked_at.elapsed())).await;
    }

    /// Whoever finds leaders is gone only together with the link.
    fn send_away(&self, lane: Arc<Lane>) {
        if let Some(homeless) = self.homeless.upgrade() {
            drop(homeless.send(lane));
        }
    }

    fn note_heard(&self) {
        let mut heard = self
            .heard
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *heard = Some(Instant::now());
    }
}

#[cfg(test)]
#[path = "fetcher_tests.rs"]
pub(super) mod tests;
