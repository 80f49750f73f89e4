//! Tells the leading controller how the tasks are doing: rates, lag, faults.
//!
//! A stream for as long as the same controller leads: everything at first and whenever it is asked
//! for, then what changed. Nothing here touches the data path; a controller that is slow or away costs
//! a report, never a record.

mod build;
mod stream;

use std::{sync::Arc, time::Duration};

use kreplicator_model::ids::WorkerId;
use kreplicator_proto::{stored, v1};
use kreplicator_store::{MetaStore, View, ViewOptions, backoff::Backoff, keys};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{clock::WallClock, health::Health, metrics, news::News, tasks::Tasks};
use build::Builder;

/// How often at least the controller hears of this worker: it suspects one that is silent for a second.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// How much of the memory budget is used, in bytes.
pub type MemoryUsed = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a report tells of.
#[derive(Clone)]
pub struct Subject {
    /// This worker.
    pub worker: WorkerId,
    /// The running tasks.
    pub tasks: Arc<Tasks>,
    /// The present registration.
    pub health: Arc<Health>,
    /// Stamps reports.
    pub clock: WallClock,
    /// Most bytes of records held in memory.
    pub memory_budget_bytes: u64,
    /// Bytes held now.
    pub memory_used: MemoryUsed,
    /// What should be told soon.
    pub news: News,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// Reports until `shutdown` fires.
pub async fn run(
    store: Arc<dyn MetaStore>,
    subject: Subject,
    interval: Duration,
    shutdown: CancellationToken,
) {
    let backoff = Backoff::default();
    let view = View::open(
        store,
        keys::LEADER,
        ViewOptions::default(),
        shutdown.clone(),
    );
    let reporter = Reporter {
        view,
        leader: None,
        builder: Builder::new(subject, HEARTBEAT),
        interval,
        backoff,
    };
    shutdown.run_until_cancelled(reporter.follow()).await;
}

struct Reporter {
    view: View,
    leader: Option<v1::Leader>,
    builder: Builder,
    interval: Duration,
    backoff: Backoff,
}

impl Reporter {
    /// Reports to whoever leads, for ever.
    async fn follow(mut self) {
        let mut failures: u32 = 0;
        loop {
            let Some(leader) = self.leader.clone() else {
                self.view.next().await;
                self.look();
                continue;
            };
            let began = tokio::time::Instant::now();
            let ended = tokio::select! {
                ended = stream::run(&leader.address, &mut self.builder, self.interval) => ended,
                () = changed(&mut self.view, &leader) => {
                    debug!(controller = leader.controller, "another controller leads");
                    failures = 0;
                    self.look();
                    continue;
                }
            };
            // A stream that held for a while was no failure of the controller's address.
            failures = if began.elapsed() > self.backoff.max * 2 {
                1
            } else {
                failures + 1
            };
            metrics::reported("failed");
            let controller = &leader.controller;
            if failures == 1 {
                info!(controller, error = %ended, "reports to the controller were interrupted");
            } else if failures.is_multiple_of(20) {
                warn!(controller, error = %ended, failures, "the controller does not take reports");
            } else {
                debug!(controller, error = %ended, failures, "reports still interrupted");
            }
            let delay = self.backoff.delay(failures, &mut rand::rng());
            tokio::select! {
                () = sleep(delay) => {}
                () = changed(&mut self.view, &leader) => failures = 0,
            }
            self.look();
        }
    }

    /// Takes the leader from the view.
    fn look(&mut self) {
        self.leader = leader(&self.view);
    }
}

/// Waits until the view shows another leader than this one. Cancel safe.
async fn changed(view: &mut View, known: &v1::Leader) {
    while leader(view).as_ref() == Some(known) {
        view.next().await;
    }
}

fn leader(view: &View) -> Option<v1::Leader> {
    let entry = view.entries().get(keys::LEADER)?;
    match stored::message::<v1::Leader>(keys::LEADER, &entry.value) {
        Ok(leader) => Some(leader),
        Err(error) => {
            warn!(%error, "cannot tell who leads");
            None
        }
    }
}

#[cfg(test)]
mod tests;
