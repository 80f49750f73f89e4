//! The state of everything.

use std::fmt::Write as _;

use kreplicator_proto::v1;
use serde::Serialize;

use super::clusters::some;

/// Numbers of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct TaskCounts {
    total: i32,
    running: i32,
    pending: i32,
    faulted: i32,
    paused: i32,
}

impl From<v1::TaskCounts> for TaskCounts {
    fn from(counts: v1::TaskCounts) -> Self {
        Self {
            total: counts.total,
            running: counts.running,
            pending: counts.pending,
            faulted: counts.faulted,
            paused: counts.paused,
        }
    }
}

impl TaskCounts {
    /// Running of all: `7/8`.
    pub(super) fn cell(&self) -> String {
        format!("{}/{}", self.running, self.total)
    }
}

/// A word for a health.
pub(super) fn health(health: v1::Health) -> &'static str {
    match health {
        v1::Health::Unspecified => "unknown",
        v1::Health::Ok => "ok",
        v1::Health::Pending => "pending",
        v1::Health::Degraded => "degraded",
        v1::Health::Down => "down",
        v1::Health::Paused => "paused",
    }
}

/// The state of everything, as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    health: &'static str,
    leader: Option<String>,
    leader_address: Option<String>,
    plan_generation: u64,
    tasks: TaskCounts,
    workers_active: i32,
    workers_draining: i32,
    workers_lost: i32,
    problems: Vec<String>,
    version: String,
}

impl From<v1::StatusResponse> for Status {
    fn from(status: v1::StatusResponse) -> Self {
        Self {
            health: health(status.health()),
            leader: some(status.leader),
            leader_address: some(status.leader_address),
            plan_generation: status.plan_generation,
            tasks: status.tasks.unwrap_or_default().into(),
            workers_active: status.workers_active,
            workers_draining: status.workers_draining,
            workers_lost: status.workers_lost,
            problems: status.problems,
            version: status.version,
        }
    }
}

impl Status {
    /// For people, without a last line end.
    pub(crate) fn text(&self) -> String {
        let TaskCounts {
            total,
            running,
            pending,
            faulted,
            paused,
        } = self.tasks;
        let leader = self.leader.as_deref().unwrap_or("nobody");
        let address = self.leader_address.as_deref().unwrap_or("no address");
        let mut text = format!(
            "health   {}\n\
             leader   {leader} ({address}), version {}\n\
             plan     generation {}\n\
             workers  {} active, {} draining, {} lost\n\
             tasks    {total}: {running} running, {pending} pending, {faulted} faulted, {paused} paused",
            self.health,
            self.version,
            self.plan_generation,
            self.workers_active,
            self.workers_draining,
            self.workers_lost,
        );
        if !self.problems.is_empty() {
            text.push_str("\nproblems");
        }
        for problem in &self.problems {
            write!(text, "\n  - {}", problem.replace('\n', "\n    "))
                .expect("a string takes whatever is written");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_problems() {
        let status = Status::from(v1::StatusResponse {
            health: i32::from(v1::Health::Degraded),
            leader: "c-0".to_owned(),
            leader_address: "c-0:7070".to_owned(),
            plan_generation: 12,
            tasks: Some(v1::TaskCounts {
                total: 8,
                running: 7,
                pending: 0,
                faulted: 1,
                paused: 0,
            }),
            workers_active: 2,
            problems: vec!["cluster west: not reachable".to_owned()],
            version: "0.1.0".to_owned(),
            ..v1::StatusResponse::default()
        });
        assert_eq!(
            status.text(),
            "health   degraded\n\
             leader   c-0 (c-0:7070), version 0.1.0\n\
             plan     generation 12\n\
             workers  2 active, 0 draining, 0 lost\n\
             tasks    8: 7 running, 0 pending, 1 faulted, 0 paused\n\
             problems\n  - cluster west: not reachable"
        );
    }
}
