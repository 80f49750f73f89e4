//! The worker's HTTP endpoint: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes.

mod gauges;

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use kreplicator_service::http::Limits;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{clock::WallClock, health::Health, tasks::Tasks};

/// What the endpoint shows.
#[derive(Clone)]
pub struct Shown {
    /// Counters and histograms of the process; None: only gauges of running tasks.
    pub prometheus: Option<PrometheusHandle>,
    /// The running tasks.
    pub tasks: Arc<Tasks>,
    /// What probes are told.
    pub health: Arc<Health>,
    /// For ages.
    pub clock: WallClock,
    /// Lag with a series for each partition.
    pub per_partition: bool,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown")
            .field("per_partition", &self.per_partition)
            .finish_non_exhaustive()
    }
}

/// The routes.
pub fn router(shown: Shown) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shown)
}

/// Serves until `shutdown` fires.
///
/// # Errors
/// The listener broke.
pub async fn serve(
    listener: TcpListener,
    shown: Shown,
    shutdown: CancellationToken,
) -> io::Result<()> {
    kreplicator_service::http::serve(listener, router(shown), Limits::default(), shutdown).await
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let mut text = shown
        .prometheus
        .as_ref()
        .map(PrometheusHandle::render)
        .unwrap_or_default();
    gauges::render(
        &mut text,
        &shown.tasks,
        shown.clock.now(),
        shown.per_partition,
    );
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn healthz(State(shown): State<Shown>) -> Response {
    probe(shown.health.dead(Instant::now()))
}

async fn readyz(State(shown): State<Shown>) -> Response {
    probe(shown.health.unready())
}

fn probe(fault: Option<impl Into<String>>) -> Response {
    match fault {
        None => (StatusCode::OK, "ok\n".to_owned()).into_response(),
        Some(fault) => {
            let text = fault.into() + "\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests;
