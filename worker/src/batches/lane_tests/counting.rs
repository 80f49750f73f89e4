//! What the target turns out to have or to have lost.

use super::*;

#[test]
fn a_reread_forgets_what_was_in_line() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 10, 10)).collect();
    rig.fetch(&batches);
    let sent = rig.sent();
    // Another owner has got into the middle of the second batch.
    for item in &sent {
        tell(item, Answer::OutOfOrder);
    }
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(15));
    assert_eq!(rig.events(), [Event::Read(Offset(10))]);
    assert!(rig.sent().is_empty());
    assert_eq!(rig.lane.position(), Some(Offset(10)));
    rig.fetch(&batches[1..]);
    // Half of the first was there already.
    let sent = rig.sent();
    assert_eq!(records(&sent)[0], (15..20).collect::<Vec<_>>());
    let sequence = parse(&sent[0]).header().producer.base_sequence;
    assert_eq!(sequence, 15);
    ack(&sent[0]);
    assert_eq!(rig.checkpoint(), 20);
}

/// The answer comes first, then the reader.
#[test]
fn what_another_owner_delivered_is_passed_over_up_to_its_end() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 10, 10)).collect();
    rig.fetch(&batches[..2]);
    for item in &rig.sent() {
        tell(item, Answer::OutOfOrder);
    }
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(70));
    assert_eq!(rig.events(), [Event::Read(Offset(20))]);
    assert_eq!(rig.checkpoint(), 0);
    rig.fetch(&batches[2..4]);
    assert_eq!(rig.checkpoint(), 0);
    rig.fetch(&batches[4..]);
    assert_eq!(rig.checkpoint(), 70);
    assert!(rig.sent().is_empty());
    assert_eq!(rig.events(), []);
}

#[test]
fn records_that_the_target_lost_are_read_again() {
    let rig = Rig::running(RigMade::default());
    // Too large to be joined.
    let batches: Vec<_> = (0..14)
        .map(|number| Made::dense(number * 10, 10).values_of(500).batch())
        .collect();
    rig.fetch(&batches);
    let sent = rig.sent();
    sent.iter().for_each(ack);
    assert_eq!(rig.checkpoint(), 50);
    // An unclean change of leaders: 20 records are gone.
    for item in &rig.sent() {
        tell(item, Answer::OutOfOrder);
    }
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(30));
    assert_eq!(rig.events(), [Event::Read(Offset(30))]);
    assert_eq!(rig.lane.position(), Some(Offset(30)));
    rig.fetch(&batches[3..]);
    assert_eq!(records(&rig.sent())[0], (30..40).collect::<Vec<_>>());
}

#[test]
fn records_that_the_target_lost_are_read_again_when_nothing_is_in_line() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..3).map(|number| batch(number * 10, 10)).collect();
    rig.fetch(&batches[..2]);
    rig.sent().iter().for_each(ack);
    rig.fetch(&batches[2..]);
    tell(&rig.sent()[0], Answer::OutOfOrder);
    assert_eq!(rig.events(), [Event::AskTarget]);
    rig.lane.target_seen(&view(10));
    assert_eq!(rig.events(), [Event::Read(Offset(10))]);
    assert_eq!(rig.checkpoint(), 10);
    rig.fetch(&batches[1..]);
    let sent = rig.sent();
    assert_eq!(records(&sent)[0], (10..20).collect::<Vec<_>>());
}
