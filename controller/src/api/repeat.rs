//! Repeated calls: the answer to a request that carries an id is kept with the change it made, so that
//! the same call gives the same answer and changes nothing, however often and wherever it is repeated
//! (C112).
//!
//! The record is written by the transaction that makes the change, so there is never one without the
//! other. Its lease ends it. A call that needs several transactions writes its record, marked
//! unfinished, with the first: repeating it goes on from there.

use std::{sync::Arc, time::Duration};

use kreplicator_proto::{status::Refusal, stored, v1};
use kreplicator_store::{Compare, LeaseId, MetaStore, Op, Revision, keys};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, time::Instant};

use super::loaded::refusal;

/// Longest request id, in bytes.
const ID_BYTES_MAX: usize = 128;
/// Largest answer that is kept. A larger one is worked out anew when the call is repeated.
const ANSWER_BYTES_MAX: usize = 400_000;
/// Records share a lease for this part of their retention, so that there are few leases.
const LEASES_PER_RETENTION: u32 = 12;

/// A request that may be repeated.
pub(crate) trait Repeatable: Message + Clone + Default {
    /// The method, for people.
    const METHOD: &'static str;

    /// Takes the id out, so that what is left is what was asked for.
    fn take_id(&mut self) -> String;
}

macro_rules! repeatable {
    ($($request:ident $method:literal),* $(,)?) => {$(
        impl Repeatable for v1::$request {
            const METHOD: &'static str = $method;

            fn take_id(&mut self) -> String {
                std::mem::take(&mut self.request_id)
            }
        }
    )*};
}

repeatable! {
    PutClusterRequest "PutCluster",
    PutLinkRequest "PutLink",
    SubscribeRequest "Subscribe",
    UnsubscribeRequest "Unsubscribe",
    DrainWorkerRequest "DrainWorker",
    ApplyRequest "Apply",
}

/// One call, told apart from others by its id and by what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    /// None: not to be remembered.
    id: Option<String>,
    digest: Vec<u8>,
}

impl Call {
    /// Takes the id out of `request`.
    pub(crate) fn of<R: Repeatable>(request: &mut R) -> Result<Self, Refusal> {
        let id = request.take_id();
        Self::named(R::METHOD, id, request)
    }

    /// A call of a request type that several methods share; its id is taken out already.
    pub(crate) fn named(
        method: &'static str,
        id: String,
        request: &impl Message,
    ) -> Result<Self, Refusal> {
        if id.len() > ID_BYTES_MAX || !id.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Refusal::field(
                "request_id",
                format!("must be at most {ID_BYTES_MAX} visible ASCII characters; a UUID is fine"),
            ));
        }
        Ok(Self {
            method,
            id: Some(id).filter(|id| !id.is_empty()),
            digest: Sha256::digest(request.encode_to_vec()).to_vec(),
        })
    }
}

/// What was found for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found<R> {
    /// It is new, or carries no id.
    Nothing,
    /// It was answered so.
    Answer(R),
    /// It was done, and its answer is too large to keep.
    Done,
    /// Only its first steps were done.
    Begun {
        /// The answer, where it is kept.
        answer: Option<R>,
        /// The record as it is.
        revision: Revision,
    },
}

/// What to write about a call together with its change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) compare: Compare,
    pub(crate) op: Op,
}

/// Keeps and finds the answers.
#[derive(Debug)]
pub(crate) struct Answers {
    store: Arc<dyn MetaStore>,
    retention: Duration,
    lease: Mutex<Option<(LeaseId, Instant)>>,
}

impl Answers {
    pub(crate) fn new(store: Arc<dyn MetaStore>, retention: Duration) -> Self {
        Self {
            store,
            retention,
            lease: Mutex::new(None),
        }
    }

    /// What is known of a call.
    pub(crate) async fn find<R: Message + Default>(
        &self,
        call: &Call,
    ) -> Result<Found<R>, Refusal> {
        let Some(id) = &call.id else {
            return Ok(Found::Nothing);
        };
        let key = keys::request(id);
        let Some(entry) = self.store.get(&key).await.map_err(refusal)? else {
            return Ok(Found::Nothing);
        };
        let record: v1::RequestRecord = stored::message(&key, &entry.value)?;
        if record.method != call.method || record.request_digest != call.digest {
            return Err(Refusal::RequestIdReused {
                id: id.clone(),
                method: record.method,
            });
        }
        let answer = if record.response_left_out {
            None
        } else {
            Some(stored::message(&key, &record.response)?)
        };
        Ok(match answer {
            answer if record.unfinished => Found::Begun {
                answer,
                revision: entry.mod_revision,
            },
            Some(answer) => Found::Answer(answer),
            None => Found::Done,
        })
    }

    /// The note to write with a step of the call; None: it carries no id. `known` is the record's
    /// last revision where there is one.
    pub(crate) async fn note<R: Message>(
        &self,
        call: &Call,
        answer: &R,
        unfinished: bool,
        known: Option<Revision>,
    ) -> Result<Option<Note>, Refusal> {
        let Some(id) = &call.id else {
            return Ok(None);
        };
        let key = keys::request(id);
        let response = answer.encode_to_vec();
        let response_left_out = response.len() > ANSWER_BYTES_MAX;
        let record = v1::RequestRecord {
            method: call.method.to_owned(),
            request_digest: call.digest.clone(),
            response: if response_left_out {
                Vec::new()
            } else {
                response
            },
            response_left_out,
            unfinished,
        };
        Ok(Some(Note {
            compare: match known {
                Some(revision) => Compare::ModifiedAt(key.clone(), revision),
                None => Compare::Absent(key.clone()),
            },
            op: Op::Put {
                key,
                value: record.encode_to_vec(),
                lease: Some(self.lease().await?),
            },
        }))
    }

    /// A lease that holds for the retention at least.
    async fn lease(&self) -> Result<LeaseId, Refusal> {
        let shared_for = self.retention / LEASES_PER_RETENTION;
        let mut lease = self.lease.lock().await;
        if let Some((id, granted_at)) = *lease
            && granted_at.elapsed() < shared_for
        {
            return Ok(id);
        }
        let ttl = self.retention + shared_for;
        let granted_at = Instant::now();
        let id = self.store.grant(ttl).await.map_err(refusal)?;
        *lease = Some((id, granted_at));
        Ok(id)
    }

    /// Forgets the lease: the store says that it has ended.
    pub(crate) async fn renew_lease(&self) {
        *self.lease.lock().await = None;
    }
}
