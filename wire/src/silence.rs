//! Whether a broker's machine is still there.
//!
//! A machine that vanishes (its power, its network) closes nothing: what is sent to it is repeated for a quarter
//! of an hour, and whoever waits for an answer waits until its deadline. A deadline that is short enough for this
//! would take every slow broker for a lost one. But the system of a machine that lives acknowledges what
//! arrives, however busy or frozen the broker is. So silence of the system counts, not of the broker:
//!
//! - On every connection without anything on the way, keepalive probes ask it.
//! - Where requests are small ([`Sends::Little`]), `TCP_USER_TIMEOUT` limits for how long something may stay
//!   unacknowledged.
//! - Where they are large ([`Sends::Much`]) it must not be set: it also ends connections to a system that
//!   acknowledges and has no room (tcp(7): "untransmitted due to zero window size"; seen on Linux 6.18:
//!   3.4 s with a limit of 3 s). That is the usual state of a broker which waits for replicas. So a *witness*
//!   stands beside such a connection: another one to the same address, on which nothing is ever sent.
//!
//! What was measured, and what is not found out this way, is in `docs/adr/2026-11-30-vanished-machines.md`.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{connection::WeakConnection, error::Error, settings::Limits};

/// Probes that stay unanswered before a connection is given up.
const PROBES: u32 = 3;
/// A witness that stays for less was turned away.
const STAY_MIN: Duration = Duration::from_secs(60);
/// Longest pause before another one comes.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The system counts in seconds.
const PROBE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How much is sent at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sends {
    /// What fits into the peer's receive buffer.
    Little,
    /// More: the peer's system may have no room for long.
    Much,
}

/// Small requests are sent at once, and a machine that has vanished is noticed within `silence_max`. A socket
/// that refuses still works.
pub(crate) fn configure(stream: &TcpStream, silence_max: Duration, sends: Sends) {
    let socket = SockRef::from(stream);
    let interval = interval(silence_max);
    let probes = TcpKeepalive::new()
        .with_time(silence_max.saturating_sub(interval * PROBES).max(interval))
        .with_interval(interval)
        .with_retries(PROBES);
    let outcome = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&probes))
        .and_then(|()| limit_unacknowledged(&socket, silence_max, sends));
    if let Err(fault) = outcome {
        tracing::debug!(%fault, "socket options refused");
    }
}

/// Two intervals of quiet and the probes make up the whole.
fn interval(silence_max: Duration) -> Duration {
    let seconds = (silence_max / (PROBES + 2)).as_secs();
    Duration::from_secs(seconds).max(PROBE_INTERVAL_MIN)
}

#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
fn limit_unacknowledged(
    socket: &SockRef<'_>,
    silence_max: Duration,
    sends: Sends,
) -> io::Result<()> {
    socket.set_tcp_user_timeout((sends == Sends::Little).then_some(silence_max))
}

/// Elsewhere the deadline of the request has to do.
#[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
fn limit_unacknowledged(_: &SockRef<'_>, _: Duration, _: Sends) -> io::Result<()> {
    Ok(())
}

/// Whether a connection ended because the other machine does not answer any more. The last word of a router or
/// of the own network replaces "timed out" where there was one (`tcp_write_err` of Linux).
pub(crate) fn is_silence(fault: &io::Error) -> bool {
    matches!(
        fault.kind(),
        io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

/// Stands beside a connection until that has ended, and ends it when the machine at `peer` answers no more.
///
/// The witness comes some time after the connection, and again after the broker has closed it for want of use. One
/// that cannot be opened says nothing: a broker may take no further connections.
pub(crate) async fn watch(
    peer: SocketAddr,
    limits: Limits,
    connection: WeakConnection,
    ended: CancellationToken,
) {
    let watching = async {
        let mut pause = limits.silence_max;
        loop {
            sleep(pause).await;
            let came_at = Instant::now();
            if !falls_silent(peer, limits).await {
                // Where it is not wanted it does not insist.
                pause = if came_at.elapsed() < STAY_MIN {
                    (pause * 2).min(PAUSE_MAX)
                } else {
                    limits.silence_max
                };
                continue;
            }
            if let Some(connection) = connection.upgrade() {
                let broker = connection.broker().clone();
                connection.fail(Error::Silent { broker });
            }
            return;
        }
    };
    ended.run_until_cancelled(watching).await;
}

/// Waits for the end of a witness: whether the machine has fallen silent.
async fn falls_silent(peer: SocketAddr, limits: Limits) -> bool {
    let opening = timeout(limits.connect_timeout, TcpStream::connect(peer));
    let Ok(Ok(mut stream)) = opening.await else {
        return false;
    };
    configure(&stream, limits.silence_max, Sends::Much);
    // Brokers say nothing before they are asked.
    let end = stream.read(&mut [0]).await;
    end.is_err_and(|fault| is_silence(&fault))
}

#[cfg(test)]
mod tests;
