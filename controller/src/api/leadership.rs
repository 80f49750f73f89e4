//! Who leads, as the API sees it.

use std::time::Duration;

use kreplicator_proto::{status::Refusal, v1};
use kreplicator_store::election::{Role, Term};
use prost::Message;
use tokio::{sync::watch, time::timeout};

/// Where a request is to be answered.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// Here.
    Leading(Term),
    /// At the leader.
    Following(v1::Leader),
    /// Nobody is known to lead.
    Nobody,
}

/// The election as the API sees it.
#[derive(Debug, Clone)]
pub(crate) struct Leadership {
    role: watch::Receiver<Role>,
}

impl Leadership {
    pub(crate) fn new(role: watch::Receiver<Role>) -> Self {
        Self { role }
    }

    /// Every change of role, from the present one on.
    pub(crate) fn watch(&self) -> watch::Receiver<Role> {
        let mut role = self.role.clone();
        role.mark_unchanged();
        role
    }

    /// Where a request is to be answered now.
    pub(crate) fn standing(&self) -> Standing {
        standing(&self.role.borrow())
    }

    /// The same, after waiting up to `limit` for a leader other than `not`, an address that was found
    /// to be out of date.
    pub(crate) async fn settled(&self, limit: Duration, not: Option<&str>) -> Standing {
        let mut role = self.role.clone();
        let fits = |role: &Role| match standing(role) {
            Standing::Leading(_) => true,
            Standing::Following(leader) => not != Some(leader.address.as_str()),
            Standing::Nobody => false,
        };
        match timeout(limit, role.wait_for(fits)).await {
            Ok(Ok(role)) => standing(&role),
            Ok(Err(_)) | Err(_) => Standing::Nobody,
        }
    }

    /// The term under which this process may write.
    pub(crate) fn term(&self) -> Result<Term, Refusal> {
        match self.standing() {
            Standing::Leading(term) => Ok(term),
            Standing::Following(_) | Standing::Nobody => Err(moved()),
        }
    }

    /// Waits until `term` is over.
    pub(crate) async fn over(&self, term: &Term) {
        let mut role = self.role.clone();
        let ended = |role: &Role| role.term().is_none_or(|now| now.number != term.number);
        tokio::select! {
            () = term.fence.closed() => {}
            // An error means that the election itself has ended.
            _ = role.wait_for(ended) => {}
        }
    }
}

/// What a caller is told when leadership is lost while its request is served.
pub(crate) fn moved() -> Refusal {
    Refusal::Unavailable(
        "another controller has just taken over; repeat the call, with the same request id"
            .to_owned(),
    )
}

fn standing(role: &Role) -> Standing {
    match role {
        Role::Leading(term) if term.fence.is_open() => Standing::Leading(term.clone()),
        Role::Leading(_) | Role::Following { leader_value: None } => Standing::Nobody,
        Role::Following {
            leader_value: Some(value),
        } => match v1::Leader::decode(value.as_slice()) {
            Ok(leader) if !leader.address.is_empty() => Standing::Following(leader),
            Ok(_) | Err(_) => Standing::Nobody,
        },
    }
}
