use kreplicator_model::{
    ids::{ClusterId, OwnerEpoch, Partition, TopicName},
    ownership::Owned,
    spec::{Cluster, GapPolicy, Link, StartPolicy},
    target_limits::TargetLimits,
};
use kreplicator_proto::{stored::Stored, v1};
use kreplicator_store::{Change, Entry, keys};

use super::*;

mod property;

pub(super) const CHUNK: u32 = 3;

pub(super) fn link_id() -> LinkId {
    LinkId::new("a-b").expect("legal")
}

pub(super) fn task(partition: i32) -> TaskId {
    TaskId {
        link: link_id(),
        topic: TopicName::new("orders").expect("legal"),
        partition: Partition(partition),
    }
}

pub(super) fn spec(partition: i32, epoch: u64) -> TaskSpec {
    TaskSpec {
        id: task(partition),
        epoch: OwnerEpoch(epoch),
        target_topic: TopicName::new("orders").expect("legal"),
        start: StartPolicy::Earliest,
        limits: TargetLimits::default(),
    }
}

/// A chunk with these partitions and epochs.
pub(super) fn chunk(revision: i64, tasks: &[(i32, u64)]) -> Chunk {
    Chunk {
        revision: Revision(revision),
        tasks: tasks
            .iter()
            .map(|(partition, epoch)| (task(*partition), spec(*partition, *epoch)))
            .collect(),
    }
}

fn put(contexts: &mut Contexts, key: String, value: Vec<u8>) {
    let after = Some(Entry {
        value,
        create_revision: Revision(1),
        mod_revision: Revision(1),
        lease: None,
    });
    let change = Change {
        key,
        before: None,
        after,
    };
    contexts.apply(&change).expect("readable");
    contexts.refresh();
}

fn put_link(contexts: &mut Contexts, on_gap: GapPolicy) {
    let message = v1::Link {
        id: link_id().to_string(),
        source: "a".to_owned(),
        target: "b".to_owned(),
        ..v1::Link::default()
    };
    let link = Link {
        on_gap,
        ..Link::try_from(&message).expect("legal")
    };
    put(contexts, keys::link(&link.id), link.encode());
}

/// The link of [`task`] and its clusters.
pub(super) fn contexts() -> Contexts {
    let mut contexts = Contexts::default();
    for name in ["a", "b"] {
        let message = v1::Cluster {
            id: name.to_owned(),
            bootstrap_servers: vec![format!("{name}:9092")],
            ..v1::Cluster::default()
        };
        let cluster = Cluster::try_from(&message).expect("legal");
        let key = keys::cluster(&ClusterId::new(name).expect("legal"));
        put(&mut contexts, key, cluster.encode());
    }
    put_link(&mut contexts, GapPolicy::ContinueAndReport);
    contexts
}

pub(super) fn decide_with(books: &mut Books, contexts: &Contexts, draining: bool) -> Vec<Action> {
    books.decide(Circumstances {
        contexts,
        draining,
        copies: &|_| true,
        releasing: &BTreeSet::new(),
    })
}

fn decide(books: &mut Books) -> Vec<String> {
    let actions = decide_with(books, &contexts(), false);
    actions.iter().map(describe).collect()
}

fn describe(action: &Action) -> String {
    match action {
        Action::Start(spec, _) => format!("start {}@{}", spec.id.partition, spec.epoch),
        Action::Stop(id, reason) => format!("stop {} {}", id.partition, reason.name()),
    }
}

/// The list as `partition@epoch`, with `!` where stopping.
fn listed(list: &chunk::List) -> Vec<String> {
    list.tasks
        .iter()
        .map(|(id, Owned { epoch, stopping })| {
            let mark = if *stopping { "!" } else { "" };
            format!("{}@{epoch}{mark}", id.partition)
        })
        .collect()
}

/// Publishes and has it taken at `revision`.
fn commit(books: &mut Books, revision: i64) -> Vec<String> {
    let publication = books.publish(CHUNK).expect("something to tell");
    books.committed(CHUNK, Revision(revision));
    listed(&publication.list)
}

/// Books in which these tasks run.
fn running(tasks: &[(i32, u64)]) -> Books {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, tasks));
    assert!(decide(&mut books).is_empty(), "nothing starts unlisted");
    commit(&mut books, 11);
    assert_eq!(decide(&mut books).len(), tasks.len());
    books
}

#[test]
fn a_task_starts_only_after_it_is_listed() {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, &[(0, 5), (1, 5)]));
    assert!(decide(&mut books).is_empty());
    let publication = books.publish(CHUNK).expect("a claim");
    assert_eq!(listed(&publication.list), ["0@5", "1@5"]);
    assert_eq!(publication.list.applied, Revision(10));
    assert_eq!(publication.replaces, None);
    assert!(decide(&mut books).is_empty(), "not answered yet");
    assert_eq!(books.publish(CHUNK), None, "one write at a time");
    books.committed(CHUNK, Revision(11));
    assert_eq!(decide(&mut books), ["start 0@5", "start 1@5"]);
    assert_eq!(books.publish(CHUNK), None, "nothing new to tell");
}

