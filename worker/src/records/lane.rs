//! One task on the data path: what the reader's thread hands in, what the sink's thread reports back,
//! and the books in between.
//!
//! A lane decides whether the next record may go on (its share of memory, its topic's limits, the
//! fence) and keeps the checkpoint. It is locked for moments only and nothing under its lock waits.

mod receipts;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use kreplicator_model::{
    checkpoint::{AckTracker, Gaps},
    ids::{Offset, UnixMillis},
};
use tokio::{sync::mpsc, time::Instant};

use super::{doubt::Doubts, judge::Start, reader::Waker};
use crate::{
    board::{self, Board},
    budget::{Budget, Grant, Share},
    clock::WallClock,
    engine::TaskSpec,
    fault::{Fault, Kind},
    fence::OwnershipFence,
    flow_metrics::{LatencySamples, LinkMetrics},
    sink::{Offer, Outlet, Receipts, Record, Sink},
};

/// Memory that a record costs besides its payload: the library's own structures, roughly.
const RECORD_OVERHEAD_BYTES: u64 = 128;

/// Number of a lane, unique in its engine; a task that is started anew gets a new one.
pub(super) type LaneNumber = u64;

/// What a lane tells the link's driver. At most one of each is under way for a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LaneEvent {
    /// The lane cannot go on.
    Failed(Fault),
    /// Nothing is outstanding any more; sent once after [`Lane::watch_settled`].
    Settled,
    /// The fence is closed.
    Fenced,
}

/// What became of a record that the reader handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It went on.
    Sent,
    /// Hold it and read no more of this partition until the lane is ready.
    Full,
    /// It is not wanted: delivered before, or the lane is closed to this reader.
    Dropped,
}

/// What lanes of one link share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) budget: Arc<Budget>,
    pub(super) fence: Arc<dyn OwnershipFence>,
    pub(super) clock: WallClock,
    pub(super) metrics: LinkMetrics,
    pub(super) events: mpsc::UnboundedSender<(LaneNumber, LaneEvent)>,
}

/// One task on the data path.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: LaneNumber,
    pub(super) spec: TaskSpec,
    pub(super) board: Board,
    doubts: Doubts,
    shared: Shared,
    /// Set right after the lane is made: the outlet needs the lane for its receipts.
    outlet: OnceLock<Arc<dyn Outlet>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None until the first start is found.
    tracker: Option<AckTracker>,
    share: Share,
    /// The reader's opening that may hand in records.
    opening: Option<u64>,
    waker: Option<Waker>,
    /// The reader holds records back until the lane is ready.
    held_back: bool,
    woken: bool,
    /// Where the reader's opening may have met a damaged batch.
    damaged_at: Option<Offset>,
    /// Ready again once no more than this is held.
    ready_at_bytes: u64,
    /// A doubtful record is out alone.
    alone: bool,
    in_flight: u64,
    failed: bool,
    /// Receipts that were on their way count no more.
    given_up: bool,
    watch_settled: bool,
    /// When the target last answered, or was given something after it had answered everything.
    answered_at: Instant,
    latency: LatencySamples,
    moved_at: UnixMillis,
    records: u64,
    bytes: u64,
    gaps: Gaps,
}

/// Numbers of a lane at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) checkpoint: Option<Offset>,
    pub(super) position: Option<Offset>,
    /// Where the reader may have met a damaged batch.
    pub(super) damaged_at: Option<Offset>,
    /// The reader is open and free to go on.
    pub(super) free: bool,
    pub(super) in_flight: u64,
    /// How long the target has not answered while something is outstanding.
    pub(super) unanswered_for: Duration,
    pub(super) moved_at: UnixMillis,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) gap_records: u64,
}

impl Numbers {
    /// Those that a status shows.
    pub(super) fn shown(&self) -> board::Numbers {
        board::Numbers {
            checkpoint: self.checkpoint,
            in_flight: self.in_flight,
            moved_at: self.moved_at,
            records: self.records,
            bytes: self.bytes,
            gap_records: self.gap_records,
        }
    }
}

impl Lane {
    pub(super) fn new(number: LaneNumber, spec: TaskSpec, shared: Shared) -> Arc<Self> {
        let now = shared.clock.now();
        Arc::new(Self {
            number,
            doubts: Doubts::new(spec.limits),
            board: Board::new(now),
            outlet: OnceLock::new(),
            state: Mutex::new(State {
                tracker: None,
                share: shared.budget.share(),
                opening: None,
                waker: None,
                held_back: false,
                woken: false,
                damaged_at: None,
                ready_at_bytes: 0,
                alone: false,
                in_flight: 0,
                failed: false,
                given_up: false,
                watch_settled: false,
                answered_at: Instant::now(),
                latency: LatencySamples::default(),
                moved_at: now,
                records: 0,
                bytes: 0,
                gaps: Gaps::default(),
            }),
            spec,
            shared,
        })
    }

