//! Connections to the gRPC port, with a limit and a deadline.
//!
//! Whoever connects has to send HTTP/2's preface in time (RFC 9113, section 3.4); until then the connection
//! makes way for others when the port is full. From then on it has a place until it ends, and the
//! transport's own pings find out whether its peer is still there: streams of workers last for days, so
//! the oldest connection is not the one to drop.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Stream, stream};
use kreplicator_service::accept::{Acceptor, Place, Room};
use metrics::Gauge;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::error;

/// Bytes of the preface that every HTTP/2 client begins with. What they are is the transport's to check.
const PREFACE_BYTES: usize = 24;

/// What the port allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, at least 1.
    pub connections: usize,
    /// Longest wait for the preface of a connection.
    pub preface_timeout: Duration,
    /// Time between pings to a client that sends nothing.
    pub ping_every: Duration,
    /// Longest wait for the answer to a ping; then the client counts as gone.
    pub ping_timeout: Duration,
}

impl Default for Limits {
    /// A connection of each of a thousand workers, and several times as many for everybody else. Over any
    /// network a preface takes a second.
    fn default() -> Self {
        Self {
            connections: 4_096,
            preface_timeout: Duration::from_secs(10),
            ping_every: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
        }
    }
}

/// The connections to `listener`; ends when it is broken for good.
pub(super) fn incoming(
    listener: TcpListener,
    limits: Limits,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    let acceptor = Acceptor::new(listener, "gRPC");
    let room = Room::new(limits.connections, "gRPC");
    stream::unfold((acceptor, room), move |(mut acceptor, room)| async move {
        loop {
            let (stream, peer) = match acceptor.next().await {
                Ok(accepted) => accepted,
                Err(cause) => {
                    error!(%cause, "the gRPC port is broken");
                    return None;
                }
            };
            match room.take(peer) {
                Some(place) => {
                    let connection = Connection::new(stream, place, limits);
                    return Some((Ok(connection), (acceptor, room)));
                }
                None => crate::metrics::api_connection_refused(),
            }
        }
    })
}

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
    /// None once the preface is there.
    waiting: Option<Waiting>,
    /// Free again when the connection ends.
    place: Place,
    open: Gauge,
}

/// For the preface.
struct Waiting {
    missing: usize,
    too_late: Pin<Box<Sleep>>,
    lost: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(stream: TcpStream, place: Place, limits: Limits) -> Self {
        let open = crate::metrics::api_connections();
        open.increment(1.0);
        Self {
            stream,
            waiting: Some(Waiting {
                missing: PREFACE_BYTES,
                too_late: Box::pin(sleep(limits.preface_timeout)),
                lost: Box::pin(place.lost()),
            }),
            place,
            open,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

impl Waiting {
    /// Whether it is still waited for.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.lost.as_mut().poll(context).is_ready() {
            return Err(made_way());
        }
        if self.too_late.as_mut().poll(context).is_ready() {
            let cause = "the HTTP/2 preface did not come in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, cause));
        }
        Ok(())
    }
}

fn made_way() -> io::Error {
    let cause = "the port is full, and the connection had sent nothing";
    io::Error::new(io::ErrorKind::ConnectionAborted, cause)
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(waiting) = &mut this.waiting {
            waiting.check(context)?;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Some(waiting) = &mut this.waiting {
            let read = buffer.filled().len() - before;
            waiting.missing = waiting.missing.saturating_sub(read);
            if waiting.missing == 0 {
                this.waiting = None;
                if !this.place.stay() {
                    return Poll::Ready(Err(made_way()));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
