//! The steps from what is assigned to what is planned.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::{TaskId, WorkerId},
    ownership::Ledger,
};

/// What to write next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Tasks to take out of a worker's assignment.
    pub revoke: BTreeMap<WorkerId, BTreeSet<TaskId>>,
    /// Tasks to put into a worker's assignment.
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

/// The next steps towards `placements`. `lost` workers' leases are over, margin included.
#[must_use]
pub fn steps(
    placements: &BTreeMap<TaskId, WorkerId>,
    ledger: &Ledger,
    lost: &BTreeSet<WorkerId>,
) -> Steps {
    let _ = (placements, ledger, lost);
    todo!()
}
