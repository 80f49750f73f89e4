use std::collections::BTreeMap;

use kreplicator_model::{
    ids::{LinkId, LinkTopic, OwnerEpoch, Partition, TopicName, WorkerId},
    spec::StartPolicy,
    target_limits::TargetLimits,
};
use kreplicator_proto::assignment::AssignedTopic;

use super::*;

fn topic() -> LinkTopic {
    LinkTopic {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
    }
}

fn number() -> u32 {
    keys::chunk_of(&topic().link, &topic().topic)
}

fn key(number: u32) -> String {
    keys::assignment(&WorkerId::new("w").expect("legal"), number)
}

fn assignment(generation: u64, epochs: &[u64]) -> Assignment {
    let partitions = (0..)
        .map(Partition)
        .zip(epochs.iter().copied().map(OwnerEpoch));
    let assigned = AssignedTopic {
        target_topic: topic().topic,
        start: StartPolicy::Latest,
        first_partitions: 1,
        partitions: partitions.collect(),
        limits: TargetLimits::default(),
    };
    Assignment {
        generation: PlanGeneration(generation),
        topics: BTreeMap::from([(topic(), assigned)]),
    }
}

fn entry(assignment: &Assignment, revision: i64) -> Entry {
    Entry {
        value: assignment.encode(),
        create_revision: Revision(1),
        mod_revision: Revision(revision),
        lease: None,
    }
}

#[test]
fn a_chunk_becomes_tasks_with_their_own_start() {
    let mut assignments = Assignments::default();
    let entry = entry(&assignment(7, &[3, 7]), 40);
    let (number, chunk) = assignments
        .apply(&key(number()), Some(&entry), Revision(50))
        .expect("followed");
    assert_eq!(number, self::number());
    assert_eq!(chunk.revision, Revision(40));
    let tasks: Vec<_> = chunk.tasks.into_values().collect();
    assert_eq!(
        tasks
            .iter()
            .map(|spec| (spec.id.partition.0, spec.epoch.0, spec.start))
            .collect::<Vec<_>>(),
        [(0, 3, StartPolicy::Latest), (1, 7, StartPolicy::Earliest)]
    );
}

#[test]
fn an_older_generation_is_refused() {
    let mut assignments = Assignments::default();
    let mut apply = |assignment: &Assignment, revision| {
        assignments.apply(
            &key(number()),
            Some(&entry(assignment, revision)),
            Revision(revision),
        )
    };
    apply(&assignment(7, &[7]), 40).expect("followed");
    assert_eq!(
        apply(&assignment(6, &[6]), 41),
        Err(Refused::Older {
            followed: PlanGeneration(7),
            found: PlanGeneration(6)
        })
    );
    apply(&assignment(8, &[7]), 42).expect("followed");
}

#[test]
fn one_generation_has_one_content() {
    let mut assignments = Assignments::default();
    let mut apply = |assignment: &Assignment, revision| {
        assignments.apply(
            &key(number()),
            Some(&entry(assignment, revision)),
            Revision(revision),
        )
    };
    apply(&assignment(7, &[7]), 40).expect("followed");
    assert_eq!(
        apply(&assignment(7, &[7, 7]), 41),
        Err(Refused::Rewritten(PlanGeneration(7)))
    );
    let (_, again) = apply(&assignment(7, &[7]), 42).expect("the same once more is fine");
    assert_eq!(again.revision, Revision(42), "and is acknowledged anew");
}

#[test]
fn a_deleted_chunk_runs_nothing_and_stands_for_the_revision_read() {
    let mut assignments = Assignments::default();
    let full = entry(&assignment(7, &[7]), 40);
    assignments
        .apply(&key(number()), Some(&full), Revision(40))
        .expect("followed");
    let (_, gone) = assignments
        .apply(&key(number()), None, Revision(55))
        .expect("followed");
    assert_eq!(
        gone,
        Chunk {
            revision: Revision(55),
            tasks: BTreeMap::new()
        }
    );
    let stale = entry(&assignment(6, &[6]), 56);
    assert!(
        assignments
            .apply(&key(number()), Some(&stale), Revision(56))
            .is_err(),
        "the generation is remembered"
    );
}

#[test]
fn what_cannot_be_an_assignment_is_refused() {
    let mut assignments = Assignments::default();
    let sound = assignment(7, &[7]);
    let other = (number() + 1) % keys::ASSIGNMENT_CHUNKS;
    let mut reason = |key: &str, entry: Entry| {
        assignments
            .apply(key, Some(&entry), Revision(40))
            .expect_err("refused")
            .reason()
    };
    assert_eq!(reason(&key(other), entry(&sound, 40)), "misplaced");
    assert_eq!(reason(&key(99), entry(&sound, 40)), "strange_key");
    assert_eq!(
        reason("plan/assignment/w/x", entry(&sound, 40)),
        "strange_key"
    );
    let torn = Entry {
        value: vec![0xff],
        ..entry(&sound, 40)
    };
    assert_eq!(reason(&key(number()), torn), "unreadable");
}
