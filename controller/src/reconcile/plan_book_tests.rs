use kreplicator_model::ids::{OwnerEpoch, Partition};
use prost::Message;

use super::*;
use crate::reconcile::fixtures::{entry, topic, worker};

/// A chunk with one task, as published by a generation.
fn chunk(generation: u64, revision: i64) -> Entry {
    let told = AssignedTopic {
        target_topic: topic("orders").topic,
        start: Default::default(),
        first_partitions: 1,
        partitions: [(Partition(0), OwnerEpoch(generation))].into(),
        limits: Default::default(),
    };
    let assignment = Assignment {
        generation: PlanGeneration(generation),
        topics: [(topic("orders"), told)].into(),
    };
    entry(assignment.encode(), revision)
}

fn state(generation: u64, revision: i64) -> Entry {
    entry(v1::PlanState { generation }.encode_to_vec(), revision)
}

fn key(number: u32) -> String {
    keys::assignment(&worker("w1"), number)
}

fn load(entries: &[(String, Entry)], revision: i64) -> PlanBook {
    let entries = entries.iter().cloned().collect();
    let mut unreadable = BTreeMap::new();
    let plan = PlanBook::load(&entries, Revision(revision), &mut unreadable);
    assert_eq!(unreadable, BTreeMap::new());
    plan
}

fn state_key() -> String {
    keys::PLAN_STATE.to_owned()
}

#[test]
fn the_generation_never_falls_whatever_became_of_its_key() {
    let chunks = [(key(0), chunk(9, 20)), (key(1), chunk(5, 12))];
    let plan = load(&chunks, 30);
    assert_eq!(plan.generation(), PlanGeneration(9));
    assert_eq!(plan.parent(), Compare::Absent(state_key()));
    let mut with_state = chunks.to_vec();
    with_state.push((state_key(), state(11, 25)));
    let plan = load(&with_state, 30);
    assert_eq!(plan.generation(), PlanGeneration(11));
    assert_eq!(
        plan.parent(),
        Compare::ModifiedAt(state_key(), Revision(25))
    );
}

#[test]
fn news_of_before_the_last_read_or_write_is_passed_over() {
    let mut plan = load(&[(key(0), chunk(1, 5)), (state_key(), state(1, 5))], 8);
    let mut unreadable = BTreeMap::new();
    let mut news = |plan: &mut PlanBook, after: Option<&Entry>, revision| {
        plan.changed(&key(0), after, Revision(revision), &mut unreadable)
    };
    assert_eq!(news(&mut plan, Some(&chunk(1, 4)), 8), None);
    assert_eq!(news(&mut plan, None, 8), None, "deleted before it was read");

    // Deleted and made again by this leader: its own deletion comes by later.
    plan.deleted(&worker("w1"), 0, Revision(10));
    let assignment = Assignment::decode(&key(0), &chunk(2, 12).value).expect("readable");
    plan.written(&worker("w1"), 0, assignment, Revision(12));
    assert_eq!(news(&mut plan, None, 11), None);
    assert!(plan.chunk(&worker("w1"), 0).is_some());

    // Somebody else's hand.
    assert!(news(&mut plan, Some(&chunk(2, 15)), 15).is_some());
    assert!(news(&mut plan, None, 16).is_some());
    assert!(plan.chunk(&worker("w1"), 0).is_none());
}

#[test]
fn a_chunk_that_cannot_be_read_counts_as_empty_and_is_written_over() {
    let mut unreadable = BTreeMap::new();
    let entries = [(key(3), entry(vec![0xff; 4], 7))].into();
    let plan = PlanBook::load(&entries, Revision(9), &mut unreadable);
    assert!(unreadable.contains_key(&key(3)));
    let found = plan.chunk(&worker("w1"), 3).expect("it is there");
    assert_eq!(found.revision, Revision(7));
    assert!(found.assignment.topics.is_empty());
}

#[test]
fn replacing_tells_what_differs() {
    let mut plan = load(&[(key(0), chunk(1, 5)), (key(1), chunk(1, 5))], 8);
    let mut unreadable = BTreeMap::new();
    let now = [(key(1), chunk(1, 5)), (key(2), chunk(2, 9))].into();
    let differs = plan.replace(&now, Revision(10), &mut unreadable);
    assert_eq!(differs, [(worker("w1"), 0), (worker("w1"), 2)]);
}

#[test]
fn of_several_chunks_with_a_topic_the_latest_generation_says_what_was_told_last() {
    let of = |worker: &str, generation, limit| {
        let mut told = Assignment::decode(&key(0), &chunk(generation, 5).value).expect("readable");
        let topic = told.topics.get_mut(&topic("orders")).expect("told");
        topic.limits.max_message_bytes = Some(limit);
        let key = keys::assignment(&crate::reconcile::fixtures::worker(worker), 0);
        (key, entry(told.encode(), 5))
    };
    for (first, second) in [(4, 9), (9, 4)] {
        let plan = load(&[of("w1", first, first), of("w2", second, second)], 8);
        let told = plan.told_last()[&topic("orders")];
        assert_eq!(told.limits.max_message_bytes, Some(9));
    }
}
