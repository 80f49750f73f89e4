//! What a report says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kreplicator_model::{
    ids::{Offset, TaskId, UnixMillis},
    lag::lag,
    spec,
};
use kreplicator_proto::v1;
use tokio::time::Instant;

use super::Subject;
use crate::{
    engine::{self, Delivery, PathSeen, Status, TaskSpec},
    tasks::Live,
};

/// Most tasks in one message: some 2 MB, far below what the controller takes in.
pub(super) const TASKS_PER_MESSAGE_MAX: usize = 10_000;

/// Where nothing but the time of the last progress has changed, it is told again after so many
/// milliseconds: thousands of quiet tasks, each at the end of its log, have nothing else to tell.
const PROGRESS_STEP_MS: u64 = 30_000;

/// Makes reports, each with what changed since the one before.
#[derive(Debug)]
pub(super) struct Builder {
    subject: Subject,
    /// Last said of each task on this stream.
    said: BTreeMap<TaskId, v1::TaskReport>,
    /// Removals seen when the last report was made.
    removals: u64,
    /// News known of when the last report was made.
    news: u64,
    want_full: bool,
    totals: BTreeMap<TaskId, Totals>,
    measured_at: Option<Instant>,
    pulse: Pulse,
}

/// Says that the worker lives. Apart from the reports, which ask every task and wait for each that is busy.
/// Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    subject: Subject,
    /// Records and bytes per second as told last.
    told_rates: Arc<Mutex<(f64, f64)>>,
    /// How often at least the controller hears of this worker.
    heartbeat: Duration,
}

/// Totals of one task when last looked at.
#[derive(Debug, Clone, Copy)]
struct Totals {
    epoch: u64,
    records: u64,
    bytes: u64,
}

impl Builder {
    pub(super) fn new(subject: Subject, heartbeat: Duration) -> Self {
        Self {
            pulse: Pulse {
                subject: subject.clone(),
                told_rates: Arc::default(),
                heartbeat,
            },
            subject,
            said: BTreeMap::new(),
            removals: 0,
            news: 0,
            want_full: true,
            totals: BTreeMap::new(),
            measured_at: None,
        }
    }

    /// The next report is a full one: a new stream began, or the controller asked for it.
    pub(super) fn want_full(&mut self) {
        self.want_full = true;
    }

    /// Whether there is something to tell before the next report is due.
    pub(super) fn has_news(&self) -> bool {
        self.subject.news.count() != self.news
    }

    /// The messages to send now, at least one.
    pub(super) fn reports(&mut self, now: Instant) -> Vec<v1::WorkerReport> {
        self.news = self.subject.news.count();
        let removals = self.subject.tasks.removals();
        let live = self.subject.tasks.live();
        // What a delta cannot say is that a task is gone.
        let full = std::mem::take(&mut self.want_full) || removals != self.removals;
        self.removals = removals;
        if full {
            self.said.clear();
        }
        let mut changed = Vec::new();
        let (mut totals, mut copied) = (BTreeMap::new(), Copied::default());
        for (id, live) in live {
            let mut report = task_report(&live);
            let now = Totals::of(&report);
            copied.add(self.totals.get(&id), &now);
            totals.insert(id.clone(), now);
            let said = self.said.get(&id);
            if said.is_none_or(|said| is_news(said, &mut report)) {
                self.said.insert(id, report.clone());
                changed.push(report);
            }
        }
        self.totals = totals;
        let rates = self.rates(copied, now);
        self.pulse.note(rates);
        let mut rest = changed.into_iter().peekable();
        let mut messages = Vec::new();
        while messages.is_empty() || rest.peek().is_some() {
            messages.push(v1::WorkerReport {
                full: full && messages.is_empty(),
                tasks: rest.by_ref().take(TASKS_PER_MESSAGE_MAX).collect(),
                ..self.pulse.beat()
            });
        }
        messages
    }

    #[cfg(test)]
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// What says that the worker lives.
    pub(super) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Records and bytes per second since the last look, over the tasks that run now.
    fn rates(&mut self, copied: Copied, now: Instant) -> (f64, f64) {
        let Copied { records, bytes } = copied;
        let before = self.measured_at.replace(now);
        let elapsed = before.map(|before| now.saturating_duration_since(before).as_secs_f64());
        match elapsed {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
            Some(elapsed) if elapsed > 0.0 => (records as f64 / elapsed, bytes as f64 / elapsed),
            Some(_) | None => (0.0, 0.0),
        }
    }
}

