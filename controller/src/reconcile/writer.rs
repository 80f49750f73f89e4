//! The leader's writes. Each is a transaction guarded by the leader's key (C062) and by the revisions
//! that the decision behind it rests on, so a write either fits what is stored or changes nothing.

use std::{collections::BTreeSet, sync::Arc};

use kreplicator_model::ids::{LinkId, LinkTopic, PlanGeneration, TaskId, WorkerId};
use kreplicator_model::resolve::TopicRecord;
use kreplicator_proto::{
    assignment::Assignment, stored::Stored, subscription_record::SubscriptionRecord, v1,
};
use kreplicator_store::{
    api::{Compare, Error, MetaStore, Op, Outcome, Revision, TXN_BYTES_MAX, TXN_OPS_MAX},
    election::Term,
    keys,
};
use prost::Message;
use tracing::debug;

use super::{
    book::Book,
    chunks::{ChunkWrite, Requires},
};
use crate::metrics::Metrics;

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// What the decision rested on has changed; nothing was written.
    #[error("the store has changed meanwhile")]
    Conflict,
    /// It may or may not have happened.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Writes for one term.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) term: Term,
    /// No generation below this one is published: the time at which the term began, in milliseconds.
    /// Epochs outlive the store in the checkpoints of the clusters, so a store that is new or was
    /// restored from a backup must not count from where older plans have been already.
    pub(crate) first_generation: PlanGeneration,
    pub(crate) metrics: Arc<Metrics>,
}

/// A task given to a worker by a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) task: TaskId,
    pub(crate) worker: WorkerId,
}

/// What became of a publication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Published {
    /// Tasks that were given to a worker.
    pub(crate) given: Vec<Given>,
    /// Workers with a chunk that is larger than the store takes; it was left as it was.
    pub(crate) oversized: BTreeSet<WorkerId>,
}

/// Keeps up which workers have a chunk that is too large, from what one publication found; after one
/// that broke off the others are as they were. Gives those that are new.
pub(crate) fn note_oversized(
    known: &mut BTreeSet<WorkerId>,
    found: BTreeSet<WorkerId>,
    whole: bool,
) -> BTreeSet<WorkerId> {
    let new = found.difference(known).cloned().collect();
    if whole {
        *known = found;
    } else {
        known.extend(found);
    }
    new
}

/// Most changes and comparisons of one transaction: etcd's limit holds for each.
const PARTS_MAX: usize = TXN_OPS_MAX;

impl Writer {
    async fn commit(&self, ops: Vec<Op>, compares: Vec<Compare>) -> Result<Revision, WriteError> {
        let txn = self.term.txn(ops, compares);
        assert!(
            txn.ops.len() <= PARTS_MAX && txn.compares.len() <= PARTS_MAX,
            "a transaction of {} changes and {} comparisons",
            txn.ops.len(),
            txn.compares.len()
        );
        match self.store.commit(txn).await? {
            Outcome::Committed(revision) => {
                self.metrics.transactions.increment(1);
                Ok(revision)
            }
            Outcome::Conflict => {
                self.metrics.conflicts.increment(1);
                Err(WriteError::Conflict)
            }
        }
    }

    /// Writes records of topics and enters them into the book.
    pub(crate) async fn records(
        &self,
        book: &mut Book,
        records: Vec<(LinkTopic, TopicRecord)>,
    ) -> Result<(), WriteError> {
        // One comparison a record, and the guard.
        for batch in records.chunks(PARTS_MAX - 1) {
            let mut ops = Vec::with_capacity(batch.len());
            let mut compares = Vec::with_capacity(batch.len());
            for (topic, record) in batch {
                let key = keys::topic_record(&topic.link, &topic.topic);
                compares.push(match book.record_revisions.get(topic) {
                    Some(revision) => Compare::ModifiedAt(key.clone(), *revision),
                    None => Compare::Absent(key.clone()),
                });
                ops.push(put(key, record.encode()));
            }
            let revision = self.commit(ops, compares).await?;
            for (topic, record) in batch {
                book.record_written(topic, record.clone(), revision);
            }
        }
        Ok(())
    }

    /// Notes of subscriptions that their first discovery pass is over.
    pub(crate) async fn baseline(
        &self,
        book: &mut Book,
        subscriptions: Vec<(LinkId, String)>,
    ) -> Result<(), WriteError> {
        for batch in subscriptions.chunks(PARTS_MAX - 1) {
            let mut ops = Vec::with_capacity(batch.len());
            let mut compares = Vec::with_capacity(batch.len());
            for id in batch {
                let Some((record, revision)) = book.subscriptions.get(id) else {
                    continue;
                };
                let key = keys::subscription(&id.0, &id.1);
                let record = SubscriptionRecord {
                    baseline: true,
                    ..record.clone()
                };
                compares.push(Compare::ModifiedAt(key.clone(), *revision));
                ops.push(put(key, record.encode()));
            }
            let revision = self.commit(ops, compares).await?;
            for id in batch {
                book.baseline_written(id, revision);
            }
        }
        Ok(())
    }

