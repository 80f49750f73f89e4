//! Batches that are damaged, and batches that the target refuses.

use super::*;

#[test]
fn c024_what_is_before_a_damaged_batch_is_delivered_before_the_fault_is_told() {
    let rig = Rig::running(RigMade::default());
    let bytes = [
        &batch(0, 2).bytes()[..],
        &damage(&Made::with_holes(2, &[1], 2).batch()),
    ]
    .concat();
    assert_eq!(rig.fetch_bytes(Offset(0), bytes.into()), Next::Pause);
    let sent = rig.sent();
    assert_eq!(records(&sent), [[0, 1]]);
    assert!(rig.events().is_empty());
    ack(&sent[0]);
    let [Event::Failed(fault)] = &rig.events()[..] else {
        panic!("no fault");
    };
    let place = "source topic orders partition 0: source offset 2 cannot be read";
    assert!(fault.cause.contains(place), "{fault}");
    assert_eq!(rig.checkpoint(), 2);
}

#[test]
fn c024_a_damaged_batch_alone_is_a_fault_at_once() {
    let rig = Rig::running(RigMade::default());
    let bytes = damage(&Made::with_holes(0, &[1], 2).batch());
    assert_ne!(rig.fetch_bytes(Offset(0), bytes), Next::Pause);
    assert!(matches!(&rig.events()[..], [Event::Failed(_)]));
}

#[test]
fn c012_a_refused_batch_is_cut_until_its_record_is_alone() {
    let rig = Rig::running(RigMade::default());
    let batches = [batch(0, 2), batch(2, 6)];
    rig.fetch(&batches);
    let sent = rig.sent();
    ack(&sent[0]);
    refuse(&sent[1], Some(3));
    assert_eq!(rig.events(), [Event::Isolate]);

    rig.lane.close();
    rig.open_at(2);
    rig.connect();
    rig.fetch(&batches);
    let sent = rig.sent();
    assert_eq!(records(&sent), [vec![2, 3, 4], vec![5], vec![6, 7]]);
    ack(&sent[0]);
    refuse(&sent[1], None);
    let events = rig.events();
    assert!(
        matches!(&events[..], [Event::Failed(fault)] if fault.cause == "refuses 5"),
        "{events:?}"
    );
    assert_eq!(rig.checkpoint(), 5);

    // Whoever raised the limit meanwhile: the doubt ends with what it was about.
    rig.lane.close();
    rig.open_at(5);
    rig.connect();
    rig.fetch(&batches);
    rig.sent().iter().for_each(ack);
    assert_eq!(rig.checkpoint(), 8);
    assert_eq!(rig.lane.lock().doubt, None);
}

#[test]
fn c012_refused_tiny_batches_are_not_joined_again() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..30).map(|offset| batch(offset, 1)).collect();
    rig.fetch(&batches);
    let sent = rig.sent();
    let joined = sent
        .iter()
        .find(|item| parse(item).header().record_count > 1);
    let joined = joined.expect("thirty wait");
    let from = offsets_of(&parse(joined))[0];
    refuse(joined, Some(0));
    assert_eq!(rig.events(), [Event::Isolate]);
    rig.lane.close();
    rig.open_at(from);
    rig.connect();
    rig.fetch(&batches);
    let counts: Vec<usize> = records(&rig.sent()).iter().map(Vec::len).collect();
    assert_eq!(counts, [1; 5]);
}
