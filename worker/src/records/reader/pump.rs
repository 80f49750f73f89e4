//! The reader's thread.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, mpsc},
    time::Duration,
};

use kreplicator_model::ids::Offset;
use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{BorrowedMessage, Message as _},
};
use tokio::time::Instant;

use super::{
    Command, News, backlog::Room, client::Events, nudge::Nudger, opening::Opening, parts::Parts,
};
use crate::fault::{Fault, Kind};
use crate::records::lane::{Lane, LaneNumber, Taken};

/// Longest wait for a record; commands wait as long.
const POLL_IDLE: Duration = Duration::from_millis(50);
/// The same while records are held back: their lanes may be ready any moment.
const POLL_HELD_BACK: Duration = Duration::from_millis(5);
/// How often lanes that wait for memory of others are asked again.
const SCAN_INTERVAL: Duration = Duration::from_millis(20);
/// Records handed on before commands are looked at again.
const BURST_RECORDS: usize = 1_000;

/// The reader's thread: its consumer and the partitions that it has open.
pub(super) struct Pump {
    consumer: Arc<BaseConsumer<Events>>,
    commands: mpsc::Receiver<Command>,
    news: Arc<News>,
    open: HashMap<String, HashMap<i32, Opening>>,
    places: HashMap<LaneNumber, (String, i32)>,
    /// Lanes whose records are held back.
    held_back: BTreeSet<LaneNumber>,
    woken: Vec<LaneNumber>,
    scanned_at: Instant,
    /// Statistics came, and the queue has not been seen empty since.
    to_pass: bool,
    /// Partitions that this consumer had open before.
    known: HashSet<(String, i32)>,
    room: Room,
    nudger: Nudger,
}

/// What is to be done between two polls, when everything that was said is put together.
#[derive(Default)]
struct Orders {
    /// Done first: a lane that is opened again is closed before.
    closes: BTreeSet<LaneNumber>,
    opens: BTreeMap<LaneNumber, (Arc<Lane>, Offset, u64)>,
}

impl Orders {
    fn open(&mut self, lane: Arc<Lane>, at: Offset, opening: u64) {
        self.closes.insert(lane.number);
        self.opens.insert(lane.number, (lane, at, opening));
    }

    fn close(&mut self, lane: LaneNumber) {
        self.opens.remove(&lane);
        self.closes.insert(lane);
    }
}

impl Pump {
    pub(super) fn new(
        consumer: Arc<BaseConsumer<Events>>,
        commands: mpsc::Receiver<Command>,
        news: Arc<News>,
        nudger: Nudger,
        backlog_bytes_max: u64,
    ) -> Self {
        Self {
            consumer,
            commands,
            news,
            open: HashMap::new(),
            places: HashMap::new(),
            held_back: BTreeSet::new(),
            woken: Vec::new(),
            scanned_at: Instant::now(),
            to_pass: false,
            known: HashSet::new(),
            room: Room::new(backlog_bytes_max),
            nudger,
        }
    }

    /// Runs until the reader is dropped.
    pub(super) fn run(&mut self) {
        while self.obey() {
            self.try_held_back();
            self.poll();
        }
    }

    /// Carries out all commands that have come; false: the end.
    fn obey(&mut self) -> bool {
        let mut orders = Orders::default();
        loop {
            match self.commands.try_recv() {
                Ok(Command::Open { lane, at, opening }) => orders.open(lane, at, opening),
                Ok(Command::Close(lane)) => orders.close(lane),
                Ok(Command::Wake(lane)) => self.woken.push(lane),
                Ok(Command::End) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Err(mpsc::TryRecvError::Empty) => break,
            }
        }
        // All in one call each: each call costs the library a copy of everything assigned.
        self.close(&orders.closes);
        self.open(orders.opens);
        true
    }

    fn close(&mut self, lanes: &BTreeSet<LaneNumber>) {
        let mut closed = TopicPartitionList::new();
        let mut paused = TopicPartitionList::new();
        for lane in lanes {
            let Some(((topic, partition), was_paused)) = self.forget(*lane) else {
                continue;
            };
            if was_paused {
                paused.add_partition(&topic, partition);
            }
            closed.add_partition(&topic, partition);
        }
        if paused.count() > 0 {
            // The library would remember the pause over the next opening.
            self.complain_about(self.consumer.resume(&paused));
        }
        if closed.count() == 0 || self.consumer.incremental_unassign(&closed).is_ok() {
            return;
        }
        // One that is not assigned makes the library refuse all.
        for element in closed.elements() {
            let list = one(element.topic(), element.partition());
            self.complain_about(self.consumer.incremental_unassign(&list));
        }
    }

