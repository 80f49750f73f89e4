use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    handover::Silence,
    ids::{LinkTopic, TaskId, WorkerId},
    liveness::Verdict,
    ownership::Ledger,
    resolve::{Resolved, TopicRecord},
};
use kreplicator_store::keys;

use super::*;
use crate::{
    reconcile::fixtures::{record, resolved, task, topic, worker},
    targets::TargetProblem,
};

/// A situation that owns its parts: two workers, nothing assigned, `orders` with 4 partitions.
struct Scene {
    resolved: Resolved,
    records: BTreeMap<LinkTopic, TopicRecord>,
    targets: BTreeMap<LinkTopic, TargetState>,
    halted: BTreeMap<LinkTopic, String>,
    frozen: BTreeSet<LinkId>,
    ledger: Ledger,
    verdict: Verdict,
    suspects: Harmless,
    pinned: BTreeMap<TaskId, WorkerId>,
}

impl Scene {
    fn new() -> Self {
        let verified = TargetState {
            partitions: Some(4),
            ..TargetState::default()
        };
        Self {
            resolved: resolved(&[("orders", 4)]),
            records: [(topic("orders"), record("orders", 4, 4))].into(),
            targets: [(topic("orders"), verified)].into(),
            halted: BTreeMap::new(),
            frozen: BTreeSet::new(),
            ledger: Ledger::new(keys::chunk_of),
            verdict: Verdict {
                active: [worker("w1"), worker("w2")].into(),
                ..Verdict::default()
            },
            suspects: Harmless::new(),
            pinned: BTreeMap::new(),
        }
    }

    fn assign(&mut self, name: &str, partitions: &[i32]) {
        let tasks = partitions.iter().map(|partition| {
            let task = task("orders", *partition);
            (task, kreplicator_model::ids::OwnerEpoch(1))
        });
        let chunk = keys::chunk_of(&topic("orders").link, &topic("orders").topic);
        self.ledger
            .set_assigned(&worker(name), chunk, 1, tasks.collect());
    }

    fn decide(&self) -> Decision {
        decide(&Situation {
            resolved: &self.resolved,
            records: &self.records,
            targets: &self.targets,
            halted: &self.halted,
            frozen: &self.frozen,
            ledger: &self.ledger,
            workers: &BTreeMap::new(),
            drains: &BTreeSet::new(),
            verdict: &self.verdict,
            suspects: &self.suspects,
            words: &Silence,
            pinned: &self.pinned,
        })
    }
}

fn counts(decision: &Decision) -> (usize, usize) {
    (decision.plan.placements.len(), decision.unassigned.len())
}

#[test]
fn partitions_begin_when_their_target_is_verified() {
    let mut scene = Scene::new();
    assert_eq!(counts(&scene.decide()), (4, 0));
    scene
        .targets
        .get_mut(&topic("orders"))
        .expect("there")
        .partitions = Some(2);
    let decision = scene.decide();
    assert_eq!(counts(&decision), (2, 2));
    assert!(decision.unassigned.contains_key(&task("orders", 3)));
    // Not before that is noted down.
    scene
        .records
        .insert(topic("orders"), record("orders", 4, 0));
    assert_eq!(counts(&scene.decide()), (0, 4));
    scene.records.clear();
    assert_eq!(counts(&scene.decide()), (0, 4));
}

#[test]
fn a_new_leader_trusts_what_was_verified_before_it() {
    let mut scene = Scene::new();
    scene.targets.clear();
    assert_eq!(counts(&scene.decide()), (4, 0));
    scene
        .records
        .insert(topic("orders"), record("orders", 4, 0));
    assert_eq!(counts(&scene.decide()), (0, 4));
}

