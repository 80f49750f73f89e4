//! The steps from what is assigned to what is planned, as set algebra:
//! keep = assigned ∩ planned; revoke = assigned − planned; assign = planned − keep − what somebody
//! else may still run.
//!
//! The steps are worked out anew from the book each time, for ever, so whatever goes wrong in
//! between is repaired by the next round.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::{TaskId, WorkerId},
    ownership::Ledger,
};

/// What to write next.
///
/// A task of a lost worker is revoked there and assigned elsewhere by the same steps. The revocation
/// must be written first or together with the assignment, and only while the lost worker has not
/// registered again (compare its registration as absent): then a worker that comes back reads an
/// assignment without the task (C039).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Tasks to take out of a worker's assignment.
    pub revoke: BTreeMap<WorkerId, BTreeSet<TaskId>>,
    /// Tasks to put into a worker's assignment, each with a new epoch.
    pub assign: BTreeMap<WorkerId, BTreeSet<TaskId>>,
    /// Planned tasks that cannot be assigned yet, with the workers that may still run them.
    pub waiting: BTreeMap<TaskId, BTreeSet<WorkerId>>,
}

impl Steps {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.revoke.is_empty() && self.assign.is_empty()
    }
}

/// Tasks by a worker that may still run them, where that does no harm: the worker is suspected to be
/// gone, and the tasks bear a second owner.
pub type Harmless = BTreeMap<WorkerId, BTreeSet<TaskId>>;

/// The next steps towards `placements`. The leases of `lost` workers are over, margin included;
/// nothing is assigned to them. Who is `harmless` to a task is not waited for.
#[must_use]
pub fn steps(
    placements: &BTreeMap<TaskId, WorkerId>,
    ledger: &Ledger,
    lost: &BTreeSet<WorkerId>,
    harmless: &Harmless,
) -> Steps {
    let is_harmless = |task: &TaskId, worker: &WorkerId| {
        let tasks = harmless.get(worker);
        tasks.is_some_and(|tasks| tasks.contains(task))
    };
    let mut steps = Steps::default();
    // Workers that a task is assigned to and planned away from: they run it until they have released
    // it, so they count as holders of it.
    let mut leaving: BTreeMap<&TaskId, BTreeSet<&WorkerId>> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    for (worker, task, _) in ledger.assignments() {
        let planned = placements.get(task);
        if planned == Some(worker) && !lost.contains(worker) {
            kept.insert(task);
            continue;
        }
        leaving.entry(task).or_default().insert(worker);
        let revoke = steps.revoke.entry(worker.clone()).or_default();
        revoke.insert(task.clone());
    }
    for (task, worker) in placements {
        if kept.contains(task) || lost.contains(worker) {
            continue;
        }
        let mut blocking = ledger.holders(task);
        let leaving = leaving.get(task).into_iter().flatten();
        blocking.extend(leaving.map(|worker| (*worker).clone()));
        blocking.retain(|holder| {
            holder != worker && !lost.contains(holder) && !is_harmless(task, holder)
        });
        if blocking.is_empty() {
            let assign = steps.assign.entry(worker.clone()).or_default();
            assign.insert(task.clone());
        } else {
            steps.waiting.insert(task.clone(), blocking);
        }
    }
    steps
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod simulation;
