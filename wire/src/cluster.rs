//! A cluster as the data path sees it: connections to its brokers, who leads what, and small calls that
//! find the right broker by themselves and try again until their deadline.
//!
//! - [`metadata`]: what is known of topics, partitions and brokers.
//! - `pool`: one connection for each broker and purpose.
//! - `lookup`: keeps the metadata fresh. `leaders`: calls that go to partitions' leaders.
//! - [`offsets`], [`producers`], [`group`], [`configs`]: the calls. [`views`]: what many ask of single
//!   partitions, put together by broker.

pub mod configs;
pub mod group;
mod leaders;
mod lookup;
pub mod metadata;
pub mod offsets;
mod pool;
pub mod producers;
mod retry;
pub mod views;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use self::leaders::ByPartition;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rand::Rng as _;
use tokio::time::Instant;

use self::{
    metadata::Metadata,
    pool::{Place, Pool},
};
use crate::{
    call::Call,
    connection::Connection,
    error::Error,
    open::Profile,
    settings::{Secrets, Settings},
    tasks::Tasks,
    topic::{BrokerId, Node},
};

/// What a connection is used for. A broker answers the requests of one connection one at a time, so
/// what waits long must not share one with what is urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Small calls.
    Control,
    /// The fetch session of this number.
    Fetch(u32),
    /// The producer of this number.
    Produce(u32),
}

/// A client of one cluster. Clones share everything; connections end with the last of them.
#[derive(Clone)]
pub struct ClusterClient {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Arc<Settings>,
    pool: Pool,
    metadata: Mutex<Metadata>,
    /// Held by whoever asks for metadata, so that many who need it ask once.
    refreshing: tokio::sync::Mutex<lookup::Pace>,
    coordinators: Mutex<group::Coordinators>,
    waiting: views::Waiting,
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient")
            .field("cluster", &self.inner.settings.cluster)
            .finish_non_exhaustive()
    }
}

impl ClusterClient {
    /// A client; nothing is connected before the first call. `secrets` is asked at every connection;
    /// the tasks of connections are run by `tasks` and end when the client is dropped.
    #[must_use]
    pub fn new(settings: Settings, secrets: Arc<dyn Secrets>, tasks: impl Tasks + 'static) -> Self {
        let settings = Arc::new(settings);
        let profile = Profile {
            proven_tls: crate::tls::Proven::default(),
            settings: Arc::clone(&settings),
            secrets,
            tasks: Arc::new(tasks),
        };
        Self {
            inner: Arc::new(Inner {
                settings,
                pool: Pool::new(profile),
                metadata: Mutex::new(Metadata::default()),
                refreshing: tokio::sync::Mutex::new(lookup::Pace::default()),
                coordinators: Mutex::new(group::Coordinators::default()),
                waiting: views::Waiting::default(),
            }),
        }
    }

    /// The settings it was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    fn metadata(&self) -> MutexGuard<'_, Metadata> {
        self.inner
            .metadata
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a broker for a purpose: the open one, or a new one. A broker that could
    /// not be reached lately is tried again after a pause.
    ///
    /// # Errors
    /// Why there is none until `deadline`; [`Error::NoBroker`] when the cluster does not name the broker.
    pub async fn connection(
        &self,
        broker: BrokerId,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let address = self.metadata().node(broker).map(Node::address);
        let address = match address {
            Some(address) => address,
            None => {
                self.refresh(&[], Instant::now(), deadline).await?;
                let node = self.metadata().node(broker).map(Node::address);
                node.ok_or_else(|| Error::NoBroker {
                    cluster: self.inner.settings.cluster.clone(),
                    broker: broker.0,
                })?
            }
        };
        let place = Place::Broker(broker);
        self.inner
            .pool
            .get(place, purpose, &address, deadline)
            .await
    }

    /// Calls a broker on its connection for small calls, once.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn call<C: Call>(
        &self,
        broker: BrokerId,
        call: C,
        deadline: Instant,
    ) -> Result<C::Answer, Error> {
        let connection = self.connection(broker, Purpose::Control, deadline).await?;
        connection.send(call, deadline).await
    }

    /// Calls whichever broker can be reached, one after the other, until `deadline`.
    ///
    /// # Errors
    /// A terminal error of any broker at once; [`Error::Unreachable`] with the last cause else.
    pub async fn call_any<C: Call + Clone>(
        &self,
        call: C,
        deadline: Instant,
    ) -> Result<C::Answer, Error> {
        let mut retry = self.retry(deadline);
        loop {
            let mut last = None;
            for (place, address) in self.candidates() {
                let attempt = self.attempt(deadline);
                let connection = self
                    .inner
                    .pool
                    .get(place, Purpose::Control, &address, attempt)
                    .await;
                let outcome = match connection {
                    Ok(connection) => connection.send(call.clone(), attempt).await,
                    Err(fault) => Err(fault),
                };
                match outcome {
                    Ok(answer) => return Ok(answer),
                    Err(fault) if fault.is_retryable() => last = Some(fault),
                    Err(fault) => return Err(fault),
                }
                if Instant::now() >= deadline {
                    break;
                }
            }
            let cause = last.map_or_else(|| "no bootstrap server".to_owned(), |f| f.to_string());
            retry
                .pause(Error::Unreachable {
                    cluster: self.inner.settings.cluster.clone(),
                    cause,
                })
                .await?;
        }
    }

    /// The deadline of one of several attempts.
    fn attempt(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + self.inner.settings.attempt_timeout)
    }

    /// Whom to ask, best first: open connections, then brokers, then bootstrap servers, those
    /// that failed lately last.
    fn candidates(&self) -> Vec<(Place, String)> {
        let brokers: Vec<_> = {
            let metadata = self.metadata();
            let nodes = metadata.nodes();
            nodes
                .map(|node| (Place::Broker(node.id), node.address()))
                .collect()
        };
        let servers = self.inner.settings.bootstrap_servers.iter().enumerate();
        let servers = servers.map(|(index, address)| (Place::Bootstrap(index), address.clone()));
        let mut candidates: Vec<_> = brokers.into_iter().chain(servers).collect();
        if !candidates.is_empty() {
            // Not all clients on the same broker.
            let start = rand::rng().random_range(0..candidates.len());
            candidates.rotate_left(start);
        }
        candidates.sort_by_key(|(place, _)| self.inner.pool.rank(*place));
        candidates
    }
}
