//! The server: all services behind the forwarding layer, with every limit set on purpose (C110).

use std::{io, sync::Arc, time::Duration};

use kreplicator_proto::{
    FILE_DESCRIPTOR_SET,
    v1::{
        clusters_server::ClustersServer, desired_server::DesiredServer, fleet_server::FleetServer,
        links_server::LinksServer, status_server::StatusServer,
        subscriptions_server::SubscriptionsServer, workers_server::WorkersServer,
    },
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{server::NamedService, service::Routes, transport::Server};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::{info, warn};

use super::{
    ApiParts, apply::DesiredService, clusters::ClustersService, core::Core, fleet::FleetService,
    incoming::incoming, leadership::Standing, links::LinksService, status::StatusService,
    subscriptions::SubscriptionsService, workers::WorkersService,
};
use crate::forward::ForwardLayer;

/// Largest request: 12,000 subscriptions take about 2 MB.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Largest answer: a page of subscriptions with a hundred topics each fits.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Calls at once on one connection, until their answer begins; further ones wait.
const CALLS_PER_CONNECTION: usize = 256;
/// Calls and open streams at once on one connection.
const STREAMS_PER_CONNECTION: u32 = 1_024;
/// How long calls may go on after the shutdown began, before they are cut off.
const DRAIN_GRACE: Duration = Duration::from_secs(3);
/// How long the cut takes at most.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// Why the API does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener gives no address.
    #[error("the API's listening socket is not usable")]
    Listener(#[source] io::Error),
    /// The descriptors that reflection serves are damaged.
    #[error("the API's descriptors cannot be served")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport gave up.
    #[error("the API's transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Serves the API on `listener` until `shutdown` fires, then lets calls end, cuts streams off, and
/// returns when everything has ended.
///
/// # Errors
/// [`Error`] when serving could not begin or broke off.
pub async fn serve(
    parts: ApiParts,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let address = listener.local_addr().map_err(Error::Listener)?;
    let controller = parts.controller.clone();
    let limits = parts.limits;
    // Whatever ends this call ends what it began, too.
    let streams = shutdown.child_token();
    let _streams_end = streams.clone().drop_guard();
    let cut = CancellationToken::new();
    let _bodies_end = cut.clone().drop_guard();
    let core = Arc::new(Core::new(parts, streams));
    let (reporter, routes) = routes(&core)?;
    let role_follower =
        AbortOnDropHandle::new(core.tasks.spawn(follow_role(reporter, Arc::clone(&core))));
    let layer = ForwardLayer::new(core.leadership.clone(), &controller, cut.clone());
    let server = Server::builder()
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(limits.ping_every))
        .http2_keepalive_timeout(Some(limits.ping_timeout))
        .http2_adaptive_window(Some(true))
        .layer(layer)
        .serve_with_incoming_shutdown(
            routes.prepare(),
            incoming(listener, limits),
            shutdown.clone().cancelled_owned(),
        );
    tokio::pin!(server);
    info!(%address, "API is served");
    let ended = tokio::select! {
        ended = &mut server => Some(ended),
        () = async {
            shutdown.cancelled().await;
            tokio::time::sleep(DRAIN_GRACE).await;
        } => None,
    };
    cut.cancel();
    let ended = match ended {
        Some(ended) => ended,
        None => timeout(CUT_GRACE, &mut server).await.unwrap_or_else(|_| {
            warn!("some connections did not end; they are dropped");
            Ok(())
        }),
    };
    drop(role_follower);
    core.tasks.close();
    if timeout(CUT_GRACE, core.tasks.wait()).await.is_err() {
        warn!("some calls did not end; they are left");
    }
    ended.map_err(Error::Transport)
}

/// All services.
fn routes(core: &Arc<Core>) -> Result<(HealthReporter, Routes), Error> {
    macro_rules! limited {
        ($server:ident, $service:ident) => {
            $server::new($service(Arc::clone(core)))
                .max_decoding_message_size(REQUEST_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX)
        };
    }

    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = Routes::new(limited!(ClustersServer, ClustersService))
        .add_service(limited!(LinksServer, LinksService))
        .add_service(limited!(SubscriptionsServer, SubscriptionsService))
        .add_service(limited!(WorkersServer, WorkersService))
        .add_service(limited!(StatusServer, StatusService))
        .add_service(limited!(DesiredServer, DesiredService))
        .add_service(limited!(FleetServer, FleetService))
        .add_service(health)
        .add_service(reflection().build_v1().map_err(Error::Reflection)?)
        .add_service(reflection().build_v1alpha().map_err(Error::Reflection)?);
    Ok((reporter, routes))
}

/// The names under which health is told; the empty one stands for all.
const SERVICES: [&str; 8] = [
    "",
    ClustersServer::<ClustersService>::NAME,
    LinksServer::<LinksService>::NAME,
    SubscriptionsServer::<SubscriptionsService>::NAME,
    WorkersServer::<WorkersService>::NAME,
    StatusServer::<StatusService>::NAME,
    DesiredServer::<DesiredService>::NAME,
    FleetServer::<FleetService>::NAME,
];

/// Keeps the health service true: serving while calls can be answered here or forwarded. Reports are
/// forgotten with the lead: workers report to the next leader.
async fn follow_role(reporter: HealthReporter, core: Arc<Core>) {
    let mut role = core.leadership.watch();
    loop {
        let standing = core.leadership.standing();
        let status = match &standing {
            Standing::Leading(_) | Standing::Following(_) => ServingStatus::Serving,
            Standing::Nobody => ServingStatus::NotServing,
        };
        for service in SERVICES {
            reporter.set_service_status(service, status).await;
        }
        if !matches!(standing, Standing::Leading(_)) {
            core.parts.reports.clear();
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}
