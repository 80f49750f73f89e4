//! Builds the parts of a controller and joins them.
//!
//! They are built in the order sockets, candidacy, API, HTTP endpoint, leader, and end in the order API,
//! leader (who gives the key up, so that another takes over at once), HTTP endpoint.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::ids::{ControllerId, NameError};
use kreplicator_proto::v1;
use kreplicator_store::{api::MetaStore, election::Election, keys};
use metrics_exporter_prometheus::PrometheusHandle;
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinError, JoinSet},
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    api::{self, ApiParts, Clock, SystemClock},
    cluster_admin::{AdminConnector, KafkaConnector},
    config::{Config, Fault},
    discovery::DiscoveryDoor,
    fleet::FleetState,
    heavy::Walks,
    http::{self, HttpParts},
    leader::Leader,
    metrics::Metrics,
    reports::{Limits, Reports},
};

/// Time between clean-ups of the metrics' histograms.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long calls under way may hold up the end of leading: longer than any of them waits for the store,
/// shorter than streams stay open.
const CALLS_GRACE: Duration = Duration::from_millis(500);

/// Why a controller does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that cannot be used.
    #[error("{}", faults(.0))]
    Config(Vec<Fault>),
    /// The controller's name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A socket cannot be opened.
    #[error("cannot listen on {address}: {cause}; change the controller's `{setting}`")]
    Listen {
        /// The setting that says where.
        setting: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The metadata store refuses the controller for good.
    #[error(transparent)]
    Store(#[from] kreplicator_store::Error),
    /// The API broke.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// The HTTP endpoint broke.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// A part of the controller broke.
    #[error("a part of the controller broke: {0}")]
    Broken(String),
    /// A part of the controller ended though it was not told to.
    #[error("the controller's {0} ended by itself")]
    Ended(&'static str),
}

fn faults(faults: &[Fault]) -> String {
    let lines = faults
        .iter()
        .map(|fault| format!("controller.{}: {}", fault.path, fault.message));
    lines.collect::<Vec<_>>().join("\n")
}

/// A running controller. Dropping it is like [`Controller::kill`], without waiting.
#[derive(Debug)]
pub struct Controller {
    grpc_address: SocketAddr,
    http_address: SocketAddr,
    fleet: watch::Receiver<Arc<FleetState>>,
    parts: JoinSet<(Part, Result<(), Error>)>,
    stop_api: CancellationToken,
    stop_leader: CancellationToken,
    stop_http: CancellationToken,
}

/// The parts that run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Api,
    Leader,
    Http,
    Upkeep,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Api => "API",
            Self::Leader => "leader",
            Self::Http => "HTTP endpoint",
            Self::Upkeep => "upkeep of metrics",
        }
    }
}

