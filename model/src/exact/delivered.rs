//! How much of a line is at the target.

use std::time::Duration;

use super::{
    evidence::{ProducerState, StateAnswer, Tail, TailScan, TargetView},
    line::{Producer, ProducerEpoch},
    mode::Reason,
    sequence::Count,
};
use crate::ids::{Offset, UnixMillis};

/// Steps beyond which a sequence does not tell how far away it is: half of the way round.
const STEPS_MAX: u64 = 1 << 30;

/// A place in a line that was true when it was noted: every copyable record of the line below
/// `offset` is at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Next source offset to copy.
    pub offset: Offset,
    /// Copyable records of the line below `offset`.
    pub count: Count,
    /// Target offset that lies after all of them and not after any other record of the line.
    pub target_end: Offset,
}

/// For how long a broker surely keeps a producer's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Durability {
    /// Now.
    pub now: UnixMillis,
    /// A state whose last record is younger than this is surely kept.
    pub lifetime: Duration,
}

/// What the target has of a line beyond a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// So many records of the line after the place, and all before them, all committed.
    Ahead(u64),
    /// More records than the place says, not all of them committed: ask again. To build on them is not
    /// safe: a new leader may lack them, and with them the state that refuses what does not follow.
    NotYet,
    /// The target lost so many records before the place.
    Behind(u64),
    /// The target lost at most so many records before the place, and may have lost none. What its state
    /// says of the line no longer tells what it has.
    BehindAtMost(u64),
    /// The target has batches of a newer line.
    NewerLine(ProducerEpoch),
    /// The state does not tell: read the target's batch headers from here to the high watermark.
    NeedsTail {
        /// First target offset to read.
        from: Offset,
    },
    /// It cannot be known.
    Unknown(Reason),
}

impl Durability {
    /// Whether the state that a batch with this highest timestamp leaves behind is surely kept.
    pub(super) fn covers(self, timestamp: UnixMillis) -> bool {
        let age_ms = i128::from(self.now.0) - i128::from(timestamp.0);
        age_ms < i128::try_from(self.lifetime.as_millis()).unwrap_or(i128::MAX)
    }
}

/// What the target has of the line of `producer` beyond `place`. `now` and `lifetime`: how long a
/// broker surely keeps a state after its last record's timestamp.
#[must_use]
pub fn delivered(
    producer: Producer,
    place: Place,
    view: &TargetView,
    now: UnixMillis,
    lifetime: Duration,
) -> Delivered {
    let durability = Durability { now, lifetime };
    match view.state {
        StateAnswer::Known(state) => by_state(producer, place, view, state, durability),
        StateAnswer::Absent => without_state(producer, place, view, Reason::ProducerStateExpired),
        StateAnswer::Unsupported => without_state(producer, place, view, Reason::TargetTooOld),
    }
}

fn by_state(
    producer: Producer,
    place: Place,
    view: &TargetView,
    state: ProducerState,
    durability: Durability,
) -> Delivered {
    if state.epoch > producer.epoch {
        return Delivered::NewerLine(state.epoch);
    }
    if state.epoch < producer.epoch {
        // Nothing of the line is there, and it can only begin at sequence 0.
        return behind_or_level(place.count.0);
    }
    if view.end.0.saturating_sub(place.target_end.0) >= i64::from(i32::MAX) / 2 {
        return Delivered::Unknown(Reason::CheckpointTooOld);
    }
    let next = state.last_sequence.plus(1);
    let steps = next.signed_steps_from(place.count.sequence());
    if steps < 0 {
        return lost(place, steps.unsigned_abs());
    }
    if view.end.0.saturating_sub(place.target_end.0) < steps {
        // So many records do not fit in: the target lost some together with its state, and then took a
        // batch that did not follow. Or they are not committed yet.
        return without_state(producer, place, view, Reason::ProducerStateLost);
    }
    if steps == 0 {
        return Delivered::Ahead(0);
    }
    if durability.covers(state.last_timestamp)
        && let Some(log_end) = view.log_end
    {
        if view.end < log_end {
            return Delivered::NotYet;
        }
        return Delivered::Ahead(steps.unsigned_abs());
    }
    // Either nobody knows whether it is committed. Or the state may have been dropped and made anew
    // meanwhile, and then it does not vouch for what came before its last batch.
    without_state(producer, place, view, Reason::OldRecords)
}

