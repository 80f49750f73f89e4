use super::*;
use crate::exact::{
    DeliveryMode, ProducerEpoch, ProducerId, ProducerState, StateAnswer, Tail, TailScan, TargetView,
};

const PRODUCER: Producer = Producer {
    id: ProducerId(7),
    epoch: ProducerEpoch(2),
};

fn now(ms: u64) -> Now {
    Now {
        mono: Duration::from_millis(ms),
        wall: UnixMillis(1_000_000).max(UnixMillis(1_000_000 + ms.cast_signed())),
    }
}

fn sender(first_alone: bool) -> Sender {
    sender_from(0, None, first_alone)
}

/// One that passes records over first.
fn sender_from(skip_records: u64, skip_end: Option<Offset>, first_alone: bool) -> Sender {
    let settings = Settings {
        in_flight_max: 5,
        quiet_max: Duration::from_millis(100),
        unheard_max: Duration::from_secs(10),
        state_lifetime: Duration::from_secs(100),
        history_max: 8,
        source_is_deterministic: true,
    };
    let start = Start {
        producer: PRODUCER,
        place: Place {
            offset: Offset(0),
            count: Count(0),
            target_end: Offset(50),
        },
        skip_records,
        skip_end,
        first_alone,
        mode: DeliveryMode::ExactlyOnce,
    };
    Sender::new(settings, start, now(0))
}

fn batch(from: i64, to: i64) -> Batch {
    Batch {
        from: Offset(from),
        to: Offset(to),
        records: u32::try_from(to - from).expect("small"),
        timestamp_max: UnixMillis(1_000_000),
    }
}

/// Pushes batches of ten records and sends all that may be sent.
fn filled(sender: &mut Sender, batches: i64) -> Vec<(BatchId, u32)> {
    let begin = sender.position().0;
    for index in 0..batches {
        let from = begin + 10 * index;
        sender.push(batch(from, from + 10), now(1)).expect("room");
    }
    sent(sender)
}

fn sent(sender: &mut Sender) -> Vec<(BatchId, u32)> {
    let mut all = Vec::new();
    while let Some(Action::Send { id, attempt }) = sender.poll(now(1)) {
        all.push((id, attempt));
    }
    all
}

fn ack(sender: &mut Sender, (id, attempt): (BatchId, u32), base: i64) {
    let base_offset = Offset(base);
    sender.answered(id, attempt, Answer::Acked { base_offset }, now(1));
}

fn seen(next: u64, end: i64) -> TargetView {
    TargetView {
        state: StateAnswer::Known(ProducerState {
            epoch: PRODUCER.epoch,
            last_sequence: Count(next - 1).sequence(),
            last_timestamp: UnixMillis(1_000_000),
        }),
        start: Offset(0),
        log_end: Some(Offset(end)),
        end: Offset(end),
        tail: None,
    }
}

#[test]
fn five_batches_are_in_flight_and_a_sixth_is_not_taken() {
    let mut sender = sender(false);
    assert_eq!(filled(&mut sender, 5).len(), 5);
    let full = sender.push(batch(50, 60), now(1)).expect_err("full");
    assert_eq!(full, PushError::Full { held: 5 });
}

/// A broker that cannot take anything now says so before it looks whether it has the batch already. Seen
/// behind a later batch that was acknowledged, that is no hole.
#[test]
fn a_refusal_does_not_tell_that_an_earlier_attempt_is_not_there() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    let (id, attempt) = flying[0];
    sender.answered(id, attempt, Answer::Unsure, now(1));
    ack(&mut sender, flying[1], 60);
    let again = sent(&mut sender);
    assert_eq!(again, [(id, 2)]);
    sender.answered(id, 2, Answer::Refused, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget), "no new line");
    sender.target_seen(&seen(20, 70), now(1));
    assert_eq!(sent(&mut sender), [], "it is there");
    assert_eq!(sender.checkpoint().place.offset, Offset(20));
    assert_eq!(sender.mode(), DeliveryMode::ExactlyOnce);
}

#[test]
fn without_a_guard_one_goes_alone_until_it_is_acknowledged() {
    let mut sender = sender(true);
    let first = filled(&mut sender, 3);
    assert_eq!(first.len(), 1);
    ack(&mut sender, first[0], 50);
    assert_eq!(sent(&mut sender).len(), 2);
}

