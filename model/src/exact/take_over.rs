//! Where a new owner of a task goes on.

use std::time::Duration;

use super::{
    delivered::{Delivered, Durability, Place, delivered, end_after, is_guarded, tail_from},
    evidence::{StateAnswer, Tail, TargetView},
    line::{Line, NextProducer, Producer, ProducerEpoch, ProducerId},
    mode::{DeliveryMode, Reason},
    rewind::Rewind,
    sequence::Count,
};
use crate::ids::{Offset, UnixMillis};

/// A checkpoint as committed. It may be old, and may have been overwritten by an older one, but what it
/// says was true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPlace {
    /// Next source offset to copy.
    pub offset: Offset,
    /// The line in which it was counted and what was counted; None when another data path, which does
    /// not count, has written it.
    pub counted: Option<(Producer, Count, Offset)>,
}

/// All that a take-over is decided by.
#[derive(Debug, Clone, Copy)]
pub struct TakeOverInput<'a> {
    /// The line in the store; None before the task's first.
    pub line: Option<&'a Line>,
    /// Producer id of the link, for a first line.
    pub producer_id: ProducerId,
    /// The committed checkpoint.
    pub checkpoint: Option<CheckpointPlace>,
    /// The target partition, asked after line and checkpoint were read.
    pub target: TargetView,
    /// The target topic is not the one that the line was written for.
    pub target_is_another: bool,
    /// Log start offset of the source partition.
    pub source_start: Offset,
    /// Whether reading the source again gives the same records: not compacted.
    pub source_is_deterministic: bool,
    /// Where a task without line and checkpoint begins.
    pub first_offset: Offset,
    /// Now.
    pub now: UnixMillis,
    /// For how long after the timestamp of its last record the target surely keeps a producer's state:
    /// a part of its `producer.id.expiration.ms`.
    pub state_lifetime: Duration,
    /// The line that this owner has written in the course of this take-over: nothing was sent under it.
    pub begun: Option<Producer>,
    /// What the sender of this owner's line has ended with.
    pub restart: Option<Restart>,
}

/// A line whose counting has come to an end while it was sent
/// ([`Action::NewLine`](super::Action::NewLine)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// The line.
    pub line: Producer,
    /// Where the next one begins.
    pub from: ReadFrom,
    /// Why.
    pub why: Reason,
    /// Records that may come a second time; None: not known.
    pub repeats_max: Option<u64>,
}

/// Where to read, and how many copyable records to pass over there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFrom {
    /// First source offset to read.
    pub offset: Offset,
    /// Copyable records to pass over: they are at the target.
    pub skip_records: u64,
}

/// The line goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// Who sends.
    pub producer: Producer,
    /// The place that is read from.
    pub place: Place,
    /// Copyable records to pass over from there.
    pub skip_records: u64,
    /// Target offset after them and before any other record of the line, where it is known.
    pub skip_end: Option<Offset>,
    /// The broker may have no state and then takes any batch, so the first goes alone.
    pub first_alone: bool,
    /// What can be promised.
    pub mode: DeliveryMode,
}

/// A line must be written to the store before anything is sent. When the compare-and-put fails, begin
/// again: somebody else has written one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLine {
    /// Who is to send it.
    pub producer: NextProducer,
    /// Where it begins: its base is the offset after the last record that is passed over.
    pub from: ReadFrom,
    /// Why.
    pub why: Why,
    /// How many records may come a second time; None: not known.
    pub repeats_max: Option<u64>,
}

/// Why a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The task has none.
    First,
    /// The data path that does not count has carried the task since.
    OtherEngine,
    /// Counting in the old line has come to an end.
    Restart(Reason),
}

/// Nothing may be sent before a person has looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The target topic was deleted and made anew.
    #[error(
        "the target topic is another than the one copied to; to copy anew, delete the link, delete its \
         consumer group, and put the link again"
    )]
    TargetRecreated,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// Read, skip, send.
    Resume(Resume),
    /// The target lost records: find the place by reading back, then go on from it with
    /// [`Resume::rewound`] or, where `new_line` is there, with that line from the place found.
    Rewind {
        /// The search.
        rewind: Rewind,
        /// How to go on in the same line.
        resume: Resume,
        /// Instead of going on in the same line.
        new_line: Option<NewLine>,
    },
    /// Write a line first.
    NewLine(NewLine),
    /// Read the target's batch headers from this offset to the high watermark and ask again. Where nothing
    /// lies between, find out whether the log may be read.
    ReadTail {
        /// First target offset to read.
        from: Offset,
    },
    /// What the target has is not committed yet: ask it again.
    AskAgain,
    /// Stop and report.
    Denied(Denied),
}

