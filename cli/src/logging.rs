//! Logs: to standard error, as text or one JSON object a line.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::log::{Log, LogFormat};

/// Begins to log; once a process.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(&log.filter)
        .with_context(|| format!("log.filter {:?}", log.filter))?;
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(filter);
    let started = match log.format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}