#[test]
fn a_task_stays_listed_until_it_has_stopped() {
    let mut books = running(&[(0, 5), (1, 5)]);
    books.assign(CHUNK, chunk(20, &[(1, 5)]));
    assert_eq!(decide(&mut books), ["stop 0 unassigned"]);
    let publication = books.publish(CHUNK).expect("an acknowledgement");
    assert_eq!(publication.list.applied, Revision(20));
    assert_eq!(publication.replaces, Some(Revision(11)));
    assert_eq!(listed(&publication.list), ["0@5!", "1@5"]);
    books.committed(CHUNK, Revision(21));
    assert_eq!(books.publish(CHUNK), None);
    books.stopped(&task(0));
    assert!(decide(&mut books).is_empty());
    assert_eq!(commit(&mut books, 22), ["1@5"]);
}

#[test]
fn a_revoked_claim_that_was_not_started_just_leaves_the_list() {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, &[(0, 5)]));
    decide(&mut books);
    let claim = books.publish(CHUNK).expect("a claim");
    assert_eq!(listed(&claim.list), ["0@5"]);
    books.assign(CHUNK, chunk(12, &[]));
    decide(&mut books);
    books.committed(CHUNK, Revision(13));
    assert!(decide(&mut books).is_empty(), "not wanted any more");
    assert_eq!(commit(&mut books, 14), [""; 0]);
    assert!(books.is_idle());
}

#[test]
fn a_task_that_was_taken_off_and_comes_back_waits_for_its_new_listing() {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, &[(0, 5)]));
    decide(&mut books);
    commit(&mut books, 11);
    books.assign(CHUNK, chunk(12, &[]));
    // A write that takes the task off is under way; the store may take it any time now.
    books.publish(CHUNK).expect("a withdrawal");
    books.assign(CHUNK, chunk(13, &[(0, 5)]));
    assert!(decide(&mut books).is_empty(), "the store may not list it");
    books.unknown(CHUNK);
    assert!(decide(&mut books).is_empty(), "still not known");
    let claim = books.publish(CHUNK).expect("told again");
    assert_eq!(listed(&claim.list), ["0@5"]);
    books.committed(CHUNK, Revision(15));
    assert_eq!(decide(&mut books), ["start 0@5"]);
}

#[test]
fn a_new_epoch_is_a_stop_and_a_start_under_a_new_claim() {
    let mut books = running(&[(0, 5)]);
    books.assign(CHUNK, chunk(20, &[(0, 8)]));
    assert_eq!(decide(&mut books), ["stop 0 new_epoch"]);
    assert_eq!(commit(&mut books, 21), ["0@5!"]);
    books.stopped(&task(0));
    assert!(decide(&mut books).is_empty(), "listed under the old epoch");
    assert_eq!(commit(&mut books, 22), ["0@8"]);
    assert_eq!(decide(&mut books), ["start 0@8"]);
}

#[test]
fn while_the_outcome_of_a_write_is_unknown_what_runs_goes_on() {
    let mut books = running(&[(0, 5)]);
    books.assign(CHUNK, chunk(20, &[(0, 5), (1, 6)]));
    decide(&mut books);
    books.publish(CHUNK).expect("a claim");
    books.unknown(CHUNK);
    assert!(decide(&mut books).is_empty());
    let again = books.publish(CHUNK).expect("told again");
    assert_eq!(again.replaces, Some(Revision(11)));
    // The first attempt had been taken after all.
    books.found(CHUNK, Some(Revision(21)));
    assert!(decide(&mut books).is_empty());
    let third = books.publish(CHUNK).expect("told again");
    assert_eq!(third.replaces, Some(Revision(21)));
    books.committed(CHUNK, Revision(22));
    assert_eq!(decide(&mut books), ["start 1@6"]);
}

#[test]
fn a_link_that_is_not_known_claims_nothing_and_is_acknowledged() {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, &[(0, 5)]));
    decide_with(&mut books, &Contexts::default(), false);
    let publication = books.publish(CHUNK).expect("an acknowledgement");
    assert_eq!(publication.list.applied, Revision(10));
    assert!(publication.list.tasks.is_empty());
    books.committed(CHUNK, Revision(11));
    assert_eq!(books.waiting(), BTreeMap::from([(link_id(), 1)]));
    decide(&mut books);
    assert_eq!(
        commit(&mut books, 12),
        ["0@5"],
        "claimed once the link is known"
    );
}

#[test]
fn a_changed_setting_restarts_tasks_a_few_at_a_time() {
    let tasks: Vec<(i32, u64)> = (0..40).map(|partition| (partition, 5)).collect();
    let mut books = running(&tasks);
    let mut contexts = contexts();
    put_link(&mut contexts, GapPolicy::Halt);
    let stops = decide_with(&mut books, &contexts, false);
    assert_eq!(stops.len(), RESTARTS_PER_LINK_MAX);
    assert!(decide_with(&mut books, &contexts, false).is_empty());
    commit(&mut books, 20);
    books.stopped(&task(0));
    let next: Vec<String> = decide_with(&mut books, &contexts, false)
        .iter()
        .map(describe)
        .collect();
    assert_eq!(
        next,
        ["start 0@5", "stop 16 changed"],
        "the same ownership needs no new claim, and the next one follows"
    );
}