impl Resume {
    /// The same after a rewind that has found `from`: `count` is what the rewind looked for, the records
    /// below it are all that the target has; `line_from`: the target offset where the line begins.
    #[must_use]
    pub fn rewound(
        self,
        from: ReadFrom,
        count: Count,
        view: &TargetView,
        line_from: Offset,
    ) -> Option<Self> {
        // What is passed over lies before the end, and nobody knows where.
        let is_at_end = from.skip_records == 0;
        let is_committed = view.log_end.is_some_and(|log_end| log_end <= view.end);
        let place = Place {
            offset: from.offset,
            count: count.minus(from.skip_records)?,
            target_end: if is_at_end { view.end } else { line_from },
        };
        Some(Self {
            place,
            skip_records: from.skip_records,
            skip_end: (!is_at_end && is_committed).then_some(view.end),
            ..self
        })
    }

    /// Place in the line of the first record to be sent.
    #[cfg(test)]
    pub(crate) fn first_count(&self) -> Count {
        self.place.count.plus(self.skip_records)
    }
}

/// The line that counts, and the place known in it.
struct Known {
    producer: Producer,
    place: Place,
    /// The store knows an older line, or none.
    is_unwritten: bool,
    /// No record of the line lies before.
    floor: Offset,
}

/// Decides where a new owner goes on.
#[must_use]
pub fn take_over(input: &TakeOverInput<'_>) -> TakeOver {
    if input.target_is_another {
        return TakeOver::Denied(Denied::TargetRecreated);
    }
    if let Some(new_line) = restarted(input) {
        return TakeOver::NewLine(new_line);
    }
    let known = match known(input) {
        Ok(known) => known,
        Err(new_line) => return TakeOver::NewLine(new_line),
    };
    let is_unknown = matches!(input.target.state, StateAnswer::Unsupported);
    if is_unknown && input.target.tail.is_none() {
        // Even where there is nothing to read: what is promised depends on whether the next owner may.
        let from = tail_from(known.place, &input.target);
        return TakeOver::ReadTail { from };
    }
    let found = delivered(
        known.producer,
        known.place,
        &input.target,
        input.now,
        input.state_lifetime,
    );
    match found {
        Delivered::NeedsTail { from } => return TakeOver::ReadTail { from },
        Delivered::NotYet => return TakeOver::AskAgain,
        _ => {}
    }
    if input.source_start > known.place.offset {
        return restart(input, &known, found, Reason::SourceDeleted);
    }
    // Whoever takes such a source over cannot count in what another has begun.
    let is_fresh = input.begun == Some(known.producer) && found == Delivered::Ahead(0);
    if !input.source_is_deterministic && !is_fresh {
        return restart(input, &known, found, Reason::SourceCompacted);
    }
    let is_blind = is_unknown && matches!(input.target.tail, Some(Tail::Unreadable));
    let mode = if !input.source_is_deterministic {
        DeliveryMode::AtLeastOnce(Reason::SourceCompacted)
    } else if is_blind {
        DeliveryMode::AtLeastOnce(Reason::TargetTooOld)
    } else {
        DeliveryMode::ExactlyOnce
    };
    match found {
        Delivered::Ahead(skip_records) => ahead(input, &known, skip_records, mode),
        Delivered::Behind(records) => behind(input, &known, records, mode, found),
        Delivered::BehindAtMost(_) => restart(input, &known, found, Reason::ProducerStateLost),
        Delivered::NewerLine(_) => restart(input, &known, found, Reason::StoreRestored),
        Delivered::Unknown(reason) => restart(input, &known, found, reason),
        Delivered::NeedsTail { from } => TakeOver::ReadTail { from },
        Delivered::NotYet => TakeOver::AskAgain,
    }
}

/// The best statement there is about what was delivered; or a line to begin with.
fn known(input: &TakeOverInput<'_>) -> Result<Known, NewLine> {
    let checkpoint = input.checkpoint;
    let counted = checkpoint.and_then(|checkpoint| {
        let (producer, count, target_end) = checkpoint.counted?;
        let place = Place {
            offset: checkpoint.offset,
            count,
            target_end,
        };
        Some((producer, place))
    });
    let line_producer = input.line.map(Line::producer);
    if let Some((producer, place)) = counted
        && Some(producer) >= line_producer
    {
        let line = input.line.filter(|line| line.producer() == producer);
        return Ok(Known {
            producer,
            place,
            is_unwritten: line.is_none(),
            floor: line.map_or(Offset(0), |line| line.base),
        });
    }
    let uncounted = checkpoint.filter(|checkpoint| checkpoint.counted.is_none());
    let Some(line) = input.line else {
        let offset = checkpoint.map_or(input.first_offset, |checkpoint| checkpoint.offset);
        return Err(first_line(input, offset, Why::First, None));
    };
    // A line is sent only after a checkpoint was counted in it, so one that is not has come since: from the
    // other data path, or from a person who has put it back.
    let is_news = input.begun != Some(line.producer());
    if let Some(checkpoint) = uncounted.filter(|_| is_news) {
        let from = Some(line.producer());
        return Err(first_line(input, checkpoint.offset, Why::OtherEngine, from));
    }
    Ok(Known {
        producer: line.producer(),
        place: Place {
            offset: line.base,
            count: Count(0),
            target_end: line.target_from,
        },
        is_unwritten: false,
        floor: line.base,
    })
}

