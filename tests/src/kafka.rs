//! Real Apache Kafka: plain processes on the loopback with their own data folder, in KRaft mode where the
//! release knows it.
//!
//! Every broker has two listeners: the *client* one for the system under test, which may be secured
//! and advertised through a fault proxy, and the *direct* one for the harness, which is neither. So
//! a test can cut the system off and still produce and check.

mod admin;
mod broker;
mod certificates;
mod classes;
mod libs;
mod log;
mod options;
mod storage;
mod tools;
mod version;
mod zookeeper;

pub use self::{
    certificates::Certificates,
    libs::{VERSION, fetch_jars},
    log::flip_byte,
    options::{KafkaOptions, TlsMode},
    version::KafkaVersion,
};

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::{ClientConfig, admin::AdminClient, client::DefaultClientContext};

use self::{
    broker::{Broker, BrokerSpec, StartError},
    options::{Node, Ports, server_properties},
    zookeeper::Zookeeper,
};
use crate::{folder::RunDir, ports, proxy::Proxy, wait};

/// How long brokers may take until all of them answer. A broker alone needs some 3 s.
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// How long an orderly stop of one broker may take.
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// Times that ports are drawn again because another process took one.
const PORT_ATTEMPTS: usize = 5;

/// A running cluster; its processes end when it is dropped.
#[derive(Debug)]
pub struct KafkaCluster {
    // Before `folder`: brokers end before their data is deleted.
    brokers: Vec<Broker>,
    /// Ends after the brokers.
    _zookeeper: Option<Zookeeper>,
    options: KafkaOptions,
    ports: Vec<Ports>,
    libs: PathBuf,
    archive: Option<PathBuf>,
    certificates: Option<Certificates>,
    folder: RunDir,
}

/// What brokers are started from.
#[derive(Debug)]
struct Software {
    libs: PathBuf,
    archive: Option<PathBuf>,
}

impl KafkaCluster {
    /// Formats and starts a cluster and waits until every broker answers.
    ///
    /// # Errors
    /// When the jars cannot be fetched or a broker does not come up; shows the end of its log.
    pub async fn start(options: KafkaOptions) -> Result<Self> {
        ensure!(
            !options.version.needs_zookeeper()
                || (options.brokers == 1 && options.tls == TlsMode::Off),
            "{}: Kafka {} is started as one broker without TLS",
            options.name,
            options.version
        );
        let version = options.version;
        let is_quick = version == KafkaVersion::Current && !options.optimised;
        let libs = tokio::task::spawn_blocking(move || version.fetch()).await??;
        let archive = if is_quick {
            classes::archive(version, &libs).await
        } else {
            None
        };
        let software = Software { libs, archive };
        for _ in 0..PORT_ATTEMPTS {
            match Self::attempt(&options, &software).await {
                Ok(cluster) => return Ok(cluster),
                Err(StartError::PortTaken) => {}
                Err(StartError::Other(fault)) => return Err(fault),
            }
        }
        bail!(
            "{}: no free ports in {PORT_ATTEMPTS} attempts",
            options.name
        )
    }

