//! The lane between a source and a target that the test plays. Random orders of events are in
//! `random`.

use std::collections::VecDeque;

use super::*;
use crate::batches::{
    fetcher::{
        Place,
        tests::{FakeFetcher, Told},
    },
    testkit::{BASE_TIME, Made, PRODUCER, Rig, RigMade, damaged as damage, offsets_of},
};
use crate::{batches::outlet::Item, fault::Kind};

#[path = "lane_tests/counting.rs"]
mod counting;
#[path = "lane_tests/drains.rs"]
mod drains;
#[path = "lane_tests/memory.rs"]
mod memory;
#[path = "lane_tests/random.rs"]
mod random;
#[path = "lane_tests/refusals.rs"]
mod refusals;
#[path = "lane_tests/rewriting.rs"]
mod rewriting;
#[path = "lane_tests/source.rs"]
mod source;

fn parse(item: &Item) -> kreplicator_batch::Batch {
    let batch = kreplicator_batch::Batch::parse(item.parts.concat().into()).expect("whole");
    batch.verify().expect("right checksum");
    batch
}

fn records(items: &VecDeque<Item>) -> Vec<Vec<i64>> {
    items.iter().map(|item| offsets_of(&parse(item))).collect()
}

fn tell(item: &Item, answer: Answer) {
    let sent = (item.id, item.attempt);
    item.lane.answered(item.run, item.way, sent, answer, false);
}

/// Acknowledges in order; records lie at the target where they lay at the source.
fn ack(item: &Item) {
    let base_offset = Offset(offsets_of(&parse(item))[0]);
    tell(item, Answer::Acked { base_offset });
}

fn refuse(item: &Item, index: Option<usize>) {
    let fault = |offset: Offset| Fault::new(Kind::Refused, format!("refuses {offset}"));
    item.lane.refused(item.run, item.id, index, fault);
}

/// Acknowledges until nothing more comes.
fn ack_all(rig: &Rig) {
    loop {
        let sent = rig.sent();
        if sent.is_empty() {
            return;
        }
        sent.iter().for_each(ack);
    }
}

/// Does what the lane asks of its life while nothing is at the target.
fn act(rig: &Rig) {
    for event in rig.events() {
        match event {
            Event::FindTarget => rig.connect(),
            Event::AskTarget => rig.lane.target_seen(&nothing()),
            other => panic!("{other:?}"),
        }
    }
}

fn batch(base: i64, count: i32) -> kreplicator_batch::Batch {
    Made::dense(base, count).batch()
}

fn tight() -> RigMade {
    RigMade {
        budget_bytes: 8 << 10,
        ..RigMade::default()
    }
}

/// About 1,500 bytes.
fn wide(base: i64) -> kreplicator_batch::Batch {
    Made::dense(base, 1).values_of(1_400).batch()
}

#[test]
fn batches_go_out_in_order_with_sequences_that_follow() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 3), batch(3, 2), batch(10, 1)]);
    let sent = rig.sent();
    assert_eq!(records(&sent), [vec![0, 1, 2], vec![3, 4], vec![10]]);
    let sequences: Vec<i32> = sent
        .iter()
        .map(|item| parse(item).header().producer.base_sequence)
        .collect();
    assert_eq!(sequences, [0, 3, 5]);
    sent.iter().for_each(ack);
    assert_eq!(rig.checkpoint(), 11);
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.lane.status().records_total, 6);
}

#[test]
fn no_more_than_five_are_out_and_nothing_overtakes() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 2, 2)).collect();
    rig.fetch(&batches);
    let first = rig.sent();
    assert_eq!(first.len(), 5);
    ack(&first[0]);
    let next = rig.sent();
    assert_eq!(records(&next), [vec![10, 11]]);
    assert_eq!(rig.checkpoint(), 2);
}

#[test]
fn c102_a_lane_whose_fetcher_has_ended_while_it_had_no_room_asks_for_another() {
    let rig = Rig::running(tight());
    rig.fetch(&[wide(0), wide(1)]);
    assert_eq!(rig.fetch(&[wide(2), wide(3)]), Next::Pause);
    rig.with_fetcher(FakeFetcher::end);
    rig.sent().iter().for_each(ack);
    let events = rig.events();
    assert!(events.contains(&Event::Read(Offset(4))), "{events:?}");
}

