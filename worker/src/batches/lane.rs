//! One task on the data path: what the fetcher hands in, what the outlet reports back, and the machine
//! between them.
//!
//! Everything here is quick and happens under the lane's lock, called by whoever has news; nothing
//! waits. What takes time (asking the target, finding a leader, writing a line) is told to the
//! task's life as an [`Event`].
//!
//! ```text
//!  fetcher ─► intake ─► line of ready batches ─► sender (at most five) ─► outlet ─► answer
//!     ▲                                                                            │
//!     └────────────── room: the task's share of the byte budget ◄──────────────────┘
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use kreplicator_batch::{Producer as WireProducer, patch};
use kreplicator_model::{
    exact::{self, Answer, BatchId, Checkpoint, DeliveryMode, Now, ReadFrom, Sender, Stop},
    ids::{Offset, UnixMillis},
    spec,
};
use kreplicator_wire::{
    fetch::Fetched,
    topic::{TopicId, TopicPartition},
};
use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use super::{
    fetcher::{FetcherHandle, Occupied},
    intake::{self, Doubt, Intake, Path, Ready, Taken},
    metrics::BatchMetrics,
    outlet::{Item, OutletHandle},
};
use crate::{
    board::{Board, Numbers, Promise},
    budget::{Budget, Grant, Share},
    clock::WallClock,
    engine::{Delivery, PathSeen, Status, TaskSpec},
    fault::{Fault, Kind},
    fence::OwnershipFence,
    flow_metrics::LinkMetrics,
};

/// Bytes of records asked for a partition at a time, to begin with.
const FETCH_BYTES_MIN: i32 = 1 << 20;
/// The most, reached by doubling while answers are full: a long way needs large answers.
const FETCH_BYTES_MAX: i32 = 8 << 20;
/// Batches in line before tiny ones are joined: below, latency counts more.
const JOIN_FROM: usize = 8;
/// Batches in line are no more than this; an answer is taken whole.
const LINE_MAX: usize = 64;
/// What a fetcher told last counts for so long after its broker's last answer: an answer leaves out what
/// has not changed.
const HEARD_MAX: Duration = Duration::from_secs(3);
/// Latency is sampled at most so often for a lane.
const LATENCY_INTERVAL: Duration = Duration::from_millis(100);

/// What a lane tells its task's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Ask the target for our state and its end.
    AskTarget,
    /// Read the target's batch headers from here.
    ReadTail(Offset),
    /// Read the source from here.
    Read(Offset),
    /// The counting ends here.
    NewLine { from: ReadFrom, why: exact::Reason },
    /// The sender has ended.
    Stopped(Stop),
    /// Begin again: the target refuses a record among others.
    Isolate,
    /// The task cannot go on.
    Failed(Fault),
    /// The partition of the source begins after what is to be read, or ends before it.
    OutOfRange,
    /// Find the leader of the target partition.
    FindTarget,
    /// Nothing is outstanding any more; told after [`Lane::drain`].
    Settled,
}

/// What lanes of one link share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) budget: Arc<Budget>,
    pub(super) fence: Arc<dyn OwnershipFence>,
    pub(super) clock: WallClock,
    pub(super) metrics: LinkMetrics,
    pub(super) paths: BatchMetrics,
    /// Start of the monotonic clock that senders are told.
    pub(super) base: Instant,
}

impl Shared {
    pub(super) fn now(&self) -> Now {
        Now {
            mono: self.base.elapsed(),
            wall: self.clock.now(),
        }
    }
}

