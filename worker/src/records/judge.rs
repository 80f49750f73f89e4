//! What the offsets of a source partition say about its reader: pure decisions over one look.
//!
//! librdkafka tells that *some* partition's offset is out of range, not which one, and says nothing when
//! a partition just stops moving (C102, C104). So each partition is looked at now and then: where its
//! log starts and ends, where the reader is, and whether it moved since the look before.

use std::time::Duration;

use kreplicator_model::{ids::Offset, spec::GapPolicy};

use crate::fault::Fault;

/// One look at a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// First offset that the source has.
    pub(super) log_start: Offset,
    /// Its last stable offset.
    pub(super) log_end: Offset,
    /// Next offset to be read. Not progress.
    pub(super) position: Offset,
    /// The position before the source was asked, so that both are of one time or the end is newer.
    pub(super) asked_at: Offset,
    /// How long the position has not moved while the reader was free to go on.
    pub(super) still_for: Duration,
    /// Looks in a row, before this one, that saw the reader past the end.
    pub(super) past_end_before: u32,
    /// Times that the reader was reopened since the position moved.
    pub(super) pokes: u32,
    /// The library has found a damaged batch at the position, of this partition or of another.
    pub(super) is_damaged: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All is well.
    Fine,
    /// The reader is past the end, which may be a new leader that has not caught up: look again.
    PastEnd,
    /// Offsets `[position, log_start)` are gone: go on at the log's start.
    Skip,
    /// Reopen the reader of this partition.
    Poke,
    /// Reopening did not help: replace the whole reader.
    Rebuild,
    /// The batch at the position is damaged: stop the task.
    Damaged,
    /// Stop the task.
    Fault(Fault),
}

/// Looks in a row that make "past the end" certain.
const PAST_END_LOOKS: u32 = 2;
/// Reopenings before the reader is replaced.
const POKES_MAX: u32 = 2;
/// How long a reader stands still at a place where damage was found until that counts as its own: another
/// partition may be damaged at the same offset.
const DAMAGED_AFTER: Duration = Duration::from_secs(1);

/// What a look means.
pub(super) fn judge(look: Look, policy: GapPolicy, stall_after: Duration) -> Verdict {
    if look.position < look.log_start {
        return match policy {
            // A short grace: records that are deleted by now may lie in the reader's queue.
            _ if look.still_for < stall_after / 2 => Verdict::Fine,
            GapPolicy::ContinueAndReport => Verdict::Skip,
            GapPolicy::Halt => Verdict::Fault(Fault::halted_by_gap(look.position, look.log_start)),
        };
    }
    if look.asked_at > look.log_end {
        if look.past_end_before + 1 < PAST_END_LOOKS {
            return Verdict::PastEnd;
        }
        return Verdict::Fault(Fault::truncated(look.asked_at, look.log_end));
    }
    if look.is_damaged && look.position < look.log_end && look.still_for >= DAMAGED_AFTER {
        return Verdict::Damaged;
    }
    let is_stalled = look.position < look.log_end && look.still_for >= stall_after;
    match (is_stalled, look.pokes < POKES_MAX) {
        (false, _) => Verdict::Fine,
        (true, true) => Verdict::Poke,
        (true, false) => Verdict::Rebuild,
    }
}

/// Where a task begins that has found its checkpoint.
pub(super) fn check_start(
    checkpoint: Offset,
    log_start: Offset,
    log_end: Offset,
    policy: GapPolicy,
) -> Result<Start, Fault> {
    if checkpoint > log_end {
        return Err(Fault::truncated(checkpoint, log_end));
    }
    if checkpoint >= log_start {
        return Ok(Start::at(checkpoint));
    }
    match policy {
        GapPolicy::ContinueAndReport => Ok(Start {
            from: checkpoint,
            at: log_start,
        }),
        GapPolicy::Halt => Err(Fault::halted_by_gap(checkpoint, log_start)),
    }
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The checkpoint: what lies between was never copied and is gone.
    pub(super) from: Offset,
    /// The first offset to read.
    pub(super) at: Offset,
}

impl Start {
    /// Without a gap.
    pub(super) fn at(at: Offset) -> Self {
        Self { from: at, at }
    }

