//! What answers change.

use super::{
    Action, Answer, BatchId, Entry, EntryState, Flow, Now, Offset, ReadFrom, Reason, Sender, Stop,
};

impl Sender {
    /// The target has answered a batch. Answers to attempts that are over count only if they
    /// acknowledge.
    pub fn answered(&mut self, id: BatchId, attempt: u32, answer: Answer, now: Now) {
        if matches!(self.flow, Flow::Ended(_)) {
            return;
        }
        let Some(entry) = self.window.find(id) else {
            return;
        };
        let is_awaited = entry.state == EntryState::InFlight && entry.attempt == attempt;
        let is_acked = matches!(entry.state, EntryState::Acked { .. });
        if is_acked || !(is_awaited || matches!(answer, Answer::Acked { .. })) {
            return;
        }
        let (first, records) = (entry.first, i64::from(entry.batch.records));
        match answer {
            Answer::Acked { base_offset } => {
                let end = Offset(base_offset.0.saturating_add(records));
                entry.state = EntryState::Acked { end };
                self.acked(now);
            }
            Answer::OutOfOrder => {
                entry.state = EntryState::Refused { is_sequence: true };
                self.went_wrong();
            }
            Answer::UnknownProducer if self.is_alone && first.0 > 0 => {
                // Such a target takes nothing but sequence 0 without a state, so nobody can have
                // sent anything since: the new line repeats nothing.
                let from = self.first_missing();
                self.restart(from, Reason::ProducerStateExpired, Some(0));
            }
            Answer::UnknownProducer => {
                entry.state = EntryState::Refused { is_sequence: true };
                self.went_wrong();
            }
            Answer::OldEpoch => self.end(Action::Stop(Stop::NewerLine)),
            Answer::Refused => {
                entry.refuse();
                self.went_wrong();
            }
            Answer::Duplicate | Answer::Unsure => {
                entry.doubt();
                self.went_wrong();
            }
            Answer::Terminal => self.end(Action::Stop(Stop::Terminal(id))),
        }
    }

    /// The connection is gone, and with it the answers to everything in flight.
    pub fn connection_lost(&mut self) {
        if matches!(self.flow, Flow::Ended(_)) {
            return;
        }
        if self.window.is_any_in_flight() {
            self.window.lose_connection();
            self.went_wrong();
        }
        // Answers to questions are lost as well.
        self.flow = match self.flow {
            Flow::Asking | Flow::ReadingTail => Flow::Ask,
            flow => flow,
        };
    }

    fn acked(&mut self, now: Now) {
        self.heard = now.mono;
        self.is_confirming = false;
        self.check_hole();
        self.advance();
        self.is_alone = self.window.is_unguarded();
    }

    /// Moves the checkpoint over what is acknowledged, or ends the sender.
    pub(super) fn advance(&mut self) {
        let Err(base) = self.window.advance() else {
            return;
        };
        // It lies before what was acknowledged earlier: the target lost its tail and the state
        // with it, and took a batch that did not follow.
        match self.window.place_before(base) {
            Some(place) => {
                let from = ReadFrom {
                    offset: place.offset,
                    skip_records: 0,
                };
                self.restart(from, Reason::ProducerStateLost, None);
            }
            None => self.end(Action::Stop(Stop::TakeOver)),
        }
    }

    fn went_wrong(&mut self) {
        self.check_hole();
        if self.flow == Flow::Flowing {
            self.flow = Flow::Settling;
        }
    }

    /// A batch was refused and a later one is there. Either the target dropped our state between them, and
    /// what was refused is missing; or another owner has sent both. The log tells.
    fn check_hole(&mut self) {
        if self.window.hole().is_some() {
            self.is_doubting_log = true;
            if self.flow == Flow::Flowing {
                self.flow = Flow::Settling;
            }
        }
    }

    /// The place after everything that is at the target.
    fn first_missing(&self) -> ReadFrom {
        let front = self.window.front();
        let is_missing =
            |entry: &&Entry| !matches!(entry.state, EntryState::There | EntryState::Acked { .. });
        let missing = self.window.entries().find(is_missing);
        let count = missing.map_or(self.window.cursor().next, |entry| entry.first);
        ReadFrom {
            offset: front.offset,
            skip_records: count.since(front.count).unwrap_or(0),
        }
    }
}
