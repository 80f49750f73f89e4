//! What runs where, across all workers: the judge of "no two owners".

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use kreplicator_model::ids::{OwnerEpoch, TaskId, WorkerId};

/// Shared by all workers of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    running: BTreeMap<TaskId, (WorkerId, OwnerEpoch)>,
    starts: BTreeMap<TaskId, Vec<(WorkerId, OwnerEpoch)>>,
    violations: Vec<String>,
}

impl Registry {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().expect("no test panics inside"))
    }

    /// A worker starts a task.
    pub(crate) fn start(&self, task: &TaskId, worker: &WorkerId, epoch: OwnerEpoch) {
        self.with(|inner| {
            if let Some((other, other_epoch)) = inner.running.get(task) {
                inner.violations.push(format!(
                    "{task} started on {worker} (epoch {epoch}) while it runs on {other} (epoch {other_epoch})"
                ));
            }
            let starts = inner.starts.entry(task.clone()).or_default();
            if let Some((_, last)) = starts.last()
                && epoch < *last
            {
                inner
                    .violations
                    .push(format!("{task}: epoch {epoch} after {last}"));
            }
            starts.push((worker.clone(), epoch));
            inner
                .running
                .insert(task.clone(), (worker.clone(), epoch));
        });
    }

    /// A worker has stopped a task.
    pub(crate) fn stop(&self, task: &TaskId, worker: &WorkerId) {
        self.with(|inner| {
            if inner
                .running
                .get(task)
                .is_some_and(|(owner, _)| owner == worker)
            {
                inner.running.remove(task);
            }
        });
    }

    /// A worker is gone or fenced.
    pub(crate) fn stop_all(&self, worker: &WorkerId) {
        self.with(|inner| inner.running.retain(|_, (owner, _)| owner != worker));
    }

    /// Where each task runs.
    pub(crate) fn running(&self) -> BTreeMap<TaskId, WorkerId> {
        self.with(|inner| {
            let running = inner.running.iter();
            running
                .map(|(task, (worker, _))| (task.clone(), worker.clone()))
                .collect()
        })
    }

    /// The tasks of one worker.
    pub(crate) fn of(&self, worker: &str) -> BTreeSet<TaskId> {
        self.with(|inner| {
            let running = inner.running.iter();
            running
                .filter(|(_, (owner, _))| owner.as_str() == worker)
                .map(|(task, _)| task.clone())
                .collect()
        })
    }

    /// How often each task was started.
    pub(crate) fn starts(&self) -> BTreeMap<TaskId, usize> {
        self.with(|inner| {
            let starts = inner.starts.iter();
            starts
                .map(|(task, starts)| (task.clone(), starts.len()))
                .collect()
        })
    }

    /// Every worker that a task was started on, in order.
    pub(crate) fn history(&self, task: &TaskId) -> Vec<String> {
        self.with(|inner| {
            let starts = inner.starts.get(task).into_iter().flatten();
            starts.map(|(worker, _)| worker.to_string()).collect()
        })
    }

    /// Panics if a task ever ran twice at a time or epochs fell.
    pub(crate) fn assert_single_owners(&self) {
        self.with(|inner| assert!(inner.violations.is_empty(), "{:#?}", inner.violations));
    }
}