#[test]
fn c025_a_full_share_pauses_the_source_and_acknowledgements_let_it_go_on() {
    let rig = Rig::running(tight());
    assert!(matches!(rig.fetch(&[wide(0), wide(1)]), Next::Read { .. }));
    assert_eq!(rig.fetch(&[wide(2), wide(3)]), Next::Pause);
    assert!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()) > 0);
    assert_eq!(rig.lane.reading_at(), Next::Pause);
    // What is asked for meanwhile is not taken.
    assert_eq!(rig.fetch(&[wide(2)]), Next::Pause);

    let sent = rig.sent();
    assert_eq!(records(&sent), [[0], [1]]);
    sent.iter().for_each(ack);
    assert_eq!(rig.with_fetcher(FakeFetcher::told), [Told::Resume]);
    assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
    let sent = rig.sent();
    assert_eq!(records(&sent), [[2], [3]]);
    sent.iter().for_each(ack);
    assert_eq!(rig.checkpoint(), 4);
    assert_eq!(rig.budget.used_bytes(), 0);
}

#[test]
fn c107_room_of_an_answer_comes_back_however_the_flow_ends() {
    for end in [Lane::close as fn(&Lane) -> u64, |lane| {
        u64::from(lane.close() > 0)
    }] {
        let rig = Rig::running(tight());
        rig.fetch(&[wide(0), wide(1)]);
        rig.fetch(&[wide(2), wide(3)]);
        end(&rig.lane);
        assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
        assert_eq!(rig.budget.used_bytes(), 0);
    }
}

#[test]
fn c107_room_of_an_answer_comes_back_when_the_flow_fails_over_it() {
    let rig = Rig::running(tight());
    rig.fetch(&[wide(0), wide(1)]);
    rig.lane.fail(Fault::new(Kind::Target, "away"));
    assert_eq!(rig.fetch(&[wide(2), wide(3)]), Next::Gone);
    rig.lane.close();
    assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
}

#[test]
fn c107_an_answer_larger_than_any_share_is_a_fault_that_names_the_budget() {
    let rig = Rig::running(tight());
    let large = Made::dense(0, 1).values_of(5_000).batch();
    assert_eq!(rig.fetch(&[large]), Next::Gone);
    let [Event::Failed(fault)] = &rig.events()[..] else {
        panic!("no fault");
    };
    assert_eq!(fault.kind, Kind::Memory);
    assert!(fault.cause.contains("source offset 0"), "{fault}");
}

#[test]
fn c107_what_can_never_be_held_any_more_is_a_fault_even_after_it_had_to_wait() {
    let rig = Rig::running(tight());
    rig.fetch(&[wide(0), wide(1)]);
    // The fetcher has no room either: the answer is let go.
    let part = rig.with_fetcher(|fetcher| fetcher.occupy(64 << 20));
    let large = Made::dense(2, 1).values_of(2_500).batch();
    assert_eq!(rig.fetch([&large]), Next::Pause);
    assert_eq!(
        rig.with_fetcher(|fetcher| fetcher.occupied_bytes()),
        64 << 20
    );
    // More memory is reserved by others meanwhile.
    let others: Vec<_> = (0..8).map(|_| rig.budget.reserve()).collect();
    rig.lane.tick();
    assert_eq!(rig.with_fetcher(FakeFetcher::told), [Told::Resume]);
    rig.fetch([&large]);
    let events = rig.events();
    let is_memory =
        |event: &Event| matches!(event, Event::Failed(fault) if fault.kind == Kind::Memory);
    assert!(events.iter().any(is_memory), "{events:?}");
    drop((part, others));
}

