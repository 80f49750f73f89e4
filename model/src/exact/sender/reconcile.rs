//! What the target's word about our state changes.

use super::{ASK_AGAIN_AFTER, Action, Flow, Now, Offset, ReadFrom, Reason, Sender, Stop};
use crate::exact::{
    delivered::{Delivered, by_tail, delivered, end_after, is_guarded},
    evidence::{StateAnswer, Tail, TailScan, TargetView},
    sequence::Count,
};

impl Sender {
    /// The target has answered [`Action::AskTarget`] or [`Action::ReadTail`].
    pub fn target_seen(&mut self, view: &TargetView, now: Now) {
        if !matches!(self.flow, Flow::Asking | Flow::ReadingTail) {
            return;
        }
        self.note_silence(now);
        if self.is_doubtful {
            // The process was frozen while it waited: the answer may be old.
            self.flow = Flow::Ask;
            return;
        }
        let is_confirmation = self.is_confirming && self.flow == Flow::ReadingTail;
        if !matches!(view.tail, Some(Tail::Unreadable)) {
            // Whatever became of the question for the tail (a lost connection takes it along), it may be
            // put again while something is left to confirm.
            self.is_confirming = false;
        }
        self.heard = now.mono;
        self.flow = Flow::Flowing;
        if matches!(view.state, StateAnswer::Unsupported) && view.tail == Some(Tail::Unreadable) {
            self.mode = super::DeliveryMode::AtLeastOnce(Reason::TargetTooOld);
        }
        if is_confirmation && let Some(Tail::Read(scan)) = view.tail {
            self.confirmed(&scan, view.start);
        }
        let front = self.window.front();
        let lifetime = self.settings.state_lifetime;
        let found = if self.is_doubting_log {
            self.by_log(view)
        } else {
            delivered(self.producer, front, view, now.wall, lifetime)
        };
        self.is_doubting_log &= matches!(found, Delivered::NeedsTail { .. });
        match found {
            Delivered::Ahead(records) => {
                let count = front.count.plus(records);
                self.is_alone = !is_guarded(self.producer, view, self.durability(now));
                self.ahead(count, end_after(front, records, view));
            }
            Delivered::Behind(records) => self.behind(front.count, records),
            Delivered::NotYet => {
                self.ask_from = now.mono + ASK_AGAIN_AFTER;
                self.flow = Flow::Ask;
            }
            Delivered::BehindAtMost(_) => self.end(Action::Stop(Stop::TakeOver)),
            Delivered::NewerLine(_) => self.end(Action::Stop(Stop::NewerLine)),
            Delivered::NeedsTail { from } => self.flow = Flow::WantTail(from),
            Delivered::Unknown(why) => {
                let from = ReadFrom {
                    offset: front.offset,
                    skip_records: 0,
                };
                self.restart(from, why, None);
            }
        }
    }

    /// By the log alone.
    fn by_log(&self, view: &TargetView) -> Delivered {
        let front = self.window.front();
        match view.tail {
            Some(Tail::Read(scan)) => {
                by_tail(self.producer, front, view, &scan, Reason::ProducerStateLost)
            }
            Some(Tail::Unreadable) => Delivered::Unknown(Reason::ProducerStateLost),
            None => Delivered::NeedsTail {
                from: front.target_end.max(view.start),
            },
        }
    }

    /// What the tail holds is committed. `start`: where the target's log begins; what it has deleted was
    /// committed before.
    fn confirmed(&mut self, scan: &TailScan, start: Offset) {
        let front = self.window.front();
        let Some((first, next)) = scan.first().zip(scan.next()) else {
            return;
        };
        let is_whole = start <= front.target_end;
        let follows = !is_whole || first.signed_steps_from(front.count.sequence()) <= 0;
        let steps = next.signed_steps_from(front.count.sequence());
        if scan.is_disordered() || !follows || scan.from() > front.target_end.max(start) {
            return;
        }
        if let Ok(records) = u64::try_from(steps) {
            self.window.know(front.count.plus(records), scan.to());
        }
    }

    /// `end`: where the delivered records end at the target, where it is known.
    fn ahead(&mut self, delivered: Count, end: Option<Offset>) {
        self.is_lacking = delivered < self.window.pushed();
        let (skipped, reread) = self.window.reconcile(delivered);
        self.counts.skipped_records += skipped;
        if let Some(end) = end {
            self.window.know(delivered, end);
        }
        // What was acknowledged after a batch that is now known to be there.
        self.advance();
        let Some((mut from, mut skip_records)) = reread else {
            return;
        };
        self.counts.overtaken += 1;
        if self.window.len() >= self.in_flight_max() {
            // Nothing would move them, since nothing that follows would find room.
            (from, skip_records) = self.window.pass_over(delivered);
        }
        if self.settings.source_is_deterministic {
            self.reread(from, skip_records);
            return;
        }
        // What another owner sent cannot be counted in a source that changes: all that is not
        // acknowledged is sent again.
        let offset = self.window.front().offset;
        let from = ReadFrom {
            offset,
            skip_records: 0,
        };
        self.restart(from, Reason::SourceCompacted, Some(skipped));
    }

    fn behind(&mut self, count: Count, records: u64) {
        self.is_lacking = true;
        self.counts.healed_records += records;
        let Some(target) = count.minus(records) else {
            self.end(Action::Stop(Stop::TakeOver));
            return;
        };
        self.is_alone = false;
        let Some(place) = self.window.back_to(target) else {
            self.end(Action::Stop(Stop::TakeOver));
            return;
        };
        let skip_records = target.since(place.count).unwrap_or(0);
        if self.settings.source_is_deterministic {
            self.reread(place.offset, skip_records);
            return;
        }
        let from = ReadFrom {
            offset: place.offset,
            skip_records: 0,
        };
        self.restart(from, Reason::SourceCompacted, Some(skip_records));
    }

    fn reread(&mut self, offset: Offset, skip_records: u64) {
        let from = ReadFrom {
            offset,
            skip_records,
        };
        self.notice = Some(Action::Reread { from });
    }
}
