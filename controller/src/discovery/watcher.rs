//! The task that looks at one cluster again and again. It waits for nobody and nobody waits for it, so
//! a cluster that swallows everything delays itself alone (C050).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kreplicator_kafka::admin::ClusterMetadata;
use kreplicator_model::{backoff::Backoff, ids::UnixMillis, spec::Cluster};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use super::{Settings, merge::KnownTopics, snapshot::ClusterTopics};
use crate::{
    api::Clock,
    cluster_admin::{AdminConnector, AdminError, ClusterAdmin},
    fleet::ClusterState,
    metrics::Metrics,
};

/// Shortest time from one look to the next, however often somebody asks.
const GAP_MIN: Duration = Duration::from_millis(50);
/// Time until a look that must confirm the one before it.
const CONFIRM_AFTER: Duration = Duration::from_secs(3);
/// Failed looks after which the client is made anew: its secrets or name servers may have changed.
const RECONNECT_AFTER: u32 = 3;

/// What the last look found.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    /// Every look asked for up to this ticket has been made.
    pub(super) served: u64,
    /// The highest ticket of a look that succeeded.
    pub(super) succeeded: u64,
    /// For people.
    pub(super) state: ClusterState,
    /// Topics as of the last look that succeeded.
    pub(super) topics: Option<Arc<ClusterTopics>>,
    /// The answer of the last look, or why there is none.
    pub(super) answer: Option<Result<Arc<ClusterMetadata>, AdminError>>,
    /// The cluster's client.
    pub(super) admin: Option<Arc<dyn ClusterAdmin>>,
    /// It is another cluster than the one that was declared.
    pub(super) refused: Option<String>,
}

/// What the watcher and those who ask share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    tickets: Arc<AtomicU64>,
    asked: AtomicU64,
    poked: Notify,
    pub(super) latest: watch::Sender<Latest>,
}

impl Shared {
    /// `tickets` is the counter that all clusters draw from; the first look serves every ticket drawn
    /// before the watcher began, also those of a watcher before it.
    pub(super) fn new(cluster: Cluster, tickets: Arc<AtomicU64>) -> Self {
        let asked = tickets.load(Ordering::Acquire);
        Self {
            cluster,
            tickets,
            asked: AtomicU64::new(asked),
            poked: Notify::new(),
            latest: watch::Sender::new(Latest::default()),
        }
    }

    /// Asks for a look that begins from now on; the ticket tells when it was made.
    pub(super) fn ask(&self) -> u64 {
        let ticket = self.tickets.fetch_add(1, Ordering::AcqRel) + 1;
        self.asked.fetch_max(ticket, Ordering::AcqRel);
        self.poked.notify_one();
        ticket
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }
}

/// The task of one cluster.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Settings,
    pub(super) connector: Arc<dyn AdminConnector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    /// Told when something differs.
    pub(super) changed: Arc<Notify>,
}

impl Watcher {
    /// Looks for ever.
    pub(super) async fn run(self) {
        let backoff = Backoff::new(
            Duration::from_secs(1).min(self.settings.interval),
            self.settings.interval,
        );
        let mut known = KnownTopics::default();
        let mut failures = 0_u32;
        loop {
            let ticket = self.shared.asked();
            let result = self.look(failures).await;
            let wait = match &result {
                Ok(metadata) => {
                    failures = 0;
                    known.merge(&metadata.topics);
                    let confirm = known.has_doubts().then_some(CONFIRM_AFTER);
                    let jitter = rand::random_range(0.9..=1.1);
                    let usual = self.settings.interval.mul_f64(jitter);
                    confirm.map_or(usual, |confirm| confirm.min(usual))
                }
                Err(_) => {
                    failures += 1;
                    backoff.delay(failures - 1, rand::random())
                }
            };
            self.publish(ticket, &known, result);
            sleep(GAP_MIN.min(wait)).await;
            // Whoever asked while the look ran gets another one.
            let asked = async {
                while self.shared.asked() <= ticket {
                    self.shared.poked.notified().await;
                }
            };
            let rest = wait.saturating_sub(GAP_MIN);
            // In the rest of the time, so that nobody who asks waits for it.
            let renewing = async {
                self.renew(self.settings.timeout.min(rest.mul_f64(0.8)))
                    .await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = sleep(rest) => {}
                () = asked => {}
                () = renewing => {}
            }
        }
    }

    async fn look(&self, failures: u32) -> Result<Arc<ClusterMetadata>, AdminError> {
        let cluster = &self.shared.cluster;
        let admin = self.admin(failures)?;
        let metadata = look(admin.as_ref(), cluster, self.settings.timeout).await?;
        Ok(Arc::new(metadata))
    }

