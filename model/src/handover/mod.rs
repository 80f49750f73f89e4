//! The steps from what is assigned to what is planned, as set algebra:
//! keep = assigned ∩ planned; revoke = assigned − planned; assign = planned − keep − what somebody
//! else may still run.
//!
//! A task that bears a second owner moves without a pause: it is assigned first, and revoked where it was
//! once its successor copies. Until then it has two assignments, of which the one with the higher epoch
//! counts as the owner.
//!
//! The steps are worked out anew from the book each time, for ever, so whatever goes wrong in
//! between is repaired by the next round.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use crate::{
    ids::{OwnerEpoch, TaskId, WorkerId},
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
    /// Tasks that go on where they were until their successor copies, and where that is.
    pub covering: BTreeMap<TaskId, BTreeSet<WorkerId>>,
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

/// What a worker says of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Word {
    /// It copies.
    pub copies: bool,
    /// A second owner does no harm.
    pub bears_second: bool,
}

/// What workers say of what they were given.
pub trait Words: Debug {
    /// The worker's latest word of a task under this ownership; nothing where it has said none.
    fn of(&self, worker: &WorkerId, task: &TaskId, epoch: OwnerEpoch) -> Word;
}

/// Nobody has said anything.
#[derive(Debug, Clone, Copy)]
pub struct Silence;

impl Words for Silence {
    fn of(&self, _: &WorkerId, _: &TaskId, _: OwnerEpoch) -> Word {
        Word::default()
    }
}

/// What steps are worked out from, beside the plan.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Who has what.
    pub ledger: &'a Ledger,
    /// Workers whose leases are over, margin included: nothing is assigned to them.
    pub lost: &'a BTreeSet<WorkerId>,
    /// Who is not waited for.
    pub harmless: &'a Harmless,
    /// What workers say.
    pub words: &'a dyn Words,
}

/// The next steps towards `placements`.
#[must_use]
pub fn steps(placements: &BTreeMap<TaskId, WorkerId>, known: Known<'_>) -> Steps {
    let Known { ledger, lost, .. } = known;
    let mut steps = Steps::default();
    // Workers that a task is assigned to and planned away from: they run it until they have released
    // it, so they count as holders of it.
    let mut leaving: BTreeMap<&TaskId, BTreeSet<&WorkerId>> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    for (worker, task, epoch) in ledger.assignments() {
        let planned = placements.get(task).filter(|to| !lost.contains(*to));
        if planned == Some(worker) {
            let is_latest = known.owner(task) <= Some(epoch);
            if is_latest {
                kept.insert(task);
            }
            // An older one is replaced.
            continue;
        }
        if let Some(to) = planned
            && known.covers(worker, to, task, epoch)
        {
            let covering = steps.covering.entry(task.clone()).or_default();
            covering.insert(worker.clone());
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
        // The owner is none of them as far as the book knows, but it may be on its way out.
        let leaving = leaving.get(task).into_iter().flatten();
        blocking.extend(leaving.map(|worker| (*worker).clone()));
        let covering = steps.covering.get(task);
        blocking.retain(|holder| {
            holder != worker
                && !lost.contains(holder)
                && !known.is_harmless(task, holder)
                && !covering.is_some_and(|covering| covering.contains(holder))
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

impl Known<'_> {
    /// The highest epoch of a task's assignments.
    fn owner(&self, task: &TaskId) -> Option<OwnerEpoch> {
        self.ledger.assigned_to(task).map(|(_, epoch)| epoch)
    }

    fn is_harmless(&self, task: &TaskId, worker: &WorkerId) -> bool {
        let tasks = self.harmless.get(worker);
        tasks.is_some_and(|tasks| tasks.contains(task))
    }

    /// Whether a worker goes on with a task that is planned `to` another one.
    fn covers(&self, worker: &WorkerId, to: &WorkerId, task: &TaskId, epoch: OwnerEpoch) -> bool {
        // What is silent is waited for by nobody, nor does it cover for anybody.
        if self.lost.contains(worker) || self.harmless.contains_key(worker) {
            return false;
        }
        let word = self.words.of(worker, task, epoch);
        let successor = self
            .ledger
            .assigned_to(task)
            .filter(|(owner, _)| *owner == to);
        let is_succeeded =
            successor.is_some_and(|(_, epoch)| self.words.of(to, task, epoch).copies);
        word.copies && word.bears_second && !is_succeeded
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod simulation;
