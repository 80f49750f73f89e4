//! Tasks: one topic-partition on one link each.

use kreplicator_model::spec::Engine;
use kreplicator_proto::v1;
use serde::Serialize;

use super::{
    Listed,
    clusters::some,
    units::{self, because},
};

/// A task as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Task {
    link: String,
    topic: String,
    partition: i32,
    target_topic: String,
    state: &'static str,
    worker: Option<String>,
    epoch: u64,
    cause: Option<String>,
    since: Option<String>,
    retry_at: Option<String>,
    /// Next source offset to copy.
    checkpoint: Option<i64>,
    log_start: Option<i64>,
    log_end: Option<i64>,
    lag_records: Option<i64>,
    progress_at: Option<String>,
    records_total: u64,
    bytes_total: u64,
    gap_records_total: u64,
    engine: Option<&'static str>,
    delivery: Option<String>,
    delivery_reason: Option<String>,
    path: Option<String>,
    path_reason: Option<String>,
    reason: Option<String>,
}

impl From<v1::Task> for Task {
    fn from(task: v1::Task) -> Self {
        let state = state(task.state());
        let report = task.report.unwrap_or_default();
        let engine = match report.engine() {
            v1::Engine::Unspecified => None,
            v1::Engine::Records => Some(Engine::Records.as_str()),
            v1::Engine::Batches => Some(Engine::Batches.as_str()),
        };
        Self {
            link: task.link,
            topic: task.topic,
            partition: task.partition,
            target_topic: task.target_topic,
            state,
            worker: some(task.worker),
            epoch: task.epoch,
            cause: some(report.cause),
            since: units::time(report.since_ms),
            retry_at: units::time(report.retry_at_ms),
            checkpoint: report.checkpoint,
            log_start: report.log_start,
            log_end: report.log_end,
            lag_records: report.lag_records,
            progress_at: units::time(report.progress_at_ms),
            records_total: report.records_total,
            bytes_total: report.bytes_total,
            gap_records_total: report.gap_records_total,
            engine,
            delivery: some(report.delivery),
            delivery_reason: some(report.delivery_reason),
            path: some(report.path),
            path_reason: some(report.path_reason),
            reason: some(task.reason),
        }
    }
}

impl Task {
    /// Why it does not run: its fault, or why it is on no worker.
    fn why(&self) -> Option<String> {
        let unassigned = self.worker.is_none().then(|| self.reason.clone());
        self.cause.clone().or(unassigned.flatten())
    }
}

fn state(state: v1::TaskState) -> &'static str {
    match state {
        v1::TaskState::Unspecified => "unknown",
        v1::TaskState::Unassigned => "unassigned",
        v1::TaskState::Starting => "starting",
        v1::TaskState::Running => "running",
        v1::TaskState::Stopping => "stopping",
        v1::TaskState::Faulted => "faulted",
        v1::TaskState::Paused => "paused",
    }
}

impl Listed for Task {
    const PLURAL: &'static str = "tasks";
    const HEADINGS: &'static [&'static str] = &[
        "LINK", "TOPIC", "PART", "STATE", "WORKER", "LAG", "COPIED", "CAUSE",
    ];
    const WIDE: &'static [&'static str] = &[
        "TARGET",
        "CHECKPOINT",
        "END",
        "EPOCH",
        "SINCE",
        "RETRY AT",
        "GAP",
        "ENGINE",
        "DELIVERY",
        "PATH",
        "REASON",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.link.clone(),
            self.topic.clone(),
            self.partition.to_string(),
            self.state.to_owned(),
            self.worker.clone().unwrap_or_default(),
            units::lag(self.lag_records),
            units::grouped(self.records_total),
            self.why().unwrap_or_default(),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let offset = |offset: Option<i64>| offset.map(|o| o.to_string()).unwrap_or_default();
        vec![
            self.target_topic.clone(),
            offset(self.checkpoint),
            offset(self.log_end),
            self.epoch.to_string(),
            units::time_cell(self.since.as_ref()),
            units::time_cell(self.retry_at.as_ref()),
            units::grouped(self.gap_records_total),
            self.engine.unwrap_or_default().to_owned(),
            because(self.delivery.as_ref(), self.delivery_reason.as_ref()),
            because(self.path.as_ref(), self.path_reason.as_ref()),
            self.reason.clone().unwrap_or_default(),
        ]
    }
}
