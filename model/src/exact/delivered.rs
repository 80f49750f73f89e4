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
    /// So many records of the line after the place, and all before them. They may not be committed
    /// yet: a checkpoint may pass them only behind an acknowledgement.
    Ahead(u64),
    /// The target lost so many records before the place.
    Behind(u64),
    /// The target lost at most so many records before the place, and may have lost none.
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
    if steps <= 0 {
        return lost(place, steps.unsigned_abs());
    }
    if durability.covers(state.last_timestamp) {
        return Delivered::Ahead(steps.unsigned_abs());
    }
    // The state may have been dropped and made anew meanwhile, and then it does not vouch for
    // what came before its last batch.
    without_state(producer, place, view, Reason::OldRecords)
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
    let lost = place.target_end.0.saturating_sub(view.end.0).max(0);
    let from = Offset(view.end.0.min(place.target_end.0).saturating_sub(lost));
    Delivered::NeedsTail {
        from: from.max(view.start),
    }
}

fn by_tail(
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
    let place_sequence = place.count.sequence();
    let is_whole = view.start <= place.target_end;
    let Some((first, next)) = scan.first().zip(scan.next()) else {
        let lost = place.target_end.0.saturating_sub(scan.to().0);
        return match u64::try_from(lost) {
            Ok(0) | Err(_) if is_whole => Delivered::Ahead(0),
            Ok(at_most) if at_most > 0 => Delivered::BehindAtMost(at_most.min(place.count.0)),
            Ok(_) | Err(_) => Delivered::Unknown(unknown),
        };
    };
    let begins_beyond = first.signed_steps_from(place_sequence) > 0;
    if scan.is_disordered() || (is_whole && begins_beyond) {
        return Delivered::Unknown(Reason::TargetDisordered);
    }
    let steps = next.signed_steps_from(place_sequence);
    if steps < 0 {
        return lost(place, steps.unsigned_abs());
    }
    Delivered::Ahead(steps.unsigned_abs())
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
