use kreplicator_model::{
    ids::{LinkId, Partition, TopicName},
    ownership::Owned,
};

use super::*;
use crate::reconcile::fixtures;

const AFTER: Duration = Duration::from_secs(10);

fn task() -> TaskId {
    TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        partition: Partition(0),
    }
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("legal")
}

fn workers(names: &[&str]) -> BTreeSet<WorkerId> {
    names.iter().map(|name| worker(name)).collect()
}

fn chunk() -> u32 {
    keys::chunk_of(&task().link, &task().topic)
}

/// Assigns the task at `revision`, which is its epoch too.
fn assign(ledger: &mut Ledger, to: &str, revision: u64) {
    let tasks = [(task(), OwnerEpoch(revision))].into();
    let at = i64::try_from(revision).expect("small");
    ledger.set_assigned(&worker(to), chunk(), at, tasks);
}

/// The task is asked for.
fn wanted() -> Resolved {
    fixtures::resolved(&[("orders", 1)])
}

/// The first of two workers refused the task 20 s ago: it is pinned to the other and was taken away.
fn refused_by_the_first(live: &BTreeSet<WorkerId>) -> (StuckTasks, Ledger) {
    let mut ledger = Ledger::new(keys::chunk_of);
    let mut stuck = StuckTasks::new(AFTER);
    assign(&mut ledger, "w1", 5);
    ledger.set_owned(&worker("w1"), chunk(), 5, BTreeMap::new());
    stuck.step(seconds(0), &ledger, &wanted(), live, live);
    let findings = stuck.step(seconds(20), &ledger, &wanted(), live, live);
    assert_eq!(findings.pinned[&task()], worker("w2"));
    ledger.set_assigned(&worker("w1"), chunk(), 6, BTreeMap::new());
    (stuck, ledger)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_task_that_is_taken_on_in_time_is_never_stuck() {
    let mut ledger = Ledger::new(keys::chunk_of);
    let mut stuck = StuckTasks::new(AFTER);
    let live = workers(&["w1", "w2"]);
    assign(&mut ledger, "w1", 5);
    let findings = stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
    assert_eq!(findings.next_check, Some(AFTER));
    let owned = Owned {
        epoch: OwnerEpoch(5),
        stopping: false,
    };
    ledger.set_owned(&worker("w1"), chunk(), 5, [(task(), owned)].into());
    assert_eq!(
        stuck.step(seconds(60), &ledger, &wanted(), &live, &live),
        Findings::default()
    );
}

#[test]
fn c043_a_refused_task_is_written_again_then_tried_elsewhere_then_only_reported() {
    let mut ledger = Ledger::new(keys::chunk_of);
    let mut stuck = StuckTasks::new(AFTER);
    let live = workers(&["w1", "w2", "w3", "w4", "w5", "w6"]);
    let mut at = 0;
    let mut revision = 5;
    let mut seen_on = Vec::new();
    assign(&mut ledger, "w1", revision);
    for _ in 0..=MOVES_MAX {
        let (owner, _) = ledger.assigned_to(&task()).expect("assigned");
        let owner = owner.clone();
        seen_on.push(owner.to_string());
        ledger.set_owned(&owner, chunk(), i64::MAX, BTreeMap::new());
        assert!(
            stuck
                .step(seconds(at), &ledger, &wanted(), &live, &live)
                .stuck
                .is_empty()
        );
        let first = stuck.step(seconds(at + 10), &ledger, &wanted(), &live, &live);
        assert_eq!(first.again, [(owner.clone(), chunk())].into());
        assert!(first.stuck[&task()].refused);
        let again = stuck.step(seconds(at + 11), &ledger, &wanted(), &live, &live);
        assert!(again.again.is_empty(), "written again and again");
        let second = stuck.step(seconds(at + 20), &ledger, &wanted(), &live, &live);
        assert_eq!(second.stuck[&task()].worker, owner);
        let Some(next) = second.pinned.get(&task()) else {
            break;
        };
        assert_ne!(*next, owner);
        // Taken from one, given to the other.
        revision += 1;
        ledger.set_assigned(
            &owner,
            chunk(),
            i64::try_from(revision).expect("small"),
            BTreeMap::new(),
        );
        let between = stuck.step(seconds(at + 21), &ledger, &wanted(), &live, &live);
        assert_eq!(
            between.pinned.get(&task()),
            Some(next),
            "forgets where it goes"
        );
        revision += 1;
        assign(&mut ledger, next.as_str(), revision);
        at += 22;
    }
    assert_eq!(seen_on.len(), 1 + MOVES_MAX, "{seen_on:?}");
    let at_last = stuck.step(seconds(at + 1000), &ledger, &wanted(), &live, &live);
    assert!(at_last.pinned.is_empty());
    assert!(at_last.stuck.contains_key(&task()));
}

#[test]
fn c043_a_task_stays_pinned_where_it_runs_as_long_as_that_worker_takes_tasks() {
    let live = workers(&["w1", "w2"]);
    let (mut stuck, mut ledger) = refused_by_the_first(&live);
    assign(&mut ledger, "w2", 7);
    let owned = Owned {
        epoch: OwnerEpoch(7),
        stopping: false,
    };
    ledger.set_owned(&worker("w2"), chunk(), 7, [(task(), owned)].into());
    let findings = stuck.step(seconds(500), &ledger, &wanted(), &live, &live);
    assert_eq!(findings.pinned[&task()], worker("w2"));
    assert!(findings.stuck.is_empty());
    let findings = stuck.step(seconds(501), &ledger, &wanted(), &live, &workers(&["w1"]));
    assert!(
        findings.pinned.is_empty(),
        "pinned to a worker that is emptied"
    );
}

#[test]
fn a_worker_that_does_not_answer_keeps_its_task_in_the_books() {
    let mut ledger = Ledger::new(keys::chunk_of);
    let mut stuck = StuckTasks::new(AFTER);
    let live = workers(&["w1", "w2"]);
    assign(&mut ledger, "w1", 5);
    stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
    let findings = stuck.step(seconds(100), &ledger, &wanted(), &live, &live);
    assert!(!findings.stuck[&task()].refused);
    assert!(findings.pinned.is_empty());
    assert_eq!(findings.again.len(), 1);
}

#[test]
fn a_missing_worker_is_left_to_the_judgement_of_its_liveness() {
    let mut ledger = Ledger::new(keys::chunk_of);
    let mut stuck = StuckTasks::new(AFTER);
    assign(&mut ledger, "w1", 5);
    let live = workers(&["w2"]);
    stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
    assert_eq!(
        stuck.step(seconds(100), &ledger, &wanted(), &live, &live),
        Findings::default()
    );
}

#[test]
fn a_task_that_nobody_asks_for_any_more_is_forgotten_with_its_pin() {
    let live = workers(&["w1", "w2"]);
    let (mut stuck, ledger) = refused_by_the_first(&live);
    let findings = stuck.step(seconds(21), &ledger, &Resolved::default(), &live, &live);
    assert!(findings.pinned.is_empty());
    assert!(stuck.tried.is_empty());
}

#[test]
fn who_is_leaving_or_silent_takes_nothing() {
    let mut book = fixtures::empty_book();
    for name in ["w1", "w2", "w3"] {
        fixtures::register(&mut book, name, 1);
    }
    book.drains.insert(worker("w2"));
    let active = workers(&["w1", "w2", "w3"]);
    assert_eq!(takers(&book, &active, &workers(&["w3"])), workers(&["w1"]));
}