#[test]
fn c026_the_checkpoint_waits_for_acknowledgements_in_order() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 3);
    ack(&mut sender, flying[1], 60);
    assert_eq!(sender.checkpoint().place.offset, Offset(0));
    ack(&mut sender, flying[0], 50);
    let place = sender.checkpoint().place;
    assert_eq!((place.offset, place.count), (Offset(20), Count(20)));
    assert_eq!(place.target_end, Offset(70));
    assert_eq!(sender.oldest(), Some(flying[2].0));
}

#[test]
fn c027_after_a_lost_connection_all_is_sent_again_as_it_was() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    sender.connection_lost();
    let again = sent(&mut sender);
    assert_eq!(again, [(flying[0].0, 2)]);
    // An answer that was given up may still be heard.
    ack(&mut sender, flying[0], 50);
    assert_eq!(sent(&mut sender), [(flying[1].0, 2)]);
    ack(&mut sender, (flying[1].0, 2), 60);
    assert_eq!(sender.checkpoint().place.offset, Offset(20));
}

#[test]
fn another_owner_that_is_ahead_is_followed() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    for attempt in flying {
        sender.answered(attempt.0, attempt.1, Answer::OutOfOrder, now(1));
    }
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    sender.target_seen(&seen(13, 63), now(1));
    let from = ReadFrom {
        offset: Offset(10),
        skip_records: 3,
    };
    assert_eq!(sender.poll(now(1)), Some(Action::Reread { from }));
    let next = sender.push(batch(10, 20), now(1)).expect("room");
    assert_eq!(next.sequence, Count(13).sequence());
    assert_eq!(sender.counts().skipped_records, 13);
}

/// As many batches as may be held are there already, and so is what follows them. They may not keep out
/// what would be acknowledged after them.
#[test]
fn another_owner_that_is_ahead_of_a_full_window_is_followed() {
    let mut sender = sender(false);
    for (id, attempt) in filled(&mut sender, 5) {
        sender.answered(id, attempt, Answer::OutOfOrder, now(1));
    }
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    // Somebody else writes to the target too, so where our records end is not known.
    sender.target_seen(&seen(70, 130), now(1));
    let from = ReadFrom {
        offset: Offset(0),
        skip_records: 70,
    };
    assert_eq!(sender.poll(now(1)), Some(Action::Reread { from }));
    assert_eq!(sender.oldest(), None);
    assert!(sender.has_room());
    let rest = Batch {
        records: 10,
        ..batch(0, 80)
    };
    let next = sender.push(rest, now(1)).expect("room");
    assert_eq!(next.sequence, Count(70).sequence());
    let flying = sent(&mut sender);
    ack(&mut sender, flying[0], 130);
    let place = sender.checkpoint().place;
    assert_eq!((place.offset, sender.oldest()), (Offset(80), None));
}

