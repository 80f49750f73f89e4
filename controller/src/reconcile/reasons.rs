//! Why each task is where it is, for people and for the counting of moves.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    ids::{TaskId, WorkerId},
    ownership::Ledger,
    planner::Reason,
};

use super::{decide::Decision, writer::Given};

/// The label of tasks whose worker was silent.
const SILENT: &str = "worker-silent";
/// The label of tasks that were refused elsewhere.
const STUCK: &str = "stuck";

/// What is about to happen to tasks, noted before it is written.
#[derive(Debug)]
pub(crate) struct Intent {
    owners: BTreeMap<TaskId, WorkerId>,
    pinned: BTreeSet<TaskId>,
    succeeded: BTreeSet<TaskId>,
    reasons: BTreeMap<TaskId, Reason>,
}

impl Intent {
    /// Who has the tasks now that a decision gives away, and why they move.
    pub(crate) fn of(
        decision: &Decision,
        ledger: &Ledger,
        pinned: &BTreeMap<TaskId, WorkerId>,
    ) -> Self {
        let assigned = decision.steps.assign.values().flatten();
        let owners = assigned.filter_map(|task| {
            let (owner, _) = ledger.assigned_to(task)?;
            Some((task.clone(), owner.clone()))
        });
        let moves = decision.plan.moves.iter();
        Self {
            owners: owners.collect(),
            pinned: pinned.keys().cloned().collect(),
            succeeded: decision.succeeded.keys().cloned().collect(),
            reasons: moves
                .map(|planned| (planned.task.clone(), planned.reason))
                .collect(),
        }
    }
}

/// Why each task is where it is, as far as this leader knows.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    texts: BTreeMap<TaskId, String>,
    /// Who had the tasks that were taken from a worker and not given to another yet.
    leaving: BTreeMap<TaskId, (WorkerId, &'static str)>,
}

impl Reasons {
    /// The reasons by task.
    pub(crate) fn texts(&self) -> &BTreeMap<TaskId, String> {
        &self.texts
    }

    /// Notes why tasks are about to be taken from their workers.
    pub(crate) fn leave(&mut self, decision: &Decision, intent: &Intent) {
        for (worker, tasks) in &decision.steps.revoke {
            for task in tasks {
                if decision.plan.placements.contains_key(task) {
                    let label = intent.label(task);
                    let entry = self.leaving.entry(task.clone());
                    entry.or_insert_with(|| (worker.clone(), label));
                }
            }
        }
    }

    /// Notes what was given to whom; gives the number of moves by label.
    pub(crate) fn given(
        &mut self,
        given: Vec<Given>,
        intent: &Intent,
        ledger: &Ledger,
    ) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        if given.is_empty() {
            return counts;
        }
        for Given { task, worker } in given {
            let left = self.leaving.remove(&task);
            let (from, label) = match left {
                Some((from, label)) => (Some(from), label),
                None => (intent.owners.get(&task).cloned(), intent.label(&task)),
            };
            *counts.entry(label).or_default() += 1;
            let text = match from {
                Some(from) if from != worker => format!("{label}: from {from}"),
                Some(_) | None => label.to_owned(),
            };
            self.texts.insert(task, text);
        }
        self.texts
            .retain(|task, _| ledger.assigned_to(task).is_some());
        counts
    }

    /// Forgets tasks that are not on their way from one worker to another.
    pub(crate) fn forget(&mut self, decision: &Decision, ledger: &Ledger) {
        self.leaving.retain(|task, _| {
            let is_planned = decision.plan.placements.contains_key(task);
            is_planned && ledger.assigned_to(task).is_none()
        });
    }
}

impl Intent {
    fn label(&self, task: &TaskId) -> &'static str {
        if self.pinned.contains(task) {
            return STUCK;
        }
        if self.succeeded.contains(task) {
            return SILENT;
        }
        let reason = self.reasons.get(task).copied().unwrap_or(Reason::New);
        reason.as_str()
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::{
        handover::Steps,
        ids::OwnerEpoch,
        planner::{Move, Plan},
    };
    use kreplicator_store::keys;

    use super::*;
    use crate::reconcile::fixtures::{task, worker};

    fn moves(reason: Reason, revoke: bool) -> Decision {
        let tasks: BTreeSet<TaskId> = [task("orders", 0)].into();
        let from = [(worker("w1"), tasks.clone())].into();
        let to = [(worker("w2"), tasks)].into();
        Decision {
            plan: Plan {
                placements: [(task("orders", 0), worker("w2"))].into(),
                moves: vec![Move {
                    task: task("orders", 0),
                    from: Some(worker("w1")),
                    to: worker("w2"),
                    reason,
                }],
                ..Plan::default()
            },
            steps: Steps {
                revoke: if revoke { from } else { BTreeMap::new() },
                assign: if revoke { BTreeMap::new() } else { to },
                ..Steps::default()
            },
            ..Decision::default()
        }
    }

    #[test]
    fn the_reason_of_a_planned_move_outlives_the_handover() {
        let mut reasons = Reasons::default();
        let mut ledger = Ledger::new(keys::chunk_of);
        let first = moves(Reason::WorkerDraining, true);
        let intent = Intent::of(&first, &ledger, &BTreeMap::new());
        reasons.leave(&first, &intent);
        reasons.forget(&first, &ledger);
        // Released: for the planner it is a task without an owner now.
        let second = moves(Reason::New, false);
        let intent = Intent::of(&second, &ledger, &BTreeMap::new());
        let chunk = keys::chunk_of(&task("orders", 0).link, &task("orders", 0).topic);
        let assigned = [(task("orders", 0), OwnerEpoch(2))].into();
        ledger.set_assigned(&worker("w2"), chunk, 2, assigned);
        let given = vec![Given {
            task: task("orders", 0),
            worker: worker("w2"),
        }];
        let counts = reasons.given(given, &intent, &ledger);
        assert_eq!(counts, [("worker-draining", 1)].into());
        assert_eq!(
            reasons.texts()[&task("orders", 0)],
            "worker-draining: from w1"
        );
    }

    #[test]
    fn the_reason_of_a_move_that_did_not_happen_is_forgotten() {
        let mut reasons = Reasons::default();
        let mut ledger = Ledger::new(keys::chunk_of);
        let chunk = keys::chunk_of(&task("orders", 0).link, &task("orders", 0).topic);
        let assigned = |epoch| [(task("orders", 0), OwnerEpoch(epoch))].into();
        ledger.set_assigned(&worker("w1"), chunk, 1, assigned(1));
        let first = moves(Reason::Rebalance, true);
        let intent = Intent::of(&first, &ledger, &BTreeMap::new());
        reasons.leave(&first, &intent);
        // The write did not happen.
        reasons.forget(&first, &ledger);
        let second = moves(Reason::WorkerLost, false);
        let intent = Intent::of(&second, &ledger, &BTreeMap::new());
        ledger.set_assigned(&worker("w2"), chunk, 2, assigned(2));
        let given = vec![Given {
            task: task("orders", 0),
            worker: worker("w2"),
        }];
        let counts = reasons.given(given, &intent, &ledger);
        assert_eq!(counts, [("worker-lost", 1)].into());
        assert_eq!(reasons.texts()[&task("orders", 0)], "worker-lost: from w1");
    }
}
