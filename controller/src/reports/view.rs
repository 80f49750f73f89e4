//! What the table holds, as of one moment.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_model::{
    exact::EXACTLY_ONCE,
    ids::{OwnerEpoch, TaskId, WorkerId},
    suspicion::Heard,
};
use kreplicator_proto::v1;
use tokio::time::Instant;

use super::{
    Limits,
    worker::{Worker, WorkerNumbers},
};
use crate::fleet::Assigned;

/// The table at one moment. Its own: nobody waits for whoever reads it.
#[derive(Debug)]
pub struct View {
    pub(super) now: Instant,
    pub(super) limits: Limits,
    pub(super) workers: BTreeMap<WorkerId, Arc<Worker>>,
    pub(super) dropped: u64,
}

impl View {
    /// What the task's worker says of it; None: unknown. Link and topic are left empty.
    #[must_use]
    pub fn task(&self, task: &TaskId, assigned: &Assigned) -> Option<&v1::TaskReport> {
        let worker = self.fresh(&assigned.worker)?;
        let report = &worker.tasks.get(task)?.report;
        (OwnerEpoch(report.epoch) == assigned.epoch).then_some(report)
    }

    /// Rates and memory of a worker; None: unknown.
    #[must_use]
    pub fn worker(&self, worker: &WorkerId) -> Option<WorkerNumbers> {
        self.fresh(worker).map(|worker| worker.numbers)
    }

    /// How long a worker has been silent, when it is longer than it should be. None also for one that
    /// never reported.
    #[must_use]
    pub fn silent_for(&self, worker: &WorkerId) -> Option<Duration> {
        let worker = self.workers.get(worker)?;
        let silent = self.now.saturating_duration_since(worker.received_at);
        (silent > self.limits.stale_after).then_some(silent)
    }

    /// When a worker was heard last under this registration, and how often it means to be; None: it never
    /// was.
    #[must_use]
    pub fn heard(&self, worker: &WorkerId, incarnation: &str) -> Option<Heard> {
        let worker = self.workers.get(worker)?;
        if worker.incarnation != incarnation {
            return None;
        }
        Some(Heard {
            incarnation: incarnation.to_owned(),
            silent: self.now.saturating_duration_since(worker.received_at),
            interval: worker.heartbeat,
        })
    }

    /// Tasks of which their worker said last that a second owner does no harm, and under which ownership.
    pub fn exactly_once(&self, worker: &WorkerId) -> impl Iterator<Item = (&TaskId, OwnerEpoch)> {
        let worker = self.workers.get(worker).into_iter();
        let tasks = worker.flat_map(|worker| &worker.tasks);
        tasks
            .filter(|(_, entry)| entry.report.delivery == EXACTLY_ONCE)
            .map(|(id, entry)| (id, OwnerEpoch(entry.report.epoch)))
    }

    /// Task reports kept.
    #[must_use]
    pub fn tasks_kept(&self) -> usize {
        self.workers.values().map(|worker| worker.tasks.len()).sum()
    }

    /// Task reports not taken in: no legal name, or beyond the limit.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped
    }

    /// Memory that the task reports take, in bytes.
    #[must_use]
    pub fn bytes_kept(&self) -> usize {
        self.workers.values().map(|worker| worker.bytes).sum()
    }

    /// Most memory that they may take, in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.limits.bytes_max
    }

    /// Reports of tasks that there was no room for, since their workers told everything last: the state of
    /// those tasks is unknown.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.workers.values().map(|worker| worker.left_out).sum()
    }

    fn fresh(&self, worker: &WorkerId) -> Option<&Worker> {
        let worker = self.workers.get(worker)?;
        worker
            .is_fresh(self.now, &self.limits)
            .then_some(worker.as_ref())
    }
}
