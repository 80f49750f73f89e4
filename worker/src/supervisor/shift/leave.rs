//! Leaving: tell everybody, let the controller move the tasks away while they run, stop what is left.

use std::sync::Arc;

use kreplicator_model::ids::WorkerId;
use kreplicator_proto::{stored, v1};
use kreplicator_store::{MetaStore, keys};
use tokio::{task::JoinSet, time::Instant};
use tracing::{debug, info};

use super::{Shift, StopReason};

/// State of leaving.
#[derive(Debug)]
pub(super) struct Leaving {
    /// When what is left is stopped.
    until: Instant,
    /// What is left was told to stop.
    stopping: bool,
    /// Looks whether anybody could take the tasks.
    looks: JoinSet<bool>,
}

impl Shift<'_> {
    /// Begins to leave.
    pub(super) fn leave(&mut self) {
        let parts = &mut self.supervisor.parts;
        parts.membership.set_draining();
        parts.membership.publish();
        parts.health.draining();
        info!(
            tasks = parts.tasks.len(),
            grace = ?parts.settings.handover_time,
            "leaving: waiting for the controller to move the tasks away"
        );
        self.leaving = Some(Leaving {
            until: Instant::now() + parts.settings.handover_time,
            stopping: false,
            looks: JoinSet::new(),
        });
        self.tick_leaving();
    }

    /// Without anybody who could take the tasks there is nothing to wait for.
    pub(super) fn looked(&mut self, alone: bool) {
        if let Some(leaving) = &mut self.leaving
            && alone
        {
            info!("leaving: no other worker is there to take the tasks");
            leaving.until = Instant::now();
            self.tick_leaving();
        }
    }

    /// Stops what is left once the time is over, and looks whether anybody is there to take it.
    pub(super) fn tick_leaving(&mut self) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        if leaving.stopping {
            return;
        }
        if Instant::now() < leaving.until {
            if leaving.looks.is_empty() {
                let store = Arc::clone(&self.supervisor.parts.store);
                let worker = self.supervisor.parts.worker.clone();
                leaving
                    .looks
                    .spawn(async move { is_alone(&*store, &worker).await });
            }
            return;
        }
        leaving.stopping = true;
        leaving.looks.abort_all();
        info!(
            tasks = self.supervisor.parts.tasks.len(),
            "leaving: stopping the tasks that nobody took"
        );
        let limit = self.supervisor.parts.settings.task_stop_timeout;
        for id in self.books.stop_all_but(&|_| false, StopReason::Leaving) {
            self.stop(&id, StopReason::Leaving, limit);
        }
        self.clear_carried(StopReason::Leaving, limit);
    }
}

/// The next answer to a look; None: there is none to wait for. Cancel safe.
pub(super) async fn looked(leaving: &mut Option<Leaving>) -> Option<bool> {
    let look = leaving.as_mut()?.looks.join_next().await?;
    look.ok()
}

/// Whether no other worker is there that stays. When the store does not answer, nobody knows.
async fn is_alone(store: &dyn MetaStore, worker: &WorkerId) -> bool {
    let snapshot = match store.list(keys::WORKERS_LIVE).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            debug!(%error, "cannot look for other workers");
            return false;
        }
    };
    let own = keys::worker_live(worker);
    !snapshot.entries.iter().any(|(key, entry)| {
        *key != own
            && stored::message::<v1::WorkerLive>(key, &entry.value).is_ok_and(|live| !live.draining)
    })
}
