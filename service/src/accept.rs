//! Taking connections, with a limit.
//!
//! Anybody who reaches a port may connect, and nobody has to send anything: without a limit, connections
//! pile up until the process has no file descriptor left for Kafka and the store. An [`Acceptor`] takes
//! them, whatever single ones of them do; a [`Room`] holds so many and no more. When it is full, the oldest
//! connection that has not shown yet that it means anything makes way for the next one; where there is
//! none, the next one is refused.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::{debug, warn};

/// Wait after the system refused a connection, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Time between two lines that say that a port is full.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// A listening port.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// What it is called in logs.
    port: &'static str,
    /// After the system has refused a connection: none is taken before.
    resume_at: Option<Instant>,
}

impl Acceptor {
    /// Takes what comes to `listener`, which logs call `port`.
    #[must_use]
    pub fn new(listener: TcpListener, port: &'static str) -> Self {
        Self {
            listener,
            port,
            resume_at: None,
        }
    }

    /// The next connection. Cancel safe.
    ///
    /// # Errors
    /// The listener is broken for good.
    pub async fn next(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            if let Some(at) = self.resume_at {
                sleep_until(at).await;
                self.resume_at = None;
            }
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Only latency is at stake.
                    stream.set_nodelay(true).ok();
                    return Ok((stream, peer));
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) if is_broken(&error) => return Err(error),
                Err(error) => {
                    warn!(port = self.port, %error, "port cannot take a connection; it is tried again");
                    self.resume_at = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
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

/// Room for so many connections of a port at once.
#[derive(Debug)]
pub struct Room {
    /// What the port is called in logs.
    port: &'static str,
    most: usize,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    /// In the order in which they came.
    taken: BTreeMap<u64, Seat>,
    /// When it was said last that there is no room.
    told_at: Option<Instant>,
}

#[derive(Debug)]
struct Seat {
    end: CancellationToken,
    stays: bool,
}

/// One connection's place in a room; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    number: u64,
    end: CancellationToken,
}

impl Room {
    /// Room for `most` connections, at least 1, of what logs call `port`.
    #[must_use]
    pub fn new(most: usize, port: &'static str) -> Arc<Self> {
        Arc::new(Self {
            port,
            most: most.max(1),
            seats: Mutex::default(),
        })
    }

    /// A place for one more connection; None: the room is full of those that stay.
    pub fn take(self: &Arc<Self>, peer: SocketAddr) -> Option<Place> {
        let mut seats = self.seats();
        if seats.taken.len() >= self.most && !self.make_way(&mut seats, peer) {
            return None;
        }
        seats.last += 1;
        let number = seats.last;
        let end = CancellationToken::new();
        let seat = Seat {
            end: end.clone(),
            stays: false,
        };
        seats.taken.insert(number, seat);
        drop(seats);
        Some(Place {
            room: Arc::clone(self),
            number,
            end,
        })
    }

    /// Connections that are here.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.seats().taken.len()
    }

    fn make_way(&self, seats: &mut Seats, peer: SocketAddr) -> bool {
        let mut oldest = seats.taken.iter().filter(|(_, seat)| !seat.stays);
        let oldest = oldest.next().map(|(number, _)| *number);
        if let Some(seat) = oldest.and_then(|number| seats.taken.remove(&number)) {
            seat.end.cancel();
            debug!(port = self.port, %peer, "oldest idle connection is dropped for a new one");
            return true;
        }
        let now = Instant::now();
        let is_told = |at: Instant| now.saturating_duration_since(at) < TOLD_AGAIN_AFTER;
        if !seats.told_at.is_some_and(is_told) {
            seats.told_at = Some(now);
            warn!(port = self.port, connections = self.most, %peer,
                "port is full; connections are refused");
        }
        false
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Whole after every statement, whoever panicked.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection has shown that it means something: it makes way for nobody from now on. False: it
    /// has made way already, and has to end.
    #[must_use]
    pub fn stay(&self) -> bool {
        let mut seats = self.room.seats();
        let seat = seats.taken.get_mut(&self.number);
        seat.is_some_and(|seat| {
            seat.stays = true;
            true
        })
    }

    /// Resolves when the connection has to make way.
    pub fn lost(&self) -> WaitForCancellationFutureOwned {
        self.end.clone().cancelled_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.seats().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

    fn is_lost(place: &Place) -> bool {
        place.end.is_cancelled()
    }

    #[tokio::test]
    async fn the_oldest_that_does_not_stay_makes_way() {
        let room = Room::new(3, "test");
        let take = || room.take(PEER).expect("room");
        let (first, second, third) = (take(), take(), take());
        assert!(first.stay());
        let fourth = take();
        assert_eq!(
            [&first, &second, &third, &fourth].map(is_lost),
            [false, true, false, false]
        );
        second.lost().await;
        assert!(!second.stay(), "too late");
        assert_eq!(room.taken(), 3);
        // Gone already; its end frees nobody else's place.
        drop(second);
        assert_eq!(room.taken(), 3);
    }

    #[tokio::test]
    async fn a_room_full_of_those_that_stay_refuses_until_one_goes() {
        let room = Room::new(2, "test");
        let places: Vec<Place> = (0..2).map(|_| room.take(PEER).expect("room")).collect();
        assert!(places.iter().all(Place::stay));
        assert!(room.take(PEER).is_none());
        assert!(room.take(PEER).is_none());
        assert!(!places.iter().any(is_lost));
        drop(places);
        assert_eq!(room.taken(), 0);
        assert!(room.take(PEER).is_some());
    }
}
