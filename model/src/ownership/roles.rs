//! Who has to do with a task, looked up by task.

use std::collections::BTreeMap;

use super::Owned;
use crate::ids::{OwnerEpoch, TaskId, WorkerId};

/// What one worker has to do with one task through one chunk.
#[derive(Debug, Clone)]
pub(super) struct Role {
    pub(super) worker: WorkerId,
    pub(super) chunk: u32,
    /// It is assigned to the worker.
    pub(super) assigned: Option<OwnerEpoch>,
    /// The worker lists it.
    pub(super) claimed: Option<Owned>,
    /// It was taken from the worker, which has not answered.
    pub(super) removed: bool,
}

/// Roles by task. Few workers a task, so a sorted vector is both smaller and faster than a map.
#[derive(Debug, Clone, Default)]
pub(super) struct Roles {
    by_task: BTreeMap<TaskId, Vec<Role>>,
}

impl Roles {
    /// The roles in a task, in order of worker and chunk.
    pub(super) fn of(&self, task: &TaskId) -> &[Role] {
        self.by_task.get(task).map_or(&[], Vec::as_slice)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TaskId, &[Role])> {
        self.by_task
            .iter()
            .map(|(task, roles)| (task, roles.as_slice()))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_task.is_empty()
    }

    /// Changes a role, which is made when it is new and dropped when nothing is left of it.
    pub(super) fn change(
        &mut self,
        task: &TaskId,
        worker: &WorkerId,
        chunk: u32,
        change: impl FnOnce(&mut Role),
    ) {
        let mut fresh = Vec::new();
        let roles = self.by_task.get_mut(task).unwrap_or(&mut fresh);
        let place = roles.binary_search_by(|role| (&role.worker, role.chunk).cmp(&(worker, chunk)));
        let index = place.unwrap_or_else(|index| {
            let role = Role {
                worker: worker.clone(),
                chunk,
                assigned: None,
                claimed: None,
                removed: false,
            };
            roles.insert(index, role);
            index
        });
        let role = &mut roles[index];
        change(role);
        if role.assigned.is_none() && role.claimed.is_none() && !role.removed {
            roles.remove(index);
        }
        if roles.is_empty() {
            self.by_task.remove(task);
        } else if !fresh.is_empty() {
            self.by_task.insert(task.clone(), fresh);
        }
    }
}