#[test]
fn a_tail_that_the_target_lost_is_read_again_from_memory() {
    let mut sender = sender(false);
    for (index, flying) in filled(&mut sender, 3).into_iter().enumerate() {
        ack(
            &mut sender,
            flying,
            50 + 10 * i64::try_from(index).expect("small"),
        );
    }
    let flying = filled(&mut sender, 1);
    sender.answered(flying[0].0, 1, Answer::OutOfOrder, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    sender.target_seen(&seen(15, 65), now(1));
    let from = ReadFrom {
        offset: Offset(10),
        skip_records: 5,
    };
    assert_eq!(sender.poll(now(1)), Some(Action::Reread { from }));
    assert_eq!(sender.counts().healed_records, 15);
    assert_eq!(sender.checkpoint().place.offset, Offset(10));
}

#[test]
fn c028_after_a_freeze_the_target_is_asked_first() {
    let mut sender = sender(false);
    sender.push(batch(0, 10), now(1)).expect("room");
    assert!(!sender.is_up_to_date(now(5_000)), "before anything is done");
    assert_eq!(sender.poll(now(5_000)), Some(Action::AskTarget));
    assert!(
        !sender.is_up_to_date(now(5_000)),
        "nothing was answered yet"
    );
    // Frozen once more: the answer is old when it is read.
    sender.target_seen(&seen(1, 50), now(9_000));
    assert_eq!(sender.poll(now(9_000)), Some(Action::AskTarget));
    sender.target_seen(&seen(1, 51), now(9_001));
    assert!(sender.is_up_to_date(now(9_001)));
}

/// Two batches; the first was refused, the second is there.
fn doubting(refusal: Answer) -> Sender {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    sender.answered(flying[0].0, 1, refusal, now(1));
    ack(&mut sender, flying[1], 60);
    let from = Offset(50);
    assert_eq!(sender.poll(now(1)), Some(Action::ReadTail { from }));
    sender
}

fn with_tail(batches: &[(u64, u64, i64)], end: i64) -> TargetView {
    let mut scan = TailScan::new(PRODUCER, Offset(50));
    for (first, records, to) in batches {
        let first = Some(Count(*first).sequence());
        scan.batch(Some(PRODUCER), first, *records, Offset(*to));
    }
    scan.reached(Offset(end));
    TargetView {
        tail: Some(Tail::Read(scan)),
        ..seen(20, end)
    }
}

/// The target dropped our state between the two. Others' records make room enough for both.
#[test]
fn a_refused_batch_that_is_missing_before_one_that_is_there_ends_the_line() {
    let mut sender = doubting(Answer::Refused);
    sender.target_seen(&with_tail(&[(10, 10, 80)], 80), now(1));
    let Some(Action::NewLine { from, why, .. }) = sender.poll(now(1)) else {
        panic!("the line goes on");
    };
    assert_eq!((from.offset, why), (Offset(0), Reason::ProducerStateLost));
    assert_eq!(sender.counts().restarts[&Reason::ProducerStateLost], 1);
}

/// Another owner has sent both, and the target remembers five batches: it refuses the older one and knows
/// the younger one again.
#[test]
fn a_batch_refused_before_one_known_again_may_be_there() {
    for refusal in [Answer::OutOfOrder, Answer::Refused] {
        let mut sender = doubting(refusal);
        sender.target_seen(&with_tail(&[(0, 10, 60), (10, 10, 70)], 70), now(1));
        assert_eq!(sender.poll(now(1)), None);
        assert_eq!(sender.checkpoint().place.offset, Offset(20));
        assert_eq!(sender.mode(), DeliveryMode::ExactlyOnce);
        assert!(sender.counts().restarts.is_empty());
    }
}

#[test]
fn a_log_that_may_not_be_read_leaves_the_doubt() {
    let mut sender = doubting(Answer::Refused);
    let unreadable = TargetView {
        tail: Some(Tail::Unreadable),
        ..seen(20, 80)
    };
    sender.target_seen(&unreadable, now(1));
    let next = sender.poll(now(1));
    assert!(
        matches!(
            next,
            Some(Action::NewLine {
                repeats_max: None,
                ..
            })
        ),
        "{next:?}"
    );
}

#[test]
fn an_acknowledgement_before_what_was_acknowledged_ends_the_line() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    ack(&mut sender, flying[0], 50);
    ack(&mut sender, flying[1], 52);
    let Some(Action::NewLine { from, .. }) = sender.poll(now(1)) else {
        panic!("the line goes on");
    };
    assert_eq!(from.offset, Offset(0));
}

#[test]
fn an_old_epoch_stops_the_sender() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 1);
    sender.answered(flying[0].0, 1, Answer::OldEpoch, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::Stop(Stop::NewerLine)));
    assert_eq!(sender.push(batch(10, 20), now(1)), Err(PushError::Ended));
}

