//! What workers said last of their tasks: rates, lag and faults. In memory of the leader only, and
//! bounded; nothing here decides anything.
//!
//! Each worker's word is a value of its own that is replaced, or altered where nobody reads it, when it
//! reports (`worker`). Whoever reads takes the values of the moment and holds up nobody (`view`).
//!
//! A report counts for a task only while it is fresh, comes from the worker that the task is assigned
//! to, and speaks of the epoch assigned. Whatever does not is *unknown*, never zero (C115, C116), and
//! a task that moved is never counted twice (C119).

mod view;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kreplicator_model::{
    exact::EXACTLY_ONCE,
    handover::Word,
    ids::{OwnerEpoch, TaskId, WorkerId},
};
use kreplicator_proto::v1;
use tokio::time::Instant;

use self::worker::{UNASSIGNED_KEPT, Update, Worker};
pub use self::{view::View, worker::WorkerNumbers};
use crate::fleet::FleetState;

/// Limits of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A worker that was silent for longer is unknown: three of its report intervals.
    pub stale_after: Duration,
    /// Most memory for reports of tasks, over all workers, in bytes; tasks beyond are unknown, and the
    /// status says so. 200,000 tasks take some 160 MB.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(6),
            bytes_max: 512 << 20,
        }
    }
}

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
    workers: BTreeMap<WorkerId, Arc<Worker>>,
    /// What their tasks take.
    bytes: usize,
    dropped: u64,
    /// When workers were looked for last that no longer concern anybody.
    swept_at: Option<Instant>,
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
        // Before anybody has to wait.
        let update = Update::read(now, report, fleet);
        let mut table = self.write();
        table.forget_strangers(now, fleet);
        if !fleet.workers.contains_key(&worker) {
            return Verdict::WantFull;
        }
        let known = table.workers.get(&worker);
        if known.is_some_and(|known| known.stream > stream) {
            return Verdict::Superseded;
        }
        let has_base = known
            .is_some_and(|known| known.stream == stream && known.incarnation == update.incarnation);
        if !update.full && !has_base {
            return Verdict::WantFull;
        }
        table.take(now, stream, worker, update, fleet, self.limits.bytes_max)
    }

    /// Forgets everything: another process leads.
    pub fn clear(&self) {
        let before = std::mem::take(&mut *self.write());
        drop(before);
    }

    /// The table as of `now`.
    pub fn view(&self, now: Instant) -> View {
        let table = self.read();
        View {
            now,
            limits: self.limits,
            workers: table.workers.clone(),
            dropped: table.dropped,
        }
    }

    /// What a worker says of a task under this ownership; nothing where it has not said anything lately.
    #[must_use]
    pub fn word(&self, now: Instant, worker: &WorkerId, task: &TaskId, epoch: OwnerEpoch) -> Word {
        let worker = self.read().workers.get(worker).map(Arc::clone);
        let worker = worker.filter(|worker| worker.is_fresh(now, &self.limits));
        let report = worker.as_ref().and_then(|worker| worker.tasks.get(task));
        let report = report.map(|entry| &entry.report);
        report
            .filter(|report| OwnerEpoch(report.epoch) == epoch)
            .map_or(Word::default(), |report| Word {
                copies: report.state() == v1::TaskState::Running && report.log_end.is_some(),
                bears_second: report.delivery == EXACTLY_ONCE,
            })
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
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
        id: WorkerId,
        update: Update,
        fleet: &FleetState,
        bytes_max: usize,
    ) -> Verdict {
        let nameless = update.nameless;
        let worker = self.workers.entry(id.clone());
        let worker = worker.or_insert_with(|| Arc::new(Worker::new(now, stream)));
        let others = self.bytes - worker.bytes;
        let room = bytes_max.saturating_sub(others);
        if update.full {
            // Nothing of what it said before is kept.
            *worker = Arc::new(Worker::new(now, stream));
        }
        // A copy where somebody reads it.
        let worker = Arc::make_mut(worker);
        worker.sweep(now, &id, fleet);
        let left_out = worker.take(now, stream, update, room);
        let is_to_be_asked = worker.is_to_be_asked(now, room);
        self.bytes = others + worker.bytes;
        self.dropped += (nameless + left_out) as u64;
        if is_to_be_asked {
            return Verdict::WantFull;
        }
        Verdict::Accepted
    }

    /// Drops workers that no longer concern anybody, when it is time to look for them.
    fn forget_strangers(&mut self, now: Instant, fleet: &FleetState) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < UNASSIGNED_KEPT;
        if self.swept_at.is_some_and(is_recent) {
            return;
        }
        self.swept_at = Some(now);
        let is_old =
            |worker: &Worker| now.saturating_duration_since(worker.received_at) >= UNASSIGNED_KEPT;
        self.workers
            .retain(|id, worker| fleet.workers.contains_key(id) || !is_old(worker));
        self.bytes = self.workers.values().map(|worker| worker.bytes).sum();
    }
}

#[cfg(test)]
mod tests;
