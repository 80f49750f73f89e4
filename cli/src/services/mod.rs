//! The services: load the configuration, start logs and metrics, hand over to the crates' `wiring`
//! and see to a clean stop.
//!
//! - [`metrics`]: the recorder behind `/metrics`.
//! - [`mod@standalone`]: controller and worker in one process.

mod metrics;
mod standalone;

use std::sync::Arc;

use anyhow::Context as _;
use kreplicator_kafka::secrets::{ProcessSecrets, SecretSource};
use kreplicator_store::MetaStore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use self::standalone::standalone;
use crate::{
    args, commands,
    config::{self, Config, Role, Sources},
    exit::{Exit, Failure},
    logging, signals,
};

/// File descriptors that a controller takes beside connections to its API: of the store, of clusters, of files.
const DESCRIPTORS_BESIDE: u64 = 512;

/// Runs a controller until it is told to stop.
pub(crate) async fn controller(args: &args::Service) -> anyhow::Result<Exit> {
    let config = load(Role::Controller, args, Vec::new())?;
    if args.print_config {
        return print_config(&config);
    }
    let process = Process::start(&config).await?;
    process.check_descriptors(config.controller.grpc_connections_max);
    let run = kreplicator_controller::wiring::run(
        config.controller,
        process.store,
        process.secrets,
        Some(process.prometheus),
        process.shutdown,
    );
    Box::pin(run).await.context("the controller failed")?;
    info!("stopped");
    Ok(Exit::Ok)
}

/// Runs a worker until it is told to stop.
pub(crate) async fn worker(args: &args::Service) -> anyhow::Result<Exit> {
    let config = load(Role::Worker, args, Vec::new())?;
    if args.print_config {
        return print_config(&config);
    }
    let process = Process::start(&config).await?;
    let run = kreplicator_worker::wiring::run(
        config.worker,
        process.store,
        process.secrets,
        Some(process.prometheus),
        process.shutdown,
    );
    Box::pin(run).await.context("the worker failed")?;
    info!("stopped");
    Ok(Exit::Ok)
}

/// What every service needs.
struct Process {
    /// File descriptors that there may be; None: any number.
    descriptors: Option<u64>,
    store: Arc<dyn MetaStore>,
    secrets: Arc<dyn SecretSource>,
    prometheus: metrics_exporter_prometheus::PrometheusHandle,
    shutdown: CancellationToken,
}

impl Process {
    /// Starts logs, metrics and signals, and opens the store.
    async fn start(config: &Config) -> anyhow::Result<Self> {
        logging::start(&config.log)?;
        let shutdown = CancellationToken::new();
        signals::cancel_on_signal(shutdown.clone())?;
        let prometheus = metrics::install()?;
        let descriptors = kreplicator_service::descriptors::raise();
        info!(version = env!("CARGO_PKG_VERSION"), descriptors, "starting");
        let secrets: Arc<dyn SecretSource> = Arc::new(ProcessSecrets);
        let store = config.store.resolve(secrets.as_ref())?;
        let store = store
            .open()
            .await
            .context("the metadata store could not be opened")?;
        Ok(Self {
            descriptors,
            store,
            secrets,
            prometheus,
            shutdown,
        })
    }

    /// Says when the API may take more connections than there are file descriptors.
    fn check_descriptors(&self, connections: usize) {
        let wanted = connections as u64 + DESCRIPTORS_BESIDE;
        if let Some(most) = self.descriptors.filter(|most| *most < wanted) {
            warn!(
                most,
                wanted,
                "grpc_connections_max is more than there are file descriptors for; raise the hard limit (ulimit -Hn) or lower it"
            );
        }
    }
}

/// Loads the configuration; `first` are settings that flags of `--set` may override.
fn load(role: Role, args: &args::Service, first: Vec<(String, String)>) -> anyhow::Result<Config> {
    let file = args.config.as_ref().map(|path| {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((name, text)),
            Err(error) => Err(Failure::Usage(format!(
                "file {name} cannot be read: {error}"
            ))),
        }
    });
    let text = |os: std::ffi::OsString| os.into_string().ok();
    let sources = Sources {
        file: file.transpose()?,
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        flags: first.into_iter().chain(args.set.clone()).collect(),
    };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    Ok(config::load(&sources, role, &host).map_err(Failure::Faults)?)
}

fn print_config(config: &Config) -> anyhow::Result<Exit> {
    commands::print(config.to_yaml()?.trim_end())?;
    Ok(Exit::Ok)
}