#[test]
fn what_runs_goes_on_while_the_rest_waits_unless_it_must_stop() {
    let mut scene = Scene::new();
    scene.verdict.active.remove(&worker("w2"));
    scene.assign("w1", &[0, 1, 2]);
    let target = scene.targets.get_mut(&topic("orders")).expect("there");
    target.partitions = Some(1);
    target.problem = Some(TargetProblem {
        message: "add partitions to it".to_owned(),
        stops: false,
    });
    let decision = scene.decide();
    assert_eq!(counts(&decision), (3, 1));
    assert_eq!(
        decision.unassigned[&task("orders", 3)],
        "add partitions to it"
    );
    let target = scene.targets.get_mut(&topic("orders")).expect("there");
    target.problem.as_mut().expect("there").stops = true;
    let decision = scene.decide();
    assert_eq!(counts(&decision), (0, 4));
    assert_eq!(decision.steps.revoke[&worker("w1")].len(), 3);
}

#[test]
fn halted_topics_stop_with_their_reason() {
    let mut scene = Scene::new();
    scene.assign("w1", &[0, 1, 2, 3]);
    scene
        .halted
        .insert(topic("orders"), "was rebuilt".to_owned());
    let decision = scene.decide();
    assert_eq!(decision.steps.revoke[&worker("w1")].len(), 4);
    assert_eq!(decision.unassigned[&task("orders", 0)], "was rebuilt");
}

#[test]
fn a_link_that_cannot_be_read_keeps_what_runs() {
    let mut scene = Scene::new();
    scene.assign("w1", &[0, 1]);
    scene.assign("w2", &[2, 3]);
    scene.resolved = Resolved::default();
    assert_eq!(scene.decide().steps.revoke.len(), 2, "unsubscribed");
    scene.frozen.insert(topic("orders").link);
    let decision = scene.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(counts(&decision), (4, 0));
}

#[test]
fn tasks_of_a_suspended_worker_stay_and_those_of_a_lost_one_move() {
    let mut scene = Scene::new();
    scene.assign("w1", &[0, 1]);
    scene.assign("w2", &[2, 3]);
    scene.verdict.active.remove(&worker("w2"));
    scene.verdict.suspended.insert(worker("w2"));
    assert!(scene.decide().steps.is_empty());
    scene.verdict.suspended.clear();
    scene.verdict.lost.insert(worker("w2"));
    let decision = scene.decide();
    assert_eq!(decision.steps.assign[&worker("w1")].len(), 2);
    assert_eq!(decision.steps.revoke[&worker("w2")].len(), 2);
}

#[test]
fn a_pinned_task_is_taken_from_its_worker_first() {
    let mut scene = Scene::new();
    scene.assign("w1", &[0, 1]);
    scene.assign("w2", &[2, 3]);
    scene.pinned.insert(task("orders", 0), worker("w2"));
    let decision = scene.decide();
    assert_eq!(
        decision.steps.revoke[&worker("w1")],
        [task("orders", 0)].into()
    );
    assert!(
        decision.steps.assign.is_empty(),
        "given away while w1 may run it"
    );
    assert!(decision.unassigned[&task("orders", 0)].contains("w1"));
}

#[test]
fn a_silent_worker_gives_away_what_bears_a_second_owner_and_keeps_the_rest() {
    let mut scene = Scene::new();
    scene.assign("w1", &[0, 1]);
    scene.assign("w2", &[2, 3]);
    scene.suspects = [(worker("w1"), [task("orders", 0)].into())].into();
    let decision = scene.decide();
    let given = [(task("orders", 0), worker("w1"))].into();
    assert_eq!(decision.succeeded, given);
    let moved = [task("orders", 0)].into();
    assert_eq!(decision.steps.revoke, [(worker("w1"), moved)].into());
    let moved = [task("orders", 0)].into();
    assert_eq!(decision.steps.assign, [(worker("w2"), moved)].into());
    assert_eq!(decision.plan.placements[&task("orders", 1)], worker("w1"));
    assert!(decision.unassigned.is_empty());
}

#[test]
fn where_nobody_can_take_it_a_silent_worker_keeps_everything() {
    let mut scene = Scene::new();
    scene.verdict.active = [worker("w1")].into();
    scene.assign("w1", &[0, 1, 2, 3]);
    let all = (0..4).map(|partition| task("orders", partition)).collect();
    scene.suspects = [(worker("w1"), all)].into();
    let decision = scene.decide();
    assert!(decision.succeeded.is_empty());
    assert!(decision.steps.is_empty(), "{:?}", decision.steps);
    assert!(decision.unassigned.is_empty());
}
