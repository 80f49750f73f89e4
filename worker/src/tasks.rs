//! The tasks that this worker runs now, for whoever wants to look: reports and metrics.
//!
//! The supervisor writes it. What is released leaves it at once, so a look never shows a task that
//! somebody else runs by now (C119).

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use kreplicator_model::ids::{LinkId, TaskId, UnixMillis};

use crate::engine::RunningTask;

/// A task that was started and has not stopped yet.
#[derive(Debug, Clone)]
pub struct Live {
    /// The task.
    pub task: Arc<dyn RunningTask>,
    /// When it was started here.
    pub started_at: UnixMillis,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<TaskId, Live>,
    waiting: BTreeMap<LinkId, usize>,
    removals: u64,
}

/// The table of running tasks.
#[derive(Debug, Default)]
pub struct Tasks(RwLock<Table>);

impl Tasks {
    /// A copy of the table; cheap, since tasks are shared.
    #[must_use]
    pub fn live(&self) -> Vec<(TaskId, Live)> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let live = table.live.iter();
        live.map(|(id, live)| (id.clone(), live.clone())).collect()
    }

    /// One task.
    #[must_use]
    pub fn get(&self, id: &TaskId) -> Option<Live> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.live.get(id).cloned()
    }

    /// Number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.live.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tasks assigned to this worker that could not be started yet, by link.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<LinkId, usize> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.waiting.clone()
    }

    /// Counts the tasks that ever left the table.
    #[must_use]
    pub fn removals(&self) -> u64 {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.removals
    }

    pub(crate) fn insert(&self, id: TaskId, live: Live) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = table.live.insert(id, live);
        assert!(
            before.is_none(),
            "a task is started while it runs: {before:?}"
        );
    }

    pub(crate) fn remove(&self, id: &TaskId) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = table.live.remove(id);
        assert!(before.is_some(), "task {id} stopped but was not running");
        table.removals += 1;
    }

    pub(crate) fn set_waiting(&self, waiting: BTreeMap<LinkId, usize>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.waiting = waiting;
    }
}