impl Pulse {
    /// A report in which nothing has changed.
    pub(super) fn beat(&self) -> v1::WorkerReport {
        let (records_per_second, bytes_per_second) = *self.rates();
        v1::WorkerReport {
            worker: self.subject.worker.to_string(),
            incarnation: self.subject.health.incarnation().unwrap_or_default(),
            sent_at_ms: self.subject.clock.now().0,
            full: false,
            tasks: Vec::new(),
            records_per_second,
            bytes_per_second,
            memory_budget_bytes: signed(self.subject.memory_budget_bytes),
            memory_used_bytes: signed((self.subject.memory_used)()),
            heartbeat_interval_ms: u32::try_from(self.heartbeat.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// How often at least the controller hears of this worker.
    pub(super) fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    fn note(&self, rates: (f64, f64)) {
        *self.rates() = rates;
    }

    fn rates(&self) -> MutexGuard<'_, (f64, f64)> {
        self.told_rates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn of(report: &v1::TaskReport) -> Self {
        Self {
            epoch: report.epoch,
            records: report.records_total,
            bytes: report.bytes_total,
        }
    }
}

/// What was copied since the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Copied {
    records: u64,
    bytes: u64,
}

impl Copied {
    /// Adds what one task has copied.
    fn add(&mut self, before: Option<&Totals>, now: &Totals) {
        // Totals begin at zero with each start.
        let before = before.filter(|before| before.epoch == now.epoch);
        let since = |total: u64, before: u64| total.checked_sub(before).unwrap_or(total);
        self.records += since(now.records, before.map_or(0, |before| before.records));
        self.bytes += since(now.bytes, before.map_or(0, |before| before.bytes));
    }
}

/// Whether there is something to tell of a task. The report is as before afterwards.
fn is_news(said: &v1::TaskReport, report: &mut v1::TaskReport) -> bool {
    let progress_at_ms = std::mem::replace(&mut report.progress_at_ms, said.progress_at_ms);
    let is_same = *said == *report;
    report.progress_at_ms = progress_at_ms;
    !is_same || progress_at_ms.abs_diff(said.progress_at_ms) >= PROGRESS_STEP_MS
}

fn task_report(live: &Live) -> v1::TaskReport {
    let TaskSpec { id, epoch, .. } = live.task.spec();
    let status: Status = live.task.status();
    let offset = |offset: Option<Offset>| offset.map(|offset| offset.0);
    let millis = |at: Option<UnixMillis>| at.map_or(0, |at| at.0);
    v1::TaskReport {
        link: id.link.to_string(),
        topic: id.topic.to_string(),
        partition: id.partition.0,
        epoch: epoch.0,
        state: state(status.state).into(),
        since_ms: status.since.0,
        retry_at_ms: millis(status.retry_at),
        checkpoint: offset(status.checkpoint),
        log_start: offset(status.log_start),
        log_end: offset(status.log_end),
        lag_records: lag(status.log_end, status.log_start, status.checkpoint).map(signed),
        progress_at_ms: millis(status.progress_at),
        records_total: status.records_total,
        bytes_total: status.bytes_total,
        gap_records_total: status.gap_records_total,
        cause: status.cause,
        engine: match status.engine {
            spec::Engine::Records => v1::Engine::Records,
            spec::Engine::Batches => v1::Engine::Batches,
        }
        .into(),
        delivery: status.delivery.map_or("", Delivery::as_str).to_owned(),
        delivery_reason: status.delivery.map_or("", Delivery::reason).to_owned(),
        path: status.path.map_or("", PathSeen::as_str).to_owned(),
        path_reason: status.path.map_or("", PathSeen::reason).to_owned(),
    }
}

fn state(state: engine::State) -> v1::TaskState {
    match state {
        engine::State::Starting => v1::TaskState::Starting,
        engine::State::Running => v1::TaskState::Running,
        engine::State::Faulted => v1::TaskState::Faulted,
        engine::State::Stopping | engine::State::Stopped => v1::TaskState::Stopping,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