#[test]
fn an_old_target_without_a_state_takes_a_new_line_only() {
    let mut sender = sender(true);
    let flying = filled(&mut sender, 2);
    ack(&mut sender, flying[0], 50);
    let flying = sent(&mut sender);
    sender.answered(flying[0].0, 1, Answer::UnknownProducer, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    let absent = TargetView {
        state: StateAnswer::Absent,
        ..seen(1, 60)
    };
    sender.target_seen(&absent, now(1));
    let again = sent(&mut sender);
    sender.answered(again[0].0, 2, Answer::UnknownProducer, now(1));
    let Some(Action::NewLine {
        from, repeats_max, ..
    }) = sender.poll(now(1))
    else {
        panic!("the line goes on");
    };
    assert_eq!((from.offset, repeats_max), (Offset(10), Some(0)));
}

#[test]
fn old_records_are_said_to_repeat_and_go_one_by_one() {
    let mut sender = sender(false);
    for from in [0, 10] {
        let old = Batch {
            timestamp_max: UnixMillis(0),
            ..batch(from, from + 10)
        };
        sender.push(old, now(1)).expect("room");
    }
    let old = DeliveryMode::AtLeastOnce(Reason::OldRecords);
    assert_eq!(sender.mode(), old);
    assert_eq!(sent(&mut sender).len(), 1);
}

#[test]
fn offsets_that_the_source_lost_end_the_line_when_all_is_acknowledged() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 1);
    assert!(!sender.source_lost(Offset(40)));
    ack(&mut sender, flying[0], 50);
    assert!(sender.source_lost(Offset(40)));
    let Some(Action::NewLine {
        from, repeats_max, ..
    }) = sender.poll(now(1))
    else {
        panic!("the line goes on");
    };
    assert_eq!((from.offset, repeats_max), (Offset(40), Some(0)));
}

#[test]
fn batches_that_do_not_follow_are_not_taken() {
    let mut sender = sender(false);
    let expected = Offset(0);
    let from = Offset(5);
    let not_next = PushError::NotNext { from, expected };
    assert_eq!(sender.push(batch(5, 10), now(1)), Err(not_next));
    let empty = sender.push(batch(0, 0), now(1)).expect_err("empty");
    assert!(matches!(empty, PushError::Malformed { .. }));
    sender.passed(Offset(5), 0);
    assert_eq!(sender.checkpoint().place.offset, Offset(5));
    assert!(sender.push(batch(5, 10), now(1)).is_ok());
}

#[test]
fn what_was_acknowledged_behind_a_batch_that_turns_out_to_be_there_counts() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 2);
    let (id, attempt) = flying[0];
    sender.answered(id, attempt, Answer::Unsure, now(1));
    ack(&mut sender, flying[1], 60);
    let again = sent(&mut sender);
    assert_eq!(again.len(), 1, "the first goes alone");
    let (id, attempt) = again[0];
    sender.answered(id, attempt, Answer::Unsure, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    sender.target_seen(&seen(20, 70), now(1));
    // Nothing follows that could be acknowledged.
    assert_eq!(sender.poll(now(1)), None);
    assert_eq!(sender.checkpoint().place.offset, Offset(20));
    assert_eq!(sender.oldest(), None);
}

