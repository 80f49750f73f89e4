//! Which workers may still be running a task.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{LinkId, OwnerEpoch, TaskId, TopicName, WorkerId};

/// Gives the chunk of an assignment that holds a topic of a link.
pub type ChunkOf = fn(&LinkId, &TopicName) -> u32;

/// One assignment chunk as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedChunk {
    /// Whose it is.
    pub worker: WorkerId,
    /// Its number.
    pub chunk: u32,
    /// Store revision that wrote it last.
    pub mod_revision: i64,
    /// The tasks it gives to the worker.
    pub tasks: BTreeMap<TaskId, OwnerEpoch>,
}

/// One chunk of what a worker says it runs, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedChunk {
    /// Whose it is.
    pub worker: WorkerId,
    /// Its number.
    pub chunk: u32,
    /// Revision of the assignment chunk that the worker has acted on.
    pub applied_revision: i64,
    /// The tasks that it runs, is about to run, or has not stopped yet.
    pub tasks: BTreeMap<TaskId, Owned>,
}

/// A task as its worker lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// The ownership under which it runs.
    pub epoch: OwnerEpoch,
    /// It is being stopped.
    pub stopping: bool,
}

/// The controller's book of assignments and claims.
#[derive(Debug, Clone)]
pub struct Ledger {
    chunk_of: ChunkOf,
}

impl Ledger {
    /// An empty book of a store in which nothing was ever assigned.
    #[must_use]
    pub fn new(chunk_of: ChunkOf) -> Self {
        Self { chunk_of }
    }

    /// The book of a fresh leader.
    #[must_use]
    pub fn load(
        chunk_of: ChunkOf,
        assigned: impl IntoIterator<Item = AssignedChunk>,
        owned: impl IntoIterator<Item = OwnedChunk>,
    ) -> Self {
        let _ = (assigned.into_iter(), owned.into_iter());
        Self { chunk_of }
    }

    /// Notes what an assignment chunk holds now.
    pub fn set_assigned(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        mod_revision: i64,
        tasks: BTreeMap<TaskId, OwnerEpoch>,
    ) {
        let _ = (worker, chunk, mod_revision, tasks, self.chunk_of);
        todo!()
    }

    /// Notes what a worker says it runs of a chunk.
    pub fn set_owned(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        applied_revision: i64,
        tasks: BTreeMap<TaskId, Owned>,
    ) {
        let _ = (worker, chunk, applied_revision, tasks);
        todo!()
    }

    /// Notes that a worker's claims are gone: its lease ended.
    pub fn clear_owned(&mut self, worker: &WorkerId) {
        let _ = worker;
        todo!()
    }

    /// Forgets a worker with its assignment and claims, once its assignment is deleted and its lease
    /// is over.
    pub fn forget_worker(&mut self, worker: &WorkerId) {
        let _ = worker;
        todo!()
    }

    /// The worker that a task is assigned to, and under which epoch.
    #[must_use]
    pub fn assigned_to(&self, task: &TaskId) -> Option<(&WorkerId, OwnerEpoch)> {
        let _ = task;
        todo!()
    }

    /// Every assigned task of every worker.
    pub fn assignments(&self) -> impl Iterator<Item = (&WorkerId, &TaskId, OwnerEpoch)> {
        std::iter::empty()
    }

    /// The entry of a task in its worker's own list.
    #[must_use]
    pub fn owned_by(&self, worker: &WorkerId, task: &TaskId) -> Option<Owned> {
        let _ = (worker, task);
        todo!()
    }

    /// Workers that may still run the task though it is not assigned to them.
    #[must_use]
    pub fn holders(&self, task: &TaskId) -> BTreeSet<WorkerId> {
        let _ = task;
        todo!()
    }

    /// Tasks that more than one worker lists as its own.
    #[must_use]
    pub fn double_claims(&self) -> Vec<(TaskId, Vec<WorkerId>)> {
        todo!()
    }
}
