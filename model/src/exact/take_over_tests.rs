use super::*;
use crate::exact::{ProducerState, TailScan};

const NOW: UnixMillis = UnixMillis(100_000);

fn producer(epoch: i16) -> Producer {
    Producer {
        id: ProducerId(7),
        epoch: ProducerEpoch(epoch),
    }
}

fn line(epoch: i16) -> Line {
    Line {
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(epoch),
        base: Offset(100),
        target_from: Offset(30),
    }
}

fn checkpoint(epoch: i16) -> CheckpointPlace {
    CheckpointPlace {
        offset: Offset(120),
        counted: Some((producer(epoch), Count(15), Offset(45))),
    }
}

fn target(state: Option<(i16, u64)>, end: i64) -> TargetView {
    let state = state.map_or(StateAnswer::Absent, |(epoch, next)| {
        StateAnswer::Known(ProducerState {
            epoch: ProducerEpoch(epoch),
            last_sequence: Count(next - 1).sequence(),
            last_timestamp: NOW,
        })
    });
    TargetView {
        state,
        start: Offset(0),
        log_end: Some(Offset(end)),
        end: Offset(end),
        tail: None,
    }
}

fn input(
    line: Option<&Line>,
    checkpoint: Option<CheckpointPlace>,
    target: TargetView,
) -> TakeOverInput<'_> {
    TakeOverInput {
        line,
        producer_id: ProducerId(7),
        checkpoint,
        target,
        target_is_another: false,
        source_start: Offset(0),
        source_is_deterministic: true,
        first_offset: Offset(60),
        now: NOW,
        state_lifetime: Duration::from_secs(1),
        begun: None,
        restart: None,
    }
}

fn resumed(decided: TakeOver) -> Resume {
    match decided {
        TakeOver::Resume(resume) => resume,
        other => panic!("not resumed: {other:?}"),
    }
}

fn new_line(decided: TakeOver) -> NewLine {
    match decided {
        TakeOver::NewLine(new_line) => new_line,
        other => panic!("no new line: {other:?}"),
    }
}

fn from(offset: i64, skip_records: u64) -> ReadFrom {
    ReadFrom {
        offset: Offset(offset),
        skip_records,
    }
}

#[test]
fn a_first_owner_writes_a_line_before_it_sends() {
    let first = new_line(take_over(&input(None, None, target(None, 0))));
    assert_eq!(first.producer, NextProducer::Bumped(producer(0)));
    assert_eq!((first.from, first.why), (from(60, 0), Why::First));
    // A store that was lost: the target has seen this producer id before.
    let again = new_line(take_over(&input(None, None, target(Some((4, 9)), 9))));
    assert_eq!(again.producer, NextProducer::Bumped(producer(5)));
}

#[test]
fn a_stale_checkpoint_costs_reading_and_no_repeat() {
    let line = line(2);
    let seen = target(Some((2, 19)), 60);
    let resume = resumed(take_over(&input(Some(&line), Some(checkpoint(2)), seen)));
    assert_eq!((resume.place.offset, resume.skip_records), (Offset(120), 4));
    assert_eq!(resume.first_count(), Count(19));
    assert_eq!(resume.mode, DeliveryMode::ExactlyOnce);
    assert!(!resume.first_alone);
}

#[test]
fn a_checkpoint_of_an_older_line_falls_back_to_the_base() {
    let line = line(3);
    let seen = target(Some((3, 4)), 60);
    let resume = resumed(take_over(&input(Some(&line), Some(checkpoint(2)), seen)));
    assert_eq!((resume.place.offset, resume.skip_records), (Offset(100), 4));
}

#[test]
fn without_a_state_the_first_batch_goes_alone() {
    let line = line(2);
    let seen = target(None, 45);
    let resume = resumed(take_over(&input(Some(&line), Some(checkpoint(2)), seen)));
    assert!(resume.first_alone);
    assert_eq!(resume.skip_records, 0);
    let moved = take_over(&input(Some(&line), Some(checkpoint(2)), target(None, 50)));
    assert_eq!(moved, TakeOver::ReadTail { from: Offset(45) });
}

