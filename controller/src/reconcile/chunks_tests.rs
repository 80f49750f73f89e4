use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    handover::{Harmless, Known, Silence, steps},
    ids::TaskId,
    planner::Plan,
};
use kreplicator_store::api::Entry;

use super::*;
use crate::reconcile::fixtures::{assign, empty_book, register, resolved, task, tasks_of, worker};

const TOPICS: [(&str, i32); 2] = [("clicks", 4), ("orders", 4)];

/// The writes that bring `book` to `placements`.
fn writes(
    book: &Book,
    placements: &[(TaskId, &str)],
    lost: &[&str],
    again: &BTreeSet<(WorkerId, u32)>,
) -> Vec<ChunkWrite> {
    let placements: BTreeMap<TaskId, WorkerId> = placements
        .iter()
        .map(|(task, name)| (task.clone(), worker(name)))
        .collect();
    let lost: BTreeSet<WorkerId> = lost.iter().map(|name| worker(name)).collect();
    let decision = Decision {
        steps: steps(
            &placements,
            Known {
                ledger: &book.ledger,
                lost: &lost,
                harmless: &Harmless::new(),
                words: &Silence,
            },
        ),
        plan: Plan {
            placements,
            ..Plan::default()
        },
        unassigned: BTreeMap::new(),
        succeeded: BTreeMap::new(),
    };
    let resolved = resolved(&TOPICS);
    let targets = BTreeMap::new();
    let terms = Terms::new(book, &resolved, &targets);
    chunk_writes(book, &decision, &terms, &lost, again)
}

#[test]
fn only_chunks_that_differ_are_written() {
    let mut book = empty_book();
    register(&mut book, "w1", 3);
    let (orders, clicks) = (task("orders", 0), task("clicks", 0));
    assign(&mut book, "w1", &[orders.clone(), clicks.clone()], 7);
    let as_is = [(orders.clone(), "w1"), (clicks.clone(), "w1")];
    assert_eq!(writes(&book, &as_is, &[], &BTreeSet::new()), []);

    let more = [
        as_is[0].clone(),
        as_is[1].clone(),
        (task("orders", 1), "w1"),
    ];
    let written = writes(&book, &more, &[], &BTreeSet::new());
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].requires, Requires::Registered(Revision(3)));
    assert_eq!(written[0].parent, Some(Revision(7)));
    assert_eq!(written[0].gained, [task("orders", 1)].into());
    let content = written[0].content.as_ref().expect("kept");
    assert_eq!(tasks_of(content), [orders.clone(), task("orders", 1)]);
    let assignment = content.assignment(PlanGeneration(9));
    let told = &assignment.topics[&orders.link_topic()];
    let epochs: Vec<u64> = told.partitions.values().map(|epoch| epoch.0).collect();
    assert_eq!(epochs, [7, 9], "a task that stays got a new epoch");

    let chunk = keys::chunk_of(&clicks.link, &clicks.topic);
    let again = [(worker("w1"), chunk)].into();
    let written = writes(&book, &as_is, &[], &again);
    assert_eq!(written.len(), 1, "asked to be written again");
    assert_eq!(written[0].requires, Requires::Nothing);
}

/// It covered for a successor, and is the planned owner again.
#[test]
fn what_a_worker_has_of_an_older_ownership_is_given_anew() {
    let mut book = empty_book();
    register(&mut book, "w1", 3);
    let orders = task("orders", 0);
    assign(&mut book, "w1", std::slice::from_ref(&orders), 7);
    assign(&mut book, "w2", std::slice::from_ref(&orders), 8);
    let placements = [(orders.clone(), "w1")];
    let written = writes(&book, &placements, &["w2"], &BTreeSet::new());
    let given = written.iter().find(|write| write.worker == worker("w1"));
    let given = given.expect("written, though it lists the same tasks");
    assert_eq!(given.gained, [orders].into());
    assert_eq!(given.requires, Requires::Registered(Revision(3)));
}

#[test]
fn what_is_taken_away_from_a_live_worker_is_emptied_not_deleted() {
    let mut book = empty_book();
    register(&mut book, "w1", 3);
    assign(&mut book, "w1", &[task("orders", 0)], 7);
    let written = writes(&book, &[], &[], &BTreeSet::new());
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].content, Some(Content::default()));
    assert_eq!(written[0].requires, Requires::Nothing);
}

#[test]
fn lost_workers_come_first_and_only_while_they_are_absent() {
    let mut book = empty_book();
    register(&mut book, "w1", 3);
    register(&mut book, "w3", 4);
    let tasks = [task("orders", 0), task("orders", 1), task("clicks", 0)];
    assign(&mut book, "w2", &tasks[..2], 7);
    assign(&mut book, "w3", &tasks[2..], 8);
    let placements = [(tasks[0].clone(), "w1"), (tasks[1].clone(), "w1")];
    let written = writes(&book, &placements, &["w2"], &BTreeSet::new());
    let order: Vec<_> = written
        .iter()
        .map(|write| {
            (
                write.worker.as_str(),
                write.requires,
                write.content.is_some(),
            )
        })
        .collect();
    assert_eq!(
        order,
        [
            ("w2", Requires::Absent, false),
            ("w3", Requires::Nothing, true),
            ("w1", Requires::Registered(Revision(3)), true),
        ]
    );
}

#[test]
fn a_worker_that_is_not_registered_is_given_nothing() {
    let mut book = empty_book();
    assign(&mut book, "w1", &[task("orders", 0)], 7);
    let more = [(task("orders", 0), "w1"), (task("orders", 1), "w1")];
    assert_eq!(writes(&book, &more, &[], &BTreeSet::new()), []);
    let less = writes(&book, &[], &[], &BTreeSet::new());
    assert_eq!(less.len(), 1, "what it has may be taken away");
}

#[test]
fn a_task_in_two_assignments_is_left_in_one() {
    let mut book = empty_book();
    register(&mut book, "w1", 3);
    register(&mut book, "w2", 4);
    assign(&mut book, "w1", &[task("orders", 0)], 7);
    assign(&mut book, "w2", &[task("orders", 0)], 8);
    let written = writes(&book, &[(task("orders", 0), "w2")], &[], &BTreeSet::new());
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].worker, worker("w1"));
    assert_eq!(written[0].content, Some(Content::default()));
}

#[test]
fn a_chunk_that_cannot_be_read_is_written_over_even_by_nothing() {
    let mut book = empty_book();
    let chunk = keys::chunk_of(&task("orders", 0).link, &task("orders", 0).topic);
    let entry = Entry {
        value: vec![0xff; 4],
        create_revision: Revision(7),
        mod_revision: Revision(7),
        lease: None,
    };
    let stored = [(keys::assignment(&worker("w1"), chunk), entry)].into();
    book.plan_read(&stored, Revision(8));
    let written = writes(&book, &[], &[], &BTreeSet::new());
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].parent, Some(Revision(7)));
    assert_eq!(written[0].content, Some(Content::default()));
}