    /// Offsets that are gone.
    pub(super) fn gap_records(self) -> u64 {
        self.at.0.abs_diff(self.from.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    const STALL: Duration = Duration::from_secs(10);

    fn look() -> Look {
        Look {
            log_start: Offset(0),
            log_end: Offset(100),
            position: Offset(40),
            asked_at: Offset(40),
            still_for: Duration::from_secs(1),
            past_end_before: 0,
            pokes: 0,
            is_damaged: false,
        }
    }

    fn verdict(look: Look) -> Verdict {
        judge(look, GapPolicy::ContinueAndReport, STALL)
    }

    #[test]
    fn a_moving_reader_and_one_at_the_end_are_fine() {
        assert_eq!(verdict(look()), Verdict::Fine);
        let at_end = Look {
            position: Offset(100),
            asked_at: Offset(100),
            still_for: Duration::from_secs(9_999),
            ..look()
        };
        assert_eq!(verdict(at_end), Verdict::Fine);
    }

    #[test]
    fn c001_a_reader_below_the_start_follows_the_gap_policy() {
        let below = Look {
            log_start: Offset(60),
            still_for: STALL,
            ..look()
        };
        assert_eq!(verdict(below), Verdict::Skip);
        let Verdict::Fault(fault) = judge(below, GapPolicy::Halt, STALL) else {
            panic!("halts");
        };
        assert_eq!(fault.kind, Kind::Gap);
        assert!(fault.cause.contains("[40, 60)"), "{fault}");
        let still_reading = Look {
            still_for: Duration::from_secs(1),
            ..below
        };
        assert_eq!(
            verdict(still_reading),
            Verdict::Fine,
            "its queue may still hold them"
        );
    }

    #[test]
    fn c005_a_reader_past_the_end_is_reported_and_never_moved() {
        let past = Look {
            position: Offset(101),
            asked_at: Offset(101),
            ..look()
        };
        assert_eq!(
            verdict(past),
            Verdict::PastEnd,
            "a new leader may be behind for a moment"
        );
        let again = Look {
            past_end_before: 1,
            ..past
        };
        let Verdict::Fault(fault) = verdict(again) else {
            panic!("stops");
        };
        assert_eq!(fault.kind, Kind::Truncated);
        assert!(fault.cause.contains("ends at 100"), "{fault}");
    }

    #[test]
    fn a_reader_that_has_passed_an_end_measured_before_is_fine() {
        let overtaken = Look {
            position: Offset(103),
            asked_at: Offset(99),
            past_end_before: 5,
            ..look()
        };
        assert_eq!(verdict(overtaken), Verdict::Fine);
    }

    #[test]
    fn c102_a_reader_that_stands_still_is_poked_and_then_replaced() {
        let still = Look {
            still_for: STALL,
            ..look()
        };
        assert_eq!(verdict(still), Verdict::Poke);
        assert_eq!(verdict(Look { pokes: 1, ..still }), Verdict::Poke);
        assert_eq!(verdict(Look { pokes: 2, ..still }), Verdict::Rebuild);
    }

    #[test]
    fn c024_a_reader_that_stands_before_damage_is_told_of_it_unless_there_is_nothing_to_read() {
        let damaged = Look {
            is_damaged: true,
            ..look()
        };
        assert_eq!(verdict(damaged), Verdict::Damaged);
        let just_now = Look {
            still_for: Duration::from_millis(900),
            ..damaged
        };
        assert_eq!(verdict(just_now), Verdict::Fine, "it may be on its way");
        let at_end = Look {
            position: Offset(100),
            asked_at: Offset(100),
            ..damaged
        };
        assert_eq!(verdict(at_end), Verdict::Fine, "another partition's");
    }

    #[test]
    fn a_start_is_where_the_checkpoint_says_when_the_source_still_has_it() {
        let start =
            |checkpoint, policy| check_start(Offset(checkpoint), Offset(5), Offset(50), policy);
        let report = GapPolicy::ContinueAndReport;
        assert_eq!(start(5, report), Ok(Start::at(Offset(5))));
        assert_eq!(start(50, report), Ok(Start::at(Offset(50))));
        assert_eq!(
            start(1, report),
            Ok(Start {
                from: Offset(1),
                at: Offset(5),
            })
        );
        assert_eq!(
            start(1, GapPolicy::Halt).map_err(|fault| fault.kind),
            Err(Kind::Gap)
        );
        assert_eq!(
            start(51, report).map_err(|fault| fault.kind),
            Err(Kind::Truncated)
        );
    }
}
