//! Workers.

use kreplicator_proto::v1;
use serde::Serialize;

use super::{Listed, clusters::some, units};

/// A worker as shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Worker {
    id: String,
    state: &'static str,
    tasks_assigned: i32,
    tasks_owned: i32,
    tasks_running: i32,
    records_per_second: f64,
    bytes_per_second: f64,
    memory_budget_bytes: i64,
    memory_used_bytes: i64,
    address: Option<String>,
    version: Option<String>,
    started_at: Option<String>,
}

impl From<v1::WorkerInfo> for Worker {
    fn from(worker: v1::WorkerInfo) -> Self {
        let state = match worker.state() {
            v1::WorkerState::Unspecified => "unknown",
            v1::WorkerState::Active => "active",
            v1::WorkerState::Draining => "draining",
            v1::WorkerState::Lost => "lost",
        };
        Self {
            id: worker.id,
            state,
            tasks_assigned: worker.tasks_assigned,
            tasks_owned: worker.tasks_owned,
            tasks_running: worker.tasks_running,
            records_per_second: worker.records_per_second,
            bytes_per_second: worker.bytes_per_second,
            memory_budget_bytes: worker.memory_budget_bytes,
            memory_used_bytes: worker.memory_used_bytes,
            address: some(worker.address),
            version: some(worker.version),
            started_at: units::time(worker.started_at_ms),
        }
    }
}

impl Listed for Worker {
    const PLURAL: &'static str = "workers";
    const HEADINGS: &'static [&'static str] = &[
        "NAME",
        "STATE",
        "ASSIGNED",
        "OWNED",
        "RUNNING",
        "RECORDS/S",
        "BYTES/S",
    ];
    const WIDE: &'static [&'static str] = &["MEMORY", "BUDGET", "ADDRESS", "VERSION", "STARTED"];

    fn cells(&self) -> Vec<String> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and rates are neither negative nor that large"
        )]
        let bytes_per_second = self.bytes_per_second.round() as u64;
        vec![
            self.id.clone(),
            self.state.to_owned(),
            self.tasks_assigned.to_string(),
            self.tasks_owned.to_string(),
            self.tasks_running.to_string(),
            units::rate(self.records_per_second),
            units::bytes(bytes_per_second),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        vec![
            units::bytes(self.memory_used_bytes.unsigned_abs()),
            units::bytes(self.memory_budget_bytes.unsigned_abs()),
            self.address.clone().unwrap_or_default(),
            self.version.clone().unwrap_or_default(),
            units::time_cell(self.started_at.as_ref()),
        ]
    }
}