/// Whether the target has a state of this producer that a clean change of leaders keeps, because what
/// it rests on is committed: then it refuses whatever does not follow.
pub(super) fn is_guarded(producer: Producer, view: &TargetView, durability: Durability) -> bool {
    match view.state {
        StateAnswer::Known(state) => {
            let is_committed = view.log_end.is_some_and(|log_end| log_end <= view.end);
            let is_kept = durability.covers(state.last_timestamp);
            state.epoch == producer.epoch && is_committed && is_kept
        }
        StateAnswer::Absent | StateAnswer::Unsupported => false,
    }
}

/// Target offset after the `records` that follow `place` ([`Delivered::Ahead`]) and before any other record
/// of the line, where the committed part of the log has room for nothing else.
pub(super) fn end_after(place: Place, records: u64, view: &TargetView) -> Option<Offset> {
    let room = view.end.0.checked_sub(place.target_end.0)?;
    (u64::try_from(room) == Ok(records)).then_some(view.end)
}

/// By the end of the target's log, or its tail.
fn without_state(
    producer: Producer,
    place: Place,
    view: &TargetView,
    unknown: Reason,
) -> Delivered {
    match view.tail {
        Some(Tail::Read(scan)) if scan.from() <= place.target_end.max(view.start) => {
            by_tail(producer, place, view, &scan, unknown)
        }
        Some(Tail::Read(_) | Tail::Unreadable) => by_end(place, view, Delivered::Unknown(unknown)),
        None => by_end(place, view, needs_tail(place, view)),
    }
}

fn by_end(place: Place, view: &TargetView, otherwise: Delivered) -> Delivered {
    let nothing_beyond = view.end == place.target_end;
    // A state that is known and ahead says that there is more, above the high watermark.
    let nothing_known = !matches!(view.state, StateAnswer::Known(_));
    if nothing_beyond && nothing_known {
        return Delivered::Ahead(0);
    }
    otherwise
}

fn needs_tail(place: Place, view: &TargetView) -> Delivered {
    Delivered::NeedsTail {
        from: tail_from(place, view),
    }
}

/// First target offset of the tail that tells what was delivered beyond a place, or lost before it.
pub(super) fn tail_from(place: Place, view: &TargetView) -> Offset {
    let lost = place.target_end.0.saturating_sub(view.end.0).max(0);
    let from = Offset(view.end.0.min(place.target_end.0).saturating_sub(lost));
    from.max(view.start)
}

/// By the batch headers of the log from the place to the high watermark.
pub(super) fn by_tail(
    producer: Producer,
    place: Place,
    view: &TargetView,
    scan: &TailScan,
    unknown: Reason,
) -> Delivered {
    if let Some(newer) = scan
        .newest_epoch()
        .filter(|newest| *newest > producer.epoch)
    {
        return Delivered::NewerLine(newer);
    }
    if scan.is_disordered() {
        return Delivered::Unknown(Reason::TargetDisordered);
    }
    let is_whole = view.start <= place.target_end;
    let is_shortened = scan.to() < place.target_end;
    let (Some(begin), Some(first), Some(next)) = (scan.begin(), scan.first(), scan.next()) else {
        if is_shortened {
            return lost_at_most(place, scan.to());
        }
        if is_whole {
            return Delivered::Ahead(0);
        }
        return Delivered::Unknown(unknown);
    };
    let place_sequence = place.count.sequence();
    let from_place = first.signed_steps_from(place_sequence);
    if is_shortened && from_place >= 0 {
        return lost_at_most(place, begin);
    }
    if is_whole && from_place > 0 {
        return Delivered::Unknown(Reason::ProducerStateLost);
    }
    let steps = next.signed_steps_from(place_sequence);
    if steps < 0 {
        return lost(place, steps.unsigned_abs());
    }
    Delivered::Ahead(steps.unsigned_abs())
}

/// Every record that is lost had a target offset in `[from, place.target_end)`.
fn lost_at_most(place: Place, from: Offset) -> Delivered {
    let offsets = place.target_end.0.saturating_sub(from.0);
    let at_most = u64::try_from(offsets).unwrap_or(0);
    Delivered::BehindAtMost(at_most.min(place.count.0))
}

fn lost(place: Place, records: u64) -> Delivered {
    if records > place.count.0 || records >= STEPS_MAX {
        return Delivered::Unknown(Reason::CheckpointTooOld);
    }
    behind_or_level(records)
}

fn behind_or_level(records: u64) -> Delivered {
    if records == 0 {
        return Delivered::Ahead(0);
    }
    Delivered::Behind(records)
}

#[cfg(test)]
#[path = "delivered_tests.rs"]
mod tests;
