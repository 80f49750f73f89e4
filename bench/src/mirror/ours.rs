//! KReplicator with one of its engines: one process, or workers with a controller and etcd.

mod engine;
mod files;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use kreplicator_tests::{
    etcd::Etcd,
    folder::RunDir,
    http, ports,
    process::{Managed, Spec},
    settings, wait,
};

use self::engine::Declared;
use super::{
    options::PeerName,
    peer::{Job, Layout, Peer, Running},
};

/// How long a process may take until it says that it is ready.
const READY: Duration = Duration::from_secs(60);
/// How long it may take until a declaration is accepted.
const ACCEPTED: Duration = Duration::from_secs(60);

/// KReplicator with an engine.
#[derive(Debug)]
pub(crate) struct Kreplicator {
    name: PeerName,
    program: PathBuf,
    declared: Declared,
    budget_mebibytes: u32,
}

impl Kreplicator {
    /// KReplicator with the engine of this name; None: the binary does not know it.
    ///
    /// # Errors
    /// When there is no binary, or it answers in an unknown way.
    pub(crate) async fn with_engine(name: PeerName, budget_mebibytes: u32) -> Result<Option<Self>> {
        let program = settings::program();
        ensure!(
            program.is_file(),
            "no {}; build it by `make build`, or name another by KREPLICATOR_BIN",
            program.display()
        );
        let declared = engine::probe(&program, name).await?;
        Ok(declared.map(|declared| Self {
            name,
            program,
            declared,
            budget_mebibytes,
        }))
    }

    fn links(&self, job: &Job) -> String {
        // Its own link for each measurement, since a link's checkpoints outlive it.
        let link = format!("{}-{}", self.name.name(), job.name);
        files::links(job, &link, self.name.name(), self.declared)
    }

    fn process(&self, name: &str, folder: &Path, args: &[&str]) -> Result<Managed> {
        Managed::spawn(&Spec {
            name: name.to_owned(),
            program: self.program.clone(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            log: folder.join(format!("{name}.log")),
        })
    }

    async fn alone(&self, job: &Job, folder: RunDir) -> Result<Running> {
        let path = folder.path();
        let ports = [ports::free()?, ports::free()?, ports::free()?];
        let config = path.join("standalone.yaml");
        fs::write(&config, files::standalone(ports, self.budget_mebibytes))?;
        let links = path.join("links.yaml");
        fs::write(&links, self.links(job))?;
        let data = path.join("data").display().to_string();
        let (config, links) = (config.display().to_string(), links.display().to_string());
        let args = [
            "standalone",
            "--config",
            &config,
            "--data-dir",
            &data,
            "-f",
            &links,
        ];
        let worker = self.process("standalone", path, &args)?;
        Ok(Running {
            workers: vec![worker],
            others: Vec::new(),
            _store: None,
            folder,
        })
    }

    async fn fleet(&self, job: &Job, folder: RunDir, workers: usize) -> Result<Running> {
        let store = Etcd::start().await?;
        let etcd = store.endpoint();
        let path = folder.path();
        let (grpc, http) = (ports::free()?, ports::free()?);
        let mut ready = vec![http];
        let config = path.join("controller.yaml");
        fs::write(&config, files::controller(&etcd, grpc, http))?;
        let config = config.display().to_string();
        let controller = self.process("controller", path, &["controller", "--config", &config])?;
        let mut running = Running {
            workers: Vec::new(),
            others: vec![controller],
            _store: Some(store),
            folder,
        };
        let path = running.folder.path().to_owned();
        for number in 1..=workers {
            let name = format!("worker-{number}");
            let port = ports::free()?;
            ready.push(port);
            let config = path.join(format!("{name}.yaml"));
            let text = files::worker(&etcd, &name, port, self.budget_mebibytes);
            fs::write(&config, text)?;
            let config = config.display().to_string();
            let worker = self.process(&name, &path, &["worker", "--config", &config])?;
            running.workers.push(worker);
        }
        for port in ready {
            wait::until_true("a service of the fleet", READY, async || {
                running.check()?;
                Ok(http::get(port, "/readyz").await?.status == 200)
            })
            .await
            .with_context(|| running.logs())?;
        }
        let links = path.join("links.yaml");
        fs::write(&links, self.links(job))?;
        wait::until("the declaration", ACCEPTED, async || {
            engine::apply(&self.program, &links, &format!("127.0.0.1:{grpc}")).await?;
            Ok(Some(()))
        })
        .await
        .with_context(|| running.logs())?;
        Ok(running)
    }
}

#[async_trait(?Send)]
impl Peer for Kreplicator {
    fn name(&self) -> PeerName {
        self.name
    }

    fn target_topic(&self, source_topic: &str) -> String {
        format!("{}.{source_topic}", self.name.name())
    }

    async fn start(&self, job: &Job) -> Result<Running> {
        let folder = RunDir::new(&format!("{}-{}", self.name.name(), job.name))?;
        match job.layout {
            Layout::Alone => self.alone(job, folder).await,
            Layout::Fleet(workers) => self.fleet(job, folder, workers).await,
        }
    }
}
