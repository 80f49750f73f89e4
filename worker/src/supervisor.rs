//! Starts and stops tasks until what runs is what shall run.
//!
//! Level-triggered: each turn compares the assignment with what runs and does what is missing, task by
//! task; what need not change never pauses. Before a task is started the store has taken note that it
//! is about to run here, and it stays noted until it has fully stopped.
//!
//! One registration is one [`shift`]: it begins by reading the assignment anew, and when its fence
//! closes every task stops at once, but for those that bear a second owner: they go on, and the next
//! registration, which begins by itself, takes them over as they run or stops them.
//!
//! - [`books`]: the deciding part, pure.
//! - [`contexts`]: what links are.
//! - [`shift`]: the loop that does what was decided, [`stopping`]: one stop, [`mod@write`]: one write to the
//!   store.

mod books;
mod contexts;
mod shift;
mod stopping;
mod write;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_model::ids::{LinkId, TaskId, WorkerId};
use kreplicator_store::{MetaStore, View, ViewOptions, backoff::Backoff, keys};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    clock::WallClock, engine::Engine, gate::Gate, health::Health, membership::Membership,
    tasks::Tasks,
};
use books::{Carried, StopReason};
use contexts::Contexts;
use shift::{End, Shift};

/// A stop may overrun its limit by this much, for throwing away what is left and for a last save that
/// nobody answers; after that the data path is beyond control and only the end of the process ends it
/// (C046).
const STOP_OVERRUN_MAX: Duration = Duration::from_secs(60);
/// Longest time that the engine may take to let go of everything at the end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// The loop turns at least this often.
const TICK: Duration = Duration::from_secs(1);

/// Why the worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A task is still running long after it should have stopped. The process has to end, and the
    /// lease is left to run out, so that nobody takes over while it may still write.
    #[error("task {task} did not stop within {limit:?}; the process has to end")]
    Stuck {
        /// The task.
        task: TaskId,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The data path broke while it stopped a task.
    #[error("stopping a task failed: {0}; the process has to end")]
    Broken(String),
}

/// Times and limits of the supervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Longest time that a task may take to deliver what it has read.
    pub(crate) task_stop_timeout: Duration,
    /// Longest time that the controller has for moving tasks away when this worker leaves.
    pub(crate) handover_time: Duration,
    /// Shortest time between writes of the same chunk: changes in between go together.
    pub(crate) write_interval: Duration,
    /// Waits between attempts to write.
    pub(crate) backoff: Backoff,
    /// How long a link without tasks keeps its clients.
    pub(crate) link_idle_max: Duration,
    /// How views of the store are kept true.
    pub(crate) views: ViewOptions,
}

impl Settings {
    pub(crate) fn new(task_stop_timeout: Duration, handover_time: Duration) -> Self {
        Self {
            task_stop_timeout,
            handover_time,
            write_interval: Duration::from_millis(25),
            backoff: Backoff::default(),
            link_idle_max: Duration::from_secs(30),
            views: ViewOptions::default(),
        }
    }
}

/// What the supervisor works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) worker: WorkerId,
    pub(crate) membership: Membership,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) gate: Gate,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) health: Arc<Health>,
    pub(crate) clock: WallClock,
    pub(crate) settings: Settings,
}

/// The supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    parts: Parts,
    contexts: Contexts,
    clusters: View,
    links: View,
    /// Links that may hold clients though none of their tasks runs, since when.
    idle: BTreeMap<LinkId, Instant>,
    /// What goes on from the registration before.
    carried: BTreeMap<TaskId, Carried>,
}

impl Supervisor {
    /// A supervisor that follows the stored links and clusters.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub(crate) fn new(parts: Parts) -> Self {
        let view = |prefix: &str| {
            View::open(
                Arc::clone(&parts.store),
                prefix,
                parts.settings.views,
                CancellationToken::new(),
            )
        };
        Self {
            clusters: view(keys::CLUSTERS),
            links: view(keys::LINKS),
            contexts: Contexts::default(),
            idle: BTreeMap::new(),
            carried: BTreeMap::new(),
            parts,
        }
    }

    /// Runs until `leave` fires and everything has stopped.
    ///
    /// # Errors
    /// [`Error`]: the process has to end at once. The lease is left to run out.
    pub(crate) async fn run(mut self, leave: CancellationToken) -> Result<(), Error> {
        let done = self.serve(&leave).await;
        self.parts.gate.close();
        self.parts.health.lost();
        done?;
        self.parts.membership.close().await;
        self.parts.engine.close(CLOSE_DEADLINE).await;
        info!("worker has left");
        Ok(())
    }

    /// Stops what runs though this worker is registered nowhere.
    async fn stop_carried(&mut self) -> Result<(), Error> {
        let limit = self.parts.settings.task_stop_timeout;
        let tasks = &self.parts.tasks;
        let mut stops = JoinSet::new();
        for id in std::mem::take(&mut self.carried).into_keys() {
            if let Some(live) = tasks.get(&id) {
                stops.spawn(stopping::stop(id, live.task, StopReason::Leaving, limit));
            }
        }
        while let Some(stop) = stops.join_next().await {
            stopping::note(stop, tasks)?;
        }
        Ok(())
    }

    async fn serve(&mut self, leave: &CancellationToken) -> Result<(), Error> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.parts.health.beat(Instant::now());
            let tenure = tokio::select! {
                biased;
                () = leave.cancelled() => return self.stop_carried().await,
                tenure = self.parts.membership.registered() => tenure,
                _ = tick.tick() => continue,
            };
            match Shift::begin(self, tenure).run(leave).await? {
                End::Lost => {}
                End::Left => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