    /// Opens the way into the sink; done once, before the first start.
    pub(super) fn attach(self: &Arc<Self>, sink: &dyn Sink) {
        let receipts: Arc<dyn Receipts> = Arc::new(receipts::ToLane(Arc::downgrade(self)));
        self.outlet.get_or_init(|| sink.open(&self.spec, receipts));
    }

    /// The way into the sink; None before [`Lane::attach`].
    pub(super) fn outlet(&self) -> Option<Arc<dyn Outlet>> {
        self.outlet.get().map(Arc::clone)
    }

    /// Everything below the start is done; the checkpoint came with a count of `gaps`.
    pub(super) fn begin(&self, start: Start, gaps: u64) {
        let Start { from, at } = start;
        let mut state = self.lock();
        state.tracker = Some(AckTracker::new(at));
        state.gaps.resume(from, gaps);
        self.count_gap(&mut state, from, at);
    }

    /// The count of gaps that goes with a checkpoint.
    pub(super) fn gaps_at(&self, offset: Offset) -> u64 {
        self.lock().gaps.at(offset)
    }

    /// Gives up what is not acknowledged and tells where to read again; None before
    /// [`Lane::begin`]. Nothing may be in flight.
    pub(super) fn rewind(&self) -> Option<Offset> {
        let mut state = self.lock();
        assert_eq!(state.in_flight, 0, "rewound with records in flight");
        let checkpoint = state.tracker.as_mut()?.rewind();
        state.failed = false;
        state.alone = false;
        let held = state.share.held_bytes();
        assert_eq!(held, 0, "memory held for nothing");
        Some(checkpoint)
    }

