//! One process of ours: a controller or a worker with its settings, ports and log.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    http, ports,
    process::{Managed, Spec, ending, tail},
    proxy::Proxy,
    settings, wait,
};

/// How long a service may take until it says that it is ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Longer than the drain time that a worker is given in tests.
const STOP_DEADLINE: Duration = Duration::from_secs(45);

/// What a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A controller.
    Controller,
    /// A worker.
    Worker,
}

impl Kind {
    /// The command and the section of the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Worker => "worker",
        }
    }
}

/// Settings of a section: key and value as in YAML.
pub type Settings = Vec<(String, String)>;

/// A controller or worker, running or not. It keeps its name, ports and log from run to run.
#[derive(Debug)]
pub struct Service {
    name: String,
    http_port: u16,
    grpc_port: Option<u16>,
    spec: Spec,
    process: Option<Managed>,
    store: Proxy,
}

impl Service {
    /// Writes the settings of a service; it is not started yet. It reaches etcd, which listens at
    /// `etcd`, through a proxy of its own.
    ///
    /// # Errors
    /// When a file cannot be written or no port is free.
    pub async fn new(
        kind: Kind,
        name: &str,
        etcd: &str,
        folder: &Path,
        settings: &Settings,
        env: &[(String, String)],
    ) -> Result<Self> {
        let store = Proxy::start(etcd).await?;
        let http_port = ports::free()?;
        let grpc_port = match kind {
            Kind::Controller => Some(ports::free()?),
            Kind::Worker => None,
        };
        let mut section: Settings = vec![("id".to_owned(), name.to_owned())];
        match grpc_port {
            Some(port) => {
                section.push(("listen_grpc".to_owned(), format!("127.0.0.1:{port}")));
                section.push(("listen_http".to_owned(), format!("127.0.0.1:{http_port}")));
            }
            None => section.push(("listen".to_owned(), format!("127.0.0.1:{http_port}"))),
        }
        section.extend(settings.iter().cloned());
        let config = folder.join(format!("{name}.yaml"));
        fs::write(&config, yaml(kind, &store.http_url(), &section))?;
        let log: PathBuf = folder.join(format!("{name}.log"));
        let mut variables = vec![("RUST_BACKTRACE".to_owned(), "1".to_owned())];
        variables.extend_from_slice(env);
        Ok(Self {
            name: name.to_owned(),
            http_port,
            grpc_port,
            spec: Spec {
                name: name.to_owned(),
                program: settings::program(),
                args: vec![
                    kind.name().to_owned(),
                    "--config".to_owned(),
                    config.display().to_string(),
                ],
                env: variables,
                log,
            },
            process: None,
            store,
        })
    }

    /// Its name, which is its id.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Port of metrics and health.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// Port of the API, of a controller.
    #[must_use]
    pub fn grpc_port(&self) -> Option<u16> {
        self.grpc_port
    }

    /// The way to etcd, to cut or black-hole.
    #[must_use]
    pub fn store(&self) -> &Proxy {
        &self.store
    }

    /// Whether it was started and not ended by the test.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the process.
    ///
    /// # Errors
    /// When it runs already or cannot be run.
    pub fn start(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs already", self.name);
        self.process = Some(Managed::spawn(&self.spec)?);
        Ok(())
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it does not within 30 s, or ends; shows the end of its log.
    pub async fn ready(&mut self) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let port = self.http_port;
        let name = self.name.clone();
        let process = self.process()?;
        let waited = wait::until(&what, READY_DEADLINE, async || {
            if let Some(status) = process.ended()? {
                return Ok(Some(Err(format!("{name} ended with {}", ending(status)))));
            }
            let answer = http::get(port, "/readyz").await?;
            ensure!(
                answer.status == 200,
                "/readyz gives {}: {}",
                answer.status,
                answer.body.trim()
            );
            Ok(Some(Ok(())))
        })
        .await;
        match waited {
            Ok(Ok(())) => Ok(()),
            Ok(Err(end)) => bail!("{end}\n{}", self.log_tail()),
            Err(fault) => bail!("{fault:#}\n{}", self.log_tail()),
        }
    }

    /// The running process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&mut self) -> Result<&mut Managed> {
        self.process
            .as_mut()
            .with_context(|| format!("{} does not run", self.name))
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        self.process()?.kill().await?;
        self.process = None;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and checks that it does so with exit code 0.
    ///
    /// # Errors
    /// When it does not end in time, or with another code; shows the end of its log.
    pub async fn terminate(&mut self) -> Result<()> {
        let status = self.process()?.terminate(STOP_DEADLINE).await?;
        self.process = None;
        ensure!(
            status.success(),
            "{} ended with {}\n{}",
            self.name,
            ending(status),
            self.log_tail()
        );
        Ok(())
    }

    /// Series of its `/metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<std::collections::BTreeMap<String, f64>> {
        http::metrics(self.http_port).await
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.spec.log, 60)
    }

    /// Fails when the process ended though nobody asked it to, or a thread of it panicked.
    ///
    /// # Errors
    /// What was found; shows the end of its log.
    pub fn check(&mut self) -> Result<()> {
        if let Some(process) = self.process.as_mut()
            && let Some(status) = process.ended()?
        {
            bail!(
                "{} ended with {}\n{}",
                self.name,
                ending(status),
                self.log_tail()
            );
        }
        if !self.spec.log.exists() {
            return Ok(());
        }
        let log = fs::read(&self.spec.log)?;
        let log = String::from_utf8_lossy(&log);
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            bail!("{} has panicked: {line}\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Fails when its log holds any of `secrets`.
    ///
    /// # Errors
    /// Names the log, not the secret.
    pub fn check_unsaid(&self, secrets: &[&str]) -> Result<()> {
        let log = fs::read(&self.spec.log)?;
        let log = String::from_utf8_lossy(&log);
        ensure!(
            !secrets.iter().any(|secret| log.contains(secret)),
            "a secret is in {}",
            self.spec.log.display()
        );
        Ok(())
    }

    /// Shows the end of its log.
    pub fn show_log(&self) {
        eprintln!(
            "--- end of the log of {} ({})\n{}",
            self.name,
            self.spec.log.display(),
            self.log_tail()
        );
    }
}

/// A configuration file.
fn yaml(kind: Kind, etcd: &str, section: &Settings) -> String {
    let mut text = format!(
        "store:\n  etcd:\n    endpoints: [\"{etcd}\"]\nlog:\n  format: text\n{}:\n",
        kind.name()
    );
    for (key, value) in section {
        writeln!(text, "  {key}: {value}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_under_the_section_of_the_service() {
        let section = vec![("id".to_owned(), "w1".to_owned())];
        assert_eq!(
            yaml(Kind::Worker, "http://127.0.0.1:1", &section),
            "store:\n  etcd:\n    endpoints: [\"http://127.0.0.1:1\"]\nlog:\n  format: text\nworker:\n  id: w1\n"
        );
    }
}