/// One task on the data path.
#[derive(Debug)]
pub(super) struct Lane {
    /// Unique in its engine; a task that is started anew gets a new one.
    pub(super) number: u64,
    pub(super) spec: TaskSpec,
    pub(super) source: TopicPartition,
    pub(super) target: TopicPartition,
    pub(super) board: Board,
    pub(super) shared: Shared,
    events: mpsc::UnboundedSender<Event>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flow: Option<Flow>,
    /// Number of the flow; what belongs to an earlier one is passed over.
    run: u64,
    checkpoint: Option<Checkpoint>,
    mode: Option<DeliveryMode>,
    path: Option<Path>,
    /// Why records may have come twice since the task started here.
    broken: Option<exact::Reason>,
    /// What the target has refused, until it is delivered.
    doubt: Option<Doubt>,
    log_start: Option<Offset>,
    log_end: Option<Offset>,
    moved_at: UnixMillis,
    latency_sampled_at: Option<Instant>,
    /// Trouble of source and target is shown.
    troubles: [bool; 2],
    records: u64,
    bytes: u64,
    gap_records: u64,
    gap_counted_to: Option<Offset>,
}

/// What exists between a start and a stop or fault.
#[derive(Debug)]
struct Flow {
    sender: Sender,
    producer: exact::Producer,
    intake: Intake,
    /// Batches that wait for the sender, with the bytes of the share that they hold.
    line: VecDeque<(Ready, u64)>,
    /// Batches that may have to be sent again.
    held: VecDeque<Held>,
    /// An answer that there was no room for; its memory belongs to the fetcher.
    backlog: Option<(Fetched, Occupied)>,
    /// Bytes of an answer that there was no room for anywhere: it is fetched again once there is.
    starved: Option<u64>,
    share: Share,
    fetcher: Option<FetcherHandle>,
    outlet: Option<OutletHandle>,
    target_topic_id: Option<TopicId>,
    /// Number of the way to the target; what belongs to an earlier one is passed over.
    way: u64,
    /// Sends that wait for an outlet.
    unsent: VecDeque<(BatchId, u32)>,
    /// Handed to the outlet on this way and not answered: the outlet is not changed while there are any.
    at_outlet: usize,
    /// The way is being looked for.
    is_finding: bool,
    /// The target could not take a batch just now: nothing is sent until time has passed.
    is_resting: bool,
    fetch_bytes: i32,
    draining: bool,
    failed: bool,
    /// Stops the task once everything before it is delivered.
    fault_ahead: Option<Fault>,
}

#[derive(Debug)]
struct Held {
    id: BatchId,
    from: Offset,
    to: Offset,
    first: Offset,
    parts: [Bytes; 2],
    bytes: u64,
    records: u32,
    timestamp_max: UnixMillis,
    path: Path,
}

/// What a flow begins with.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) sender: Sender,
    pub(super) producer: exact::Producer,
    pub(super) read_from: Offset,
    pub(super) skip_records: u64,
    pub(super) target_topic_id: Option<TopicId>,
}

/// Which cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

/// What the fetcher does next about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    Read {
        offset: Offset,
        leader_epoch: Option<i32>,
        bytes_max: i32,
    },
    /// Read nothing until it is told to.
    Pause,
    /// The lane is not interested any more.
    Gone,
}

impl Lane {
    pub(super) fn new(
        number: u64,
        spec: TaskSpec,
        shared: Shared,
        events: mpsc::UnboundedSender<Event>,
    ) -> Arc<Self> {
        let now = shared.clock.now();
        let partition = spec.id.partition;
        Arc::new(Self {
            number,
            source: TopicPartition::new(spec.id.topic.clone(), partition),
            target: TopicPartition::new(spec.target_topic.clone(), partition),
            board: Board::new(now),
            events,
            state: Mutex::new(State {
                flow: None,
                run: 0,
                checkpoint: None,
                mode: None,
                path: None,
                broken: None,
                doubt: None,
                log_start: None,
                log_end: None,
                moved_at: now,
                latency_sampled_at: None,
                troubles: [false; 2],
                records: 0,
                bytes: 0,
                gap_records: 0,
                gap_counted_to: None,
            }),
            spec,
            shared,
        })
    }