#[test]
fn before_a_reread_is_given_nothing_is_taken_and_nothing_passed_over() {
    let mut sender = sender(false);
    for (index, sent) in (0..).zip(filled(&mut sender, 2)) {
        ack(&mut sender, sent, 50 + 10 * index);
    }
    let flying = filled(&mut sender, 1);
    let (id, attempt) = flying[0];
    sender.answered(id, attempt, Answer::OutOfOrder, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    // An unclean change of leaders: ten records are gone.
    sender.target_seen(&seen(10, 60), now(1));
    assert!(!sender.has_room());
    sender.passed(Offset(30), 0);
    let from = ReadFrom {
        offset: Offset(10),
        skip_records: 0,
    };
    assert_eq!(sender.poll(now(1)), Some(Action::Reread { from }));
    assert!(sender.has_room());
    assert_eq!(sender.position(), Offset(10));
}

#[test]
fn what_another_owner_delivered_counts_though_nothing_follows_it() {
    let mut sender = sender_from(20, Some(Offset(70)), false);
    sender.passed(Offset(15), 5);
    assert_eq!(sender.checkpoint().place.offset, Offset(0), "some are left");
    sender.passed(Offset(24), 0);
    let place = Place {
        offset: Offset(24),
        count: Count(20),
        target_end: Offset(70),
    };
    assert_eq!(sender.checkpoint().place, place);
    assert_eq!(sender.poll(now(1)), None, "nothing is to be asked");
    let next = sender.push(batch(24, 34), now(1)).expect("room");
    assert_eq!(next.sequence, Count(20).sequence());
}

#[test]
fn where_others_write_too_the_log_tells_where_passed_over_records_end() {
    let mut sender = sender_from(20, None, false);
    sender.passed(Offset(24), 0);
    let from = Offset(50);
    assert_eq!(sender.poll(now(1)), Some(Action::ReadTail { from }));
    let mut scan = TailScan::new(PRODUCER, from);
    scan.batch(Some(PRODUCER), Some(Count(0).sequence()), 20, Offset(75));
    scan.reached(Offset(80));
    let read = TargetView {
        tail: Some(Tail::Read(scan)),
        ..seen(20, 80)
    };
    sender.target_seen(&read, now(1));
    let place = sender.checkpoint().place;
    assert_eq!((place.offset, place.target_end), (Offset(24), Offset(80)));
    assert_eq!(sender.poll(now(1)), None);
}

#[test]
fn records_that_were_passed_over_and_are_gone_are_read_again() {
    let mut sender = sender_from(20, None, false);
    sender.passed(Offset(24), 0);
    sender.push(batch(24, 34), now(1)).expect("room");
    let flying = sent(&mut sender);
    sender.answered(flying[0].0, 1, Answer::OutOfOrder, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    sender.target_seen(&seen(12, 62), now(1));
    let from = ReadFrom {
        offset: Offset(0),
        skip_records: 12,
    };
    assert_eq!(sender.poll(now(1)), Some(Action::Reread { from }));
    assert_eq!(sender.oldest(), None, "nothing is held");
    let next = sender.push(batch(0, 24), now(1)).expect("room");
    assert_eq!(next.sequence, Count(12).sequence());
}

#[test]
fn what_is_not_committed_is_asked_for_with_pauses() {
    let mut sender = sender(false);
    let flying = filled(&mut sender, 1);
    sender.answered(flying[0].0, 1, Answer::OutOfOrder, now(1));
    assert_eq!(sender.poll(now(1)), Some(Action::AskTarget));
    let uncommitted = TargetView {
        log_end: Some(Offset(61)),
        ..seen(10, 60)
    };
    sender.target_seen(&uncommitted, now(1));
    assert_eq!(sender.poll(now(50)), None);
    assert_eq!(sender.poll(now(101)), Some(Action::AskTarget));
}

#[test]
fn a_tail_that_does_not_tell_is_not_read_without_end() {
    let mut sender = sender_from(20, None, false);
    sender.passed(Offset(24), 0);
    let from = Offset(50);
    assert_eq!(sender.poll(now(1)), Some(Action::ReadTail { from }));
    let mut scan = TailScan::new(PRODUCER, from);
    scan.batch(Some(PRODUCER), Some(Count(0).sequence()), 15, Offset(75));
    scan.batch(Some(PRODUCER), Some(Count(10).sequence()), 10, Offset(85));
    let disordered = TargetView {
        tail: Some(Tail::Read(scan)),
        ..seen(20, 85)
    };
    for at in [2, 50, 100, 150] {
        sender.target_seen(&disordered, now(at));
        assert_eq!(sender.poll(now(at)), None);
    }
    for at in (200..5_000).step_by(50) {
        assert_eq!(sender.poll(now(at)), None);
    }
    assert_eq!(sender.poll(now(5_001)), Some(Action::ReadTail { from }));
}

/// The target has deleted what lies between the checkpoint and now.
#[test]
fn a_tail_cut_off_by_retention_still_tells_where_records_end() {
    let mut sender = sender_from(20, None, false);
    sender.passed(Offset(24), 0);
    assert!(matches!(sender.poll(now(1)), Some(Action::ReadTail { .. })));
    let mut scan = TailScan::new(PRODUCER, Offset(62));
    scan.batch(Some(PRODUCER), Some(Count(12).sequence()), 8, Offset(75));
    scan.reached(Offset(80));
    let read = TargetView {
        start: Offset(62),
        tail: Some(Tail::Read(scan)),
        ..seen(20, 80)
    };
    sender.target_seen(&read, now(1));
    let place = sender.checkpoint().place;
    assert_eq!((place.offset, place.target_end), (Offset(24), Offset(80)));
}
