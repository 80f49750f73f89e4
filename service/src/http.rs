//! The HTTP port for probes and metrics.
//!
//! Anybody who reaches it may connect, and nobody has to send anything: without limits, half-open
//! requests pile up until the process has no file descriptor left for Kafka and the store. So a
//! request's head has to arrive in time, and connections have a limit, at which the oldest makes way
//! for the newest: requests here take milliseconds, so the oldest is idle or stuck, and a probe is
//! answered whoever else is connected.

use std::{collections::VecDeque, io, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Wait after the system refused a connection, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

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
    let mut connections = Connections::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.running.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                if connections.make_room(limits.connections) {
                    debug!(%peer, "oldest connection to the HTTP port is dropped for a new one");
                }
                let connection = answer(stream, router.clone(), limits, shutdown.clone());
                let handle = connections.running.spawn(connection);
                connections.by_age.push_back(handle);
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) if is_broken(&error) => return Err(error),
            Err(error) => {
                warn!(%error, "HTTP port takes no connections for now");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let ended = async { while connections.running.join_next().await.is_some() {} };
    if timeout(limits.drain_grace, ended).await.is_err() {
        // A scraper that does not read its answer does not keep the process.
        connections.running.shutdown().await;
    }
    Ok(())
}

/// Connections, oldest first.
#[derive(Debug, Default)]
struct Connections {
    running: JoinSet<()>,
    by_age: VecDeque<AbortHandle>,
}

impl Connections {
    /// Makes room for one more; true when one had to go for it.
    fn make_room(&mut self, most: usize) -> bool {
        if self.by_age.len() < most {
            return false;
        }
        self.by_age.retain(|connection| !connection.is_finished());
        if self.by_age.len() < most {
            return false;
        }
        if let Some(oldest) = self.by_age.pop_front() {
            oldest.abort();
        }
        true
    }
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, router: Router, limits: Limits, shutdown: CancellationToken) {
    // Only latency is at stake.
    stream.set_nodelay(true).ok();
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

/// The connection was gone before it was taken.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// The socket takes no connections and never will again.
fn is_broken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported
    )
}