    fn open(&mut self, opens: BTreeMap<LaneNumber, (Arc<Lane>, Offset, u64)>) {
        let mut list = TopicPartitionList::with_capacity(opens.len());
        for (number, (lane, at, opening)) in opens {
            let place = (lane.spec.id.topic.to_string(), lane.spec.id.partition.0);
            let offset = rdkafka::Offset::Offset(at.0);
            if let Err(fault) = list.add_partition_offset(&place.0, place.1, offset) {
                lane.reader_failed(opening, unopened(&fault));
                continue;
            }
            let is_first = self.known.insert(place.clone());
            let opening = Opening::new(lane, at, opening, is_first);
            self.places.insert(number, place.clone());
            self.open
                .entry(place.0)
                .or_default()
                .insert(place.1, opening);
        }
        if list.count() == 0 || self.consumer.incremental_assign(&list).is_ok() {
            self.nudger.nudge(&list);
            return;
        }
        // One that cannot be assigned makes the library refuse all.
        for element in list.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let mut single = TopicPartitionList::with_capacity(1);
            let added = single.add_partition_offset(topic, partition, element.offset());
            let assigned = added.and_then(|()| self.consumer.incremental_assign(&single));
            if let Err(fault) = assigned
                && let Some(opening) = self.opening_mut(topic, partition)
            {
                let lane = Arc::clone(&opening.lane);
                lane.reader_failed(opening.number, unopened(&fault));
                self.forget(lane.number);
            }
        }
    }

    /// Takes a lane's partition off the books; tells its place and whether it was paused.
    fn forget(&mut self, lane: LaneNumber) -> Option<((String, i32), bool)> {
        let place = self.places.remove(&lane)?;
        self.held_back.remove(&lane);
        let mut was_paused = false;
        if let Some(partitions) = self.open.get_mut(&place.0) {
            // Another lane may have the partition by now.
            if let Some(opening) = partitions.get_mut(&place.1)
                && opening.lane.number == lane
            {
                was_paused = opening.backlog.is_paused();
                opening.backlog.clear(&mut self.room);
                partitions.remove(&place.1);
            }
            if partitions.is_empty() {
                self.open.remove(&place.0);
            }
        }
        Some((place, was_paused))
    }

    fn poll(&mut self) {
        let consumer = Arc::clone(&self.consumer);
        let mut wait = if self.held_back.is_empty() {
            POLL_IDLE
        } else {
            POLL_HELD_BACK
        };
        for _ in 0..BURST_RECORDS {
            let served_before = consumer.context().served();
            let polled = consumer.poll(wait);
            if let Some(next) = consumer.context().take_statistics() {
                self.note_statistics(&next);
            }
            match polled {
                Some(Ok(message)) => {
                    consumer.context().recovered();
                    self.hand_on(&message);
                }
                Some(Err(fault)) => self.consumer_error(&fault),
                None => {
                    // The library looks into the queue whatever the time it is given.
                    let was_empty = consumer.context().served() == served_before;
                    if was_empty && std::mem::take(&mut self.to_pass) {
                        self.pass_over();
                    }
                    return;
                }
            }
            wait = Duration::ZERO;
        }
    }

    fn hand_on(&mut self, message: &BorrowedMessage<'_>) {
        let (topic, partition) = (message.topic(), message.partition());
        let Some(opening) = self
            .open
            .get_mut(topic)
            .and_then(|partitions| partitions.get_mut(&partition))
        else {
            return;
        };
        if opening.is_halted_before(Offset(message.offset())) {
            return;
        }
        if opening.backlog.is_empty() {
            let parts = Parts::of_borrowed(message);
            match parts.hand_to(&opening.lane, opening.number, &mut opening.scale) {
                Taken::Sent => return opening.evidence.record(),
                Taken::Dropped => return,
                Taken::Full => {}
            }
        }
        let pause = opening.backlog.push(message.detach(), &mut self.room);
        self.held_back.insert(opening.lane.number);
        if pause {
            let paused = self.consumer.pause(&one(topic, partition));
            self.complain_about(paused);
        }
    }

    /// Hands on what was held back, where lanes are ready, and lets them read on.
    fn try_held_back(&mut self) {
        if self.held_back.is_empty() {
            self.woken.clear();
            return;
        }
        let lanes: Vec<LaneNumber> = if self.scanned_at.elapsed() >= SCAN_INTERVAL {
            self.scanned_at = Instant::now();
            self.woken.clear();
            self.held_back.iter().copied().collect()
        } else {
            self.woken.drain(..).collect()
        };
        let mut resumed = TopicPartitionList::new();
        for lane in lanes {
            if self.drain(lane)
                && let Some((topic, partition)) = self.places.get(&lane)
            {
                resumed.add_partition(topic, *partition);
            }
        }
        if resumed.count() > 0 {
            let result = self.consumer.resume(&resumed);
            self.complain_about(result);
            self.nudger.nudge(&resumed);
        }
    }

    /// Hands on what a lane can take now; true: its partition is to be resumed.
    fn drain(&mut self, lane: LaneNumber) -> bool {
        let opening = self
            .places
            .get(&lane)
            .and_then(|(topic, partition)| self.open.get_mut(topic)?.get_mut(partition));
        let Some(opening) = opening else {
            self.held_back.remove(&lane);
            return false;
        };
        if !opening.lane.is_ready() {
            return false;
        }
        while let Some(message) = opening.backlog.first() {
            let parts = Parts::of(message);
            let taken = parts.hand_to(&opening.lane, opening.number, &mut opening.scale);
            if taken == Taken::Full {
                break;
            }
            opening.backlog.pop(&mut self.room);
        }
        if opening.backlog.is_empty() {
            opening.lane.went_on();
            self.held_back.remove(&lane);
            opening.tell_fault();
        }
        let resume = opening.backlog.resume();
        if resume {
            opening.evidence.resumed();
        }
        resume
    }

    fn note_statistics(&mut self, next: &HashMap<(String, i32), Offset>) {
        self.to_pass = true;
        let mut key = (String::new(), 0);
        for (topic, partitions) in &mut self.open {
            key.0.clone_from(topic);
            for (partition, opening) in partitions {
                key.1 = *partition;
                opening.evidence.statistics(next.get(&key).copied());
            }
        }
    }

    /// The queue is empty: whatever the fetcher has passed was handed on, or was nothing to copy.
    fn pass_over(&mut self) {
        for opening in self.open.values_mut().flat_map(HashMap::values_mut) {
            if let Some(passed) = opening.evidence.passed() {
                let passed = opening.damage.passed(passed);
                opening.lane.pass_over(opening.number, passed);
            }
        }
    }

    fn consumer_error(&mut self, fault: &KafkaError) {
        for at in self.consumer.context().take_damaged() {
            let mut open = self.open.values().flat_map(HashMap::values);
            let is_placed = open.any(|opening| opening.damage.is_at(at));
            let open = self.open.values_mut().flat_map(HashMap::values_mut);
            open.for_each(|opening| opening.damage_found(at, is_placed));
        }
        let code = fault.rdkafka_error_code().unwrap_or(Code::Fail);
        let is_fatal = matches!(fault, KafkaError::MessageConsumptionFatal(_));
        // The reason came by the error callback already.
        if is_fatal {
            self.news.complain(code, "", true);
        }
    }

    /// Calls that fail only when the library is at its end, which shows as a reader that stands still.
    fn complain_about(&self, result: Result<(), KafkaError>) {
        if let Err(fault) = result {
            self.news.complain(Code::Fail, &fault.to_string(), false);
        }
    }

    fn opening_mut(&mut self, topic: &str, partition: i32) -> Option<&mut Opening> {
        self.open.get_mut(topic)?.get_mut(&partition)
    }
}

fn one(topic: &str, partition: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, partition);
    list
}

fn unopened(fault: &KafkaError) -> Fault {
    Fault::new(
        Kind::Source,
        format!("the source partition cannot be opened: {fault}"),
    )
}
