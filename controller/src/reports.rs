//! What workers said last of their tasks: rates, lag and faults. In memory of the leader only, and
//! bounded; nothing here decides anything.
//!
//! A report counts for a task only while it is fresh, comes from the worker that the task is assigned
//! to, and speaks of the epoch assigned. Whatever does not is *unknown*, never zero (C115, C116), and
//! a task that moved is never counted twice (C119).

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kreplicator_model::{
    exact::EXACTLY_ONCE,
    handover::Word,
    ids::{LinkId, OwnerEpoch, Partition, TaskId, TopicName, WorkerId},
    suspicion::Heard,
};
use kreplicator_proto::v1;
use tokio::time::Instant;

use crate::fleet::{Assigned, FleetState};

/// Limits of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A worker that was silent for longer is unknown: three of its report intervals.
    pub stale_after: Duration,
    /// Most tasks kept, over all workers; those beyond are unknown.
    pub tasks_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(6),
            tasks_max: 200_000,
        }
    }
}

/// How long a report is kept for a task that the fleet does not (yet) show as assigned so: the
/// reconcile loop publishes its state some time after workers act on it.
const UNASSIGNED_KEPT: Duration = Duration::from_secs(30);

/// A report stream; a later one of the same worker replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(u64);

/// What to tell the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Taken in.
    Accepted,
    /// There is no base to apply it to, or the worker is not known yet: send everything.
    WantFull,
    /// A newer stream of the same worker exists: end this one.
    Superseded,
    /// The worker's name is none.
    BadWorker,
}

/// The table of latest reports.
#[derive(Debug)]
pub struct Reports {
    limits: Limits,
    streams: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    workers: BTreeMap<WorkerId, Worker>,
    tasks: usize,
    dropped: u64,
    swept_at: Option<Instant>,
}

/// Latest word of one worker.
#[derive(Debug)]
struct Worker {
    stream: StreamId,
    incarnation: String,
    received_at: Instant,
    heartbeat: Duration,
    numbers: WorkerNumbers,
    tasks: BTreeMap<TaskId, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// With link and topic left empty: the key holds them.
    report: v1::TaskReport,
    received_at: Instant,
}

/// Rates and memory of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkerNumbers {
    /// Records per second.
    pub records_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Its memory budget.
    pub memory_budget_bytes: i64,
    /// Used of it.
    pub memory_used_bytes: i64,
}

