//! One task's stop: bounded in time, told and counted.

use std::{sync::Arc, time::Duration};

use kreplicator_model::ids::TaskId;
use tokio::{
    task::JoinError,
    time::{Instant, timeout},
};
use tracing::{debug, warn};

use super::{Error, STOP_OVERRUN_MAX, books::StopReason};
use crate::{
    engine::{RunningTask, Stopped},
    metrics,
    tasks::Tasks,
};

/// How a stop ended, or after what time it had not.
#[derive(Debug)]
pub(super) struct Stop {
    id: TaskId,
    reason: StopReason,
    took: Duration,
    outcome: Result<Stopped, Duration>,
}

/// Stops a task; `limit`: its time to deliver what it has read.
pub(super) async fn stop(
    id: TaskId,
    task: Arc<dyn RunningTask>,
    reason: StopReason,
    limit: Duration,
) -> Stop {
    debug!(task = %id, reason = reason.name(), "task stops");
    let patience = limit + STOP_OVERRUN_MAX;
    let since = Instant::now();
    let stopped = timeout(patience, task.stop(limit)).await;
    Stop {
        id,
        reason,
        took: since.elapsed(),
        outcome: stopped.map_err(|_| patience),
    }
}

/// Takes a task that has stopped off the table.
///
/// # Errors
/// When it has not: the process has to end.
pub(super) fn note(stop: Result<Stop, JoinError>, tasks: &Tasks) -> Result<TaskId, Error> {
    let Stop {
        id,
        reason,
        took,
        outcome,
    } = stop.map_err(|error| Error::Broken(error.to_string()))?;
    let outcome = outcome.map_err(|limit| Error::Stuck {
        task: id.clone(),
        limit,
    })?;
    match outcome {
        Stopped::Clean => {}
        Stopped::Unsaved => {
            warn!(
                task = %id,
                reason = reason.name(),
                "task was stopped and everything it had read is acknowledged, but its checkpoint is not saved"
            );
        }
        Stopped::Forced { in_flight_records } => {
            warn!(
                task = %id,
                reason = reason.name(),
                in_flight_records,
                "task was stopped before everything it had read was acknowledged"
            );
        }
    }
    metrics::task_stopped(reason.name(), outcome, took);
    tasks.remove(&id);
    Ok(id)
}
