use super::*;
use crate::{
    ids::{LinkId, OwnerEpoch, Partition, TopicName},
    ownership::Owned,
};

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("legal")
}

fn task(topic: &str) -> TaskId {
    TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(topic).expect("legal"),
        partition: Partition(0),
    }
}

fn set(topics: &[&str]) -> BTreeSet<TaskId> {
    topics.iter().map(|topic| task(topic)).collect()
}

/// A book in which every worker runs what it is assigned.
fn settled(assignments: &[(&str, &[&str])]) -> Ledger {
    let mut ledger = Ledger::new(|_, _| 0);
    for (name, topics) in assignments {
        let epoch = OwnerEpoch(1);
        let tasks = set(topics);
        let assigned = tasks.iter().map(|task| (task.clone(), epoch)).collect();
        ledger.set_assigned(&worker(name), 0, 10, assigned);
        let owned = Owned {
            epoch,
            stopping: false,
        };
        let owned = tasks.into_iter().map(|task| (task, owned)).collect();
        ledger.set_owned(&worker(name), 0, 10, owned);
    }
    ledger
}

fn placements(pairs: &[(&str, &str)]) -> BTreeMap<TaskId, WorkerId> {
    pairs
        .iter()
        .map(|(topic, name)| (task(topic), worker(name)))
        .collect()
}

#[test]
fn what_is_assigned_as_planned_is_left_alone() {
    let ledger = settled(&[("a", &["x"]), ("b", &["y"])]);
    let plan = placements(&[("x", "a"), ("y", "b")]);
    let steps = steps(&plan, &ledger, &BTreeSet::new(), &Harmless::new());
    assert_eq!(steps, Steps::default());
    assert!(steps.is_empty());
}

#[test]
fn a_move_is_revoked_first_and_assigned_once_it_is_released() {
    let mut ledger = settled(&[("a", &["x"])]);
    let plan = placements(&[("x", "b")]);
    let none = BTreeSet::new();

    let first = steps(&plan, &ledger, &none, &Harmless::new());
    assert_eq!(first.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert_eq!(first.assign, BTreeMap::new());
    let waiting = BTreeMap::from([(task("x"), BTreeSet::from([worker("a")]))]);
    assert_eq!(first.waiting, waiting);

    ledger.set_assigned(&worker("a"), 0, 11, BTreeMap::new());
    let second = steps(&plan, &ledger, &none, &Harmless::new());
    assert!(second.is_empty());
    assert_eq!(second.waiting, waiting, "not answered yet");

    ledger.set_owned(&worker("a"), 0, 11, BTreeMap::new());
    let third = steps(&plan, &ledger, &none, &Harmless::new());
    assert_eq!(third.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    assert!(third.revoke.is_empty() && third.waiting.is_empty());
}

#[test]
fn tasks_of_a_lost_worker_are_revoked_and_assigned_at_once() {
    let ledger = settled(&[("a", &["x"]), ("b", &["y"])]);
    let plan = placements(&[("x", "b"), ("y", "b")]);
    let steps = steps(
        &plan,
        &ledger,
        &BTreeSet::from([worker("a")]),
        &Harmless::new(),
    );
    assert_eq!(steps.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert_eq!(steps.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    assert!(steps.waiting.is_empty());
}

#[test]
fn what_is_not_planned_any_more_is_revoked() {
    let ledger = settled(&[("a", &["x", "y"])]);
    let steps = steps(
        &placements(&[("x", "a")]),
        &ledger,
        &BTreeSet::new(),
        &Harmless::new(),
    );
    assert_eq!(steps.revoke, BTreeMap::from([(worker("a"), set(&["y"]))]));
    assert!(steps.assign.is_empty() && steps.waiting.is_empty());
}

#[test]
fn a_task_may_go_back_to_the_worker_that_is_still_giving_it_up() {
    let mut ledger = settled(&[("a", &["x"])]);
    ledger.set_assigned(&worker("a"), 0, 11, BTreeMap::new());
    let steps = steps(
        &placements(&[("x", "a")]),
        &ledger,
        &BTreeSet::new(),
        &Harmless::new(),
    );
    assert_eq!(steps.assign, BTreeMap::from([(worker("a"), set(&["x"]))]));
}

#[test]
fn nothing_is_assigned_to_a_lost_worker() {
    let ledger = settled(&[("a", &["x"])]);
    let lost = BTreeSet::from([worker("a")]);
    let steps = steps(
        &placements(&[("x", "a"), ("y", "a")]),
        &ledger,
        &lost,
        &Harmless::new(),
    );
    assert_eq!(steps.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert!(steps.assign.is_empty() && steps.waiting.is_empty());
}

#[test]
fn c039_a_second_assignment_of_a_task_is_taken_back() {
    let ledger = settled(&[("a", &["x"]), ("b", &["x"])]);
    let steps = steps(
        &placements(&[("x", "b")]),
        &ledger,
        &BTreeSet::new(),
        &Harmless::new(),
    );
    assert_eq!(steps.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert!(steps.assign.is_empty() && steps.waiting.is_empty());
}

#[test]
fn a_task_that_bears_a_second_owner_does_not_wait_for_a_suspect() {
    let ledger = settled(&[("a", &["x", "y"])]);
    let plan = placements(&[("x", "b"), ("y", "b")]);
    let harmless = Harmless::from([(worker("a"), set(&["x"]))]);
    let steps = steps(&plan, &ledger, &BTreeSet::new(), &harmless);
    let both = BTreeMap::from([(worker("a"), set(&["x", "y"]))]);
    assert_eq!(steps.revoke, both);
    assert_eq!(steps.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    let waiting = BTreeMap::from([(task("y"), BTreeSet::from([worker("a")]))]);
    assert_eq!(steps.waiting, waiting);
}