#[test]
fn a_tail_that_the_target_lost_is_sent_again() {
    let line = line(2);
    let seen = target(Some((2, 12)), 42);
    let decided = take_over(&input(Some(&line), Some(checkpoint(2)), seen));
    let TakeOver::Rewind {
        rewind,
        resume,
        new_line: None,
    } = decided
    else {
        panic!("no rewind: {decided:?}");
    };
    assert_eq!((rewind.records(), rewind.count()), (3, Count(12)));
    // What is passed over lies before the end of the target's log, and so does not the place.
    let at = resume.rewound(from(116, 1), rewind.count(), &seen, line.target_from);
    let at = at.expect("in the line");
    assert_eq!(at.first_count(), Count(12));
    assert_eq!(
        (at.place.count, at.place.target_end),
        (Count(11), Offset(30))
    );
    assert_eq!(at.skip_end, Some(Offset(42)));
    let uncommitted = TargetView {
        log_end: Some(Offset(43)),
        ..seen
    };
    let at = resume.rewound(from(116, 1), rewind.count(), &uncommitted, line.target_from);
    assert_eq!(at.expect("in the line").skip_end, None);
    let at = resume.rewound(from(117, 0), rewind.count(), &seen, line.target_from);
    assert_eq!(at.expect("in the line").place.target_end, Offset(42));
}

#[test]
fn a_store_put_back_to_an_older_line_is_noticed() {
    let line = line(2);
    let seen = target(Some((4, 19)), 60);
    let by_state = new_line(take_over(&input(Some(&line), None, seen)));
    assert_eq!(by_state.producer, NextProducer::Bumped(producer(5)));
    assert_eq!(by_state.why, Why::Restart(Reason::StoreRestored));
    assert_eq!(by_state.repeats_max, None);
    // The checkpoint is of the newer line: nothing comes twice.
    let by_checkpoint = new_line(take_over(&input(Some(&line), Some(checkpoint(4)), seen)));
    assert_eq!(by_checkpoint.producer, NextProducer::Bumped(producer(5)));
    assert_eq!(by_checkpoint.from, from(120, 4));
    assert_eq!(by_checkpoint.repeats_max, Some(0));
}

#[test]
fn a_source_that_deleted_what_was_not_copied_begins_a_new_line() {
    let line = line(2);
    let seen = target(Some((2, 19)), 60);
    let restart = new_line(take_over(&TakeOverInput {
        source_start: Offset(130),
        ..input(Some(&line), Some(checkpoint(2)), seen)
    }));
    assert_eq!(restart.from, from(130, 0));
    assert_eq!(restart.why, Why::Restart(Reason::SourceDeleted));
    assert_eq!(restart.repeats_max, Some(4));
}

#[test]
fn every_owner_of_a_compacted_source_has_a_line_of_its_own() {
    let line = line(2);
    let seen = target(Some((2, 15)), 45);
    let restart = new_line(take_over(&TakeOverInput {
        source_is_deterministic: false,
        ..input(Some(&line), Some(checkpoint(2)), seen)
    }));
    assert_eq!(restart.why, Why::Restart(Reason::SourceCompacted));
    assert_eq!((restart.from, restart.repeats_max), (from(120, 0), Some(0)));
}

#[test]
fn a_checkpoint_that_was_not_counted_begins_a_new_line() {
    let line = line(2);
    let uncounted = CheckpointPlace {
        counted: None,
        ..checkpoint(2)
    };
    let seen = target(Some((2, 9)), 60);
    let restart = new_line(take_over(&input(Some(&line), Some(uncounted), seen)));
    assert_eq!(
        (restart.from, restart.why),
        (from(120, 0), Why::OtherEngine)
    );
    assert_eq!(restart.producer, NextProducer::Bumped(producer(3)));
}

