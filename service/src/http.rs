//! The HTTP port for probes and metrics.
//!
//! A request's head has to arrive in time, and connections have a limit ([`crate::accept`]), at which the
//! oldest makes way for the newest: requests here take milliseconds, so the oldest is idle or stuck, and a
//! probe is answered whoever else is connected.

use std::{io, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::accept::{Acceptor, Room};

/// What the port allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, at least 1.
    pub connections: usize,
    /// Longest wait for the whole head of a request, from the connection's beginning or the end of the
    /// request before.
    pub head_timeout: Duration,
    /// How long requests may go on after the shutdown began.
    pub drain_grace: Duration,
}

impl Default for Limits {
    /// Guesses: a handful of scrapers and probes connect; over any network a head takes a second.
    fn default() -> Self {
        Self {
            connections: 64,
            head_timeout: Duration::from_secs(10),
            drain_grace: Duration::from_secs(1),
        }
    }
}

/// Serves until `shutdown` fires, then lets requests under way end, and drops what is left.
///
/// # Errors
/// The listener is broken for good.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listener, "HTTP");
    let room = Room::new(limits.connections, "HTTP");
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = acceptor.next() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = accepted?;
        // None of them stays: the oldest makes way.
        let Some(place) = room.take(peer) else {
            continue;
        };
        let connection = answer(stream, router.clone(), limits, shutdown.clone());
        connections.spawn(async move {
            tokio::select! {
                () = connection => {}
                () = place.lost() => {}
            }
        });
    }
    drop(acceptor);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.drain_grace, ended).await.is_err() {
        // A scraper that does not read its answer does not keep the process.
        connections.shutdown().await;
    }
    Ok(())
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, router: Router, limits: Limits, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection to the HTTP port ended early");
    }
}