    /// Starts a cluster whose clients are led through a proxy before each broker. The harness goes
    /// past them.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_behind_proxies(mut options: KafkaOptions) -> Result<(Self, Vec<Proxy>)> {
        let mut proxies = Vec::new();
        for _ in 0..options.brokers {
            // Where brokers listen is known only once they run.
            proxies.push(Proxy::start("127.0.0.1:1").await?);
        }
        options.advertised_ports = proxies.iter().map(|proxy| proxy.address().port()).collect();
        let cluster = Self::start(options).await?;
        for (index, proxy) in proxies.iter().enumerate() {
            proxy.retarget(format!("127.0.0.1:{}", cluster.client_port(index)));
        }
        Ok((cluster, proxies))
    }

    async fn attempt(options: &KafkaOptions, software: &Software) -> Result<Self, StartError> {
        let libs = software.libs.as_path();
        let folder = RunDir::new(&options.name)?;
        let certificates = match options.tls {
            TlsMode::Off => None,
            TlsMode::Server | TlsMode::Mutual => {
                Some(Certificates::make(&folder.path().join("certificates"))?)
            }
        };
        let ports = (0..options.brokers)
            .map(|_| {
                Ok(Ports {
                    client: ports::free()?,
                    direct: ports::free()?,
                    quorum: ports::free()?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let zookeeper = if options.version.needs_zookeeper() {
            Some(Zookeeper::start(libs, folder.path())?)
        } else {
            None
        };
        let zookeeper_address = zookeeper.as_ref().map(Zookeeper::address);
        let cluster_id = storage::new_id();
        let brokers = (0..ports.len())
            .map(|index| {
                let name = format!("{}-{}", options.name, index + 1);
                let data = folder.path().join(&name);
                let properties = server_properties(
                    options,
                    &Node {
                        index,
                        ports: &ports,
                        data: &data,
                        certificates: certificates.as_ref(),
                        zookeeper: zookeeper_address.as_deref(),
                    },
                );
                Broker::new(
                    BrokerSpec {
                        config: folder.path().join(format!("{name}.properties")),
                        log: folder.path().join(format!("{name}.log")),
                        data: data.clone(),
                        libs: libs.to_owned(),
                        archive: software.archive.clone(),
                        version: options.version,
                        node: index + 1,
                        heap_mebibytes: options.heap_mebibytes,
                        optimised: options.optimised,
                        name,
                    },
                    &properties,
                )
            })
            .collect::<Result<Vec<_>>>()?;
        let mut cluster = Self {
            brokers,
            _zookeeper: zookeeper,
            options: options.clone(),
            ports,
            libs: libs.to_owned(),
            archive: software.archive.clone(),
            certificates,
            folder,
        };
        if !options.version.needs_zookeeper() {
            let formats = cluster.brokers.iter();
            let formats = formats.map(|broker| broker.format(&cluster_id, &options.users));
            futures::future::try_join_all(formats).await?;
        }
        for broker in &mut cluster.brokers {
            broker.start()?;
        }
        cluster.ready().await?;
        Ok(cluster)
    }

    /// The name given in the options.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The release that it runs.
    #[must_use]
    pub fn version(&self) -> KafkaVersion {
        self.options.version
    }

    /// Number of brokers, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.brokers.len()
    }

    /// Where clients start: the advertised ports, and so a proxy where there is one.
    #[must_use]
    pub fn bootstrap(&self) -> Vec<String> {
        let advertised = &self.options.advertised_ports;
        self.ports
            .iter()
            .enumerate()
            .map(|(index, ports)| advertised.get(index).copied().unwrap_or(ports.client))
            .map(|port| format!("127.0.0.1:{port}"))
            .collect()
    }

    /// The client port that broker `index` (from 0) listens on, for a proxy to lead to.
    #[must_use]
    pub fn client_port(&self, index: usize) -> u16 {
        self.ports[index].client
    }

    /// Where the harness connects: past proxies and security.
    #[must_use]
    pub fn direct(&self) -> String {
        let servers: Vec<String> = self
            .ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports.direct))
            .collect();
        servers.join(",")
    }

    /// Certificates of the client listener, with TLS on.
    #[must_use]
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Properties of a client of the harness.
    #[must_use]
    pub fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.direct())
            .set("client.id", "kreplicator-tests")
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("topic.metadata.refresh.interval.ms", "1000");
        config
    }

    /// Processor time used by all running brokers.
    ///
    /// # Errors
    /// When a process is gone.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.brokers.iter().map(Broker::cpu_time).sum()
    }

    /// Kills a broker (SIGKILL).
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        self.brokers[index].process()?.kill().await?;
        self.brokers[index].forget();
        Ok(())
    }

    /// Kills all brokers at once.
    ///
    /// # Errors
    /// When one does not run.
    pub async fn kill_all(&mut self) -> Result<()> {
        for index in 0..self.size() {
            self.kill(index).await?;
        }
        Ok(())
    }

    /// Stops a broker in an orderly way.
    ///
    /// # Errors
    /// When it does not run or does not end.
    pub async fn stop(&mut self, index: usize) -> Result<()> {
        self.brokers[index]
            .process()?
            .terminate(STOP_DEADLINE)
            .await?;
        self.brokers[index].forget();
        Ok(())
    }

    /// Freezes a broker: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn freeze(&mut self, index: usize) -> Result<()> {
        self.brokers[index].process()?.freeze().await
    }

    /// Lets a frozen broker go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&mut self, index: usize) -> Result<()> {
        self.brokers[index].process()?.thaw()
    }

    /// Starts a stopped or killed broker again with the same ports and data, and waits until all
    /// running brokers answer.
    ///
    /// # Errors
    /// When it runs already or does not come up.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        self.brokers[index].start()?;
        match self.ready().await {
            Ok(()) => Ok(()),
            Err(StartError::PortTaken) => bail!("{}: its port was taken", self.options.name),
            Err(StartError::Other(fault)) => Err(fault),
        }
    }

    /// Starts all brokers that do not run.
    ///
    /// # Errors
    /// As [`Self::restart`].
    pub async fn restart_all(&mut self) -> Result<()> {
        for broker in &mut self.brokers {
            if !broker.is_started() {
                broker.start()?;
            }
        }
        match self.ready().await {
            Ok(()) => Ok(()),
            Err(StartError::PortTaken) => bail!("{}: a port was taken", self.options.name),
            Err(StartError::Other(fault)) => Err(fault),
        }
    }

    /// Marks the run as failed, so that logs and data are kept.
    pub fn failed(&self) {
        self.folder.failed();
        for broker in &self.brokers {
            broker.show_log();
        }
    }

    /// An administrator's client of the direct listener.
    ///
    /// # Errors
    /// When librdkafka refuses its settings.
    pub fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client_config().create()?)
    }

    /// Waits until every started broker is known to every other.
    async fn ready(&mut self) -> Result<(), StartError> {
        let expected = self.brokers.iter().filter(|broker| broker.is_started());
        let expected = expected.count();
        let config = self.client_config();
        let mut ended = None;
        let waited = wait::until("metadata of all brokers", READY_DEADLINE, async || {
            for broker in &mut self.brokers {
                if let Some(end) = broker.unexpected_end()? {
                    ended = Some(end);
                    return Ok(Some(()));
                }
            }
            let config = config.clone();
            let known = tokio::task::spawn_blocking(move || admin::broker_count(&config)).await??;
            ensure!(known == expected, "{known} of {expected} brokers answer");
            Ok(Some(()))
        })
        .await;
        if let Some(end) = ended {
            return Err(end);
        }
        waited
            .with_context(|| format!("cluster {}", self.options.name))
            .inspect_err(|_| self.failed())?;
        Ok(())
    }
}