/// Put back by hand, to copy once more: what the target has of the line is nothing to be passed over.
#[test]
fn a_checkpoint_put_back_below_the_line_begins_a_new_one() {
    let line = line(2);
    for offset in [0, 100, 110] {
        let put_back = CheckpointPlace {
            offset: Offset(offset),
            counted: None,
        };
        let seen = target(Some((2, 1_000)), 1_030);
        let restart = new_line(take_over(&input(Some(&line), Some(put_back), seen)));
        let expected = (from(offset, 0), Why::OtherEngine);
        assert_eq!((restart.from, restart.why), expected);
        // Once that line is written the checkpoint has been dealt with.
        let begun = Line {
            producer_epoch: ProducerEpoch(3),
            base: Offset(offset),
            ..line
        };
        let resume = resumed(take_over(&TakeOverInput {
            begun: Some(producer(3)),
            ..input(Some(&begun), Some(put_back), seen)
        }));
        assert_eq!((resume.producer, resume.skip_records), (producer(3), 0));
    }
}

#[test]
fn what_a_sender_has_ended_with_begins_the_next_line() {
    let line = line(2);
    let restart = Restart {
        line: producer(2),
        from: from(110, 3),
        why: Reason::ProducerStateLost,
        repeats_max: Some(0),
    };
    let ended = |line, source_start| TakeOverInput {
        restart: Some(restart),
        source_start: Offset(source_start),
        ..input(Some(line), Some(checkpoint(2)), target(Some((2, 15)), 45))
    };
    let next = new_line(take_over(&ended(&line, 0)));
    assert_eq!(next.producer, NextProducer::Bumped(producer(3)));
    assert_eq!((next.from, next.repeats_max), (from(110, 3), Some(0)));
    assert_eq!(next.why, Why::Restart(Reason::ProducerStateLost));
    // The source has deleted it since.
    let next = new_line(take_over(&ended(&line, 115)));
    assert_eq!((next.from, next.repeats_max), (from(115, 0), None));
    // Somebody has written another line since.
    let newer = Line {
        producer_epoch: ProducerEpoch(3),
        ..line
    };
    assert_eq!(resumed(take_over(&ended(&newer, 0))).producer, producer(3));
}

#[test]
fn a_target_made_anew_stops_the_task() {
    let line = line(2);
    let decided = take_over(&TakeOverInput {
        target_is_another: true,
        ..input(Some(&line), Some(checkpoint(2)), target(None, 0))
    });
    assert_eq!(decided, TakeOver::Denied(Denied::TargetRecreated));
}

#[test]
fn an_old_target_is_exact_by_its_log_and_repeats_without_it() {
    let line = line(2);
    let old = TargetView {
        state: StateAnswer::Unsupported,
        log_end: None,
        ..target(None, 50)
    };
    let mut scan = TailScan::new(producer(2), Offset(45));
    scan.batch(Some(producer(2)), Some(Count(15).sequence()), 3, Offset(48));
    scan.reached(Offset(50));
    let read = TargetView {
        tail: Some(Tail::Read(scan)),
        ..old
    };
    let resume = resumed(take_over(&input(Some(&line), Some(checkpoint(2)), read)));
    assert_eq!(resume.skip_records, 3);
    assert_eq!(resume.mode, DeliveryMode::ExactlyOnce);
    let blind = TargetView {
        tail: Some(Tail::Unreadable),
        ..old
    };
    let restart = new_line(take_over(&input(Some(&line), Some(checkpoint(2)), blind)));
    assert_eq!(restart.why, Why::Restart(Reason::TargetTooOld));
}

/// Nothing lies beyond the checkpoint, and still it decides what is promised whether the log may be read.
#[test]
fn an_old_target_is_read_before_anything_is_promised() {
    let line = line(2);
    let old = TargetView {
        state: StateAnswer::Unsupported,
        log_end: None,
        ..target(None, 45)
    };
    let decide = |tail| {
        let seen = TargetView { tail, ..old };
        take_over(&input(Some(&line), Some(checkpoint(2)), seen))
    };
    assert_eq!(decide(None), TakeOver::ReadTail { from: Offset(45) });
    let mut nothing = TailScan::new(producer(2), Offset(45));
    nothing.reached(Offset(45));
    let resume = resumed(decide(Some(Tail::Read(nothing))));
    assert_eq!(resume.mode, DeliveryMode::ExactlyOnce);
    let resume = resumed(decide(Some(Tail::Unreadable)));
    assert_eq!(resume.mode, DeliveryMode::AtLeastOnce(Reason::TargetTooOld));
    assert_eq!(resume.skip_records, 0);
}
