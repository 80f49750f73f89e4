//! The reconcile loop: compares what is with what should be, for ever, and repairs by itself.
//!
//! One pass: resolve the subscriptions against what discovery sees, note down new topics, have target
//! topics made, judge which workers are lost, plan, work out the next steps of the handover, write
//! the chunks that differ, publish the state. A pass rests on nothing but what is known at its
//! beginning, so a write that fails costs nothing: the next pass begins from what is stored then.
//!
//! - `book`, `plan_book`, `views`: what the store says.
//! - `sources`, `topics`, `wants`, `decide`, `chunks`, `stuck`, `reasons`, `state`: what follows from it;
//!   pure.
//! - `first_looks`: from when on what appears is new.
//! - `writer`: guarded transactions.

mod book;
mod chunks;
mod decide;
mod first_looks;
#[cfg(test)]
mod fixtures;
mod pass;
mod plan_book;
mod reasons;
mod sources;
mod state;
mod stuck;
mod succession;
mod topics;
mod views;
mod wants;
mod writer;

use std::{sync::Arc, time::Duration};

use kreplicator_model::liveness;
use kreplicator_store::{
    api::MetaStore,
    election::{Election, Term},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::{
    api::Clock, config::Config, discovery::Discovery, fleet::FleetState, metrics::Metrics,
    reports::Reports, suspects::Suspects, targets::Targets,
};
use pass::Pass;
use views::Views;

/// How the loop behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which workers count as lost.
    pub liveness: liveness::Settings,
    /// How long changes are collected.
    pub debounce: Duration,
    /// When a task that is not taken on counts as stuck.
    pub stuck_after: Duration,
    /// Longest time from one pass to the next.
    pub interval: Duration,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            liveness: liveness::Settings {
                margin: config.worker_margin,
                startup_grace: config.startup_grace,
                mass_loss_grace: config.mass_loss_grace,
            },
            debounce: config.replan_debounce,
            stuck_after: config.stuck_after,
            interval: config.discovery_interval.min(Duration::from_secs(10)),
        }
    }
}

/// What the loop works with.
#[derive(Debug)]
pub struct Parts {
    /// How it behaves.
    pub settings: Settings,
    /// The metadata store.
    pub store: Arc<dyn MetaStore>,
    /// Looks at clusters.
    pub discovery: Discovery,
    /// Looks after target topics.
    pub targets: Targets,
    /// Told by both when something differs.
    pub changed: Arc<Notify>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// The controller's metrics.
    pub metrics: Arc<Metrics>,
    /// Where the state is published.
    pub fleet: watch::Sender<Arc<FleetState>>,
    /// What workers said last.
    pub(crate) reports: Arc<Reports>,
    /// Workers that are silent though their lease still holds.
    pub(crate) suspects: watch::Receiver<Suspects>,
}

/// Reconciles for one term: until its fence closes or `cancel` fires.
pub async fn run(parts: Parts, election: &Election, term: Term, cancel: &CancellationToken) {
    let stop = cancel.child_token();
    let fence = term.fence.clone();
    let work = async {
        let mut views = Views::open(&parts.store, &stop);
        let book = views.load().await;
        info!(term = term.number, "store read, reconciling");
        let debounce = parts.settings.debounce;
        let changed = Arc::clone(&parts.changed);
        let mut suspects = parts.suspects.clone();
        let mut pass = Pass::new(parts, term, book);
        let mut due = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = sleep_until(due) => {
                    let outcome = pass.run(&mut views).await;
                    if outcome.conflict {
                        // Perhaps another one leads.
                        election.verify();
                    }
                    due = outcome.next;
                }
                () = views.follow(pass.book()) => due = due.min(Instant::now() + debounce),
                Ok(()) = suspects.changed() => due = Instant::now(),
                () = changed.notified() => due = due.min(Instant::now() + debounce),
            }
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => debug!("reconciling stops: told to"),
        () = fence.closed() => info!("reconciling stops: does not lead any more"),
        () = work => {}
    }
    stop.cancel();
}
