//! A source, or a target, that is not what it was.

use super::*;

#[test]
fn a_source_topic_that_was_made_anew_is_a_fault_until_the_checkpoint_is_reset() {
    let (old, new) = (TopicId::from_u128(1), TopicId::from_u128(2));
    let rig = Rig::running(RigMade::default());
    assert!(rig.lane.reads_topic(Some(old)));
    rig.fetch(&[batch(0, 3)]);
    ack_all(&rig);
    assert!(rig.lane.reads_topic(None), "an old broker does not tell");
    assert!(rig.lane.reads_topic(Some(old)));
    // The task is tried again.
    for _ in 0..2 {
        assert!(!rig.lane.reads_topic(Some(new)));
        let events = rig.events();
        let Some(Event::Failed(fault)) = events.last() else {
            panic!("{events:?}");
        };
        assert_eq!(fault.kind, Kind::Truncated);
        assert!(fault.cause.contains("up to 3"), "{fault}");
        assert!(fault.cause.contains("--reset-offsets"), "{fault}");
        assert_eq!(rig.lane.reading_at(), Next::Gone);
        rig.lane.close();
        rig.open_at(3);
    }
    rig.lane.close();
    rig.reopen(Offset(0), true);
    assert!(rig.lane.reads_topic(Some(new)));
    assert!(rig.events().is_empty());
}

#[test]
fn a_source_log_that_was_cut_where_nothing_was_copied_is_read_again() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 2, 2)).collect();
    rig.fetch(&batches);
    assert_eq!(rig.sent().len(), 5, "up to offset 10");
    rig.lane.cut_off(Some(Offset(10)));
    assert_eq!(rig.events(), [Event::Cut]);
    let cause = rig.lane.status().cause;
    assert!(cause.contains("cut at 10"), "{cause}");
}

#[test]
fn a_source_log_that_was_cut_below_what_was_copied_is_a_fault_even_when_it_has_grown_again() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 5), batch(5, 5)]);
    assert_eq!(rig.sent().len(), 2);
    // Nothing is acknowledged; both may be at the target.
    rig.lane.cut_off(Some(Offset(7)));
    let expected = Event::Failed(Fault::replaced(Offset(10), Some(Offset(7))));
    assert_eq!(rig.events(), [expected]);
    rig.lane.close();
    rig.open_at(10);
    let events = rig.events();
    assert!(matches!(&events[..], [Event::Failed(_)]), "{events:?}");
    rig.lane.close();
    rig.reopen(Offset(10), true);
    assert!(rig.events().is_empty());
}

/// KIP-320: the log is as long as before, or longer, and holds other records.
#[test]
fn a_source_log_without_the_last_record_that_was_copied_is_a_fault_until_the_checkpoint_is_reset() {
    for end in [Some(Offset(5)), Some(Offset(9)), None] {
        let rig = Rig::running(RigMade::default());
        rig.fetch(&[batch(0, 5)]);
        ack_all(&rig);
        rig.lane.cut_off(end);
        let expected = Event::Failed(Fault::replaced(Offset(5), None));
        assert_eq!(rig.events(), [expected]);
        rig.lane.close();
        rig.open_at(5);
        let events = rig.events();
        assert!(matches!(&events[..], [Event::Failed(_)]), "{events:?}");
        rig.lane.close();
        rig.reopen(Offset(5), true);
        assert!(rig.events().is_empty());
    }
}

#[test]
fn what_was_read_ahead_from_another_log_is_read_again() {
    let rig = Rig::running(RigMade::default());
    let batches: Vec<_> = (0..7).map(|number| batch(number * 2, 2)).collect();
    rig.fetch(&batches);
    assert_eq!(rig.sent().len(), 5, "up to offset 10");
    rig.lane.cut_off(None);
    assert_eq!(rig.events(), [Event::Cut]);
}

/// What is committed with the checkpoint, and told to the source by whoever goes on from there.
#[test]
fn a_checkpoint_has_the_epoch_of_the_leader_that_wrote_the_record_before_it() {
    let rig = Rig::running(RigMade::default());
    assert_eq!(rig.lane.epoch_before(Offset(0)), None);
    rig.fetch(&[batch(0, 5)]);
    assert_eq!(
        rig.lane.epoch_before(Offset(0)),
        None,
        "nothing is delivered"
    );
    ack_all(&rig);
    assert_eq!(rig.lane.epoch_before(Offset(5)), Some(7));
    assert_eq!(rig.lane.epoch_before(Offset(6)), None, "beyond it");
    rig.fetch(&[batch(5, 5)]);
    ack_all(&rig);
    assert_eq!(rig.lane.epoch_before(Offset(10)), Some(7));
    // It has moved on while this one is being saved.
    assert_eq!(rig.lane.epoch_before(Offset(5)), Some(7));
    assert_eq!(
        rig.lane.epoch_before(Offset(0)),
        None,
        "before all that was read"
    );
    rig.lane.close();
    assert_eq!(rig.lane.epoch_before(Offset(10)), Some(7), "saved last");
}

#[test]
fn a_target_topic_that_was_made_anew_is_not_the_one_that_is_written_to() {
    let (old, new) = (TopicId::from_u128(1), TopicId::from_u128(2));
    let rig = Rig::running(RigMade::default());
    assert!(
        rig.lane.writes_topic(Some(new)),
        "which it was is not known"
    );
    let mut state = rig.lane.lock();
    state.flow.as_mut().expect("open").target_topic_id = Some(old);
    drop(state);
    assert!(rig.lane.writes_topic(Some(old)));
    assert!(rig.lane.writes_topic(None), "an old broker does not tell");
    assert!(!rig.lane.writes_topic(Some(new)));
}