    /// Publishes chunks in the order given and enters them into the book; each transaction raises
    /// the generation. Stops at the first that does not happen; `published` tells how far it came.
    pub(crate) async fn chunks(
        &self,
        book: &mut Book,
        writes: Vec<ChunkWrite>,
        published: &mut Published,
    ) -> Result<(), WriteError> {
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let next = PlanGeneration(book.plan.generation().0 + 1);
            let generation = next.max(self.first_generation);
            let mut batch = Batch::new(book, generation);
            while let Some(write) = writes.next_if(|write| batch.takes(write)) {
                batch.push(write);
            }
            if batch.is_empty() {
                // Alone it does not fit: skipping it is all that can be done.
                let write = writes.next().expect("peeked");
                debug!(worker = %write.worker, chunk = write.chunk, "assignment is left out");
                published.oversized.insert(write.worker);
                continue;
            }
            let Batch {
                ops,
                compares,
                chunks,
                ..
            } = batch;
            let revision = self.commit(ops, compares).await?;
            debug!(%generation, chunks = chunks.len(), "plan published");
            self.metrics.publications.increment(1);
            self.metrics.chunk_writes.increment(chunks.len() as u64);
            book.published(generation, revision);
            for (write, assignment) in chunks {
                match assignment {
                    Some(assignment) => {
                        book.chunk_written(&write.worker, write.chunk, assignment, revision);
                    }
                    None => book.chunk_deleted(&write.worker, write.chunk, revision),
                }
                published
                    .given
                    .extend(write.gained.into_iter().map(|task| Given {
                        task,
                        worker: write.worker.clone(),
                    }));
            }
        }
        Ok(())
    }
}

/// One transaction in the making.
struct Batch {
    generation: PlanGeneration,
    ops: Vec<Op>,
    compares: Vec<Compare>,
    chunks: Vec<(ChunkWrite, Option<Assignment>)>,
    bytes: usize,
}

/// Room for the keys and the framing of one change.
const OVERHEAD_BYTES: usize = 1_000;

impl Batch {
    fn new(book: &Book, generation: PlanGeneration) -> Self {
        let state = v1::PlanState {
            generation: generation.0,
        };
        Self {
            generation,
            ops: vec![put(keys::PLAN_STATE.to_owned(), state.encode_to_vec())],
            compares: vec![book.plan.parent()],
            chunks: Vec::new(),
            bytes: OVERHEAD_BYTES,
        }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the write fits in.
    fn takes(&self, write: &ChunkWrite) -> bool {
        // A chunk's own comparison and its worker's; the guard comes on top.
        let fits = self.ops.len() < PARTS_MAX && self.compares.len() + 2 < PARTS_MAX;
        fits && self.bytes + self.size(write) <= TXN_BYTES_MAX
    }

    fn size(&self, write: &ChunkWrite) -> usize {
        let content = write.content.as_ref();
        let value = content.map_or(0, |content| {
            content
                .assignment(self.generation)
                .to_message()
                .encoded_len()
        });
        value + OVERHEAD_BYTES
    }

    fn push(&mut self, write: ChunkWrite) {
        let key = keys::assignment(&write.worker, write.chunk);
        self.compares.push(match write.parent {
            Some(revision) => Compare::ModifiedAt(key.clone(), revision),
            None => Compare::Absent(key.clone()),
        });
        let live = keys::worker_live(&write.worker);
        let worker = match write.requires {
            Requires::Absent => Some(Compare::Absent(live)),
            Requires::Nothing => None,
            Requires::Registered(revision) => Some(Compare::CreatedAt(live, revision)),
        };
        if let Some(worker) = worker
            && !self.compares.contains(&worker)
        {
            self.compares.push(worker);
        }
        let assignment = write
            .content
            .as_ref()
            .map(|content| content.assignment(self.generation));
        match &assignment {
            Some(assignment) => {
                let value = assignment.encode();
                self.bytes += value.len() + OVERHEAD_BYTES;
                self.ops.push(put(key, value));
            }
            None => {
                self.bytes += OVERHEAD_BYTES;
                self.ops.push(Op::Delete(key));
            }
        }
        self.chunks.push((write, assignment));
    }
}

fn put(key: String, value: Vec<u8>) -> Op {
    Op::Put {
        key,
        value,
        lease: None,
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
