//! The task behind a session: register, hold, and register again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Registration, SessionConfig, SessionState};
use crate::{
    api::{Error, LeaseId, MetaStore, Result, Revision},
    fence::Fence,
};

/// Longest time that giving the lease back may take.
const REVOKE_DEADLINE: Duration = Duration::from_secs(3);

/// The value to hold in the store.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    /// Rises with every change.
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
}

/// Registers and holds one key.
pub(super) struct Keeper {
    pub(super) store: Arc<dyn MetaStore>,
    pub(super) config: SessionConfig,
    pub(super) desired: watch::Receiver<Desired>,
    /// Version of the value that the store has under this registration.
    pub(super) written: watch::Sender<u64>,
    pub(super) state: watch::Sender<SessionState>,
    pub(super) verify: Arc<Notify>,
    /// The lease that is ours, whether or not the key hangs on it yet.
    pub(super) lease: Option<Lease>,
    incarnation: u64,
}

/// Our lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    /// When the last request that renewed it was sent.
    pub(super) renewed_at: Instant,
}

/// Our key in the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) lease: Lease,
    /// The revision that made the key.
    pub(super) revision: Revision,
}

impl Keeper {
    pub(super) fn new(
        store: Arc<dyn MetaStore>,
        config: SessionConfig,
        desired: watch::Receiver<Desired>,
        written: watch::Sender<u64>,
        state: watch::Sender<SessionState>,
        verify: Arc<Notify>,
    ) -> Self {
        Self {
            store,
            config,
            desired,
            written,
            state,
            verify,
            lease: None,
            incarnation: 0,
        }
    }

    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let cancelled = cancel.run_until_cancelled(self.keep()).await;
        debug_assert!(
            cancelled.is_none(),
            "keeping a session never ends by itself"
        );
        self.resign().await;
    }

    async fn keep(&mut self) -> Infallible {
        loop {
            let held = self.register().await;
            self.hold(held).await;
        }
    }

    /// Registers, however long it takes.
    async fn register(&mut self) -> Held {
        let mut failures: u32 = 0;
        loop {
            match self.try_register().await {
                Ok(Some(held)) => return held,
                Ok(None) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.log_failure(failures, &error, "cannot register, trying again");
                    self.back_off(failures).await;
                }
            }
        }
    }

    /// Announces a registration whose fence is open until `fence_margin` before the lease's end.
    pub(super) fn announce(&mut self, held: Held) -> Fence {
        let fence = Fence::open_until(self.closes_at(held.lease.renewed_at));
        self.incarnation += 1;
        info!(
            key = %self.config.key,
            incarnation = self.incarnation,
            revision = held.revision.0,
            "registered"
        );
        self.state
            .send_replace(SessionState::Registered(Registration {
                lease: held.lease.id,
                incarnation: self.incarnation,
                revision: held.revision,
                fence: fence.clone(),
            }));
        fence
    }

    /// Closes the fence and says so, once.
    pub(super) fn lose(&self, fence: &Fence, reason: &'static str) {
        fence.close();
        let lost = self.state.send_if_modified(|state| {
            let registered = matches!(state, SessionState::Registered(_));
            if registered {
                *state = SessionState::Lost;
            }
            registered
        });
        if lost {
            warn!(key = %self.config.key, incarnation = self.incarnation, reason, "registration lost");
        }
    }

    /// When the fence of a lease renewed by a request sent at `sent` has to close.
    pub(super) fn closes_at(&self, sent: Instant) -> Instant {
        sent + self.config.ttl.saturating_sub(self.config.fence_margin)
    }

    /// Time between keep-alives.
    pub(super) fn beat(&self) -> Duration {
        self.config.ttl / 3
    }

    /// Bounds a call by our own deadline.
    pub(super) async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        timeout(deadline, call)
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable(format!("no answer within {deadline:?}"))))
    }

    pub(super) async fn back_off(&self, failures: u32) {
        let delay = self.config.backoff.delay(failures, &mut rand::rng());
        sleep(delay).await;
    }

    /// Says the first failure of a row loudly and the rest quietly.
    pub(super) fn log_failure(&self, failures: u32, error: &Error, what: &'static str) {
        if failures == 1 {
            warn!(key = %self.config.key, %error, what, "session has trouble with the store");
        } else {
            debug!(key = %self.config.key, %error, what, failures, "session still has trouble");
        }
    }

    /// Ends the lease as far as the store can be reached; it runs out by itself otherwise.
    pub(super) async fn revoke(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let revoked = self.within(REVOKE_DEADLINE, self.store.revoke(lease.id));
        if let Err(error) = revoked.await {
            debug!(key = %self.config.key, %error, "lease not revoked, it runs out by itself");
        }
    }

    /// Leaves for good.
    async fn resign(mut self) {
        if let SessionState::Registered(registration) = &*self.state.borrow() {
            registration.fence.close();
        }
        self.revoke().await;
        self.state
            .send_replace(SessionState::Waiting { holder: None });
        info!(key = %self.config.key, "session closed");
    }
}