    /// Begins to flow.
    pub(super) fn open(&self, opening: Opening) {
        let mut state = self.lock();
        state.run += 1;
        state.checkpoint = Some(opening.sender.checkpoint());
        state.mode = Some(opening.sender.mode());
        let doubt = state.doubt;
        state.flow = Some(Flow {
            sender: opening.sender,
            producer: opening.producer,
            intake: Intake::new(
                opening.read_from,
                opening.skip_records,
                self.spec.limits,
                doubt,
            ),
            line: VecDeque::new(),
            held: VecDeque::new(),
            backlog: None,
            starved: None,
            share: self.shared.budget.share(),
            fetcher: None,
            outlet: None,
            way: 0,
            target_topic_id: opening.target_topic_id,
            unsent: VecDeque::new(),
            at_outlet: 0,
            is_finding: false,
            is_resting: false,
            fetch_bytes: FETCH_BYTES_MIN,
            draining: false,
            failed: false,
            fault_ahead: None,
        });
    }

    /// Stops to flow: what is outstanding is forgotten. Gives the number of records that may still
    /// arrive.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.lock();
        state.run += 1;
        let Some(flow) = state.flow.take() else {
            return 0;
        };
        if let Some(fetcher) = &flow.fetcher {
            fetcher.stop(&self.source);
        }
        flow.held.iter().map(|held| u64::from(held.records)).sum()
    }

    /// Reads nothing more and sends only what the sender holds. True: nothing is outstanding; else
    /// [`Event::Settled`] comes.
    pub(super) fn drain(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        let Some(flow) = state.flow.as_mut() else {
            return true;
        };
        flow.draining = true;
        if let Some(fetcher) = flow.fetcher.take() {
            fetcher.stop(&self.source);
        }
        flow.backlog = None;
        flow.fault_ahead = None;
        flow.clear_line();
        if flow.at_outlet == 0 {
            // What the life was asked for may have given way to the stop.
            flow.lose_way();
            self.pump(&mut state);
        }
        let flow = state.flow.as_ref();
        flow.is_none_or(|flow| flow.sender.oldest().is_none())
    }

    /// Where the source is to be read from; None: not at all.
    pub(super) fn reading_at(&self) -> Option<Next> {
        let state = self.lock();
        let flow = state.flow.as_ref().filter(|flow| flow.wants_more())?;
        Some(flow.next())
    }

    /// The fetcher that reads for the lane; told to go on when there is room.
    pub(super) fn set_fetcher(&self, fetcher: FetcherHandle) {
        if let Some(flow) = self.lock().flow.as_mut()
            && let Some(before) = flow.fetcher.replace(fetcher.clone())
            && !before.is_same(&fetcher)
        {
            before.stop(&self.source);
        }
    }

    /// The way to the target partition's leader.
    pub(super) fn set_outlet(self: &Arc<Self>, outlet: OutletHandle) {
        let mut state = self.lock();
        let run = state.run;
        if let Some(flow) = state.flow.as_mut().filter(|flow| flow.outlet.is_none()) {
            flow.outlet = Some(outlet);
            flow.way += 1;
            flow.is_finding = false;
            while let Some((id, attempt)) = flow.unsent.pop_front() {
                self.send(run, flow, id, attempt);
            }
            if flow.sender.oldest().is_none() {
                // No answer will come that would end it.
                self.trouble_locked(&mut state, Side::Target, None);
            }
        }
        self.pump(&mut state);
    }

    /// News from the source, and the room that they take.
    pub(super) fn fetched(self: &Arc<Self>, fetched: Fetched, occupied: Occupied) -> Next {
        let mut state = self.lock();
        state.log_start = fetched.log_start.or(state.log_start);
        state.log_end = fetched.last_stable_offset.or(state.log_end);
        self.trouble_locked(&mut state, Side::Source, None);
        let Some(flow) = state.flow.as_mut() else {
            return Next::Gone;
        };
        if flow.draining || flow.failed {
            return Next::Gone;
        }
        if fetched.offset != flow.intake.position() || flow.backlog.is_some() {
            return flow.next();
        }
        flow.adapt(fetched.records.len());
        flow.backlog = Some((fetched, occupied));
        self.take_backlog(&mut state);
        self.pump(&mut state);
        let Some(flow) = state.flow.as_mut() else {
            return Next::Gone;
        };
        if flow.draining || flow.failed {
            return Next::Gone;
        }
        flow.next()
    }

    /// Shows trouble that is being overcome, or its end.
    pub(super) fn trouble(&self, side: Side, cause: Option<&str>) {
        self.trouble_locked(&mut self.lock(), side, cause);
    }

    fn trouble_locked(&self, state: &mut State, side: Side, cause: Option<&str>) {
        let before = state.troubles;
        state.troubles[side as usize] = cause.is_some();
        if cause.is_some() || (before.contains(&true) && !state.troubles.contains(&true)) {
            self.board.trouble(cause, self.shared.clock.now());
        }
    }

    /// The source partition's reader met trouble that stops this task.
    pub(super) fn fail(&self, fault: Fault) {
        self.fail_locked(&mut self.lock(), fault);
    }

    /// The source has no record at the position.
    pub(super) fn out_of_range(&self) {
        self.tell(Event::OutOfRange);
    }

    /// Source offsets `[from, to)` are gone and will never be copied. What was counted before is not
    /// counted again.
    pub(super) fn count_gap(&self, from: Offset, to: Offset) {
        let mut state = self.lock();
        let from = from.max(state.gap_counted_to.unwrap_or(from));
        if from >= to {
            return;
        }
        let gap_records = to.0.abs_diff(from.0);
        state.gap_counted_to = Some(to);
        state.gap_records += gap_records;
        self.shared.metrics.gap_records.increment(gap_records);
        warn!(task = %self.spec.id, %from, %to, gap_records,
            "source offsets were deleted before they were copied");
    }

    /// The log's range as asked for beside the reading.
    pub(super) fn measured(&self, start: Offset, end: Offset) {
        let mut state = self.lock();
        state.log_start = Some(start);
        state.log_end = Some(end);
    }

    /// The log's range cannot be asked for.
    pub(super) fn unmeasured(&self) {
        let mut state = self.lock();
        state.log_start = None;
        state.log_end = None;
    }

    /// What is told of the task.
    pub(super) fn status(&self) -> Status {
        let numbers = self.numbers();
        let log = self.log();
        self.board.measured(log, &numbers, self.shared.clock.now());
        let (mode, path) = {
            let state = self.lock();
            (state.mode, state.path)
        };
        let promise = Promise {
            engine: spec::Engine::Batches,
            delivery: mode.map(Delivery::from),
            path: path.map(|path| match path {
                Path::Passed => PathSeen::Passed,
                Path::Rewritten(why) => PathSeen::Rewritten(why.label()),
            }),
        };
        self.board.status(&numbers, promise)
    }

    /// The log's range as it was told last.
    pub(super) fn log(&self) -> Option<(Offset, Offset)> {
        let state = self.lock();
        state.log_start.zip(state.log_end)
    }

    /// The target has answered a batch.
    pub(super) fn answered(
        self: &Arc<Self>,
        run: u64,
        way: u64,
        (id, attempt): (BatchId, u32),
        answer: Answer,
        leader_is_other: bool,
    ) {
        let now = self.shared.now();
        let mut state = self.lock();
        if state.run != run {
            return;
        }
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.way == way {
            flow.at_outlet = flow.at_outlet.saturating_sub(1);
            if leader_is_other {
                // Looked for when there is something to send: by then nothing is at the old one.
                flow.outlet = None;
            } else {
                flow.is_resting |= matches!(answer, Answer::Refused | Answer::Unsure);
            }
        }
        flow.sender.answered(id, attempt, answer, now);
        if matches!(answer, Answer::Acked { .. }) {
            self.trouble_locked(&mut state, Side::Target, None);
        }
        self.pump(&mut state);
    }

    /// The target refuses a batch for good: `index` of the record that it names, `fault` for one at a
    /// source offset. Unless it is alone, what is before it is delivered first.
    pub(super) fn refused(
        &self,
        run: u64,
        id: BatchId,
        index: Option<usize>,
        fault: impl FnOnce(Offset) -> Fault,
    ) {
        let mut state = self.lock();
        if state.run != run {
            return;
        }
        let Some(flow) = state.flow.as_mut().filter(|flow| !flow.failed) else {
            return;
        };
        let Some(held) = flow.held.iter().find(|held| held.id == id) else {
            return;
        };
        if held.records == 1 {
            let fault = fault(held.first);
            return self.fail_locked(&mut state, fault);
        }
        // Only in a batch that was passed on does the index tell the source offset.
        let index = index.filter(|_| held.path == Path::Passed);
        let index = index.and_then(|index| i64::try_from(index).ok());
        let doubt = Doubt {
            from: held.first,
            to: held.to,
            refused: index.map(|index| Offset(held.first.0 + index)),
        };
        flow.failed = true;
        state.doubt = Some(doubt);
        self.tell(Event::Isolate);
    }

    /// The connection to the target is gone with all that was on it.
    pub(super) fn connection_lost(self: &Arc<Self>, run: u64, way: u64) {
        let mut state = self.lock();
        if state.run != run {
            return;
        }
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        // Each request that was out tells it; one is enough.
        if flow.way != way || flow.at_outlet == 0 {
            return;
        }
        flow.lose_way();
        self.pump(&mut state);
    }

    /// The target has answered the question for our state.
    pub(super) fn target_seen(self: &Arc<Self>, view: &exact::TargetView) {
        let now = self.shared.now();
        let mut state = self.lock();
        if let Some(flow) = state.flow.as_mut() {
            flow.sender.target_seen(view, now);
        }
        self.pump(&mut state);
    }

    /// Time has passed.
    pub(super) fn tick(self: &Arc<Self>) {
        let mut state = self.lock();
        if let Some(flow) = state.flow.as_mut() {
            flow.is_resting = false;
            self.pump(&mut state);
        }
    }

    /// The producer of the line and the place up to which it is counted.
    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        self.lock().checkpoint
    }

    /// Why records may have come twice since the task started here.
    pub(super) fn broken_promise(&self) -> Option<exact::Reason> {
        self.lock().broken
    }

    /// Records may come twice from now on, or have.
    pub(super) fn break_promise(&self, why: exact::Reason) {
        self.lock().broken.get_or_insert(why);
    }

    /// Whether it is read by a fetcher now.
    pub(super) fn is_read(&self) -> bool {
        let state = self.lock();
        let flow = state.flow.as_ref();
        flow.is_some_and(|flow| flow.backlog.is_none() && flow.is_heard())
    }

    /// Next offset to be read.
    pub(super) fn position(&self) -> Option<Offset> {
        let state = self.lock();
        state.flow.as_ref().map(|flow| flow.intake.position())
    }

    pub(super) fn numbers(&self) -> Numbers {
        let state = self.lock();
        let held = state.flow.iter().flat_map(|flow| &flow.held);
        Numbers {
            checkpoint: state.checkpoint.map(|checkpoint| checkpoint.place.offset),
            in_flight: held.map(|held| u64::from(held.records)).sum(),
            moved_at: state.moved_at,
            records: state.records,
            bytes: state.bytes,
            gap_records: state.gap_records,
        }
    }

    /// Turns the backlog into ready batches as far as there is memory.
    fn take_backlog(&self, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.line.len() >= LINE_MAX {
            return;
        }
        let Some((fetched, occupied)) = flow.backlog.take() else {
            return;
        };
        let bytes = fetched.records.len() as u64;
        match flow.share.take(bytes) {
            Grant::Granted => {}
            Grant::NotNow => {
                // Those that wait long must not use up what others read with (C036).
                let may_wait = flow.fetcher.as_ref().is_none_or(FetcherHandle::has_room);
                if may_wait {
                    flow.backlog = Some((fetched, occupied));
                } else {
                    flow.starved = Some(bytes);
                }
                return;
            }
            Grant::Never => {
                let limit = self.shared.budget.limit_bytes();
                let position = flow.intake.position();
                let fault = Fault::new(
                    Kind::Memory,
                    format!(
                        "the batch at source offset {position} has some {bytes} bytes, more than the \
                         memory budget of this worker ({limit} bytes) can hold for one task; raise it"
                    ),
                );
                return self.fail_locked(state, fault);
            }
        }
        let aborted =
            fetched
                .aborted
                .iter()
                .map(|aborted| kreplicator_batch::aborted::AbortedTransaction {
                    producer_id: aborted.producer_id,
                    first_offset: aborted.first_offset.0,
                });
        let mut taken = Taken::default();
        let outcome = flow
            .intake
            .take(fetched.records, aborted.collect(), &mut taken);
        self.shared.paths.dropped(taken.dropped);
        if let Some(needed) = taken.bytes_needed {
            let needed = i32::try_from(needed).unwrap_or(i32::MAX);
            flow.fetch_bytes = flow.fetch_bytes.max(needed);
        }
        flow.enqueue(taken.ready, bytes);
        flow.pass();
        flow.fault_ahead = outcome.err();
    }

    /// Does whatever can be done now.
    fn pump(self: &Arc<Self>, state: &mut State) {
        let run = state.run;
        loop {
            let now = self.shared.now();
            let Some(flow) = state.flow.as_mut() else {
                return;
            };
            if flow.failed {
                return;
            }
            if !self.may_send(flow) {
                break;
            }
            if let Err(fault) = flow.push_ready(&self.spec, now) {
                return self.fail_locked(state, fault);
            }
            // Old records weaken what is promised.
            if !self.may_send(flow) {
                break;
            }
            match flow.sender.poll(now) {
                Some(exact::Action::Send { id, attempt }) => self.send(run, flow, id, attempt),
                Some(exact::Action::AskTarget) => self.tell(Event::AskTarget),
                Some(exact::Action::ReadTail { from }) => self.tell(Event::ReadTail(from)),
                Some(exact::Action::Reread { from }) => {
                    if let Some(fetcher) = flow.fetcher.take() {
                        fetcher.stop(&self.source);
                    }
                    flow.reread(from, &self.spec, state.doubt);
                    self.tell(Event::Read(from.offset));
                }
                Some(exact::Action::NewLine { from, why, .. }) => {
                    flow.failed = true;
                    self.tell(Event::NewLine { from, why });
                }
                Some(exact::Action::Stop(stop)) => {
                    flow.failed = true;
                    self.tell(Event::Stopped(stop));
                }
                None => break,
            }
        }
        self.settle(state);
    }

    /// Whether anything may be sent now. Behind a shut fence the supervisor stops the task.
    fn may_send(&self, flow: &Flow) -> bool {
        let is_owner = flow.sender.mode().runs_without_lease() || self.shared.fence.is_open();
        is_owner && !flow.is_resting
    }

    fn send(self: &Arc<Self>, run: u64, flow: &mut Flow, id: BatchId, attempt: u32) {
        let Some(outlet) = &flow.outlet else {
            flow.unsent.push_back((id, attempt));
            return;
        };
        let Some(held) = flow.held.iter().find(|held| held.id == id) else {
            debug_assert!(false, "a batch that is not held is to be sent");
            return;
        };
        let item = Item {
            lane: Arc::clone(self),
            run,
            way: flow.way,
            id,
            attempt,
            topic_id: flow.target_topic_id,
            parts: held.parts.clone(),
        };
        if outlet.send(item) {
            flow.at_outlet += 1;
            return;
        }
        // It has ended with all that it had.
        flow.lose_way();
    }

    /// Lets go of what was acknowledged and reads on where there is room again.
    fn settle(self: &Arc<Self>, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.wants_way() {
            flow.is_finding = true;
            self.tell(Event::FindTarget);
        }
        let oldest = flow.sender.oldest();
        let mut newest = None;
        while let Some(held) = flow.held.front()
            && oldest.is_none_or(|oldest| held.id < oldest)
        {
            flow.share.give(held.bytes);
            state.records += u64::from(held.records);
            state.bytes += held.bytes;
            self.shared.metrics.records.increment(held.records.into());
            self.shared.metrics.bytes.increment(held.bytes);
            self.shared.paths.sent(held.path);
            state.path = Some(held.path);
            newest = Some(held.timestamp_max);
            flow.held.pop_front();
        }
        let checkpoint = flow.sender.checkpoint();
        if state
            .doubt
            .is_some_and(|doubt| checkpoint.place.offset >= doubt.to)
        {
            state.doubt = None;
        }
        state.mode = Some(flow.sender.mode());
        if state.checkpoint != Some(checkpoint) {
            state.checkpoint = Some(checkpoint);
            state.moved_at = self.shared.clock.now();
        }
        if let Some(timestamp) = newest {
            self.sample_latency(state, timestamp);
        }
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.line.is_empty()
            && flow.sender.oldest().is_none()
            && let Some(fault) = flow.fault_ahead.take()
        {
            return self.fail_locked(state, fault);
        }
        if flow.draining {
            if flow.sender.oldest().is_none() {
                self.tell(Event::Settled);
            }
            return;
        }
        if let Some(bytes) = flow.starved
            && flow.share.take(bytes) == Grant::Granted
        {
            flow.share.give(bytes);
            flow.starved = None;
            if let Some(fetcher) = &flow.fetcher {
                fetcher.resume(self);
            }
        }
        if flow.backlog.is_some() {
            self.take_backlog(state);
            let Some(flow) = state.flow.as_mut() else {
                return;
            };
            if flow.backlog.is_none() && !flow.failed {
                if let Some(fetcher) = &flow.fetcher {
                    fetcher.resume(self);
                }
                self.pump(state);
            }
        }
    }

    fn sample_latency(&self, state: &mut State, timestamp: UnixMillis) {
        let now = Instant::now();
        let is_due = state
            .latency_sampled_at
            .is_none_or(|at| now - at >= LATENCY_INTERVAL);
        if is_due && timestamp.0 > 0 {
            state.latency_sampled_at = Some(now);
            let millis = (self.shared.clock.now().0 - timestamp.0).max(0);
            let latency = Duration::from_millis(millis.unsigned_abs());
            self.shared.metrics.latency.record(latency.as_secs_f64());
        }
    }

    fn fail_locked(&self, state: &mut State, fault: Fault) {
        if let Some(flow) = state.flow.as_mut()
            && !flow.failed
        {
            flow.failed = true;
            self.tell(Event::Failed(fault));
        }
    }

    /// The life is gone only when the engine is.
    fn tell(&self, event: Event) {
        drop(self.events.send(event));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    fn wants_more(&self) -> bool {
        let is_stopped = self.draining || self.failed || self.fault_ahead.is_some();
        !is_stopped && self.backlog.is_none() && self.starved.is_none()
    }

    fn next(&self) -> Next {
        if !self.wants_more() {
            return Next::Pause;
        }
        Next::Read {
            offset: self.intake.position(),
            leader_epoch: self.intake.leader_epoch(),
            bytes_max: self.fetch_bytes,
        }
    }

    /// Whether the way to the target is to be looked for.
    fn wants_way(&self) -> bool {
        let is_free = self.outlet.is_none() && self.at_outlet == 0;
        is_free && !self.is_finding && !self.unsent.is_empty()
    }

    /// The way to the target is gone with all that was on it.
    fn lose_way(&mut self) {
        self.outlet = None;
        self.is_finding = false;
        self.at_outlet = 0;
        self.unsent.clear();
        self.sender.connection_lost();
    }

    /// Whether the broker that it is read from has answered lately.
    fn is_heard(&self) -> bool {
        let heard = self.fetcher.as_ref().and_then(FetcherHandle::heard);
        heard.is_some_and(|heard| heard.elapsed() < HEARD_MAX)
    }

    /// Asks for more when answers are full, and for less when they are far from it.
    fn adapt(&mut self, bytes: usize) {
        let asked = usize::try_from(self.fetch_bytes).unwrap_or(0);
        if bytes + bytes / 8 >= asked {
            self.fetch_bytes = self.fetch_bytes.saturating_mul(2).min(FETCH_BYTES_MAX);
        } else if bytes < asked / 8 {
            self.fetch_bytes = (self.fetch_bytes / 2).max(FETCH_BYTES_MIN);
        }
    }

    /// Puts batches in line. `bytes` of the share are theirs, in proportion to their sizes.
    fn enqueue(&mut self, ready: Vec<Ready>, bytes: u64) {
        let mut left = bytes;
        let count = ready.len();
        for (index, ready) in ready.into_iter().enumerate() {
            let size = ready.batch.size_bytes() as u64;
            let part = if index + 1 == count {
                left
            } else {
                size.min(left)
            };
            left -= part;
            self.line.push_back((ready, part));
        }
        if count == 0 {
            self.share.give(left);
        }
    }

    /// Accounts for what the intake has passed without a record.
    fn pass(&mut self) {
        let position = self.intake.position();
        match self.line.back_mut() {
            Some((last, _)) => last.to = last.to.max(position),
            None => self.sender.passed(position),
        }
    }

    fn push_ready(&mut self, spec: &TaskSpec, now: Now) -> Result<(), Fault> {
        while self.sender.has_room() && !self.line.is_empty() {
            if self.line.len() >= JOIN_FROM {
                self.join_tiny(spec);
            }
            let Some((ready, bytes)) = self.line.pop_front() else {
                return Ok(());
            };
            let from = self.sender.position();
            let batch = exact::Batch {
                from,
                to: ready.to,
                records: ready.records,
                timestamp_max: ready.timestamp_max,
            };
            let assigned = self.sender.push(batch, now).map_err(|error| {
                Fault::new(
                    Kind::Source,
                    format!("batches do not follow each other: {error}"),
                )
            })?;
            let producer = WireProducer {
                id: self.producer.id.0,
                epoch: self.producer.epoch.0,
                base_sequence: assigned.sequence.number(),
            };
            let patched = patch::patch(&ready.batch, 0, producer)
                .map_err(|error| Fault::new(Kind::Source, error.to_string()))?;
            self.held.push_back(Held {
                id: assigned.id,
                from,
                to: ready.to,
                first: ready.first,
                parts: [Bytes::copy_from_slice(&patched.header), patched.payload],
                bytes,
                records: ready.records,
                timestamp_max: ready.timestamp_max,
                path: ready.path,
            });
        }
        // What a drain has cleared away was not passed.
        if self.line.is_empty() && self.backlog.is_none() && !self.draining {
            self.pass();
        }
        Ok(())
    }

    fn join_tiny(&mut self, spec: &TaskSpec) {
        // What the target has refused once is not hidden among others again.
        let intake = &self.intake;
        let waiting = self.line.iter().map(|(ready, _)| ready);
        let waiting = waiting.take_while(|ready| !intake.doubts(ready));
        let Some((joined, count)) = intake::join_tiny(waiting, &spec.limits) else {
            return;
        };
        let bytes = self.line.drain(..count).map(|(_, bytes)| bytes).sum();
        self.line.push_front((joined, bytes));
    }

    fn clear_line(&mut self) {
        let bytes = self.line.drain(..).map(|(_, bytes)| bytes).sum();
        self.share.give(bytes);
    }

    /// Goes back, or forward, to another place of the source. What the sender still holds stays.
    fn reread(&mut self, from: ReadFrom, spec: &TaskSpec, doubt: Option<Doubt>) {
        self.clear_line();
        self.backlog = None;
        self.starved = None;
        self.fault_ahead = None;
        while self
            .held
            .back()
            .is_some_and(|held| held.from >= from.offset)
            && let Some(held) = self.held.pop_back()
        {
            self.share.give(held.bytes);
        }
        self.intake = Intake::new(from.offset, from.skip_records, spec.limits, doubt);
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
