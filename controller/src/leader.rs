//! Leading: while this controller holds the leader's key it discovers, looks after target topics and
//! reconciles; without the key it does nothing. Each term begins from what is stored.

use std::sync::Arc;

use kreplicator_store::{
    api::MetaStore,
    election::{Election, Term},
};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, info, info_span};

use crate::{
    api::Clock,
    cluster_admin::AdminConnector,
    config::Config,
    discovery::{self, Discovery, DiscoveryDoor},
    fleet::FleetState,
    metrics::Metrics,
    reconcile::{self, Parts},
    reports::Reports,
    suspects::{self, Suspects},
    targets::{self, Targets},
};

/// What a leader works with.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) connector: Arc<dyn AdminConnector>,
    /// The API's door to discovery.
    pub(crate) door: Arc<DiscoveryDoor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) fleet: watch::Sender<Arc<FleetState>>,
    pub(crate) reports: Arc<Reports>,
}

impl Leader {
    /// Leads whenever elected, until `cancel` fires; then gives the key up.
    pub(crate) async fn run(self, election: Election, cancel: CancellationToken) {
        let mut role = election.role();
        loop {
            let term = role.borrow_and_update().term().cloned();
            if let Some(term) = term.filter(|term| term.fence.is_open()) {
                let span = info_span!("term", number = term.number);
                self.lead(&election, term, &cancel).instrument(span).await;
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = role.changed() => if changed.is_err() { break },
            }
        }
        election.close().await;
    }

    /// Leads for one term.
    async fn lead(&self, election: &Election, term: Term, cancel: &CancellationToken) {
        info!("leading");
        self.metrics.leading.set(1.0);
        let stop = cancel.child_token();
        // Also when this task is thrown away in the middle.
        let stopped = stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        let changed = Arc::new(Notify::new());
        let discovery = Discovery::new(
            discovery::Settings {
                interval: self.config.discovery_interval,
                timeout: self.config.discovery_timeout,
            },
            Arc::clone(&self.connector),
            Arc::clone(&self.clock),
            Arc::clone(&self.metrics),
            Arc::clone(&changed),
            tasks.clone(),
            stop.clone(),
        );
        self.door.set(Some(discovery.clone()));
        let targets = Targets::new(
            targets::Settings {
                timeout: self.config.admin_timeout,
                check_interval: self.config.target_check_interval,
            },
            discovery.clone(),
            Arc::clone(&changed),
            tasks.clone(),
            stop.clone(),
        );
        let (suspects, suspected) = watch::channel(Suspects::default());
        tasks.spawn({
            let listening = suspects::listen(
                self.config.suspect_after,
                Arc::clone(&self.reports),
                self.fleet.subscribe(),
                suspects,
            );
            let stop = stop.clone();
            async move {
                stop.run_until_cancelled(listening).await;
            }
        });
        let parts = Parts {
            settings: reconcile::Settings::from(&self.config),
            store: Arc::clone(&self.store),
            discovery,
            targets,
            changed,
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            fleet: self.fleet.clone(),
            reports: Arc::clone(&self.reports),
            suspects: suspected,
        };
        reconcile::run(parts, election, term, cancel).await;
        drop(stopped);
        self.door.set(None);
        self.fleet.send_replace(Arc::default());
        self.metrics.leading.set(0.0);
        self.metrics.stuck.set(0.0);
        self.metrics.double_claims.set(0.0);
        tasks.close();
        tasks.wait().await;
        info!("not leading any more");
    }
}
