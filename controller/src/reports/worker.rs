//! What one worker said last, and what that takes of the table's room.

use std::{collections::BTreeMap, time::Duration};

use kreplicator_model::ids::{LinkId, Partition, TaskId, TopicName, WorkerId};
use kreplicator_proto::v1;
use tokio::time::Instant;

use super::{Limits, StreamId};
use crate::fleet::FleetState;

/// How long a report is kept for a task that the fleet does not (yet) show as assigned so: the
/// reconcile loop publishes its state some time after workers act on it.
pub(super) const UNASSIGNED_KEPT: Duration = Duration::from_secs(30);

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

/// Latest word of one worker.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) stream: StreamId,
    pub(super) incarnation: String,
    pub(super) received_at: Instant,
    pub(super) heartbeat: Duration,
    pub(super) numbers: WorkerNumbers,
    pub(super) tasks: BTreeMap<TaskId, Entry>,
    /// What `tasks` takes.
    pub(super) bytes: usize,
    /// Reports of tasks that found no room since everything was told last.
    pub(super) left_out: usize,
    /// What the smallest of them takes.
    least_left_out: usize,
    told_at: Instant,
    swept_at: Instant,
}

/// One task.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// With link and topic left empty: the key holds them.
    pub(super) report: v1::TaskReport,
    received_at: Instant,
}

/// A report as it came, its names looked up.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) incarnation: String,
    pub(super) full: bool,
    heartbeat: Duration,
    numbers: WorkerNumbers,
    tasks: Vec<(TaskId, Entry)>,
    /// Reports of tasks without a legal name.
    pub(super) nameless: usize,
}

impl Update {
    /// Takes a report apart.
    pub(super) fn read(now: Instant, report: v1::WorkerReport, fleet: &FleetState) -> Self {
        let all = report.tasks.len();
        let named = report.tasks.into_iter().filter_map(|mut task| {
            let id = task_id(&task, fleet)?;
            task.link = String::new();
            task.topic = String::new();
            let received_at = now;
            let report = task;
            Some((
                id,
                Entry {
                    report,
                    received_at,
                },
            ))
        });
        let tasks: Vec<_> = named.collect();
        Self {
            incarnation: report.incarnation,
            full: report.full,
            heartbeat: Duration::from_millis(report.heartbeat_interval_ms.into()),
            numbers: WorkerNumbers {
                records_per_second: report.records_per_second,
                bytes_per_second: report.bytes_per_second,
                memory_budget_bytes: report.memory_budget_bytes,
                memory_used_bytes: report.memory_used_bytes,
            },
            nameless: all - tasks.len(),
            tasks,
        }
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

impl Worker {
    pub(super) fn new(now: Instant, stream: StreamId) -> Self {
        Self {
            stream,
            incarnation: String::new(),
            received_at: now,
            heartbeat: Duration::ZERO,
            numbers: WorkerNumbers::default(),
            tasks: BTreeMap::new(),
            bytes: 0,
            left_out: 0,
            least_left_out: usize::MAX,
            told_at: now,
            swept_at: now,
        }
    }

    /// Takes in a report, as far as `room` bytes are enough for all its tasks. Tells how many reports of
    /// tasks were left out.
    pub(super) fn take(
        &mut self,
        now: Instant,
        stream: StreamId,
        update: Update,
        room: usize,
    ) -> usize {
        self.stream = stream;
        self.incarnation = update.incarnation;
        self.received_at = now;
        self.heartbeat = update.heartbeat;
        self.numbers = update.numbers;
        if update.full {
            self.tasks.clear();
            self.bytes = 0;
            self.left_out = 0;
            self.least_left_out = usize::MAX;
            self.told_at = now;
        }
        let mut left_out = 0;
        for (id, entry) in update.tasks {
            // What it said before is no longer true, whether or not there is room for what it says now.
            if let Some(before) = self.tasks.remove(&id) {
                self.bytes -= before.bytes(&id);
            }
            let bytes = entry.bytes(&id);
            if self.bytes + bytes > room {
                left_out += 1;
                self.least_left_out = self.least_left_out.min(bytes);
            } else {
                self.bytes += bytes;
                self.tasks.insert(id, entry);
            }
        }
        self.left_out += left_out;
        left_out
    }

    /// Whether it was heard lately.
    pub(super) fn is_fresh(&self, now: Instant, limits: &Limits) -> bool {
        now.saturating_duration_since(self.received_at) <= limits.stale_after
    }

    /// Whether it is worth while to have everything told again, since there may be room for it by now.
    pub(super) fn is_to_be_asked(&self, now: Instant, room: usize) -> bool {
        self.left_out > 0
            && room.saturating_sub(self.bytes) >= self.least_left_out
            && now.saturating_duration_since(self.told_at) >= UNASSIGNED_KEPT
    }

    /// Drops what no longer concerns anybody, when it is time for that.
    pub(super) fn sweep(&mut self, now: Instant, id: &WorkerId, fleet: &FleetState) {
        let age = |at: Instant| now.saturating_duration_since(at);
        if age(self.swept_at) < UNASSIGNED_KEPT {
            return;
        }
        self.swept_at = now;
        self.tasks.retain(|task, entry| {
            age(entry.received_at) < UNASSIGNED_KEPT
                || fleet.assigned.get(task).is_some_and(|a| a.concerns(id))
        });
        self.bytes = self
            .tasks
            .iter()
            .map(|(task, entry)| entry.bytes(task))
            .sum();
    }
}

impl Entry {
    /// What it takes in memory, a little more rather than less.
    fn bytes(&self, id: &TaskId) -> usize {
        let report = &self.report;
        let texts = [
            id.link.as_str(),
            id.topic.as_str(),
            &report.cause,
            &report.delivery,
            &report.delivery_reason,
            &report.path,
            &report.path_reason,
        ];
        // A tree's nodes are at least half full.
        2 * (size_of::<TaskId>() + size_of::<Self>()) + texts.map(str::len).iter().sum::<usize>()
    }
}