    /// The client, made anew after failures. Not from files that are known not to let a client in, nor from such
    /// that cannot be read: the one there is may be the last that works (C127).
    fn admin(&self, failures: u32) -> Result<Arc<dyn ClusterAdmin>, AdminError> {
        let (present, is_kept) = {
            let latest = self.shared.latest.borrow();
            (latest.admin.clone(), latest.state.renewal_fault.is_some())
        };
        let is_due = failures > 0 && failures.is_multiple_of(RECONNECT_AFTER);
        match present {
            Some(admin) if is_kept || !is_due => Ok(admin),
            present => match self.connector.connect(&self.shared.cluster) {
                Ok(admin) => {
                    self.share(&admin);
                    Ok(admin)
                }
                Err(fault) => present.ok_or(fault),
            },
        }
    }

    /// Hands on the client made from renewed certificates and passwords once these let it in; until then, and
    /// whatever is wrong with them, the one there is goes on (C127). May be given up at any time.
    async fn renew(&self, limit: Duration) {
        let Some(admin) = self.shared.latest.borrow().admin.clone() else {
            return;
        };
        // The client has a deadline too.
        let renewed = timeout(limit + limit / 10, admin.renewed(limit)).await;
        let fault = match renewed {
            Ok(Ok(None)) => None,
            Ok(Ok(Some(renewed))) => {
                self.share(&renewed);
                None
            }
            Ok(Err(fault)) => Some(fault.to_string()),
            Err(_) => Some("the cluster gave no answer in time".to_owned()),
        };
        self.note_renewal(fault);
    }

    /// Hands the client on to whoever asks the cluster for something.
    fn share(&self, admin: &Arc<dyn ClusterAdmin>) {
        self.shared.latest.send_if_modified(|latest| {
            latest.admin = Some(Arc::clone(admin));
            false
        });
    }

    /// Tells why renewed files are not used, and when that is over.
    fn note_renewal(&self, fault: Option<String>) {
        let news = self.shared.latest.send_if_modified(|latest| {
            let differs = latest.state.renewal_fault != fault;
            latest.state.renewal_fault = fault;
            differs
        });
        if news {
            self.changed.notify_one();
        }
    }

    fn publish(
        &self,
        ticket: u64,
        known: &KnownTopics,
        result: Result<Arc<ClusterMetadata>, AdminError>,
    ) {
        let cluster = &self.shared.cluster.id;
        let now = self.clock.now();
        let mut differs = false;
        self.shared.latest.send_modify(|latest| {
            let error = result.as_ref().err();
            let state = next_state(&latest.state, error.map(ToString::to_string), now);
            differs = latest.state.reachable != state.reachable
                || latest.state.cause != state.cause
                || latest.served < ticket;
            if latest.state.reachable != state.reachable {
                if state.reachable == Some(true) {
                    info!(%cluster, "cluster answers");
                } else {
                    warn!(%cluster, cause = state.cause, "cluster does not answer");
                }
            }
            latest.state = state;
            latest.served = ticket;
            match &result {
                Ok(metadata) => {
                    latest.refused = None;
                    latest.succeeded = ticket;
                    differs |= take_in(latest, known, metadata, now);
                }
                Err(error) => {
                    if let AdminError::WrongCluster(cause) = error {
                        latest.refused = Some(cause.clone());
                    }
                    self.metrics.discovery_error(cluster);
                }
            }
            latest.answer = Some(result);
        });
        if differs {
            debug!(%cluster, "cluster differs from the look before");
            self.changed.notify_one();
        }
    }
}

/// Asks a cluster for everything it tells, within `limit` whatever its client does.
pub(super) async fn look(
    admin: &dyn ClusterAdmin,
    cluster: &Cluster,
    limit: Duration,
) -> Result<ClusterMetadata, AdminError> {
    // The client has a deadline too, and knows better what went wrong.
    match timeout(limit + limit / 10, admin.metadata(limit)).await {
        Ok(answer) => answer,
        Err(_) => Err(AdminError::Unavailable(format!(
            "cluster {} gave no answer within {}; check its bootstrap_servers and the network",
            cluster.id,
            humantime::format_duration(limit)
        ))),
    }
}

fn next_state(before: &ClusterState, error: Option<String>, now: UnixMillis) -> ClusterState {
    let reachable = Some(error.is_none());
    ClusterState {
        reachable,
        cause: error.unwrap_or_default(),
        since: if before.reachable == reachable {
            before.since
        } else {
            now
        },
        ..before.clone()
    }
}

/// Takes in what a look found; true when topics or the cluster's id differ.
fn take_in(
    latest: &mut Latest,
    known: &KnownTopics,
    metadata: &ClusterMetadata,
    now: UnixMillis,
) -> bool {
    let (topics, partitions) = known.counts();
    latest.state.topics = topics;
    latest.state.partitions = partitions;
    latest.state.brokers = metadata.brokers;
    latest
        .state
        .kafka_cluster_id
        .clone_from(&metadata.kafka_cluster_id);
    latest.state.discovered_at = Some(now);
    let found = ClusterTopics {
        topics: known.topics(),
        confirmed: known.confirmed(),
        kafka_cluster_id: metadata.kafka_cluster_id.clone(),
        brokers: metadata.brokers,
    };
    if latest.topics.as_deref() == Some(&found) {
        return false;
    }
    latest.topics = Some(Arc::new(found));
    true
}
