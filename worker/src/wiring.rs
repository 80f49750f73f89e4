//! Builds the parts of a worker and joins them.
//!
//! They are built in the order HTTP endpoint, data path, supervisor with its registration, reports, and
//! end in the reverse: the supervisor drains first, while reports and probes still tell of it.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::ids::WorkerId;
use kreplicator_store::MetaStore;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinSet},
    time::{Instant, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    batches::{BatchConfig, BatchEngine},
    budget::Budget,
    clock::WallClock,
    config::{Config, Fault},
    engine::Engine,
    engines::Engines,
    fence::OwnershipFence,
    gate::Gate,
    health::Health,
    http,
    lines::StoredLines,
    membership::{Identity, Membership},
    metrics,
    news::News,
    records::{RecordsConfig, RecordsEngine},
    report::{self, MemoryUsed},
    supervisor::{self, Parts, Settings, Supervisor},
    tasks::Tasks,
};

/// Time between clean-ups of the metrics' histograms.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time that a killed worker's data path may take to let go.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// Why a worker does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that cannot be used.
    #[error("{}", faults(.0))]
    Config(Vec<Fault>),
    /// The HTTP endpoint cannot be opened.
    #[error("cannot listen on {address}: {cause}; change the worker's `listen`")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said; told in the message, since the remedy follows it.
        cause: io::Error,
    },
    /// The HTTP endpoint broke.
    #[error("the HTTP endpoint broke")]
    Http(#[source] io::Error),
    /// The metadata store refuses the worker for good.
    #[error(transparent)]
    Store(#[from] kreplicator_store::Error),
    /// The tasks are beyond control; the process has to end at once.
    #[error(transparent)]
    Supervisor(#[from] supervisor::Error),
    /// A part of the worker broke.
    #[error("a part of the worker broke: {0}")]
    Broken(String),
    /// A part of the worker ended though it was not told to.
    #[error("the worker's {0} ended by itself")]
    Ended(&'static str),
}

fn faults(faults: &[Fault]) -> String {
    let lines = faults
        .iter()
        .map(|fault| format!("worker.{}: {}", fault.path, fault.message));
    lines.collect::<Vec<_>>().join("\n")
}

/// A data path and what has to be known of it.
pub struct DataPath {
    /// Runs tasks.
    pub engine: Arc<dyn Engine>,
    /// How much of the memory budget it uses.
    pub memory_used: MemoryUsed,
    /// What it has to tell.
    pub news: News,
    /// Ends it at once, without any care.
    pub kill: CancellationToken,
}

impl fmt::Debug for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPath")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// A running worker. Dropping it is like [`Worker::kill`], without waiting.
#[derive(Debug)]
pub struct Worker {
    http_address: SocketAddr,
    tasks: Arc<Tasks>,
    health: Arc<Health>,
    gate: Gate,
    engine: Arc<dyn Engine>,
    kill: CancellationToken,
    supervisor: JoinSet<Result<(), supervisor::Error>>,
    /// Reports and HTTP endpoint, by name.
    helpers: JoinSet<(&'static str, Result<(), Error>)>,
    leave: CancellationToken,
    close: CancellationToken,
}

impl Worker {
    /// Starts a worker. Returns once its endpoint listens; it registers by itself.
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
        let Ok(worker) = WorkerId::new(&config.id) else {
            return Err(Error::Config(config.validate()));
        };
        let lines = Arc::clone(&store);
        Self::start_with(config, store, prometheus, |config, gate| {
            data_path(config, worker, secrets, gate, lines)
        })
        .await
    }

    /// Starts a worker on the data path that `data_path` makes for the gate it is given: whatever it
    /// sends or saves, it asks the gate before.
    ///
    /// # Errors
    /// [`Error`]; nothing runs then.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn start_with(
        config: Config,
        store: Arc<dyn MetaStore>,
        prometheus: Option<PrometheusHandle>,
        data_path: impl FnOnce(&Config, Gate) -> DataPath,
    ) -> Result<Self, Error> {
        let wrong = config.validate();
        let (Ok(worker), true) = (WorkerId::new(&config.id), wrong.is_empty()) else {
            return Err(Error::Config(wrong));
        };
        metrics::describe();
        let listen = |cause| Error::Listen {
            address: config.listen,
            cause,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let http_address = listener.local_addr().map_err(listen)?;
        let clock = WallClock::system();
        let tasks = Arc::new(Tasks::default());
        let health = Arc::new(Health::new(Instant::now()));
        let gate = Gate::shut();
        let DataPath {
            engine,
            memory_used,
            news,
            kill,
        } = data_path(&config, gate.clone());

        let leave = CancellationToken::new();
        let close = CancellationToken::new();
        let mut helpers = JoinSet::new();
        let shown = http::Shown {
            prometheus: prometheus.clone(),
            tasks: Arc::clone(&tasks),
            health: Arc::clone(&health),
            clock: clock.clone(),
            per_partition: config.metrics_per_partition,
        };
        helpers.spawn({
            let close = close.clone();
            async move {
                let served = http::serve(listener, shown, close).await;
                ("HTTP endpoint", served.map_err(Error::Http))
            }
        });
        if let Some(prometheus) = prometheus {
            helpers.spawn({
                let close = close.clone();
                async move {
                    close.run_until_cancelled(keep_up(prometheus)).await;
                    ("upkeep of metrics", Ok(()))
                }
            });
        }

        let membership = Membership::start(
            Arc::clone(&store),
            Identity {
                worker: worker.clone(),
                address: config.advertised(http_address),
                capacity_tasks: config.capacity_tasks,
                started_at: clock.now(),
                lease_ttl: config.lease_ttl,
                fence_margin: config.fence_margin,
            },
            CancellationToken::new(),
        )?;
        let mut supervisor = JoinSet::new();
        let parts = Parts {
            store: Arc::clone(&store),
            worker: worker.clone(),
            membership,
            engine: Arc::clone(&engine),
            gate: gate.clone(),
            tasks: Arc::clone(&tasks),
            health: Arc::clone(&health),
            clock: clock.clone(),
            settings: Settings::new(config.task_stop_timeout, config.handover_time()),
        };
        supervisor.spawn(Supervisor::new(parts).run(leave.clone()));

        let subject = report::Subject {
            worker: worker.clone(),
            tasks: Arc::clone(&tasks),
            health: Arc::clone(&health),
            clock,
            memory_budget_bytes: config.memory_budget_bytes,
            memory_used,
            news,
        };
        helpers.spawn({
            let close = close.clone();
            let interval = config.report_interval;
            async move {
                report::run(store, subject, interval, close).await;
                ("reports", Ok(()))
            }
        });
        info!(%worker, %http_address, "worker started");
        Ok(Self {
            http_address,
            tasks,
            health,
            gate,
            engine,
            kill,
            supervisor,
            helpers,
            leave,
            close,
        })
    }

    /// Where the HTTP endpoint listens.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// The tasks that run here now.
    #[must_use]
    pub fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }

    /// What probes are told.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Waits until a part ends though it was not told to: the worker cannot go on. Cancel safe.
    pub async fn failed(&mut self) -> Error {
        tokio::select! {
            Some(ended) = self.supervisor.join_next() => match ended {
                Ok(Ok(())) => Error::Ended("supervisor"),
                Ok(Err(error)) => error.into(),
                Err(error) => broken(&error),
            },
            Some(ended) = self.helpers.join_next() => match ended {
                Ok((name, Ok(()))) => Error::Ended(name),
                Ok((_, Err(error))) => error,
                Err(error) => broken(&error),
            },
            cause = self.engine.broken(), if !self.supervisor.is_empty() => Error::Broken(cause),
            else => Error::Ended("parts"),
        }
    }

    /// Leaves: lets the controller move the tasks away while they run, stops what is left, gives the
    /// lease back.
    ///
    /// # Errors
    /// A part broke meanwhile. The process has to end at once.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.leave.cancel();
        while let Some(left) = self.supervisor.join_next().await {
            left.map_err(|error| broken(&error))??;
        }
        self.close.cancel();
        while let Some(closed) = self.helpers.join_next().await {
            let (_, closed) = closed.map_err(|error| broken(&error))?;
            closed?;
        }
        Ok(())
    }

    /// Ends everything as a crash would: nothing is delivered, saved or given back, and the lease runs
    /// out by itself.
    pub async fn kill(mut self) {
        self.gate.close();
        self.supervisor.shutdown().await;
        self.helpers.shutdown().await;
        self.kill.cancel();
        let stops = self.tasks.live().into_iter().map(|(_, live)| async move {
            live.task.stop(Duration::ZERO).await;
        });
        let end = async {
            futures::future::join_all(stops).await;
            self.engine.close(Duration::ZERO).await;
        };
        if timeout(KILL_DEADLINE, end).await.is_err() {
            warn!("the killed worker's data path did not let go in time");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.gate.close();
        self.kill.cancel();
    }
}

/// Runs a worker until `shutdown` fires; then it leaves.
///
/// # Errors
/// The worker cannot start, or cannot go on; in the latter case the process has to end at once.
pub async fn run(
    config: Config,
    store: Arc<dyn MetaStore>,
    secrets: Arc<dyn SecretSource>,
    prometheus: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let worker = Worker::start(config, store, secrets, prometheus).await?;
    run_until(worker, shutdown).await
}

/// Both engines, on one memory budget.
fn data_path(
    config: &Config,
    worker: WorkerId,
    secrets: Arc<dyn SecretSource>,
    gate: Gate,
    store: Arc<dyn MetaStore>,
) -> DataPath {
    let kill = CancellationToken::new();
    let budget = Budget::new(config.memory_budget_bytes);
    let settings = RecordsConfig {
        checkpoint_interval: config.checkpoint_interval,
        recommit_interval: config.checkpoint_refresh_interval,
        inspection_interval: config.inspection_interval,
        retry_min: config.retry_min,
        retry_max: config.retry_max,
        ..RecordsConfig::new(worker.clone())
    };
    let counting = BatchConfig {
        checkpoint_interval: config.checkpoint_interval,
        recommit_interval: config.checkpoint_refresh_interval,
        inspection_interval: config.inspection_interval,
        retry_min: config.retry_min,
        retry_max: config.retry_max,
        silence_max: config.broker_silence_max,
        ..BatchConfig::new(worker.clone())
    };
    let memory = Arc::clone(&budget);
    let fence: Arc<dyn OwnershipFence> = Arc::new(gate);
    let lines = Arc::new(StoredLines::new(store, worker, WallClock::system()));
    let batches = BatchEngine::new(
        counting,
        Arc::clone(&secrets),
        Arc::clone(&fence),
        Arc::clone(&budget),
        lines,
        kill.clone(),
    );
    let news = batches.news();
    let records = RecordsEngine::new(settings, secrets, fence, budget, kill.clone());
    DataPath {
        engine: Arc::new(Engines::new(records, batches)),
        memory_used: Arc::new(move || memory.used_bytes()),
        news,
        kill,
    }
}

/// Keeps a worker until `shutdown` fires; then it leaves.
///
/// # Errors
/// The worker cannot go on; the process has to end at once.
pub async fn run_until(mut worker: Worker, shutdown: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        error = worker.failed() => Err(error),
        () = shutdown.cancelled() => worker.stop().await,
    }
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

#[cfg(test)]
mod tests;
