use super::*;
use crate::ids::Partition;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("legal")
}

/// Topics are named after their chunk.
fn chunk_of(_: &LinkId, topic: &TopicName) -> u32 {
    topic
        .as_str()
        .trim_start_matches(char::is_alphabetic)
        .parse()
        .expect("a number")
}

fn task(topic: &str) -> TaskId {
    TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(topic).expect("legal"),
        partition: Partition(0),
    }
}

fn tasks(topics: &[&str]) -> BTreeMap<TaskId, OwnerEpoch> {
    topics
        .iter()
        .map(|topic| (task(topic), OwnerEpoch(1)))
        .collect()
}

fn list(topics: &[&str]) -> BTreeMap<TaskId, Owned> {
    let owned = Owned {
        epoch: OwnerEpoch(1),
        stopping: false,
    };
    topics.iter().map(|topic| (task(topic), owned)).collect()
}

fn holders(ledger: &Ledger, topic: &str) -> Vec<String> {
    let holders = ledger.holders(&task(topic));
    holders
        .into_iter()
        .map(|worker| worker.to_string())
        .collect()
}

#[test]
fn a_task_taken_away_is_held_until_its_worker_answers_without_it() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 10, tasks(&["x0"]));
    ledger.set_owned(&a, 0, 10, list(&["x0"]));
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());

    ledger.set_assigned(&a, 0, 11, tasks(&[]));
    assert_eq!(holders(&ledger, "x0"), ["a"], "not answered");
    ledger.set_owned(&a, 0, 11, list(&["x0"]));
    assert_eq!(holders(&ledger, "x0"), ["a"], "answered, still stopping");
    ledger.set_owned(&a, 0, 11, list(&[]));
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());
}

#[test]
fn a_task_that_was_never_listed_is_held_too_until_the_answer() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 10, tasks(&["x0"]));
    ledger.set_assigned(&a, 0, 11, tasks(&[]));
    // The worker may have seen revision 10 and be about to list and start the task.
    ledger.set_owned(&a, 0, 9, list(&[]));
    assert_eq!(holders(&ledger, "x0"), ["a"]);
    ledger.set_owned(&a, 0, 11, list(&[]));
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());
}

#[test]
fn a_later_removal_needs_a_later_answer() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 10, tasks(&["x0"]));
    ledger.set_assigned(&a, 0, 11, tasks(&[]));
    ledger.set_assigned(&a, 0, 12, tasks(&["x0"]));
    ledger.set_assigned(&a, 0, 13, tasks(&[]));
    ledger.set_owned(&a, 0, 11, list(&[]));
    assert_eq!(holders(&ledger, "x0"), ["a"]);
    ledger.set_owned(&a, 0, 13, list(&[]));
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());
}

#[test]
fn an_answer_that_came_before_the_note_counts() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 10, tasks(&["x0"]));
    ledger.set_owned(&a, 0, 11, list(&[]));
    ledger.set_assigned(&a, 0, 11, tasks(&[]));
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());
}

#[test]
fn older_news_of_an_assignment_is_passed_over() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 12, tasks(&["x0"]));
    ledger.set_assigned(&a, 0, 11, tasks(&["y0"]));
    assert_eq!(ledger.assigned_to(&task("x0")), Some((&a, OwnerEpoch(1))));
    assert_eq!(ledger.assigned_to(&task("y0")), None);
}

#[test]
fn a_fresh_leader_takes_an_unanswered_chunk_to_hold_every_task_of_its_number() {
    let a = worker("a");
    let assigned = AssignedChunk {
        worker: a.clone(),
        chunk: 0,
        mod_revision: 11,
        tasks: tasks(&["x0"]),
    };
    let owned = OwnedChunk {
        worker: a.clone(),
        chunk: 0,
        applied_revision: 10,
        tasks: list(&["x0"]),
    };
    let mut ledger = Ledger::load(chunk_of, [assigned], [owned]);
    assert_eq!(holders(&ledger, "z0"), ["a"], "may have been taken away");
    assert_eq!(holders(&ledger, "z1"), Vec::<String>::new(), "other chunk");
    assert_eq!(
        holders(&ledger, "x0"),
        Vec::<String>::new(),
        "assigned to it"
    );

    // A new write does not put the answer off: only what was found needs to be answered.
    ledger.set_assigned(&a, 0, 20, tasks(&[]));
    ledger.set_owned(&a, 0, 11, list(&["x0"]));
    assert_eq!(holders(&ledger, "z0"), Vec::<String>::new());
    assert_eq!(holders(&ledger, "x0"), ["a"], "taken away at 20");
}

#[test]
fn a_chunk_that_was_answered_in_time_hides_nothing_from_a_fresh_leader() {
    let a = worker("a");
    let assigned = AssignedChunk {
        worker: a.clone(),
        chunk: 0,
        mod_revision: 11,
        tasks: tasks(&["x0"]),
    };
    let owned = OwnedChunk {
        worker: a,
        chunk: 0,
        applied_revision: 11,
        tasks: list(&["x0"]),
    };
    let ledger = Ledger::load(chunk_of, [assigned], [owned]);
    assert_eq!(holders(&ledger, "z0"), Vec::<String>::new());
}

#[test]
fn claims_go_with_the_lease_but_removals_wait_for_an_answer() {
    let mut ledger = Ledger::new(chunk_of);
    let a = worker("a");
    ledger.set_assigned(&a, 0, 10, tasks(&["x0", "y0"]));
    ledger.set_owned(&a, 0, 10, list(&["x0", "y0"]));
    ledger.set_assigned(&a, 0, 11, tasks(&["y0"]));
    ledger.clear_owned(&a);
    assert_eq!(ledger.owned_by(&a, &task("y0")), None);
    assert_eq!(holders(&ledger, "x0"), ["a"]);
    assert_eq!(ledger.assigned_to(&task("y0")), Some((&a, OwnerEpoch(1))));

    ledger.forget_worker(&a);
    assert_eq!(holders(&ledger, "x0"), Vec::<String>::new());
    assert_eq!(ledger.assigned_to(&task("y0")), None);
    assert!(ledger.roles.is_empty(), "left over: {:?}", ledger.roles);
}

#[test]
fn c039_two_workers_that_list_one_task_are_told() {
    let mut ledger = Ledger::new(chunk_of);
    ledger.set_owned(&worker("a"), 0, 10, list(&["x0", "y0"]));
    ledger.set_owned(&worker("b"), 0, 10, list(&["x0"]));
    let doubles = ledger.double_claims();
    assert_eq!(doubles, [(task("x0"), vec![worker("a"), worker("b")])]);
    ledger.clear_owned(&worker("a"));
    assert_eq!(ledger.double_claims(), []);
}

#[test]
fn c039_of_two_assignments_the_higher_epoch_wins_and_the_other_holds() {
    let mut ledger = Ledger::new(chunk_of);
    let newer = BTreeMap::from([(task("x0"), OwnerEpoch(2))]);
    ledger.set_assigned(&worker("a"), 0, 10, newer);
    ledger.set_assigned(&worker("b"), 0, 11, tasks(&["x0"]));
    let (owner, epoch) = ledger.assigned_to(&task("x0")).expect("assigned");
    assert_eq!((owner, epoch), (&worker("a"), OwnerEpoch(2)));
    assert_eq!(holders(&ledger, "x0"), ["b"]);
}