#[test]
fn answers_to_an_earlier_flow_count_for_nothing() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    let old = rig.sent();
    rig.lane.close();
    rig.open_at(0);
    rig.connect();
    rig.fetch(&[batch(0, 2)]);
    let new = rig.sent();
    ack(&old[0]);
    refuse(&old[0], None);
    old[0].lane.connection_lost(old[0].run, old[0].way);
    assert_eq!(rig.checkpoint(), 0);
    assert!(rig.events().is_empty());
    ack(&new[0]);
    assert_eq!(rig.checkpoint(), 2);
}

#[test]
fn c028_after_a_lost_connection_the_target_is_looked_for_once_and_all_is_sent_again() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2), batch(2, 2)]);
    let lost = rig.sent();
    rig.lane.connection_lost(lost[0].run, lost[0].way);
    // Each request that was out tells it.
    rig.lane.connection_lost(lost[1].run, lost[1].way);
    assert_eq!(rig.events(), [Event::FindTarget]);
    rig.connect();
    let again = rig.sent();
    assert_eq!(records(&again), [[0, 1]], "the first goes alone");
    // Late news of the old connection.
    rig.lane.connection_lost(lost[1].run, lost[1].way);
    ack(&again[0]);
    let rest = rig.sent();
    assert_eq!(records(&rest), [[2, 3]]);
    ack(&rest[0]);
    assert_eq!(rig.checkpoint(), 4);
    assert!(rig.events().is_empty());
    assert_eq!(rig.budget.used_bytes(), 0);
}

#[test]
fn c028_a_connection_that_is_lost_again_and_again_is_overcome() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2), batch(2, 2)]);
    for _ in 0..5 {
        let lost = rig.sent();
        assert!(!lost.is_empty());
        rig.lane.connection_lost(lost[0].run, lost[0].way);
        while rig
            .lane
            .lock()
            .flow
            .as_ref()
            .is_some_and(|flow| flow.outlet.is_none())
        {
            act(&rig);
        }
    }
    ack_all(&rig);
    assert_eq!(rig.checkpoint(), 4);
}

#[test]
fn c027_a_moved_leader_is_looked_for_when_nothing_is_at_the_old_one_any_more() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2), batch(2, 2), batch(4, 2)]);
    let old = rig.sent();
    let (run, way, sent) = (old[0].run, old[0].way, (old[0].id, old[0].attempt));
    rig.lane.answered(run, way, sent, Answer::Refused, true);
    assert!(rig.events().is_empty(), "two are at the old leader");
    // The old leader dies with what it had.
    rig.lane.connection_lost(old[1].run, old[1].way);
    assert_eq!(rig.events(), [Event::FindTarget]);
    rig.connect();
    ack_all(&rig);
    assert_eq!(rig.checkpoint(), 6);
}

#[test]
fn an_outlet_that_has_ended_is_replaced() {
    let rig = Rig::running(RigMade::default());
    rig.break_outlet();
    rig.fetch(&[batch(0, 2), batch(2, 2)]);
    assert_eq!(rig.events(), [Event::FindTarget]);
    rig.connect();
    ack_all(&rig);
    assert_eq!(rig.checkpoint(), 4);
}

#[test]
fn c038_with_a_shut_fence_nothing_is_sent_and_acknowledgements_count() {
    let rig = Rig::running(RigMade {
        mode: DeliveryMode::AtLeastOnce(exact::Reason::SourceCompacted),
        ..RigMade::default()
    });
    let batches: Vec<_> = (0..7).map(|number| batch(number * 2, 2)).collect();
    rig.fetch(&batches);
    let sent = rig.sent();
    rig.fence.shut();
    ack(&sent[0]);
    assert!(rig.sent().is_empty());
    assert_eq!(rig.checkpoint(), 2);
    assert!(!rig.lane.drain());
    sent.iter().skip(1).for_each(ack);
    assert_eq!(rig.events(), [Event::Settled]);
    assert_eq!(rig.checkpoint(), 10);
}

