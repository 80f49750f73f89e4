//! One task on the data path: what the fetcher hands in, what the outlet reports back, and the machine
//! between them.
//!
//! Everything here is quick and happens under the lane's lock, called by whoever has news; nothing
//! waits. What takes time is for others: asking the target, finding a leader and writing a line is told to the
//! task's life as an [`Event`], and a batch that has to be opened is a job of the rewriter.
//!
//! ```text
//!             rewriter
//!              ▲   │
//!              │   ▼
//!  fetcher ─► intake ─► line of ready batches ─► sender (at most five) ─► outlet ─► answer
//!     ▲                                                                            │
//!     └────────────── room: the task's share of the byte budget ◄──────────────────┘
//! ```

mod flow;
mod pump;
mod reading;
mod told;
mod unread;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kreplicator_model::{
    checkpoint::Gaps,
    exact::{self, Answer, BatchId, Checkpoint, DeliveryMode, Now, Restart, Sender, Stop},
    ids::{Offset, UnixMillis},
};
use kreplicator_wire::{
    fetch::Fetched,
    topic::{TopicId, TopicPartition},
};
use tokio::time::Instant;

use super::{
    epochs::Mark,
    fetcher::Occupied,
    intake::{Doubt, Path},
    mailbox,
    metrics::BatchMetrics,
    outlet::OutletHandle,
    rewriter::Rewriter,
};
use crate::{
    board::Board,
    budget::Budget,
    clock::WallClock,
    engine::TaskSpec,
    fault::Fault,
    fence::OwnershipFence,
    flow_metrics::{LatencySamples, LinkMetrics},
    news::News,
};
use flow::{Backlog, Flow};

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
    NewLine(Restart),
    /// The sender has ended.
    Stopped(Stop),
    /// Another owner is ahead, and this worker is registered nowhere: the task is left to the other.
    Overtaken,
    /// Begin again: the target refuses a record among others.
    Isolate,
    /// Begin again: the source log was cut where nothing was copied yet.
    Cut,
    /// The task cannot go on.
    Failed(Fault),
    /// The partition of the source begins after what is to be read, or ends before it.
    OutOfRange,
    /// Find the leader of the target partition.
    FindTarget,
    /// Nothing is outstanding any more; told after [`Lane::drain`].
    Settled,
    /// What is outstanding will not be delivered by this owner: the target lacks what is not read again; told
    /// after [`Lane::drain`].
    Unsettled,
}

/// What lanes of one link share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) budget: Arc<Budget>,
    pub(super) fence: Arc<dyn OwnershipFence>,
    pub(super) clock: WallClock,
    pub(super) metrics: LinkMetrics,
    pub(super) paths: BatchMetrics,
    /// Start of the monotonic clock that senders are told.
    pub(super) base: Instant,
    pub(super) news: News,
    pub(super) rewriter: Rewriter,
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
    pub(super) shared: Arc<Shared>,
    events: mailbox::Sender<Event>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flow: Option<Flow>,
    /// Number of the flow; what belongs to an earlier one is passed over.
    run: u64,
    checkpoint: Option<Checkpoint>,
    /// Under which leader of the source the record before the checkpoint was written, and from where on.
    checkpoint_epoch: Option<Mark>,
    mode: Option<DeliveryMode>,
    path: Option<Path>,
    /// Why records may have come twice since the task started here.
    broken: Option<exact::Reason>,
    /// What the target has refused, until it is delivered.
    doubt: Option<Doubt>,
    /// What is read: the topic's id, kept until the checkpoint is reset.
    source_topic: Option<TopicId>,
    /// Where the source log was cut though more was copied; kept until the checkpoint is reset.
    cut: Option<Offset>,
    log_start: Option<Offset>,
    log_end: Option<Offset>,
    moved_at: UnixMillis,
    latency: LatencySamples,
    /// What is wrong on each side while it is being overcome.
    troubles: [Option<String>; 3],
    /// Since when it waits for memory though it holds none.
    hungry_since: Option<Instant>,
    records: u64,
    bytes: u64,
    gaps: Gaps,
    /// The checkpoint that the task went on from last.
    began_from: Option<Offset>,
}

