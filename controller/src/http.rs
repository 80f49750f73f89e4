//! The controller's HTTP endpoint: `/metrics`, `/healthz`, `/readyz`.
//!
//! What the fleet looks like is rendered when it is asked for, from the state that is in force then, so
//! that a series ends with the thing it speaks of. The leader alone gives these series: whoever adds up
//! over controllers counts nothing twice. Per topic there is one series of lag, none per partition
//! (C117).

mod gauges;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use kreplicator_service::http::Limits;
use kreplicator_store::{MetaStore, election::Role, keys};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    api::leadership::{Leadership, Standing},
    fleet::FleetState,
    heavy::Walks,
    reports::Reports,
};

/// Longest wait for the store when readiness is asked for.
const READY_DEADLINE: Duration = Duration::from_secs(2);

/// What the endpoint is made of.
#[derive(Debug, Clone)]
pub struct HttpParts {
    /// Renders what was counted; None: `/metrics` gives the fleet's series only.
    pub prometheus: Option<PrometheusHandle>,
    /// Asked when readiness is asked for.
    pub store: Arc<dyn MetaStore>,
    /// Who leads.
    pub role: watch::Receiver<Role>,
    /// What the leader knows of the fleet.
    pub fleet: watch::Receiver<Arc<FleetState>>,
    /// What workers report.
    pub reports: Arc<Reports>,
    /// Turns of what walks over everything, shared with the API.
    pub walks: Walks,
}

/// Why the endpoint does not run.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP endpoint failed")]
pub struct Error(#[source] io::Error);

/// Serves until `shutdown` fires.
///
/// # Errors
/// [`Error`] when the listener breaks.
pub async fn serve(
    parts: HttpParts,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    kreplicator_service::http::serve(listener, router(parts), Limits::default(), shutdown)
        .await
        .map_err(Error)
}

/// The routes.
pub fn router(parts: HttpParts) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(parts))
}

async fn metrics(State(parts): State<Arc<HttpParts>>) -> Response {
    let mut text = parts
        .prometheus
        .as_ref()
        .map(PrometheusHandle::render)
        .unwrap_or_default();
    let leadership = Leadership::new(parts.role.clone());
    let leads = matches!(leadership.standing(), Standing::Leading(_));
    let fleet = Arc::clone(&parts.fleet.borrow());
    let render = || {
        let reports = parts.reports.view(tokio::time::Instant::now());
        gauges::render(&mut text, leads.then_some(&*fleet), &reports);
    };
    parts.walks.turn(render).await;
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (content_type, text).into_response()
}

/// Ready: the store answers and a leader is known. Remote clusters have no say in it, or a cluster that
/// is down would have this process restarted for ever (C113).
async fn readyz(State(parts): State<Arc<HttpParts>>) -> Response {
    let unready = |cause: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{cause}\n"));
    match timeout(READY_DEADLINE, parts.store.get(keys::LEADER)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return unready(error.to_string()).into_response(),
        Err(_) => {
            let cause = format!("metadata store did not answer within {READY_DEADLINE:?}");
            return unready(cause).into_response();
        }
    }
    match Leadership::new(parts.role.clone()).standing() {
        Standing::Leading(_) => "leading\n".into_response(),
        Standing::Following(leader) => format!("following {}\n", leader.controller).into_response(),
        Standing::Nobody => unready("no controller leads".to_owned()).into_response(),
    }
}