#[test]
fn c038_without_a_lease_it_goes_on_until_another_owner_is_ahead() {
    let rig = Rig::running(RigMade::default());
    rig.fence.shut();
    let batches: Vec<_> = (0..7).map(|number| batch(number * 10, 10)).collect();
    rig.fetch(&batches[..2]);
    ack_all(&rig);
    assert_eq!(rig.checkpoint(), 20);
    rig.fetch(&batches[2..3]);
    tell(&rig.sent()[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(60));
    assert_eq!(rig.events(), [Event::Overtaken]);
    assert!(rig.sent().is_empty());
    // With a lease it passes over what the other has delivered.
    let rig = Rig::running(RigMade::default());
    rig.fetch(&batches[..2]);
    for item in &rig.sent() {
        tell(item, Answer::OutOfOrder);
    }
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(60));
    assert_eq!(rig.events(), [Event::Read(Offset(20))]);
}

#[test]
fn another_fetcher_takes_over_from_the_one_before() {
    let rig = Rig::running(RigMade::default());
    let (mut other, handle) = FakeFetcher::new();
    assert!(handle.read(&rig.lane, Place::default()));
    assert_eq!(rig.with_fetcher(FakeFetcher::told), [Told::Stop]);
    assert!(handle.read(&rig.lane, Place::default()));
    assert_eq!(other.told(), [Told::Read, Told::Read]);
}

fn nothing() -> exact::TargetView {
    exact::TargetView {
        state: exact::StateAnswer::Absent,
        ..view(0)
    }
}

fn view(next: i64) -> exact::TargetView {
    exact::TargetView {
        state: exact::StateAnswer::Known(exact::ProducerState {
            epoch: PRODUCER.epoch,
            last_sequence: exact::Count(next.max(1).unsigned_abs() - 1).sequence(),
            last_timestamp: UnixMillis(BASE_TIME),
        }),
        start: Offset(0),
        log_end: Some(Offset(next)),
        end: Offset(next),
        tail: None,
    }
}

#[test]
fn a_target_that_takes_nothing_just_now_is_not_asked_again_at_once() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    for _ in 0..3 {
        let sent = rig.sent();
        assert_eq!(records(&sent), [[0, 1]]);
        tell(&sent[0], Answer::Refused);
        assert!(rig.sent().is_empty());
        rig.lane.tick();
        act(&rig);
    }
    ack(&rig.sent()[0]);
    assert_eq!(rig.checkpoint(), 2);
}

#[test]
fn target_trouble_ends_with_the_answer_that_leaves_nothing_open() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    let sent = rig.sent();
    tell(&sent[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.trouble(Side::Target, Some("cluster b is silent"));
    assert_eq!(rig.lane.status().cause, "cluster b is silent");
    rig.lane.target_seen(&view(2));
    assert_eq!(rig.checkpoint(), 2);
    assert_eq!(rig.lane.status().cause, "");
}

#[test]
fn what_is_wrong_with_one_side_stays_shown_when_the_other_is_well_again() {
    let rig = Rig::running(RigMade::default());
    let cause = || rig.lane.status().cause;
    rig.lane.trouble(Side::Source, Some("a is silent"));
    rig.lane.trouble(Side::Target, Some("b is silent"));
    assert_eq!(cause(), "b is silent", "the newest");
    rig.lane.trouble(Side::Target, None);
    assert_eq!(cause(), "a is silent");
    rig.lane.trouble(Side::Target, Some("b is full"));
    rig.lane.trouble(Side::Source, None);
    assert_eq!(cause(), "b is full");
    rig.lane.trouble(Side::Target, None);
    assert_eq!(cause(), "");
}

#[test]
fn bytes_are_those_of_batches_as_they_were_sent() {
    let rig = Rig::running(RigMade::default());
    // Nothing of an aborted transaction is sent, nor counted.
    let aborted = Made::dense(0, 50)
        .in_transaction(7)
        .values_of(1_000)
        .batch();
    let abort = Made::marker(50, 7, 0);
    let kept = batch(51, 2);
    rig.fetch_aborted(7, 0, &[aborted, abort, kept]);
    let sent = rig.sent();
    assert_eq!(records(&sent), [[51, 52]]);
    let bytes: usize = sent[0].parts.iter().map(bytes::Bytes::len).sum();
    sent.iter().for_each(ack);
    assert_eq!(rig.lane.status().bytes_total, bytes as u64);
}
