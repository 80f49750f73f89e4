//! One broker process.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    libs::class_path,
    storage::{self, Blank},
    version::KafkaVersion,
};
use crate::process::{Managed, Spec, ending, tail};

/// Why a cluster did not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// Another process listens on a port that was free a moment ago.
    PortTaken,
    /// Anything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for StartError {
    fn from(fault: anyhow::Error) -> Self {
        Self::Other(fault)
    }
}

/// What makes up a broker.
#[derive(Debug, Clone)]
pub(super) struct BrokerSpec {
    pub(super) name: String,
    pub(super) config: PathBuf,
    pub(super) log: PathBuf,
    pub(super) data: PathBuf,
    pub(super) libs: PathBuf,
    /// Of its classes, for a quick start.
    pub(super) archive: Option<PathBuf>,
    pub(super) version: KafkaVersion,
    /// Its number in the cluster, from 1.
    pub(super) node: usize,
    pub(super) heap_mebibytes: u32,
    pub(super) optimised: bool,
}

/// A broker, running or not.
#[derive(Debug)]
pub(super) struct Broker {
    spec: BrokerSpec,
    process: Option<Managed>,
}

impl Broker {
    pub(super) fn new(spec: BrokerSpec, properties: &str) -> Result<Self> {
        fs::write(&spec.config, properties)?;
        Ok(Self {
            spec,
            process: None,
        })
    }

    /// Writes the data folder's first files, where brokers agree by a quorum.
    pub(super) async fn format(
        &self,
        cluster_id: &str,
        users: &BTreeMap<String, String>,
    ) -> Result<()> {
        let (spec, cluster_id, users) = (self.spec.clone(), cluster_id.to_owned(), users.clone());
        tokio::task::spawn_blocking(move || {
            let blank = Blank {
                version: spec.version,
                libs: &spec.libs,
                config: &spec.config,
                data: &spec.data,
                node: spec.node,
                cluster_id: &cluster_id,
            };
            storage::format(&blank, &users)
        })
        .await?
    }

    pub(super) fn start(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("{} runs already", self.spec.name);
        }
        let mut args = if self.spec.optimised {
            production_jvm(self.spec.heap_mebibytes)
        } else {
            quick_jvm(self.spec.heap_mebibytes, self.spec.archive.as_deref())
        };
        args.extend([
            "-Dorg.slf4j.simpleLogger.showDateTime=true".to_owned(),
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX".to_owned(),
            // Each consumer prints its settings, and each new partition its log's, at INFO.
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info".to_owned(),
            "-cp".to_owned(),
            class_path(&self.spec.libs),
            "kafka.Kafka".to_owned(),
            self.spec.config.display().to_string(),
        ]);
        self.process = Some(Managed::spawn(&Spec {
            name: self.spec.name.clone(),
            program: "java".into(),
            args,
            env: Vec::new(),
            log: self.spec.log.clone(),
        })?);
        Ok(())
    }

    /// Where the partitions are.
    pub(super) fn data(&self) -> &Path {
        &self.spec.data
    }

    pub(super) fn is_started(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn process(&mut self) -> Result<&mut Managed> {
        self.process
            .as_mut()
            .with_context(|| format!("{} does not run", self.spec.name))
    }

    /// After an end that was asked for.
    pub(super) fn forget(&mut self) {
        self.process = None;
    }

    /// Whether the process ended though nobody asked it to, and why.
    pub(super) fn unexpected_end(&mut self) -> Result<Option<StartError>> {
        let Some(process) = self.process.as_mut() else {
            return Ok(None);
        };
        let Some(status) = process.ended()? else {
            return Ok(None);
        };
        let log = tail(&self.spec.log, 200);
        let end = if log.contains("Address already in use") {
            StartError::PortTaken
        } else {
            StartError::Other(anyhow::anyhow!(
                "{} ended with {}\n{log}",
                self.spec.name,
                ending(status)
            ))
        };
        self.forget();
        Ok(Some(end))
    }

    pub(super) fn cpu_time(&self) -> Result<Duration> {
        self.process
            .as_ref()
            .map_or(Ok(Duration::ZERO), Managed::cpu_time)
    }

    pub(super) fn show_log(&self) {
        let log: &Path = &self.spec.log;
        eprintln!(
            "--- end of the log of {} ({})\n{}",
            self.spec.name,
            log.display(),
            tail(log, 40)
        );
    }
}

/// Flags of a small, quickly started Java process.
pub(super) fn jvm(heap_mebibytes: u32) -> Vec<String> {
    vec![
        format!("-Xmx{heap_mebibytes}m"),
        "-XX:+UseSerialGC".to_owned(),
        // Compiles once, quickly and not very well.
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-Xshare:auto".to_owned(),
        "-Djava.awt.headless=true".to_owned(),
    ]
}

/// The same with the archive of classes.
pub(super) fn quick_jvm(heap_mebibytes: u32, archive: Option<&Path>) -> Vec<String> {
    let mut flags = jvm(heap_mebibytes);
    if let Some(archive) = archive {
        flags.push(format!("-XX:SharedArchiveFile={}", archive.display()));
        // Of another Java or other jars it is left aside, and that is all right.
        flags.push("-Xlog:cds=off".to_owned());
        flags.push("-Xlog:cds+dynamic=off".to_owned());
    }
    flags
}

/// Flags that Kafka's own scripts start a broker with (`kafka-server-start.sh` and
/// `kafka-run-class.sh` of 4.3), but for the size of the heap.
fn production_jvm(heap_mebibytes: u32) -> Vec<String> {
    let mut flags = vec![
        format!("-Xms{heap_mebibytes}m"),
        format!("-Xmx{heap_mebibytes}m"),
    ];
    let kafkas = [
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-XX:MaxInlineLevel=15",
        "-Djava.awt.headless=true",
    ];
    flags.extend(kafkas.map(String::from));
    flags
}
