//! What is told of a lane: to the status, to whoever saves its checkpoint, to the log.

use std::time::Duration;

use kreplicator_model::{
    exact::{self, Checkpoint, DeliveryMode},
    ids::Offset,
    spec,
};
use kreplicator_wire::topic::TopicId;
use tokio::time::Instant;
use tracing::warn;

use super::{Lane, Side, State, flow::Flow};
use crate::{
    batches::intake::Path,
    board::{Numbers, Promise},
    engine::{Delivery, PathSeen, Status},
};

/// For so long a task waits for memory before that is called trouble.
const HUNGER_TO_TELL: Duration = Duration::from_secs(10);

impl Lane {
    /// Shows trouble that is being overcome, or its end.
    pub(in crate::batches) fn trouble(&self, side: Side, cause: Option<&str>) {
        self.trouble_locked(&mut self.lock(), side, cause);
    }

    pub(super) fn trouble_locked(&self, state: &mut State, side: Side, cause: Option<&str>) {
        let trouble = &mut state.troubles[side as usize];
        if trouble.as_deref() == cause {
            return;
        }
        *trouble = cause.map(str::to_owned);
        // The newest, else what is left of another side.
        let left = state.troubles.iter().flatten().next();
        let shown = cause.or(left.map(String::as_str));
        self.board.trouble(shown, self.shared.clock.now());
    }

    /// Tells when other tasks hold the memory that this one waits for. One that holds some itself waits for its
    /// target.
    pub(super) fn note_hunger(&self, state: &mut State) {
        let wanted = state.flow.as_ref().and_then(Flow::hunger);
        let Some(bytes) = wanted else {
            if state.hungry_since.take().is_some() {
                self.trouble_locked(state, Side::Memory, None);
            }
            return;
        };
        let since = *state.hungry_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= HUNGER_TO_TELL {
            let limit = self.shared.budget.limit_bytes();
            let cause = format!(
                "waits for {bytes} bytes of the memory budget of this worker ({limit} bytes), which other tasks \
                 hold; raise it, or give this worker fewer tasks"
            );
            self.trouble_locked(state, Side::Memory, Some(&cause));
        }
    }

    /// Whatever was wrong is told otherwise.
    pub(in crate::batches) fn forget_troubles(&self) {
        self.lock().troubles = [None, None, None];
        self.board.trouble(None, self.shared.clock.now());
    }

    /// The task goes on from a checkpoint that came with a count of gaps.
    pub(in crate::batches) fn resume_gaps(&self, offset: Offset, told: u64) {
        let mut state = self.lock();
        state.gaps.resume(offset, told);
        state.began_from = Some(offset);
    }

    /// The checkpoint that the task went on from last; None: there was none.
    pub(in crate::batches) fn began_from(&self) -> Option<Offset> {
        self.lock().began_from
    }

    /// The count of gaps that goes with a checkpoint.
    pub(in crate::batches) fn gaps_at(&self, offset: Offset) -> u64 {
        self.lock().gaps.at(offset)
    }

    /// Source offsets `[from, to)` are gone and will never be copied. What was counted before is not
    /// counted again.
    pub(in crate::batches) fn count_gap(&self, from: Offset, to: Offset) {
        let gap_records = self.lock().gaps.find(from, to);
        if gap_records == 0 {
            return;
        }
        self.shared.metrics.gap_records.increment(gap_records);
        warn!(task = %self.spec.id, %from, %to, gap_records,
            "source offsets were deleted before they were copied");
    }

    /// The log's range as asked for beside the reading.
    pub(in crate::batches) fn measured(&self, start: Offset, end: Offset) {
        let mut state = self.lock();
        state.log_start = Some(start);
        state.log_end = Some(end);
    }

    /// The log's range cannot be asked for.
    pub(in crate::batches) fn unmeasured(&self) {
        let mut state = self.lock();
        state.log_start = None;
        state.log_end = None;
    }

    /// What is told of the task.
    pub(in crate::batches) fn status(&self) -> Status {
        let (numbers, log, mode, path) = {
            let state = self.lock();
            (state.numbers(), state.log(), state.mode, state.path)
        };
        self.board.measured(log, &numbers, self.shared.clock.now());
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
    pub(in crate::batches) fn log(&self) -> Option<(Offset, Offset)> {
        self.lock().log()
    }

    /// The producer of the line and the place up to which it is counted.
    pub(in crate::batches) fn checkpoint(&self) -> Option<Checkpoint> {
        self.lock().checkpoint
    }

    /// Epoch of the source's leader that wrote the record before what is to be read next; None: not known.
    pub(in crate::batches) fn leader_epoch(&self) -> Option<i32> {
        let state = self.lock();
        state.flow.as_ref()?.intake.leader_epoch()
    }

    /// Epoch of the source's leader that wrote the record before `offset`, which is or was the checkpoint; None: not
    /// known. The checkpoint moves on while an earlier one is being saved, mostly under the same leader.
    pub(in crate::batches) fn epoch_before(&self, offset: Offset) -> Option<i32> {
        let state = self.lock();
        let at = state.checkpoint?.place.offset;
        let mark = state.checkpoint_epoch?;
        mark.epoch.filter(|_| mark.from < offset && offset <= at)
    }

    /// Whether the task goes on without a lease and its checkpoint has moved within this time.
    pub(in crate::batches) fn has_moved_within(&self, time: Duration) -> bool {
        let state = self.lock();
        let may_go_on = state.mode.is_some_and(DeliveryMode::runs_without_lease);
        let flow = state.flow.as_ref();
        // What comes in after a freeze was sent long ago: another owner may be ahead.
        if !flow.is_some_and(|flow| flow.sender.is_up_to_date(self.shared.now())) {
            return false;
        }
        let age_ms = self.shared.clock.now().0 - state.moved_at.0;
        may_go_on && u64::try_from(age_ms).is_ok_and(|age| Duration::from_millis(age) <= time)
    }

    /// Why records may have come twice since the task started here.
    pub(in crate::batches) fn broken_promise(&self) -> Option<exact::Reason> {
        self.lock().broken
    }

    /// Records may come twice from now on, or have.
    pub(in crate::batches) fn break_promise(&self, why: exact::Reason) {
        self.lock().broken.get_or_insert(why);
    }

    /// Whether a topic of this id is the one that is written to. One that was made anew takes nothing that is
    /// meant for the one before.
    pub(in crate::batches) fn writes_topic(&self, told: Option<TopicId>) -> bool {
        let state = self.lock();
        let known = state.flow.as_ref().and_then(|flow| flow.target_topic_id);
        known.zip(told).is_none_or(|(known, told)| known == told)
    }

    /// Whether it is read by a fetcher now.
    pub(in crate::batches) fn is_read(&self) -> bool {
        let state = self.lock();
        let flow = state.flow.as_ref();
        flow.is_some_and(|flow| flow.backlog.is_none() && flow.is_heard())
    }

    /// Next offset to be read.
    pub(in crate::batches) fn position(&self) -> Option<Offset> {
        let state = self.lock();
        state.flow.as_ref().map(|flow| flow.intake.position())
    }
}

impl State {
    fn log(&self) -> Option<(Offset, Offset)> {
        self.log_start.zip(self.log_end)
    }

    fn numbers(&self) -> Numbers {
        let held = self.flow.iter().flat_map(|flow| &flow.held);
        Numbers {
            checkpoint: self.checkpoint.map(|checkpoint| checkpoint.place.offset),
            in_flight: held.map(|held| u64::from(held.records)).sum(),
            moved_at: self.moved_at,
            records: self.records,
            bytes: self.bytes,
            gap_records: self.gaps.total(),
        }
    }
}
