//! Leader election on one key of the store.
//!
//! The candidate whose session holds the key leads; the others watch the key and campaign as soon as
//! it is gone. A leader is fenced twice: by its [`Fence`], on its own clock, and by the revision that
//! made its key, which guards every write ([`Term::txn`]). So the writes of a leader that was deposed
//! without noticing conflict (C062).

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    api::{Compare, Key, MetaStore, Op, Result, Txn},
    fence::Fence,
    session::{Contention, Registration, Session, SessionConfig, SessionState},
};

/// Where this candidate stands.
#[derive(Debug, Clone)]
pub enum Role {
    /// This process leads.
    Leading(Term),
    /// It does not.
    Following {
        /// What the leader put into the key; None: no leader is known.
        leader_value: Option<Vec<u8>>,
    },
}

impl Role {
    /// The term while leading.
    #[must_use]
    pub fn term(&self) -> Option<&Term> {
        match self {
            Self::Leading(term) => Some(term),
            Self::Following { .. } => None,
        }
    }
}

/// One time of leading, from being elected to the closing of the fence.
#[derive(Debug, Clone)]
pub struct Term {
    /// Holds as long as this leader's key is the one in the store.
    pub guard: Compare,
    /// Open while nobody else can lead.
    pub fence: Fence,
    /// Counts the terms of this process from 1.
    pub number: u64,
}

impl Term {
    /// A transaction that only commits while this leader has not been deposed.
    #[must_use]
    pub fn txn(&self, ops: Vec<Op>, compares: Vec<Compare>) -> Txn {
        let mut guarded = Vec::with_capacity(compares.len() + 1);
        guarded.push(self.guard.clone());
        guarded.extend(compares);
        Txn {
            compares: guarded,
            ops,
        }
    }
}

/// A running candidacy. Dropping it lets the lease run out; [`Election::close`] resigns at once.
#[derive(Debug)]
pub struct Election {
    session: Session,
    role: watch::Receiver<Role>,
    task: AbortOnDropHandle<()>,
}

impl Election {
    /// Campaigns for `key`, with a fence margin of a fifth of `ttl`. `value` tells the others who
    /// leads, for example the address. When `cancel` fires, the candidate resigns: the key is
    /// deleted, so that another takes over at once.
    ///
    /// # Errors
    /// [`crate::api::Error::Invalid`] when `ttl` is under one second.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(
        store: Arc<dyn MetaStore>,
        key: impl Into<Key>,
        value: Vec<u8>,
        ttl: Duration,
        cancel: CancellationToken,
    ) -> Result<Self> {
        let key = key.into();
        let config = SessionConfig {
            contention: Contention::Expected,
            ..SessionConfig::new(key.clone(), value, ttl)
        };
        let session = Session::start(store, config, cancel)?;
        let mut events = session.events();
        let (sender, role) = watch::channel(Role::Following { leader_value: None });
        let task = tokio::spawn(async move {
            loop {
                let state = events.borrow_and_update().clone();
                sender.send_replace(role_of(&key, state));
                if events.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            session,
            role,
            task: AbortOnDropHandle::new(task),
        })
    }

    /// Where this candidate stands, and every change of it, the newest at least.
    #[must_use]
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// The term if this process leads now: its fence is open.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.role
            .borrow()
            .term()
            .filter(|term| term.fence.is_open())
            .cloned()
    }

    /// Asks to look at once whether this process still leads: call it when a guarded write conflicts.
    pub fn verify(&self) {
        self.session.verify();
    }

    /// Closes the fence and gives the key up. Afterwards the role is that of a follower.
    pub async fn close(self) {
        self.session.close().await;
        // Ends with the session, after it has passed on the last state; it has nothing to panic on.
        self.task.await.unwrap_or_default();
    }
}

fn role_of(key: &Key, state: SessionState) -> Role {
    match state {
        SessionState::Registered(Registration {
            incarnation,
            revision,
            fence,
            ..
        }) => Role::Leading(Term {
            guard: Compare::CreatedAt(key.clone(), revision),
            fence,
            number: incarnation,
        }),
        SessionState::Waiting { holder } => Role::Following {
            leader_value: holder,
        },
        SessionState::Lost => Role::Following { leader_value: None },
    }
}