#[test]
fn c050_tasks_that_do_not_copy_follow_a_changed_setting_all_at_once() {
    let tasks: Vec<(i32, u64)> = (0..40).map(|partition| (partition, 5)).collect();
    let mut books = running(&tasks);
    let mut contexts = contexts();
    put_link(&mut contexts, GapPolicy::Halt);
    let stops = books.decide(Circumstances {
        contexts: &contexts,
        draining: false,
        copies: &|_| false,
        releasing: &BTreeSet::new(),
    });
    assert_eq!(stops.len(), tasks.len());
}

#[test]
fn new_limits_and_target_names_restart_a_task_and_a_new_start_does_not() {
    let mut books = running(&[(0, 5), (1, 5), (2, 5)]);
    let mut changed = chunk(20, &[(0, 5), (1, 5), (2, 5)]);
    changed
        .tasks
        .entry(task(0))
        .and_modify(|spec| spec.limits.compacted = true);
    changed
        .tasks
        .entry(task(1))
        .and_modify(|spec| spec.target_topic = TopicName::new("other").expect("legal"));
    changed
        .tasks
        .entry(task(2))
        .and_modify(|spec| spec.start = StartPolicy::Latest);
    books.assign(CHUNK, changed);
    assert_eq!(decide(&mut books), ["stop 0 changed", "stop 1 changed"]);
}

#[test]
fn a_link_whose_clients_are_let_go_of_starts_nothing_meanwhile() {
    let mut books = Books::default();
    books.assign(CHUNK, chunk(10, &[(0, 5)]));
    decide(&mut books);
    commit(&mut books, 11);
    let releasing = BTreeSet::from([link_id()]);
    let actions = books.decide(Circumstances {
        contexts: &contexts(),
        draining: false,
        copies: &|_| true,
        releasing: &releasing,
    });
    assert!(actions.is_empty());
    assert_eq!(books.publish(CHUNK), None, "the claim stands");
    assert_eq!(decide(&mut books), ["start 0@5"]);
}

#[test]
fn a_worker_that_leaves_starts_nothing_and_gives_back_what_is_taken_away() {
    let mut books = running(&[(0, 5), (1, 5)]);
    books.assign(CHUNK, chunk(20, &[(1, 5), (2, 6)]));
    let contexts = contexts();
    let actions: Vec<String> = decide_with(&mut books, &contexts, true)
        .iter()
        .map(describe)
        .collect();
    assert_eq!(actions, ["stop 0 unassigned"]);
    assert_eq!(commit(&mut books, 21), ["0@5!", "1@5"], "2 is not claimed");
    books.stopped(&task(0));
    assert_eq!(
        books.stop_all_but(&|_| false, StopReason::Leaving),
        [task(1)]
    );
    assert_eq!(
        books.stop_all_but(&|_| false, StopReason::Leaving),
        [],
        "told once"
    );
    books.stopped(&task(1));
    assert!(books.is_idle());
    decide_with(&mut books, &contexts, true);
    assert_eq!(commit(&mut books, 22), [""; 0]);
}

#[test]
fn c043_a_list_that_others_deleted_or_changed_is_told_again() {
    let mut books = running(&[(0, 5)]);
    assert!(
        !books.observed(CHUNK, None, Revision(10)),
        "the view is behind"
    );
    assert!(!books.observed(CHUNK, Some(Revision(11)), Revision(11)));
    assert!(books.observed(CHUNK, None, Revision(15)), "deleted by hand");
    let again = books.publish(CHUNK).expect("told again");
    assert_eq!(again.replaces, None);
    assert_eq!(listed(&again.list), ["0@5"]);
    assert!(
        !books.observed(CHUNK, None, Revision(16)),
        "a write is under way"
    );
    books.committed(CHUNK, Revision(17));
    assert!(books.observed(CHUNK, Some(Revision(20)), Revision(20)));
    let again = books.publish(CHUNK).expect("told again");
    assert_eq!(again.replaces, Some(Revision(20)));
    books.committed(CHUNK, Revision(21));
    assert!(decide(&mut books).is_empty(), "what runs was never touched");
}

#[test]
fn lists_of_a_lapsed_registration_are_replaced_even_where_nothing_is_assigned() {
    let mut books = Books::default();
    books.adopt(CHUNK, Revision(30));
    books.observed(CHUNK, Some(Revision(25)), Revision(30));
    let publication = books.publish(CHUNK).expect("emptied");
    assert_eq!(publication.replaces, Some(Revision(25)));
    assert_eq!(publication.list.applied, Revision(30));
    assert!(publication.list.tasks.is_empty());
}

#[test]
#[should_panic(expected = "stopped without having been told to")]
fn a_task_that_stops_untold_is_a_bug() {
    running(&[(0, 5)]).stopped(&task(0));
}
