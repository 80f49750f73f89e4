//! The recorder behind `/metrics`, one for the process.

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Installs the recorder. Whoever serves it keeps it up.
pub(super) fn install() -> anyhow::Result<PrometheusHandle> {
    let builder = kreplicator_worker::metrics::with_buckets(PrometheusBuilder::new())?;
    builder
        .install_recorder()
        .context("metrics could not be started")
}
