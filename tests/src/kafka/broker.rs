//! One broker process.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::libs::class_path;
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

    /// Writes the data folder's first files.
    pub(super) async fn format(
        &self,
        cluster_id: &str,
        users: &BTreeMap<String, String>,
    ) -> Result<()> {
        let mut args = jvm(64);
        args.extend(["-cp".to_owned(), class_path(&self.spec.libs)]);
        args.extend(
            ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"].map(String::from),
        );
        args.push(self.spec.config.display().to_string());
        for (user, password) in users {
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                args.push("--add-scram".to_owned());
                args.push(format!("{mechanism}=[name={user},password={password}]"));
            }
        }
        let output = tokio::task::spawn_blocking(|| {
            Command::new("java")
                .args(args)
                .stdin(Stdio::null())
                .output()
        })
        .await?
        .context("cannot run java")?;
        ensure!(
            output.status.success(),
            "cannot format {}:\n{}{}",
            self.spec.name,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    pub(super) fn start(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("{} runs already", self.spec.name);
        }
        let mut args = jvm(self.spec.heap_mebibytes);
        if self.spec.optimised {
            args.retain(|flag| flag != QUICK_START);
        }
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

/// Compiles once, quickly and not very well.
const QUICK_START: &str = "-XX:TieredStopAtLevel=1";

/// Flags of a small, quickly started Java process.
pub(super) fn jvm(heap_mebibytes: u32) -> Vec<String> {
    vec![
        format!("-Xmx{heap_mebibytes}m"),
        "-XX:+UseSerialGC".to_owned(),
        QUICK_START.to_owned(),
        "-Xshare:auto".to_owned(),
        "-Djava.awt.headless=true".to_owned(),
    ]
}