impl Controller {
    /// Starts a controller that reaches Kafka clusters with the secrets given.
    ///
    /// # Errors
    /// [`Error`]; nothing runs then.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn start(
        config: Config,
        store: Arc<dyn MetaStore>,
        secrets: Arc<dyn SecretSource>,
        prometheus: Option<PrometheusHandle>,
    ) -> Result<Self, Error> {
        let connector = Arc::new(KafkaConnector::new(secrets));
        let clock = Arc::new(SystemClock);
        Self::start_with(config, store, connector, clock, prometheus).await
    }

    /// Starts a controller that reaches clusters through `connector`.
    ///
    /// # Errors
    /// [`Error`]; nothing runs then.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn start_with(
        config: Config,
        store: Arc<dyn MetaStore>,
        connector: Arc<dyn AdminConnector>,
        clock: Arc<dyn Clock>,
        prometheus: Option<PrometheusHandle>,
    ) -> Result<Self, Error> {
        let wrong = config.validate();
        if !wrong.is_empty() {
            return Err(Error::Config(wrong));
        }
        let controller = ControllerId::new(&config.id)?;
        let (grpc, grpc_address) = listen("listen_grpc", config.listen_grpc).await?;
        let (http, http_address) = listen("listen_http", config.listen_http).await?;
        let address = config.advertised(grpc_address);
        let metrics = Arc::new(Metrics::register());
        let value = v1::Leader {
            controller: controller.to_string(),
            address: address.clone(),
            elected_at_ms: clock.now().0,
        };
        let election = Election::start(
            Arc::clone(&store),
            keys::LEADER,
            value.encode_to_vec(),
            config.lease_ttl,
            CancellationToken::new(),
        )?;
        let role = election.role();
        let (fleet, fleet_seen) = watch::channel(Arc::new(FleetState::default()));
        let reports = Arc::new(Reports::new(Limits::default()));
        let walks = Walks::default();
        let door = Arc::new(DiscoveryDoor::new(Arc::clone(&connector)));

        let stop_api = CancellationToken::new();
        let stop_leader = CancellationToken::new();
        let stop_http = CancellationToken::new();
        let mut parts = JoinSet::new();
        let api = ApiParts {
            controller: controller.clone(),
            address,
            store: Arc::clone(&store),
            role: role.clone(),
            fleet: fleet_seen.clone(),
            discovery: Arc::clone(&door) as _,
            reports: Arc::clone(&reports),
            walks: walks.clone(),
            clock: Arc::clone(&clock),
            request_retention: config.request_retention,
            limits: api::Limits {
                connections: config.grpc_connections_max,
                ..api::Limits::default()
            },
        };
        parts.spawn({
            let stop = stop_api.clone();
            async move {
                (
                    Part::Api,
                    api::serve(api, grpc, stop).await.map_err(Error::from),
                )
            }
        });
        let endpoint = HttpParts {
            prometheus: prometheus.clone(),
            store: Arc::clone(&store),
            role,
            fleet: fleet_seen.clone(),
            reports: Arc::clone(&reports),
            walks,
        };
        parts.spawn({
            let stop = stop_http.clone();
            async move {
                (
                    Part::Http,
                    http::serve(endpoint, http, stop).await.map_err(Error::from),
                )
            }
        });
        if let Some(prometheus) = prometheus {
            let stop = stop_http.clone();
            parts.spawn(async move {
                stop.run_until_cancelled(keep_up(prometheus)).await;
                (Part::Upkeep, Ok(()))
            });
        }
        let leader = Leader {
            config,
            store,
            connector,
            door,
            clock,
            metrics,
            fleet,
            reports,
        };
        parts.spawn({
            let stop = stop_leader.clone();
            async move {
                leader.run(election, stop).await;
                (Part::Leader, Ok(()))
            }
        });
        info!(%controller, %grpc_address, %http_address, "controller started");
        Ok(Self {
            grpc_address,
            http_address,
            fleet: fleet_seen,
            parts,
            stop_api,
            stop_leader,
            stop_http,
        })
    }

    /// Where the gRPC API listens.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Where the HTTP endpoint listens.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// What the fleet looks like while this controller leads; the default value otherwise.
    #[must_use]
    pub fn fleet(&self) -> watch::Receiver<Arc<FleetState>> {
        self.fleet.clone()
    }

    /// Waits until a part ends though it was not told to: the controller cannot go on. Cancel safe.
    pub async fn failed(&mut self) -> Error {
        match self.parts.join_next().await {
            Some(Ok((part, Ok(())))) => Error::Ended(part.name()),
            Some(Ok((_, Err(error)))) => error,
            Some(Err(error)) => broken(&error),
            None => Error::Ended("parts"),
        }
    }

    /// Stops: no more calls, then the leader's key is given up, then the rest.
    ///
    /// # Errors
    /// A part broke meanwhile.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop_api.cancel();
        // Streams stay open for longer than the key should be kept.
        let calls = timeout(CALLS_GRACE, self.parts.join_next()).await;
        self.stop_leader.cancel();
        let mut ended: Vec<_> = calls.ok().flatten().into_iter().collect();
        while let Some(part) = self.parts.join_next().await {
            ended.push(part);
            let leader_over = |part: &Result<_, _>| !matches!(part, Ok((Part::Api, _)));
            if ended.iter().any(leader_over) {
                self.stop_http.cancel();
            }
        }
        for part in ended {
            let (_, result) = part.map_err(|error| broken(&error))?;
            result?;
        }
        Ok(())
    }

    /// Ends everything as a crash would: the leader's key stays until its lease runs out.
    pub async fn kill(mut self) {
        self.parts.abort_all();
        while self.parts.join_next().await.is_some() {}
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Connections that the API handed to tasks of their own end by this.
        self.stop_api.cancel();
        self.stop_http.cancel();
    }
}

/// Runs a controller until `shutdown` fires; then it stops.
///
/// # Errors
/// The controller cannot be started or cannot go on.
pub async fn run(
    config: Config,
    store: Arc<dyn MetaStore>,
    secrets: Arc<dyn SecretSource>,
    prometheus: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let mut controller = Controller::start(config, store, secrets, prometheus).await?;
    tokio::select! {
        error = controller.failed() => Err(error),
        () = shutdown.cancelled() => controller.stop().await,
    }
}

async fn listen(
    setting: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), Error> {
    let fault = |cause| Error::Listen {
        setting,
        address,
        cause,
    };
    let listener = TcpListener::bind(address).await.map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    Ok((listener, bound))
}

async fn keep_up(prometheus: PrometheusHandle) {
    let mut tick = interval(UPKEEP_INTERVAL);
    loop {
        tick.tick().await;
        prometheus.run_upkeep();
    }
}

fn broken(error: &JoinError) -> Error {
    Error::Broken(error.to_string())
}
