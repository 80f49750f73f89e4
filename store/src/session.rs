//! A leased registration that fences itself.
//!
//! A session holds one key in the store for as long as this process is alive and in touch. It renews
//! the lease each third of its time to live. The [`Fence`] that comes with a registration closes
//! `fence_margin` before the lease can have ended, counted on the monotonic clock from the *sending*
//! of the last keep-alive that was answered. After a loss the session registers again by itself,
//! with a new incarnation and a new fence.
//!
//! A key that another process holds is never taken: the session waits until that one's lease ended.

mod hold;
mod keeper;
mod register;

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    api::{Error, Key, LeaseId, MetaStore, Result, Revision},
    backoff::Backoff,
    fence::Fence,
};
use keeper::{Desired, Keeper};

/// Whether it is normal that another process holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contention {
    /// No: two processes were given the same id. Warns again and again while it waits.
    Unexpected,
    /// Yes: candidates for one place.
    Expected,
}

/// What a session registers.
#[derive(Clone)]
pub struct SessionConfig {
    /// The key that stands for this process.
    pub key: Key,
    /// The value put there.
    pub value: Vec<u8>,
    /// Time to live of the lease, at least one second.
    pub ttl: Duration,
    /// How long before the lease can have ended the fence closes: at most half of `ttl`. Covers what
    /// the holder still has under way when it looks at the fence for the last time.
    pub fence_margin: Duration,
    /// Whether others may rightly hold the key.
    pub contention: Contention,
    /// Waits between attempts while the store is away.
    pub backoff: Backoff,
}

impl SessionConfig {
    /// A registration with a margin of a fifth of `ttl` on a key of our own.
    #[must_use]
    pub fn new(key: impl Into<Key>, value: Vec<u8>, ttl: Duration) -> Self {
        Self {
            key: key.into(),
            value,
            ttl,
            fence_margin: ttl / 5,
            contention: Contention::Unexpected,
            backoff: Backoff {
                max: Backoff::default().max.min(ttl),
                ..Backoff::default()
            },
        }
    }

    fn check(&self) -> Result<()> {
        if self.ttl < Duration::from_secs(1) {
            return Err(Error::Invalid(format!(
                "time to live {:?} of {} is under one second",
                self.ttl, self.key
            )));
        }
        if self.fence_margin > self.ttl / 2 {
            return Err(Error::Invalid(format!(
                "fence margin {:?} of {} is over half of its time to live {:?}",
                self.fence_margin, self.key, self.ttl
            )));
        }
        Ok(())
    }
}

// The value may hold anything, so it is not printed.
impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionConfig")
            .field("key", &self.key)
            .field("ttl", &self.ttl)
            .field("fence_margin", &self.fence_margin)
            .finish_non_exhaustive()
    }
}

/// Where a session stands.
///
/// ```text
/// Waiting ──► Registered ──► Lost ──► Registered (next incarnation)
///    ▲                         │
///    └─────────────────────────┘ another process took the key
/// ```
#[derive(Debug, Clone)]
pub enum SessionState {
    /// Not registered, and nothing was lost since: at the start or while another process holds the key.
    Waiting {
        /// The value of the process that holds the key, where known.
        holder: Option<Vec<u8>>,
    },
    /// Registered.
    Registered(Registration),
    /// The registration lapsed or ended; its fence is closed.
    Lost,
}

/// One registration.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The lease; other keys may hang on it.
    pub lease: LeaseId,
    /// Counts the registrations of this session from 1.
    pub incarnation: u64,
    /// The revision that made the key.
    pub revision: Revision,
    /// Open while the registration holds for certain; each registration has its own.
    pub fence: Fence,
}

/// A running registration. Dropping it stops the keep-alives and lets the lease run out;
/// [`Session::close`] ends it at once.
#[derive(Debug)]
pub struct Session {
    ttl: Duration,
    desired: watch::Sender<Desired>,
    written: watch::Receiver<u64>,
    state: watch::Receiver<SessionState>,
    verify: Arc<Notify>,
    cancel: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Session {
    /// Starts to register. Returns at once, also when the store is away; see [`Session::events`].
    /// When `cancel` fires, the fence closes and the lease is revoked, as by [`Session::close`].
    ///
    /// # Errors
    /// [`Error::Invalid`] when the times of `config` do not fit each other.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(
        store: Arc<dyn MetaStore>,
        config: SessionConfig,
        cancel: CancellationToken,
    ) -> Result<Self> {
        config.check()?;
        let ttl = config.ttl;
        let (desired, wanted) = watch::channel(Desired {
            version: 1,
            value: config.value.clone(),
        });
        let (written_sender, written) = watch::channel(0);
        let (state_sender, state) = watch::channel(SessionState::Waiting { holder: None });
        let verify = Arc::new(Notify::new());
        let cancel = cancel.child_token();
        let keeper = Keeper::new(
            store,
            config,
            wanted,
            written_sender,
            state_sender,
            Arc::clone(&verify),
        );
        let task = tokio::spawn(keeper.run(cancel.clone()));
        Ok(Self {
            ttl,
            desired,
            written,
            state,
            verify,
            cancel,
            task: AbortOnDropHandle::new(task),
        })
    }

    /// Where the session stands now.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state.borrow().clone()
    }

    /// Every change of state, the newest at least.
    #[must_use]
    pub fn events(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }

    /// The present registration; None while there is none.
    #[must_use]
    pub fn registration(&self) -> Option<Registration> {
        match &*self.state.borrow() {
            SessionState::Registered(registration) => Some(registration.clone()),
            SessionState::Waiting { .. } | SessionState::Lost => None,
        }
    }

    /// The fence of the present registration; a closed one while there is none. A fence stays with
    /// its registration: take a new one after each [`SessionState::Registered`].
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.registration()
            .map_or_else(Fence::shut, |registration| registration.fence)
    }

    /// The present lease, for other keys to hang on.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.registration().map(|registration| registration.lease)
    }

    /// Number of the present registration; 0 while there is none.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.registration()
            .map_or(0, |registration| registration.incarnation)
    }

    /// Waits until the session is registered. Waits for ever once it is closed. Cancel safe.
    pub async fn registered(&self) -> Registration {
        let mut state = self.state.clone();
        let registered = state
            .wait_for(|state| matches!(state, SessionState::Registered(_)))
            .await
            .map(|state| state.clone());
        match registered {
            Ok(SessionState::Registered(registration)) => registration,
            Ok(SessionState::Waiting { .. } | SessionState::Lost) | Err(_) => {
                std::future::pending().await
            }
        }
    }

    /// Replaces the value, now and for every later registration.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it was not written within the lease's time to live; it is kept and
    /// written as soon as the session can.
    pub async fn update_value(&self, value: Vec<u8>) -> Result<()> {
        let mut version = 0;
        self.desired.send_modify(|desired| {
            desired.version += 1;
            desired.value = value;
            version = desired.version;
        });
        let mut written = self.written.clone();
        let reached = written.wait_for(|written| *written >= version);
        match timeout(self.ttl, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::Unavailable("the session is closed".to_owned())),
            Err(_) => Err(Error::Unavailable(format!(
                "value not written within {:?}; it is written once the session is registered",
                self.ttl
            ))),
        }
    }

    /// Asks the session to look at once whether the store still has its key, for example after a
    /// guarded write was refused.
    pub fn verify(&self) {
        self.verify.notify_one();
    }

    /// Closes the fence and revokes the lease, so that the key is gone at once.
    pub async fn close(self) {
        self.cancel.cancel();
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
