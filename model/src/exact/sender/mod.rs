//! The machine of one task's batches in flight.
//!
//! It gives batches their sequences, says what to send and when to ask the target, and moves the
//! checkpoint. It decides only: the caller holds the payloads, carries [`Action`]s out one by one and
//! reports what came of them. All batches of a task go over one connection, in the order they are given.
//!
//! ```text
//!             refused, unsure,            nothing is in
//!             connection lost             flight any more         answer
//!  Flowing ─────────────────► Settling ──────────────► Asking ───────────► Flowing
//!   │ ▲                          │                        │  ▲               │
//!   │ └──────────────────────────┘                        └──┘               ▼
//!   │   all may be sent again as it was                read the tail       Ended
//!   └──────────────────────────────────────────────────────────────────────► (new line, stop)
//!      quiet for too long: Asking before the next send
//! ```
//!
//! What makes it safe: a batch is sent only while the target is known to have a state of our producer
//! that refuses repeats and holes, or alone. Where that knowledge may be old, because the process was
//! frozen or nothing was heard for long, the target is asked first.

mod answers;
mod reconcile;
mod types;
mod window;

use std::time::Duration;

use super::{
    delivered::{Durability, Place},
    line::Producer,
    mode::{DeliveryCounts, DeliveryMode, Reason},
    sequence::Count,
    take_over::ReadFrom,
};
use crate::ids::{Offset, UnixMillis};
pub use types::{
    Action, Answer, Assigned, Batch, BatchId, Checkpoint, Now, PushError, Settings, Start, Stop,
};
use window::{Entry, EntryState, Window};

/// What the target has and has not committed yet is asked for again after this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A tail that did not tell where records end is read again after this time.
const CONFIRM_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Where a sender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Flowing,
    /// Nothing is sent until everything in flight is answered.
    Settling,
    /// The target is to be asked.
    Ask,
    /// It was asked.
    Asking,
    /// Its tail is to be read.
    WantTail(Offset),
    ReadingTail,
    Ended(Action),
}

/// The batches of one task under one line.
#[derive(Debug, Clone)]
pub struct Sender {
    settings: Settings,
    producer: Producer,
    mode: DeliveryMode,
    counts: DeliveryCounts,
    flow: Flow,
    window: Window,
    /// What the caller is to be told once, before anything else.
    notice: Option<Action>,
    /// The target may have no state of ours: one batch at a time until one is acknowledged.
    is_alone: bool,
    /// The target must be asked before the next send.
    is_doubtful: bool,
    /// The tail was read for skipped batches that nothing follows.
    is_confirming: bool,
    /// Of what was pushed, the target lacked something when it was asked last.
    is_lacking: bool,
    /// A batch may be missing before one that is there: what the target remembers does not tell.
    is_doubting_log: bool,
    polled: Duration,
    heard: Duration,
    /// The target is not asked before.
    ask_from: Duration,
    /// The tail is not read before, to confirm what is there.
    confirm_from: Duration,
}

impl Sender {
    /// A sender that begins as decided by [`take_over`](super::take_over()). `now`: when the target was
    /// asked, not when it has answered.
    #[must_use]
    pub fn new(settings: Settings, start: Start, now: Now) -> Self {
        let mut window = Window::new(start.place, start.skip_records, settings.history_max);
        if let Some(end) = start.skip_end {
            window.know(start.place.count.plus(start.skip_records), end);
        }
        Self {
            settings,
            producer: start.producer,
            mode: start.mode,
            counts: DeliveryCounts::default(),
            flow: Flow::Flowing,
            window,
            notice: None,
            is_alone: start.first_alone,
            is_doubtful: false,
            is_confirming: false,
            is_lacking: false,
            is_doubting_log: false,
            polled: now.mono,
            heard: now.mono,
            ask_from: now.mono,
            confirm_from: now.mono,
        }
    }