/// The line that follows what a sender has ended with, unless somebody has written another meanwhile.
fn restarted(input: &TakeOverInput<'_>) -> Option<NewLine> {
    let restart = input.restart?;
    let line = input.line.map(Line::producer);
    if line != Some(restart.line) {
        return None;
    }
    let is_there = restart.from.offset >= input.source_start;
    let from = if is_there {
        restart.from
    } else {
        ReadFrom {
            offset: input.source_start,
            skip_records: 0,
        }
    };
    Some(NewLine {
        producer: restart.line.next(seen_epoch(&input.target)),
        from,
        why: Why::Restart(restart.why),
        repeats_max: restart.repeats_max.filter(|_| is_there),
    })
}

fn first_line(
    input: &TakeOverInput<'_>,
    offset: Offset,
    why: Why,
    before: Option<Producer>,
) -> NewLine {
    let seen = seen_epoch(&input.target);
    let begin = Producer {
        id: input.producer_id,
        epoch: ProducerEpoch(0),
    };
    let producer = match (before, seen) {
        (None, None) => NextProducer::Bumped(begin),
        (before, seen) => before.unwrap_or(begin).next(seen),
    };
    NewLine {
        producer,
        from: ReadFrom {
            offset: offset.max(input.source_start),
            skip_records: 0,
        },
        why,
        repeats_max: Some(0),
    }
}

fn ahead(
    input: &TakeOverInput<'_>,
    known: &Known,
    skip_records: u64,
    mode: DeliveryMode,
) -> TakeOver {
    if known.is_unwritten {
        let from = ReadFrom {
            offset: known.place.offset,
            skip_records,
        };
        return TakeOver::NewLine(NewLine {
            producer: known.producer.next(seen_epoch(&input.target)),
            from,
            why: Why::Restart(Reason::StoreRestored),
            repeats_max: Some(0),
        });
    }
    TakeOver::Resume(resume(input, known, skip_records, mode))
}

fn behind(
    input: &TakeOverInput<'_>,
    known: &Known,
    records: u64,
    mode: DeliveryMode,
    found: Delivered,
) -> TakeOver {
    let floor = known.floor.max(input.source_start);
    let Some(rewind) = Rewind::new(known.place, records, floor) else {
        return restart(input, known, found, Reason::CheckpointTooOld);
    };
    let new_line = known.is_unwritten.then(|| NewLine {
        producer: known.producer.next(seen_epoch(&input.target)),
        from: ReadFrom {
            offset: known.place.offset,
            skip_records: 0,
        },
        why: Why::Restart(Reason::StoreRestored),
        repeats_max: Some(0),
    });
    TakeOver::Rewind {
        rewind,
        resume: resume(input, known, 0, mode),
        new_line,
    }
}

fn resume(
    input: &TakeOverInput<'_>,
    known: &Known,
    skip_records: u64,
    mode: DeliveryMode,
) -> Resume {
    let durability = Durability {
        now: input.now,
        lifetime: input.state_lifetime,
    };
    Resume {
        producer: known.producer,
        place: known.place,
        skip_records,
        skip_end: end_after(known.place, skip_records, &input.target),
        first_alone: !is_guarded(known.producer, &input.target, durability),
        mode,
    }
}

/// Counting ends: a new line from what is surely delivered.
fn restart(input: &TakeOverInput<'_>, known: &Known, found: Delivered, reason: Reason) -> TakeOver {
    let repeats_max = match found {
        Delivered::Ahead(records) => Some(records),
        Delivered::Behind(_) => Some(0),
        Delivered::BehindAtMost(_)
        | Delivered::NewerLine(_)
        | Delivered::NeedsTail { .. }
        | Delivered::NotYet
        | Delivered::Unknown(_) => None,
    };
    let lost = match found {
        Delivered::Behind(records) | Delivered::BehindAtMost(records) => records,
        _ => 0,
    };
    let floor = known.floor.max(input.source_start);
    let new_line = NewLine {
        producer: known.producer.next(seen_epoch(&input.target)),
        from: ReadFrom {
            offset: known.place.offset.max(input.source_start),
            skip_records: 0,
        },
        why: Why::Restart(reason),
        repeats_max,
    };
    // What the target lost is sent again, as far as the source still has it.
    if lost > 0
        && known.place.offset > input.source_start
        && let Some(rewind) = Rewind::new(known.place, lost, floor)
    {
        return TakeOver::Rewind {
            rewind,
            resume: resume(input, known, 0, DeliveryMode::AtLeastOnce(reason)),
            new_line: Some(new_line),
        };
    }
    TakeOver::NewLine(new_line)
}

/// The highest epoch of our producer id that the target shows.
fn seen_epoch(target: &TargetView) -> Option<ProducerEpoch> {
    let by_state = match target.state {
        StateAnswer::Known(state) => Some(state.epoch),
        StateAnswer::Absent | StateAnswer::Unsupported => None,
    };
    by_state.max(target.newest_epoch_in_tail())
}

#[cfg(test)]
#[path = "take_over_tests.rs"]
mod tests;
