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

/// The steps where nobody has said anything.
fn silent_steps(
    placements: &BTreeMap<TaskId, WorkerId>,
    ledger: &Ledger,
    lost: &BTreeSet<WorkerId>,
    harmless: &Harmless,
) -> Steps {
    let words = &Silence;
    let known = Known {
        ledger,
        lost,
        harmless,
        words,
    };
    steps(placements, known)
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
    let steps = silent_steps(&plan, &ledger, &BTreeSet::new(), &Harmless::new());
    assert_eq!(steps, Steps::default());
    assert!(steps.is_empty());
}

#[test]
fn a_move_is_revoked_first_and_assigned_once_it_is_released() {
    let mut ledger = settled(&[("a", &["x"])]);
    let plan = placements(&[("x", "b")]);
    let none = BTreeSet::new();

    let first = silent_steps(&plan, &ledger, &none, &Harmless::new());
    assert_eq!(first.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert_eq!(first.assign, BTreeMap::new());
    let waiting = BTreeMap::from([(task("x"), BTreeSet::from([worker("a")]))]);
    assert_eq!(first.waiting, waiting);

    ledger.set_assigned(&worker("a"), 0, 11, BTreeMap::new());
    let second = silent_steps(&plan, &ledger, &none, &Harmless::new());
    assert!(second.is_empty());
    assert_eq!(second.waiting, waiting, "not answered yet");

    ledger.set_owned(&worker("a"), 0, 11, BTreeMap::new());
    let third = silent_steps(&plan, &ledger, &none, &Harmless::new());
    assert_eq!(third.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    assert!(third.revoke.is_empty() && third.waiting.is_empty());
}

#[test]
fn tasks_of_a_lost_worker_are_revoked_and_assigned_at_once() {
    let ledger = settled(&[("a", &["x"]), ("b", &["y"])]);
    let plan = placements(&[("x", "b"), ("y", "b")]);
    let steps = silent_steps(
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
    let steps = silent_steps(
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
    let steps = silent_steps(
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
    let steps = silent_steps(
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
    let steps = silent_steps(
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
    let steps = silent_steps(&plan, &ledger, &BTreeSet::new(), &harmless);
    let both = BTreeMap::from([(worker("a"), set(&["x", "y"]))]);
    assert_eq!(steps.revoke, both);
    assert_eq!(steps.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    let waiting = BTreeMap::from([(task("y"), BTreeSet::from([worker("a")]))]);
    assert_eq!(steps.waiting, waiting);
}

/// Workers that copy tasks, each bearing a second owner or not.
#[derive(Debug)]
struct Said(Vec<(&'static str, &'static str, u64, bool)>);

impl Words for Said {
    fn of(&self, by: &WorkerId, of: &TaskId, epoch: OwnerEpoch) -> Word {
        let mut said = self.0.iter();
        let found = said.find(|(worker, topic, at, _)| {
            *by == self::worker(worker) && *of == task(topic) && epoch == OwnerEpoch(*at)
        });
        found.map_or(Word::default(), |(.., bears_second)| Word {
            copies: true,
            bears_second: *bears_second,
        })
    }
}

fn spoken_steps(plan: &[(&str, &str)], ledger: &Ledger, said: &Said) -> Steps {
    let known = Known {
        ledger,
        lost: &BTreeSet::new(),
        harmless: &Harmless::new(),
        words: said,
    };
    steps(&placements(plan), known)
}

fn assign(ledger: &mut Ledger, name: &str, revision: i64, tasks: &[(&str, u64)]) {
    let tasks = tasks.iter();
    let tasks = tasks.map(|(topic, epoch)| (task(topic), OwnerEpoch(*epoch)));
    ledger.set_assigned(&worker(name), 0, revision, tasks.collect());
}

#[test]
fn what_bears_a_second_owner_is_assigned_before_it_is_revoked() {
    let mut ledger = settled(&[("a", &["x", "y"])]);
    let plan = [("x", "b"), ("y", "b")];
    let mut said = Said(vec![("a", "x", 1, true), ("a", "y", 1, false)]);
    let first = spoken_steps(&plan, &ledger, &said);
    assert_eq!(first.assign, BTreeMap::from([(worker("b"), set(&["x"]))]));
    assert_eq!(first.revoke, BTreeMap::from([(worker("a"), set(&["y"]))]));
    let covering = BTreeMap::from([(task("x"), BTreeSet::from([worker("a")]))]);
    assert_eq!(first.covering, covering);

    // The successor has it, and does not copy yet.
    assign(&mut ledger, "a", 11, &[("x", 1)]);
    assign(&mut ledger, "b", 11, &[("x", 2)]);
    let second = spoken_steps(&plan, &ledger, &said);
    assert!(second.is_empty());
    assert_eq!(second.covering, covering);

    // A word of another ownership says nothing.
    said.0.push(("b", "x", 1, true));
    assert!(spoken_steps(&plan, &ledger, &said).is_empty());

    said.0.push(("b", "x", 2, true));
    let third = spoken_steps(&plan, &ledger, &said);
    assert_eq!(third.revoke, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert!(third.assign.is_empty() && third.covering.is_empty());
}

#[test]
fn who_covers_goes_on_when_the_successor_is_another_one_than_before() {
    let mut ledger = settled(&[("a", &["x"])]);
    assign(&mut ledger, "b", 11, &[("x", 2)]);
    let said = Said(vec![("a", "x", 1, true)]);
    let steps = spoken_steps(&[("x", "c")], &ledger, &said);
    assert_eq!(steps.revoke, BTreeMap::from([(worker("b"), set(&["x"]))]));
    // The one between may be running it.
    let waiting = BTreeMap::from([(task("x"), BTreeSet::from([worker("b")]))]);
    assert_eq!(steps.waiting, waiting);
    let covering = BTreeMap::from([(task("x"), BTreeSet::from([worker("a")]))]);
    assert_eq!(steps.covering, covering);
}

#[test]
fn what_comes_back_to_whom_it_was_gets_a_new_epoch() {
    let mut ledger = settled(&[("a", &["x"])]);
    assign(&mut ledger, "b", 11, &[("x", 2)]);
    let said = Said(vec![("a", "x", 1, true), ("b", "x", 2, true)]);
    let steps = spoken_steps(&[("x", "a")], &ledger, &said);
    assert_eq!(steps.assign, BTreeMap::from([(worker("a"), set(&["x"]))]));
    assert!(steps.revoke.is_empty());
    let covering = BTreeMap::from([(task("x"), BTreeSet::from([worker("b")]))]);
    assert_eq!(steps.covering, covering);
}

#[test]
fn who_is_lost_or_silent_covers_for_nobody() {
    let ledger = settled(&[("a", &["x"]), ("b", &["y"])]);
    let said = Said(vec![("a", "x", 1, true), ("b", "y", 1, true)]);
    let known = Known {
        ledger: &ledger,
        lost: &BTreeSet::from([worker("a")]),
        harmless: &Harmless::from([(worker("b"), set(&["y"]))]),
        words: &said,
    };
    let steps = super::steps(&placements(&[("x", "c"), ("y", "c")]), known);
    let both = BTreeMap::from([(worker("a"), set(&["x"])), (worker("b"), set(&["y"]))]);
    assert_eq!(steps.revoke, both);
    assert_eq!(
        steps.assign,
        BTreeMap::from([(worker("c"), set(&["x", "y"]))])
    );
    assert!(steps.covering.is_empty());
}