    /// The sink has given up what was outstanding, and no receipt will come.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        let held = state.share.held_bytes();
        state.share.give(held);
        state.in_flight = 0;
        state.failed = true;
        state.given_up = true;
    }

    /// Lets the reader's `opening` hand in records from the position on, and no other.
    pub(super) fn open(&self, opening: u64, waker: Waker) {
        let mut state = self.lock();
        state.opening = Some(opening);
        state.waker = Some(waker);
        state.held_back = false;
        state.woken = false;
        state.damaged_at = None;
    }

    /// Takes no record any more. What is outstanding goes on.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.opening = None;
        state.waker = None;
        state.held_back = false;
    }

    /// Source offsets from the position to `end` are gone and will never be copied. Gives their
    /// number, 0 when the position is there already.
    pub(super) fn skip_gap(&self, end: Offset) -> u64 {
        let mut state = self.lock();
        let Some(tracker) = state.tracker.as_mut() else {
            return 0;
        };
        let position = tracker.position();
        if end <= position {
            return 0;
        }
        tracker
            .skipped(position..end)
            .expect("the range starts at the position");
        self.count_gap(&mut state, position, end);
        self.note_progress(&mut state);
        end.0.abs_diff(position.0)
    }

    /// The reader has passed everything below `end` and handed on whatever it found.
    pub(super) fn pass_over(&self, opening: u64, end: Offset) {
        let mut state = self.lock();
        if state.opening != Some(opening) || state.failed || state.held_back {
            return;
        }
        let Some(tracker) = state.tracker.as_mut() else {
            return;
        };
        let position = tracker.position();
        if end > position {
            tracker
                .skipped(position..end)
                .expect("the range starts at the position");
            self.note_progress(&mut state);
        }
    }

    /// A record from the reader.
    pub(super) fn take(&self, opening: u64, record: &Record<'_>) -> Taken {
        let mut state = self.lock();
        if state.opening != Some(opening) || state.failed {
            return Taken::Dropped;
        }
        let Some(tracker) = state.tracker.as_ref() else {
            return Taken::Dropped;
        };
        if record.offset < tracker.position() {
            return Taken::Dropped;
        }
        if !self.shared.fence.is_open() {
            state.opening = None;
            self.tell(LaneEvent::Fenced);
            return Taken::Dropped;
        }
        let outlet = self.outlet.get().expect("attached before it is opened");
        let doubtful = self.doubts.about(record, self.shared.clock.now());
        let bytes = record.payload_bytes + RECORD_OVERHEAD_BYTES;
        if state.alone || (doubtful && state.in_flight > 0) {
            return hold_back(&mut state, 0);
        }
        let held = state.share.held_bytes();
        if state.in_flight > 0 && !self.doubts.fits_beside(held, bytes) {
            return hold_back(&mut state, held / 2);
        }
        match state.share.take(bytes) {
            Grant::Granted => {}
            Grant::NotNow => return hold_back(&mut state, held / 2),
            Grant::Never => {
                let limit = self.shared.budget.limit_bytes();
                let fault = Fault::new(
                    Kind::Memory,
                    format!(
                        "source offset {} has {} bytes, more than the memory budget of this worker \
                         ({limit} bytes) can hold beside its readers; raise it",
                        record.offset, record.payload_bytes
                    ),
                );
                self.fail(&mut state, fault);
                return Taken::Dropped;
            }
        }
        match outlet.offer(record) {
            Offer::Accepted => {
                let tracker = state.tracker.as_mut().expect("looked at above");
                tracker
                    .sent(record.offset, bytes)
                    .expect("not below the position");
                if state.in_flight == 0 {
                    state.answered_at = Instant::now();
                }
                state.in_flight += 1;
                state.alone = doubtful;
                Taken::Sent
            }
            Offer::Full => {
                state.share.give(bytes);
                hold_back(&mut state, held / 2)
            }
            Offer::Refused(fault) => {
                state.share.give(bytes);
                self.fail(&mut state, fault);
                Taken::Dropped
            }
        }
    }

    /// The reader cannot open the partition.
    pub(super) fn reader_failed(&self, opening: u64, fault: Fault) {
        let mut state = self.lock();
        if state.opening == Some(opening) {
            self.fail(&mut state, fault);
        }
    }

    /// The batch that the reader's opening is to read next, from `at` on, may be damaged.
    pub(super) fn damaged(&self, opening: u64, at: Offset) {
        let mut state = self.lock();
        if state.opening == Some(opening) {
            state.damaged_at = Some(at);
        }
    }

    /// Whether the reader may go on; asked by a reader that holds records back.
    pub(super) fn is_ready(&self) -> bool {
        is_ready(&self.lock())
    }

    /// The reader holds nothing back any more.
    pub(super) fn went_on(&self) {
        let mut state = self.lock();
        state.held_back = false;
        state.woken = false;
    }

    /// Asks for one [`LaneEvent::Settled`]; true when nothing is outstanding right now, and then no
    /// event comes.
    pub(super) fn watch_settled(&self) -> bool {
        let mut state = self.lock();
        state.watch_settled = state.in_flight > 0;
        !state.watch_settled
    }

    pub(super) fn checkpoint(&self) -> Option<Offset> {
        self.lock().tracker.as_ref().map(AckTracker::checkpoint)
    }

    pub(super) fn position(&self) -> Option<Offset> {
        self.lock().tracker.as_ref().map(AckTracker::position)
    }

    /// The numbers of this moment, which fit to each other.
    pub(super) fn numbers(&self) -> Numbers {
        let state = self.lock();
        let unanswered_for = if state.in_flight > 0 {
            state.answered_at.elapsed()
        } else {
            Duration::ZERO
        };
        Numbers {
            checkpoint: state.tracker.as_ref().map(AckTracker::checkpoint),
            position: state.tracker.as_ref().map(AckTracker::position),
            damaged_at: state.damaged_at,
            free: state.opening.is_some() && !state.held_back && !state.failed,
            in_flight: state.in_flight,
            unanswered_for,
            moved_at: state.moved_at,
            records: state.records,
            bytes: state.bytes,
            gap_records: state.gaps.total(),
        }
    }

    fn fail(&self, state: &mut State, fault: Fault) {
        if !state.failed {
            state.failed = true;
            self.tell(LaneEvent::Failed(fault));
        }
    }

    fn count_gap(&self, state: &mut State, from: Offset, to: Offset) {
        let gap_records = state.gaps.find(from, to);
        self.shared.metrics.gap_records.increment(gap_records);
    }

    fn note_progress(&self, state: &mut State) {
        state.moved_at = self.shared.clock.now();
    }

    /// The driver is gone only when the engine is closing; nobody needs to know then.
    fn tell(&self, event: LaneEvent) {
        drop(self.shared.events.send((self.number, event)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hold_back(state: &mut State, ready_at_bytes: u64) -> Taken {
    state.held_back = true;
    state.woken = false;
    state.ready_at_bytes = ready_at_bytes;
    Taken::Full
}

/// Half of what was held when it was full has come back: going on for less would pause and resume,
/// and fetch again, for every record.
fn is_ready(state: &State) -> bool {
    let is_alone = state.alone && state.in_flight > 0;
    state.failed || (!is_alone && state.share.held_bytes() <= state.ready_at_bytes)
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
