//! This worker among the others: one leased key that says it is here.
//!
//! A second process with the same id does not get the key: it waits, unready, until the first one's
//! lease ended.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use kreplicator_model::ids::{UnixMillis, WorkerId};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, Registration, Session, SessionConfig, SessionState, keys};
use prost::Message;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// What this worker says of itself.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerId,
    /// `host:port` of its HTTP endpoint.
    pub address: String,
    /// Most tasks it takes; 0: no limit of its own.
    pub capacity_tasks: u32,
    /// When the process started.
    pub started_at: UnixMillis,
    /// Time to live of its lease.
    pub lease_ttl: Duration,
    /// How long before the lease's end it stops by itself.
    pub fence_margin: Duration,
}

/// One registration and its name.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    /// The registration.
    pub(crate) registration: Registration,
    /// Unique among all registrations of all workers.
    pub(crate) incarnation: String,
}

/// A running registration.
#[derive(Debug)]
pub(crate) struct Membership {
    session: Session,
    identity: Identity,
    /// Unique for this process.
    process: u64,
    draining: bool,
    /// Number of the last registration given out.
    last: u64,
}

impl Membership {
    /// Starts to register; returns at once.
    ///
    /// # Errors
    /// [`kreplicator_store::Error::Invalid`] when lease and margin do not fit each other.
    pub(crate) fn start(
        store: Arc<dyn MetaStore>,
        identity: Identity,
        cancel: CancellationToken,
    ) -> kreplicator_store::Result<Self> {
        let process: u64 = rand::random();
        let config = SessionConfig {
            fence_margin: identity.fence_margin,
            ..SessionConfig::new(
                keys::worker_live(&identity.worker),
                value(&identity, process, 1, false),
                identity.lease_ttl,
            )
        };
        let session = Session::start(store, config, cancel)?;
        Ok(Self {
            session,
            identity,
            process,
            draining: false,
            last: 0,
        })
    }

    /// Waits for a registration that was not given out before. Waits for ever once the session is
    /// closed. Cancel safe.
    pub(crate) async fn registered(&mut self) -> Tenure {
        let last = self.last;
        let newer = |state: &SessionState| match state {
            SessionState::Registered(registration) => registration.incarnation > last,
            SessionState::Waiting { .. } | SessionState::Lost => false,
        };
        let mut events = self.session.events();
        let registered = events.wait_for(newer).await.map(|state| state.clone());
        let Ok(SessionState::Registered(registration)) = registered else {
            return std::future::pending().await;
        };
        self.last = registration.incarnation;
        let incarnation = name(self.process, registration.incarnation);
        Tenure {
            registration,
            incarnation,
        }
    }

    /// Brings the value in the store up to the present registration and flag. Returns at once; the
    /// session writes it as soon as the store takes it.
    pub(crate) fn publish(&self) {
        let value = value(
            &self.identity,
            self.process,
            self.last.max(1),
            self.draining,
        );
        match self.session.update_value(value).now_or_never() {
            Some(Ok(())) | None => {}
            Some(Err(error)) => warn!(%error, "this worker's new state was not written"),
        }
    }

    /// Whether the value in the store does not name the present registration.
    pub(crate) fn is_outdated(&self) -> bool {
        self.last > 1
    }

    /// From now on this worker says that it leaves.
    pub(crate) fn set_draining(&mut self) {
        self.draining = true;
    }

    /// Asks the session to look at once whether the store still has its key.
    pub(crate) fn verify(&self) {
        self.session.verify();
    }

    /// Gives the lease back, and with it every key that hangs on it.
    pub(crate) async fn close(self) {
        self.session.close().await;
    }
}

fn name(process: u64, registration: u64) -> String {
    format!("{process:016x}-{registration}")
}

fn value(identity: &Identity, process: u64, registration: u64, draining: bool) -> Vec<u8> {
    v1::WorkerLive {
        incarnation: name(process, registration),
        address: identity.address.clone(),
        draining,
        capacity_tasks: i32::try_from(identity.capacity_tasks).unwrap_or(i32::MAX),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_ms: identity.started_at.0,
    }
    .encode_to_vec()
}
