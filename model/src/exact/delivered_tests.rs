use super::*;
use crate::exact::{ProducerId, Sequence};

const LIFETIME: Duration = Duration::from_millis(1_000);
const NOW: UnixMillis = UnixMillis(100_000);

fn producer(epoch: i16) -> Producer {
    Producer {
        id: ProducerId(7),
        epoch: ProducerEpoch(epoch),
    }
}

fn place(count: u64, target_end: i64) -> Place {
    Place {
        offset: Offset(500),
        count: Count(count),
        target_end: Offset(target_end),
    }
}

/// The state after a batch that ends before `next`, `age_ms` ago.
fn known(epoch: i16, next: u64, age_ms: i64) -> StateAnswer {
    StateAnswer::Known(ProducerState {
        epoch: ProducerEpoch(epoch),
        last_sequence: Count(next - 1).sequence(),
        last_timestamp: UnixMillis(NOW.0 - age_ms),
    })
}

fn view(state: StateAnswer, end: i64) -> TargetView {
    TargetView {
        state,
        start: Offset(0),
        log_end: Some(Offset(end)),
        end: Offset(end),
        tail: None,
    }
}

fn with_tail(view: TargetView, from: i64, batches: &[(u64, u64, i64)]) -> TargetView {
    let mut scan = TailScan::new(producer(2), Offset(from));
    for (first, records, to) in batches {
        let first: Option<Sequence> = Some(Count(*first).sequence());
        scan.batch(Some(producer(2)), first, *records, Offset(*to));
    }
    scan.reached(view.end);
    TargetView {
        tail: Some(Tail::Read(scan)),
        ..view
    }
}

fn found(place: Place, view: TargetView) -> Delivered {
    delivered(producer(2), place, &view, NOW, LIFETIME)
}

#[test]
fn a_committed_state_says_how_far_the_target_is() {
    let here = place(10, 40);
    assert_eq!(found(here, view(known(2, 10, 5), 40)), Delivered::Ahead(0));
    assert_eq!(found(here, view(known(2, 13, 5), 43)), Delivered::Ahead(3));
    assert_eq!(found(here, view(known(2, 8, 5), 38)), Delivered::Behind(2));
}

#[test]
fn what_is_not_committed_is_not_built_upon() {
    let seen = TargetView {
        log_end: Some(Offset(47)),
        ..view(known(2, 13, 5), 45)
    };
    assert_eq!(found(place(10, 40), seen), Delivered::NotYet);
    let unknown = TargetView {
        log_end: None,
        ..seen
    };
    let from = Offset(40);
    assert_eq!(found(place(10, 40), unknown), Delivered::NeedsTail { from });
    let read = with_tail(unknown, 40, &[(10, 2, 42)]);
    assert_eq!(found(place(10, 40), read), Delivered::Ahead(2));
}

#[test]
fn sequences_that_wrapped_are_counted_on() {
    let last = (1 << 31) - 2;
    let seen = view(known(2, last + 5, 5), 45);
    assert_eq!(found(place(last, 40), seen), Delivered::Ahead(5));
    let seen = view(known(2, last, 5), 38);
    assert_eq!(found(place(last + 5, 43), seen), Delivered::Behind(5));
}

#[test]
fn a_checkpoint_that_is_too_old_for_sequences_is_told() {
    let seen = view(known(2, 13, 5), 40 + (1 << 30));
    let too_old = Delivered::Unknown(Reason::CheckpointTooOld);
    assert_eq!(found(place(10, 40), seen), too_old);
}

#[test]
fn a_newer_epoch_is_a_newer_line_and_an_older_one_is_none_of_it() {
    let seen = view(known(3, 13, 5), 43);
    let newer = Delivered::NewerLine(ProducerEpoch(3));
    assert_eq!(found(place(10, 40), seen), newer);
    let seen = view(known(1, 99, 5), 43);
    assert_eq!(found(place(0, 40), seen), Delivered::Ahead(0));
    assert_eq!(found(place(10, 40), seen), Delivered::Behind(10));
}

#[test]
fn without_a_state_an_unmoved_end_proves_that_nothing_came() {
    for state in [StateAnswer::Absent, StateAnswer::Unsupported] {
        assert_eq!(found(place(10, 40), view(state, 40)), Delivered::Ahead(0));
        let from = Offset(40);
        let seen = view(state, 45);
        assert_eq!(found(place(10, 40), seen), Delivered::NeedsTail { from });
    }
}

#[test]
fn without_a_state_the_log_tells() {
    let seen = view(StateAnswer::Absent, 45);
    let read = with_tail(seen, 40, &[(10, 2, 42), (12, 2, 44)]);
    assert_eq!(found(place(10, 40), read), Delivered::Ahead(4));
    let others_only = with_tail(seen, 40, &[]);
    assert_eq!(found(place(10, 40), others_only), Delivered::Ahead(0));
    let unreadable = TargetView {
        tail: Some(Tail::Unreadable),
        ..seen
    };
    let expired = Delivered::Unknown(Reason::ProducerStateExpired);
    assert_eq!(found(place(10, 40), unreadable), expired);
}

#[test]
fn a_hole_or_a_repeat_in_the_log_ends_the_counting() {
    let seen = view(StateAnswer::Absent, 45);
    let hole = with_tail(seen, 40, &[(12, 2, 42)]);
    let lost = Delivered::Unknown(Reason::ProducerStateLost);
    assert_eq!(found(place(10, 40), hole), lost);
    let repeat = with_tail(seen, 40, &[(10, 2, 42), (10, 2, 44)]);
    let disordered = Delivered::Unknown(Reason::TargetDisordered);
    assert_eq!(found(place(10, 40), repeat), disordered);
}

#[test]
fn an_old_state_that_is_ahead_needs_the_log() {
    let from = Offset(40);
    let seen = view(known(2, 13, 1_000), 43);
    assert_eq!(found(place(10, 40), seen), Delivered::NeedsTail { from });
    let level = view(known(2, 10, 1_000), 40);
    assert_eq!(found(place(10, 40), level), Delivered::Ahead(0));
}

#[test]
fn more_than_fits_in_was_lost_with_its_state() {
    // Thirteen records are said to be there and the log has room for four.
    let seen = view(known(2, 13, 5), 4);
    let read = with_tail(seen, 0, &[(9, 4, 4)]);
    let lost = Delivered::Unknown(Reason::ProducerStateLost);
    assert_eq!(found(place(0, 0), read), lost);
}

#[test]
fn a_log_that_lost_all_of_the_line_is_behind_by_what_was_there() {
    let seen = view(StateAnswer::Absent, 33);
    let read = with_tail(seen, 26, &[]);
    assert_eq!(found(place(10, 40), read), Delivered::BehindAtMost(7));
    assert_eq!(found(place(3, 40), read), Delivered::BehindAtMost(3));
}
