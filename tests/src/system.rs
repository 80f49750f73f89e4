//! The system under test: etcd, controllers and workers, each a process of its own.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;

use crate::{
    api::Api,
    etcd::Etcd,
    folder::RunDir,
    service::{Kind, Service, Settings},
    wait,
};

/// The lease of workers and of the leader in tests.
pub const LEASE: Duration = Duration::from_secs(5);
/// The interval at which tests have source clusters looked at.
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(2);

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemOptions {
    /// Name in log folders.
    pub name: String,
    /// Number of controllers: `controller-1`, …
    pub controllers: usize,
    /// Number of workers: `worker-1`, …
    pub workers: usize,
    /// Settings of every controller on top of those of tests.
    pub controller_settings: Settings,
    /// Settings of every worker on top of those of tests.
    pub worker_settings: Settings,
    /// Variables of every process, for secrets.
    pub env: Vec<(String, String)>,
}

impl SystemOptions {
    /// Controllers and workers with the settings of tests.
    #[must_use]
    pub fn new(name: &str, controllers: usize, workers: usize) -> Self {
        let pairs = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        Self {
            name: name.to_owned(),
            controllers,
            workers,
            controller_settings: pairs(&[
                ("lease_ttl", "5s"),
                ("discovery_interval", "2s"),
                // The machine is shared with brokers that start, and a false suspicion moves tasks.
                ("suspect_after", "2s"),
                ("target_check_interval", "30s"),
            ]),
            worker_settings: pairs(&[
                ("lease_ttl", "5s"),
                ("memory_budget_bytes", "128MiB"),
                ("inspection_interval", "1s"),
                ("report_interval", "500ms"),
                ("retry_max", "5s"),
            ]),
            env: Vec::new(),
        }
    }

    /// Changes a setting of every worker.
    pub fn set_worker(&mut self, name: &str, value: &str) {
        let settings = &mut self.worker_settings;
        settings.retain(|(key, _)| key != name);
        settings.push((name.to_owned(), value.to_owned()));
    }
}

/// A running system; its processes end when it is dropped.
#[derive(Debug)]
pub struct System {
    controllers: Vec<Service>,
    workers: BTreeMap<String, Service>,
    etcd: Etcd,
    options: SystemOptions,
    // Last: processes end before their logs are deleted.
    folder: RunDir,
}

impl System {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When something does not start; shows the end of its log.
    pub async fn start(options: SystemOptions) -> Result<Self> {
        let mut system = Self {
            controllers: Vec::new(),
            workers: BTreeMap::new(),
            etcd: Etcd::start().await?,
            folder: RunDir::new(&options.name)?,
            options,
        };
        for index in 1..=system.options.controllers {
            let name = format!("controller-{index}");
            let service = system.service(Kind::Controller, &name).await?;
            system.controllers.push(service);
        }
        for index in 1..=system.options.workers {
            let name = format!("worker-{index}");
            let service = system.service(Kind::Worker, &name).await?;
            system.workers.insert(name, service);
        }
        system
            .start_missing()
            .await
            .inspect_err(|_| system.failed())?;
        Ok(system)
    }

    async fn service(&self, kind: Kind, name: &str) -> Result<Service> {
        let settings = match kind {
            Kind::Controller => &self.options.controller_settings,
            Kind::Worker => &self.options.worker_settings,
        };
        Service::new(
            kind,
            name,
            &self.etcd.address().to_string(),
            self.folder.path(),
            settings,
            &self.options.env,
        )
        .await
    }

    /// etcd, to stop, freeze or interfere with.
    pub fn etcd(&mut self) -> &mut Etcd {
        &mut self.etcd
    }

    /// A client of all controllers there are now.
    ///
    /// # Errors
    /// As [`Api::new`].
    pub fn api(&self) -> Result<Api> {
        Api::new(self.controllers.iter().filter_map(Service::grpc_port))
    }

    /// The controllers.
    pub fn controllers(&mut self) -> &mut [Service] {
        &mut self.controllers
    }

    /// The workers by name.
    pub fn workers(&mut self) -> &mut BTreeMap<String, Service> {
        &mut self.workers
    }