    /// Whether another batch would be taken. None is before [`Action::Reread`] was given: what the
    /// caller has at hand does not follow any more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let is_over = matches!(self.flow, Flow::Ended(_));
        self.window.len() < self.in_flight_max() && self.notice.is_none() && !is_over
    }

    /// Takes a batch. Its payload is kept by the caller until [`Sender::oldest`] has passed it.
    ///
    /// # Errors
    /// [`PushError`]; nothing is changed then.
    pub fn push(&mut self, batch: Batch, now: Now) -> Result<Assigned, PushError> {
        if matches!(self.flow, Flow::Ended(_)) {
            return Err(PushError::Ended);
        }
        if !self.has_room() {
            let held = self.window.len();
            return Err(PushError::Full { held });
        }
        let is_old = !self.durability(now).covers(batch.timestamp_max);
        self.window.push(batch, is_old)
    }

    /// Source offsets up to `to`, from where the last batch ended, hold nothing to send: nothing to copy,
    /// or what is to be passed over. `skip_left`: records to pass over that are still to come. It counts for
    /// nothing before [`Action::Reread`] was given, and before all was passed over.
    pub fn passed(&mut self, to: Offset, skip_left: u64) {
        if self.notice.is_none() && skip_left == 0 {
            self.window.passed(to);
        }
    }

    /// The source no longer has the offsets from [`Sender::position`] to `to`. Nobody can count over them:
    /// a new line begins at `to` once everything that is held is acknowledged. False until then; call
    /// it again.
    pub fn source_lost(&mut self, to: Offset) -> bool {
        if matches!(self.flow, Flow::Ended(_)) {
            return true;
        }
        if self.window.len() > 0 || self.flow != Flow::Flowing {
            return false;
        }
        let cursor = self.window.cursor();
        let from = ReadFrom {
            offset: to,
            skip_records: 0,
        };
        // Records that were to be passed over may lie behind the gap.
        let repeats_max = cursor.next.since(cursor.at);
        self.restart(from, Reason::SourceDeleted, repeats_max);
        true
    }

    /// What to do next; None: wait for an answer or push more. Call it after every other call, and
    /// by a timer of some tenths of a second.
    pub fn poll(&mut self, now: Now) -> Option<Action> {
        self.note_silence(now);
        self.window.grow_old(self.durability(now));
        if let Flow::Ended(action) = self.flow {
            return Some(action);
        }
        if let Some(notice) = self.notice.take() {
            return Some(notice);
        }
        if self.flow == Flow::Settling && !self.window.is_any_in_flight() {
            self.settle();
        }
        match self.flow {
            Flow::Flowing => self.next_send(now).or_else(|| self.confirm(now)),
            Flow::Ask => (now.mono >= self.ask_from).then(|| self.ask(now)),
            Flow::WantTail(from) => {
                self.flow = Flow::ReadingTail;
                Some(Action::ReadTail { from })
            }
            Flow::Settling | Flow::Asking | Flow::ReadingTail => None,
            Flow::Ended(action) => Some(action),
        }
    }

    /// What may be committed. It moves back only where the target lost what it had acknowledged.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            producer: self.producer,
            place: self.window.front(),
        }
    }

    /// Gives back memory that is used only while batches are held.
    pub fn trim(&mut self) {
        self.window.trim();
    }

    /// The first batch that may have to be sent again; None when none is held.
    #[must_use]
    pub fn oldest(&self) -> Option<BatchId> {
        self.window.oldest()
    }

    /// Where the next batch must begin.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.window.cursor().offset
    }

    /// What is promised now.
    #[must_use]
    pub fn mode(&self) -> DeliveryMode {
        if self.window.is_old() {
            return self.mode.and(DeliveryMode::AtLeastOnce(Reason::OldRecords));
        }
        self.mode
    }

    /// Whether what is known of the target is fresh: the process was not frozen, and no answer is awaited
    /// that may tell of another owner.
    #[must_use]
    pub fn is_up_to_date(&self, now: Now) -> bool {
        let unpolled = now.mono.saturating_sub(self.polled);
        let was_frozen = self.is_doubtful || unpolled > self.settings.quiet_max;
        self.flow == Flow::Flowing && !was_frozen
    }

    /// Whether the target lacked something of what was pushed when it was asked last: of what is held, or of
    /// what it had acknowledged. With [`Action::Reread`] it tells whether anything is to be sent once more, or
    /// another owner has delivered it all.
    #[must_use]
    pub fn target_lacks(&self) -> bool {
        self.is_lacking
    }

    /// What was repeated or healed.
    #[must_use]
    pub fn counts(&self) -> &DeliveryCounts {
        &self.counts
    }

    fn in_flight_max(&self) -> usize {
        self.settings.in_flight_max.clamp(1, 5)
    }

    fn durability(&self, now: Now) -> Durability {
        Durability {
            now: now.wall,
            lifetime: self.settings.state_lifetime,
        }
    }

    fn note_silence(&mut self, now: Now) {
        let unpolled = now.mono.saturating_sub(self.polled);
        let unheard = now.mono.saturating_sub(self.heard);
        self.is_doubtful |=
            unpolled > self.settings.quiet_max || unheard > self.settings.unheard_max;
        self.polled = now.mono;
    }

    /// From here on, only a silence makes the answer doubtful.
    fn ask(&mut self, now: Now) -> Action {
        self.flow = Flow::Asking;
        self.is_doubtful = false;
        self.heard = now.mono;
        self.counts.questions += 1;
        Action::AskTarget
    }

    fn next_send(&mut self, now: Now) -> Option<Action> {
        let limit = if self.is_alone {
            1
        } else {
            self.in_flight_max()
        };
        let index = self.window.next_ready(limit)?;
        if self.is_doubtful {
            self.flow = Flow::Settling;
            if self.window.is_any_in_flight() {
                return None;
            }
            return Some(self.ask(now));
        }
        let (id, attempt) = self.window.send(index);
        Some(Action::Send { id, attempt })
    }

    /// Batches that the target had already stay unacknowledged until something follows them, if nobody
    /// knows where they end there. Where nothing follows, the target's log tells.
    fn confirm(&mut self, now: Now) -> Option<Action> {
        if self.is_confirming || now.mono < self.confirm_from || !self.window.is_all_there() {
            return None;
        }
        if self.is_doubtful {
            return Some(self.ask(now));
        }
        self.is_confirming = true;
        self.confirm_from = now.mono + CONFIRM_AGAIN_AFTER;
        self.flow = Flow::ReadingTail;
        let from = self.window.front().target_end;
        Some(Action::ReadTail { from })
    }

    /// Everything is answered and something went wrong.
    fn settle(&mut self) {
        if self.is_doubting_log {
            self.flow = Flow::WantTail(self.window.front().target_end);
            return;
        }
        if self.is_doubtful || self.is_alone || self.window.needs_question() {
            self.flow = Flow::Ask;
            return;
        }
        // The target has a state and knows each of these batches again, as long as they are sent as they
        // were. It may be another leader, though: the first goes alone, and its offset shows whether
        // anything is missing there.
        self.window.send_again();
        self.is_alone = true;
        self.flow = Flow::Flowing;
    }

    fn end(&mut self, action: Action) {
        if let Action::NewLine {
            why, repeats_max, ..
        } = action
            && repeats_max != Some(0)
        {
            *self.counts.restarts.entry(why).or_default() += 1;
        }
        self.flow = Flow::Ended(action);
    }

    fn restart(&mut self, from: ReadFrom, why: Reason, repeats_max: Option<u64>) {
        self.end(Action::NewLine {
            from,
            why,
            repeats_max,
        });
    }
}

#[cfg(test)]
mod tests;
