use kreplicator_model::spec::{Pattern, Selector};
use kreplicator_store::Revision;

use super::*;
use crate::api::samples::{cluster, desired, exact, link};

const NOW: UnixMillis = UnixMillis(42);

/// A state as read, every key written by revision 5.
fn loaded(desired: Desired) -> Loaded {
    let mut loaded = Loaded {
        version: Some(Revision(5)),
        ..Loaded::default()
    };
    let mut note = |key| loaded.revisions.insert(key, Revision(5));
    for id in desired.clusters.keys() {
        note(keys::cluster(id));
    }
    for id in desired.links.keys() {
        note(keys::link(id));
    }
    for (place, subscription) in &desired.subscriptions {
        note(keys::subscription(&place.0, &place.1));
        let record = SubscriptionRecord {
            subscription: subscription.clone(),
            created_at: UnixMillis(1),
            baseline: true,
        };
        loaded.subscriptions.insert(place.clone(), record);
    }
    loaded.desired = desired;
    loaded
}

fn describe(op: &Op) -> String {
    match op {
        Op::Put { key, .. } => format!("put {key}"),
        Op::Delete(key) => format!("delete {key}"),
        Op::DeletePrefix(key) => format!("delete {key}*"),
    }
}

fn ops(steps: &[Step]) -> Vec<String> {
    steps
        .iter()
        .flat_map(|step| &step.ops)
        .map(describe)
        .collect()
}

#[test]
fn what_is_needed_comes_first_and_deletions_come_last() {
    let before = loaded(desired(&["old"]));
    let mut draft = Draft::new(&before, NOW);
    draft.delete_link(&link("a-b", "a", "b").id);
    draft.delete_cluster(&cluster("b").id);
    draft.put_subscription(exact("a-c", "t"));
    draft.put_link(link("a-c", "a", "c"));
    draft.put_cluster(cluster("c"));
    let steps = draft.into_steps();
    assert_eq!(
        ops(&steps),
        [
            "put config/cluster/c",
            "put config/link/a-c",
            "put config/subscription/a-c/t",
            "delete config/subscription/a-b/*",
            "delete config/link/a-b",
            "delete line/a-b/*",
            "delete producer/a-b",
            "delete config/cluster/b",
        ]
    );
    assert_eq!(steps.len(), 1, "what fits into one transaction is one");
    assert_eq!(
        steps[0].compares,
        [
            Compare::Absent("config/cluster/c".to_owned()),
            Compare::Absent("config/link/a-c".to_owned()),
            Compare::Absent("config/subscription/a-c/t".to_owned()),
        ]
    );
}

#[test]
fn nothing_to_do_is_no_step() {
    let before = loaded(desired(&["t"]));
    let mut draft = Draft::new(&before, NOW);
    assert!(!draft.put_cluster(cluster("a")));
    assert!(!draft.put_link(link("a-b", "a", "b")));
    assert!(!draft.put_subscription(exact("a-b", "t")));
    assert!(draft.into_steps().is_empty());
}

#[test]
fn steps_keep_to_the_limits_of_a_transaction() {
    let before = loaded(desired(&[]));
    let mut draft = Draft::new(&before, NOW);
    for n in 0..250 {
        draft.put_subscription(exact("a-b", &format!("t{n:03}")));
    }
    let counts: Vec<usize> = draft
        .into_steps()
        .iter()
        .map(|step| step.ops.len())
        .collect();
    assert_eq!(counts, [100, 100, 50]);

    let mut draft = Draft::new(&before, NOW);
    for n in 0..10 {
        let mut large = exact("a-b", "x");
        large.selector = Selector::Pattern(Pattern {
            include: format!("{n}"),
            exclude: vec!["y".repeat(4_000); 40],
        });
        draft.put_subscription(large);
    }
    let steps = draft.into_steps();
    let sizes: Vec<usize> = steps.iter().map(|step| step.ops.len()).collect();
    assert_eq!(sizes, [3, 3, 3, 1], "160 kB each");
    for step in &steps {
        let bytes: usize = step.ops.iter().map(size_of_op).sum();
        assert!(bytes <= STEP_BYTES_MAX, "{bytes}");
    }
}

#[test]
fn a_loop_that_only_the_halfway_state_has_is_avoided() {
    // The flow turns round: either order would do alone, both links at once would loop.
    let mut around = desired(&["t"]);
    let back = link("b-a", "b", "a");
    around.links.insert(back.id.clone(), back);
    let before = loaded(around);
    let mut draft = Draft::new(&before, NOW);
    draft.delete_subscription(&link("a-b", "a", "b").id, "t");
    draft.put_subscription(exact("b-a", "t"));
    assert!(draft.new_faults().is_empty(), "the result is sound");
    assert_eq!(
        ops(&draft.into_steps()),
        [
            "delete config/subscription/a-b/t",
            "put config/subscription/b-a/t"
        ]
    );
}

#[test]
fn old_faults_do_not_stand_in_the_way() {
    let mut faulty = desired(&["t"]);
    faulty.clusters.remove(&cluster("b").id);
    let before = loaded(faulty);
    let mut draft = Draft::new(&before, NOW);
    draft.put_subscription(exact("a-b", "u"));
    assert!(draft.new_faults().is_empty(), "{:?}", draft.new_faults());
    draft.put_link(link("x-y", "x", "y"));
    let faults = draft.new_faults();
    assert!(!faults.is_empty());
    assert!(
        faults.iter().all(|fault| fault.subject.contains("x-y")),
        "{faults:?}"
    );
}

#[test]
fn what_was_noted_stays_while_the_selector_does() {
    let before = loaded(desired(&["t"]));
    let stored = |subscription: Subscription| {
        let mut draft = Draft::new(&before, NOW);
        assert!(draft.put_subscription(subscription));
        let steps = draft.into_steps();
        let [Op::Put { key, value, .. }] = steps[0].ops.as_slice() else {
            panic!("one put: {steps:?}");
        };
        SubscriptionRecord::decode(key, value).expect("ours")
    };
    let paused = Subscription {
        paused: true,
        ..exact("a-b", "t")
    };
    let record = stored(paused);
    assert!(record.baseline);
    assert_eq!(record.created_at, UnixMillis(1));
    let record = stored(exact("a-b", "new"));
    assert!(!record.baseline);
    assert_eq!(record.created_at, NOW);
}
