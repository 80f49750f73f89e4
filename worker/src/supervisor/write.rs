//! One write of a chunk's list under the registration that it belongs to.

use std::sync::Arc;

use kreplicator_model::ids::WorkerId;
use kreplicator_proto::{assignment::Ownership, stored::Stored};
use kreplicator_store::{Compare, Error, MetaStore, Op, Outcome, Revision, Txn, keys};

use super::books::Publication;
use crate::membership::Tenure;

/// What became of a write.
#[derive(Debug)]
pub(super) enum Written {
    /// Taken, at this revision.
    Committed(Revision),
    /// The store holds a list that this revision wrote, or none; not the one to replace.
    Found(Option<Revision>),
    /// The registration is not the present one any more.
    Unregistered,
    /// It may or may not have been taken.
    Unknown(Error),
}

/// Writes one list. It hangs on the registration's lease, and is refused when the registration is
/// gone or the list is not the one it replaces, so a late attempt never undoes a newer one.
pub(super) async fn write(
    store: Arc<dyn MetaStore>,
    worker: WorkerId,
    tenure: Tenure,
    number: u32,
    publication: Publication,
) -> (u32, Written) {
    let written = attempt(&*store, &worker, &tenure, number, publication).await;
    (number, written.unwrap_or_else(sort))
}

fn sort(error: Error) -> Written {
    match error {
        Error::LeaseGone(_) => Written::Unregistered,
        error => Written::Unknown(error),
    }
}

async fn attempt(
    store: &dyn MetaStore,
    worker: &WorkerId,
    tenure: &Tenure,
    number: u32,
    publication: Publication,
) -> Result<Written, Error> {
    let live = keys::worker_live(worker);
    let key = keys::owned(worker, number);
    let replaces = match publication.replaces {
        Some(revision) => Compare::ModifiedAt(key.clone(), revision),
        None => Compare::Absent(key.clone()),
    };
    let registered = Compare::CreatedAt(live.clone(), tenure.registration.revision);
    let value = Ownership {
        applied_revision: publication.list.applied.0,
        incarnation: tenure.incarnation.clone(),
        tasks: publication.list.tasks,
    };
    let txn = Txn {
        compares: vec![registered, replaces],
        ops: vec![Op::Put {
            key: key.clone(),
            value: value.encode(),
            lease: Some(tenure.registration.lease),
        }],
    };
    if let Outcome::Committed(revision) = store.commit(txn).await? {
        return Ok(Written::Committed(revision));
    }
    let present = store.get(&live).await?;
    if present.is_none_or(|entry| entry.create_revision != tenure.registration.revision) {
        return Ok(Written::Unregistered);
    }
    let found = store.get(&key).await?;
    Ok(Written::Found(found.map(|entry| entry.mod_revision)))
}
