//! The demo's controller and workers, in this process, on a store in memory.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use kreplicator_controller::{config::Config as ControllerConfig, wiring::Controller};
use kreplicator_kafka::secrets::{ProcessSecrets, SecretSource};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, StoreConfig};
use kreplicator_worker::{config::Config as WorkerConfig, wiring::Worker};

use crate::{
    client::{Client, Target},
    commands::{
        self,
        apply::{Options, send},
    },
    links::Declared,
};

/// Shorter than for a fleet on many machines, so that a killed worker's partitions flow soon again.
const LEASE_TTL: Duration = Duration::from_secs(2);
/// Longest wait for the fleet's own API.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// An address of this machine alone, port chosen by the system.
const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The fleet.
pub(super) struct Fleet {
    store: Arc<dyn MetaStore>,
    secrets: Arc<dyn SecretSource>,
    controller: Controller,
    workers: BTreeMap<String, Worker>,
    client: Client,
}

impl Fleet {
    /// A controller without workers.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let store = StoreConfig::Memory.open().await?;
        let secrets: Arc<dyn SecretSource> = Arc::new(ProcessSecrets);
        let config = ControllerConfig {
            id: "controller-1".to_owned(),
            listen_grpc: LOOPBACK,
            listen_http: LOOPBACK,
            lease_ttl: LEASE_TTL,
            discovery_interval: Duration::from_secs(1),
            startup_grace: Duration::from_millis(500),
            ..ControllerConfig::default()
        };
        let controller = Controller::start(config, store.clone(), secrets.clone(), None)
            .await
            .context("the controller could not be started")?;
        let target: Target = controller
            .grpc_address()
            .to_string()
            .parse()
            .map_err(anyhow::Error::msg)?;
        Ok(Self {
            store,
            secrets,
            controller,
            workers: BTreeMap::new(),
            client: Client::new(&[target], API_TIMEOUT),
        })
    }

    /// Where the API listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.controller.grpc_address()
    }

    /// Starts a worker.
    pub(super) async fn add_worker(&mut self, id: &str) -> anyhow::Result<()> {
        let config = WorkerConfig {
            id: id.to_owned(),
            listen: LOOPBACK,
            lease_ttl: LEASE_TTL,
            fence_margin: Duration::from_millis(500),
            memory_budget_bytes: 64 << 20,
            checkpoint_interval: Duration::from_millis(500),
            inspection_interval: Duration::from_secs(1),
            report_interval: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(5),
            task_stop_timeout: Duration::from_secs(2),
            ..WorkerConfig::default()
        };
        let worker = Worker::start(config, self.store.clone(), self.secrets.clone(), None)
            .await
            .with_context(|| format!("{id} could not be started"))?;
        self.workers.insert(id.to_owned(), worker);
        Ok(())
    }

    /// Ends a worker as a crash would.
    pub(super) async fn kill_worker(&mut self, id: &str) {
        if let Some(worker) = self.workers.remove(id) {
            worker.kill().await;
        }
    }

    /// Declares clusters, links and subscriptions.
    pub(super) async fn declare(&self, declared: &Declared) -> anyhow::Result<()> {
        send(&self.client, declared, Options::default()).await?;
        Ok(())
    }

    /// Numbers of running tasks by worker, from the API like anybody else.
    pub(super) async fn workers(&self) -> anyhow::Result<Vec<v1::WorkerInfo>> {
        Ok(commands::get::workers(&self.client).await?)
    }

    /// Stops everything in good order.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for (id, worker) in self.workers {
            worker
                .stop()
                .await
                .with_context(|| format!("{id} did not stop cleanly"))?;
        }
        self.controller
            .stop()
            .await
            .context("the controller did not stop cleanly")?;
        Ok(())
    }
}
