//! Owners of a topic's tasks, which are killed or stopped.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_model::ids::OwnerEpoch;
use kreplicator_worker::engine::{
    Delivery, Engine, LinkContext, RunningTask, Status, Stopped, TaskSpec,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::bench::{PATIENCE, Rec, caught_up, spec};

const STOP: Duration = Duration::from_secs(10);

/// An engine with a task for each partition of a topic.
pub(crate) struct Owner {
    engine: Arc<dyn Engine>,
    kill: CancellationToken,
    tasks: Vec<Arc<dyn RunningTask>>,
}

impl Owner {
    /// Starts the tasks on an engine that `kill` kills.
    pub(crate) fn start(
        (engine, kill): (Arc<dyn Engine>, CancellationToken),
        context: &Arc<LinkContext>,
        topic: &str,
        partitions: i32,
        epoch: u64,
    ) -> Self {
        let tasks = (0..partitions).map(|partition| {
            let owned = TaskSpec {
                epoch: OwnerEpoch(epoch),
                ..spec(topic, partition)
            };
            engine.start(owned, Arc::clone(context))
        });
        Self {
            tasks: tasks.collect(),
            engine,
            kill,
        }
    }

    /// What its tasks tell.
    pub(crate) fn status(&self) -> Vec<Status> {
        self.tasks.iter().map(|task| task.status()).collect()
    }

    /// Waits until one of its tasks has come to an offset.
    pub(crate) async fn reached(&self, offset: usize) -> Result<()> {
        let offset = i64::try_from(offset)?;
        let is_there = |status: &Status| status.checkpoint.is_some_and(|at| at.0 >= offset);
        let reached = async {
            while !self.status().iter().any(is_there) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = timeout(PATIENCE, reached).await;
        ensure!(waited.is_ok(), "no progress: {:#?}", self.status());
        Ok(())
    }

    /// Ends everything as it stands; tells how many tasks had not come to the end of what was or is sent.
    pub(crate) fn kill(&self, sent: &[Vec<Rec>]) -> usize {
        self.kill.cancel();
        let status = self.status();
        let left = status.iter().zip(sent).filter(|(status, sent)| {
            let copied = status.checkpoint.and_then(|at| usize::try_from(at.0).ok());
            copied.is_none_or(|copied| copied < sent.len())
        });
        left.count()
    }

    /// Waits until all is copied, with the promise given kept, and stops in an orderly way.
    pub(crate) async fn finish(self, sent: &[Vec<Rec>], delivery: Delivery) -> Result<()> {
        for (task, sent) in self.tasks.iter().zip(sent) {
            let status = caught_up(task.as_ref(), i64::try_from(sent.len())?).await?;
            ensure!(status.delivery == Some(delivery), "{status:#?}");
        }
        for task in self.tasks {
            let stopped = task.stop(STOP).await;
            ensure!(stopped == Stopped::Clean, "{stopped:?}");
        }
        self.engine.close(PATIENCE).await;
        Ok(())
    }
}
