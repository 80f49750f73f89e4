//! Drains: what is under way is brought to an end, and no more is begun.

use super::*;

#[test]
fn a_drain_sends_no_more_than_the_sender_holds_and_passes_nothing() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 2, 2)).collect();
    rig.fetch(&batches);
    let sent = rig.sent();
    assert_eq!(sent.len(), 5);
    assert!(!rig.lane.drain());
    assert_eq!(rig.with_fetcher(FakeFetcher::told), [Told::Stop]);
    assert_eq!(rig.lane.reading_at(), Next::Gone);
    for item in &sent {
        assert!(!rig.events().contains(&Event::Settled));
        ack(item);
    }
    assert_eq!(rig.events(), [Event::Settled]);
    assert!(rig.sent().is_empty());
    assert_eq!(rig.checkpoint(), 10);
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.lane.close(), 0);
}

#[test]
fn a_drain_with_a_fault_ahead_settles() {
    let rig = Rig::running(RigMade::default());
    let bytes = [
        &batch(0, 2).bytes()[..],
        &damage(&Made::with_holes(2, &[1], 2).batch()),
    ]
    .concat();
    rig.fetch_bytes(Offset(0), bytes.into());
    let sent = rig.sent();
    assert!(!rig.lane.drain());
    sent.iter().for_each(ack);
    assert_eq!(rig.events(), [Event::Settled]);
}

#[test]
fn a_drain_asks_again_for_what_has_given_way_to_it() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    let sent = rig.sent();
    rig.lane.connection_lost(sent[0].run, sent[0].way);
    // Taken by a life that did not come to act on it.
    assert_eq!(rig.events(), [Event::FindTarget]);
    assert!(!rig.lane.drain());
    let events = rig.events();
    assert!(
        matches!(&events[..], [Event::FindTarget | Event::AskTarget]),
        "{events:?}"
    );
}

#[test]
fn a_drain_that_finds_another_owner_ahead_waits_for_nothing() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    let sent = rig.sent();
    assert!(!rig.lane.drain());
    tell(&sent[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    // It ends in the middle of what would be read next.
    rig.lane.target_seen(&view(61));
    assert_eq!(rig.events(), [Event::Settled]);
    assert!(rig.sent().is_empty());
}

/// Another owner's batches end within one of ours: the rest of it is delivered by nobody.
#[test]
fn a_drain_that_is_overtaken_by_half_is_not_settled() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 10)]);
    let sent = rig.sent();
    assert!(!rig.lane.drain());
    tell(&sent[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(4));
    assert_eq!(rig.events(), [Event::Unsettled]);
    assert_eq!(rig.lane.close(), 10, "some of them may be there");
    assert_eq!(rig.checkpoint(), 0);
}

#[test]
fn a_drain_whose_target_has_lost_what_it_had_acknowledged_is_not_settled() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..3).map(|number| batch(number * 10, 10)).collect();
    rig.fetch(&batches[..2]);
    ack_all(&rig);
    assert_eq!(rig.checkpoint(), 20);
    rig.fetch(&batches[2..]);
    let sent = rig.sent();
    assert!(!rig.lane.drain());
    // An unclean change of leaders: ten acknowledged records are gone.
    tell(&sent[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(10));
    assert_eq!(rig.events(), [Event::Unsettled]);
    assert!(rig.sent().is_empty());
    assert_eq!(
        rig.checkpoint(),
        10,
        "what is saved claims no more than is there"
    );
    assert_eq!(rig.lane.close(), 20, "ten on the way and ten lost");
    assert_eq!(rig.budget.used_bytes(), 0);
}