/// What a flow begins with.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) sender: Sender,
    pub(super) producer: exact::Producer,
    pub(super) read_from: Offset,
    pub(super) skip_records: u64,
    /// Epoch of the leader that wrote the record before `read_from`; None: not known.
    pub(super) source_epoch: Option<i32>,
    pub(super) target_topic_id: Option<TopicId>,
    /// No checkpoint of this engine tells of what was copied before: a new task, or one that somebody has
    /// reset.
    pub(super) is_reset: bool,
}

/// What trouble is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
    /// The byte budget of this worker.
    Memory,
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
        shared: Arc<Shared>,
        events: mailbox::Sender<Event>,
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
                checkpoint_epoch: None,
                mode: None,
                path: None,
                broken: None,
                doubt: None,
                source_topic: None,
                cut: None,
                log_start: None,
                log_end: None,
                moved_at: now,
                latency: LatencySamples::default(),
                troubles: [None, None, None],
                hungry_since: None,
                records: 0,
                bytes: 0,
                gaps: Gaps::default(),
                began_from: None,
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
        state.checkpoint_epoch = None;
        state.mode = Some(opening.sender.mode());
        let share = self.shared.budget.share();
        let doubt = state.doubt;
        let cut = state.cut_before(&opening);
        let mut flow = Flow::new(opening, share, &self.spec, doubt);
        let checkpoint = flow.sender.checkpoint().place.offset;
        if checkpoint == flow.intake.position() {
            state.checkpoint_epoch = Some(flow.intake.settle(checkpoint));
        }
        state.flow = Some(flow);
        if let Some(fault) = cut {
            self.fail_locked(&mut state, fault);
        }
    }

    /// Stops to flow: what is outstanding is forgotten. Gives the number of records that may still
    /// arrive, or were there and are lost.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.lock();
        state.run += 1;
        let Some(flow) = state.flow.take() else {
            return 0;
        };
        if let Some(fetcher) = &flow.fetcher {
            fetcher.stop(&self.source);
        }
        let held: u64 = flow.held.iter().map(|held| u64::from(held.records)).sum();
        held + flow.lost_records
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
        flow.forget_unread();
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
        if let Some(flow) = state.flow.as_mut() {
            flow.turned_away = 0;
        }
        let Some(flow) = state.flow.as_mut().filter(|flow| !flow.is_over()) else {
            return Next::Gone;
        };
        if fetched.offset != flow.intake.position() || flow.backlog.is_some() {
            return flow.next();
        }
        flow.adapt(fetched.records.len());
        flow.backlog = Some(Backlog::new(fetched, occupied));
        self.take_backlog(&mut state);
        self.pump(&mut state);
        state.flow.as_ref().map_or(Next::Gone, Flow::next)
    }

    /// The source partition's reader met trouble that stops this task.
    pub(super) fn fail(&self, fault: Fault) {
        self.fail_locked(&mut self.lock(), fault);
    }

    /// The target takes nothing of a flow.
    pub(super) fn fail_run(&self, run: u64, fault: Fault) {
        let mut state = self.lock();
        if state.run == run {
            self.fail_locked(&mut state, fault);
        }
    }

    /// The source has no record at the position.
    pub(super) fn out_of_range(&self) {
        self.tell(Event::OutOfRange);
    }

    /// The source no longer has what lies between the position and `to`: what was read before is delivered,
    /// then counting begins anew.
    pub(super) fn source_lost(self: &Arc<Self>, to: Offset) {
        let mut state = self.lock();
        if let Some(flow) = state.flow.as_mut() {
            flow.source_lost = Some(to);
            if let Some(fetcher) = flow.fetcher.take() {
                fetcher.stop(&self.source);
            }
        }
        self.pump(&mut state);
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
            if flow.sender.oldest().is_none() {
                // The question has ended what was wrong; no answer will come that would.
                self.trouble_locked(&mut state, Side::Target, None);
            }
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
        if let Some(flow) = state.flow.as_mut() {
            flow.trim();
        }
        self.note_hunger(&mut state);
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

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