impl Reports {
    /// An empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            streams: AtomicU64::new(0),
            table: RwLock::default(),
        }
    }

    /// Names a stream that has just been opened.
    pub fn open_stream(&self) -> StreamId {
        StreamId(self.streams.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes in a report.
    pub fn accept(
        &self,
        now: Instant,
        stream: StreamId,
        report: v1::WorkerReport,
        fleet: &FleetState,
    ) -> Verdict {
        let Ok(worker) = WorkerId::new(&report.worker) else {
            return Verdict::BadWorker;
        };
        let mut table = self.write();
        table.sweep(now, fleet);
        if !fleet.workers.contains_key(&worker) {
            return Verdict::WantFull;
        }
        let known = table.workers.get(&worker);
        if known.is_some_and(|known| known.stream > stream) {
            return Verdict::Superseded;
        }
        let has_base = known
            .is_some_and(|known| known.stream == stream && known.incarnation == report.incarnation);
        if !report.full && !has_base {
            return Verdict::WantFull;
        }
        table.take(now, stream, worker, report, fleet, self.limits.tasks_max);
        Verdict::Accepted
    }

    /// Forgets everything: another process leads.
    pub fn clear(&self) {
        *self.write() = Table::default();
    }

    /// The table as of `now`. Held shortly, and never across an await.
    pub fn view(&self, now: Instant) -> View<'_> {
        View {
            now,
            limits: self.limits,
            table: self.table.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// What a worker says of a task under this ownership; nothing where it has not said anything lately.
    #[must_use]
    pub fn word(&self, now: Instant, worker: &WorkerId, task: &TaskId, epoch: OwnerEpoch) -> Word {
        let view = self.view(now);
        let report = view.fresh(worker).and_then(|worker| worker.tasks.get(task));
        let report = report.map(|entry| &entry.report);
        report
            .filter(|report| OwnerEpoch(report.epoch) == epoch)
            .map_or(Word::default(), |report| Word {
                copies: report.state() == v1::TaskState::Running && report.log_end.is_some(),
                bears_second: report.delivery == EXACTLY_ONCE,
            })
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(
        &mut self,
        now: Instant,
        stream: StreamId,
        worker: WorkerId,
        report: v1::WorkerReport,
        fleet: &FleetState,
        tasks_max: usize,
    ) {
        let numbers = WorkerNumbers {
            records_per_second: report.records_per_second,
            bytes_per_second: report.bytes_per_second,
            memory_budget_bytes: report.memory_budget_bytes,
            memory_used_bytes: report.memory_used_bytes,
        };
        let entry = self.workers.entry(worker).or_insert_with(|| Worker {
            stream,
            incarnation: String::new(),
            received_at: now,
            heartbeat: Duration::ZERO,
            numbers,
            tasks: BTreeMap::new(),
        });
        entry.stream = stream;
        entry.incarnation = report.incarnation;
        entry.received_at = now;
        entry.heartbeat = Duration::from_millis(report.heartbeat_interval_ms.into());
        entry.numbers = numbers;
        if report.full {
            self.tasks -= entry.tasks.len();
            entry.tasks.clear();
        }
        for mut task in report.tasks {
            let Some(id) = task_id(&task, fleet) else {
                self.dropped += 1;
                continue;
            };
            task.link = String::new();
            task.topic = String::new();
            let new = Entry {
                report: task,
                received_at: now,
            };
            if let Some(old) = entry.tasks.get_mut(&id) {
                *old = new;
            } else if self.tasks < tasks_max {
                entry.tasks.insert(id, new);
                self.tasks += 1;
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Drops what no longer concerns anybody.
    fn sweep(&mut self, now: Instant, fleet: &FleetState) {
        let age = |at: Instant| now.saturating_duration_since(at);
        if self.swept_at.is_some_and(|at| age(at) < UNASSIGNED_KEPT) {
            return;
        }
        self.swept_at = Some(now);
        self.workers.retain(|id, worker| {
            fleet.workers.contains_key(id) || age(worker.received_at) < UNASSIGNED_KEPT
        });
        for (id, worker) in &mut self.workers {
            worker.tasks.retain(|task, entry| {
                age(entry.received_at) < UNASSIGNED_KEPT
                    || fleet.assigned.get(task).is_some_and(|a| a.concerns(id))
            });
        }
        self.tasks = self.workers.values().map(|worker| worker.tasks.len()).sum();
    }
}

/// The task that a report speaks of; shares the fleet's copy of its names where there is one.
fn task_id(report: &v1::TaskReport, fleet: &FleetState) -> Option<TaskId> {
    let id = TaskId {
        link: LinkId::new(&report.link).ok()?,
        topic: TopicName::new(&report.topic).ok()?,
        partition: Partition(report.partition),
    };
    let known = fleet.assigned.get_key_value(&id);
    Some(known.map_or(id, |(known, _)| known.clone()))
}

/// The table at one moment.
#[derive(Debug)]
pub struct View<'a> {
    now: Instant,
    limits: Limits,
    table: RwLockReadGuard<'a, Table>,
}

impl View<'_> {
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
        let worker = self.table.workers.get(worker)?;
        let silent = self.now.saturating_duration_since(worker.received_at);
        (silent > self.limits.stale_after).then_some(silent)
    }

    /// When a worker was heard last under this registration, and how often it means to be; None: it never
    /// was.
    #[must_use]
    pub fn heard(&self, worker: &WorkerId, incarnation: &str) -> Option<Heard> {
        let worker = self.table.workers.get(worker)?;
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
        let worker = self.table.workers.get(worker).into_iter();
        let tasks = worker.flat_map(|worker| &worker.tasks);
        tasks
            .filter(|(_, entry)| entry.report.delivery == EXACTLY_ONCE)
            .map(|(id, entry)| (id, OwnerEpoch(entry.report.epoch)))
    }

    /// Task reports kept.
    #[must_use]
    pub fn tasks_kept(&self) -> usize {
        self.table.tasks
    }

    /// Task reports not taken in: no legal name, or beyond the limit.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.table.dropped
    }

    fn fresh(&self, worker: &WorkerId) -> Option<&Worker> {
        let worker = self.table.workers.get(worker)?;
        let silent = self.now.saturating_duration_since(worker.received_at);
        (silent <= self.limits.stale_after).then_some(worker)
    }
}

#[cfg(test)]
mod tests;