    /// One worker.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn worker(&mut self, name: &str) -> Result<&mut Service> {
        self.workers
            .get_mut(name)
            .with_context(|| format!("no worker {name}"))
    }

    /// Starts another worker and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn add_worker(&mut self, name: &str) -> Result<()> {
        ensure!(!self.workers.contains_key(name), "{name} exists");
        let mut service = self.service(Kind::Worker, name).await?;
        service.start()?;
        service.ready().await?;
        self.workers.insert(name.to_owned(), service);
        Ok(())
    }

    /// Drains a worker (SIGTERM), waits for its end and forgets it.
    ///
    /// # Errors
    /// When it does not end well.
    pub async fn remove_worker(&mut self, name: &str) -> Result<()> {
        self.worker(name)?.terminate().await?;
        self.workers.remove(name);
        Ok(())
    }

    /// Starts every service that does not run and waits until all are ready.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start_missing(&mut self) -> Result<()> {
        for service in self.controllers.iter_mut().chain(self.workers.values_mut()) {
            if !service.is_started() {
                service.start()?;
            }
        }
        for service in self.controllers.iter_mut().chain(self.workers.values_mut()) {
            service.ready().await?;
        }
        Ok(())
    }

    /// Undoes what a scenario may have left: freezes, faults of the network, a stopped etcd, workers
    /// beyond those of the start.
    ///
    /// # Errors
    /// When something cannot be brought back.
    pub async fn recover(&mut self) -> Result<()> {
        if !self.etcd.is_started() {
            self.etcd.restart().await?;
        }
        self.etcd.thaw()?;
        for service in self.controllers.iter_mut().chain(self.workers.values_mut()) {
            service.store().pass().await;
            if service.is_started() {
                service.process()?.thaw()?;
            }
        }
        let first = 1..=self.options.workers;
        let first: Vec<String> = first.map(|index| format!("worker-{index}")).collect();
        // Dropping a service kills its process.
        self.workers.retain(|name, _| first.contains(name));
        self.start_missing().await
    }

    /// Kills etcd, all controllers and all workers that run.
    ///
    /// # Errors
    /// When one cannot be killed.
    pub async fn kill_everything(&mut self) -> Result<()> {
        self.etcd.kill().await?;
        for service in self.controllers.iter_mut().chain(self.workers.values_mut()) {
            if service.is_started() {
                service.kill().await?;
            }
        }
        Ok(())
    }

    /// Position of the leading controller.
    ///
    /// # Errors
    /// When nobody leads.
    pub async fn leader(&self) -> Result<usize> {
        let leader = self.api()?.status().await?.leader;
        self.controllers
            .iter()
            .position(|controller| controller.name() == leader)
            .with_context(|| format!("the leader {leader:?} is none of ours"))
    }

    /// Waits until exactly the started workers are active and at least `tasks` tasks, and all there
    /// are, run.
    ///
    /// # Errors
    /// When they do not within `deadline`; tells what is missing.
    pub async fn wait_running(&self, tasks: i32, deadline: Duration) -> Result<v1::StatusResponse> {
        let api = self.api()?;
        let started = self.workers.values().filter(|worker| worker.is_started());
        let workers = i32::try_from(started.count())?;
        wait::until("everything to run", deadline, async || {
            let status = api.status().await?;
            let counts = status.tasks.unwrap_or_default();
            ensure!(
                status.workers_active == workers
                    && status.workers_lost == 0
                    && counts.running >= tasks
                    && counts.running == counts.total,
                "wanted {workers} workers and {tasks} or more tasks, have {status:?}"
            );
            Ok(Some(status))
        })
        .await
    }

    /// Fails when a process ended by itself or a thread panicked.
    ///
    /// # Errors
    /// What was found; shows the end of the log.
    pub fn check(&mut self) -> Result<()> {
        for service in self.controllers.iter_mut().chain(self.workers.values_mut()) {
            service.check()?;
        }
        Ok(())
    }

    /// Fails when a log holds any of `secrets`.
    ///
    /// # Errors
    /// Names the log, not the secret.
    pub fn check_unsaid(&self, secrets: &[&str]) -> Result<()> {
        for service in self.controllers.iter().chain(self.workers.values()) {
            service.check_unsaid(secrets)?;
        }
        Ok(())
    }

    /// Marks the run as failed: logs are shown and kept.
    pub fn failed(&self) {
        self.folder.failed();
        for service in self.controllers.iter().chain(self.workers.values()) {
            service.show_log();
        }
    }
}
