//! Which workers may still be running a task: the heart of "no two owners".
//!
//! # The protocol that this book relies on
//! - The leader writes `plan/assignment/<worker>/<chunk>`; each write has a revision `m`.
//! - A worker answers in `owned/<worker>/<chunk>` with the revision it has acted on and the tasks it
//!   runs. It lists a task *before* it starts it and strikes it off only *after* it has fully
//!   stopped. It answers for every chunk of its assignment, also for an empty one.
//! - A worker acts on its assignment only as read at or after the revision of its own registration,
//!   and stops everything before its lease can end.
//!
//! So a live worker has released a task when its answer has reached the revision that took the task
//! away and does not list it; a worker whose lease is over has released everything.
//!
//! A leader that starts does not know what was taken out of a chunk that its worker has not answered
//! for: until it does, such a chunk may hold any task of its number.

mod roles;

use std::collections::{BTreeMap, BTreeSet};

use self::roles::Roles;
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

/// The leader's book of assignments and claims.
#[derive(Debug, Clone)]
pub struct Ledger {
    chunk_of: ChunkOf,
    assigned: BTreeMap<(WorkerId, u32), Assigned>,
    claimed: BTreeMap<(WorkerId, u32), Claimed>,
    /// Tasks taken out of a chunk by a revision that its worker has not answered.
    removed: BTreeMap<(WorkerId, u32), BTreeMap<TaskId, i64>>,
    /// By chunk number: workers that have not answered the revision which a fresh leader found.
    unknown: BTreeMap<u32, BTreeMap<WorkerId, i64>>,
    /// Who appears with a task in `assigned`, `claimed` and `removed`.
    roles: Roles,
}

#[derive(Debug, Clone)]
struct Assigned {
    revision: i64,
    tasks: BTreeMap<TaskId, OwnerEpoch>,
}

#[derive(Debug, Clone)]
struct Claimed {
    applied: i64,
    tasks: BTreeMap<TaskId, Owned>,
}

impl Ledger {
    /// The book of a store in which nothing was ever assigned.
    #[must_use]
    pub fn new(chunk_of: ChunkOf) -> Self {
        Self {
            chunk_of,
            assigned: BTreeMap::new(),
            claimed: BTreeMap::new(),
            removed: BTreeMap::new(),
            unknown: BTreeMap::new(),
            roles: Roles::default(),
        }
    }

    /// The book of a fresh leader. The assignments must be those read after it was elected, since
    /// nobody else can write them from then on; the claims may be older.
    #[must_use]
    pub fn load(
        chunk_of: ChunkOf,
        assigned: impl IntoIterator<Item = AssignedChunk>,
        owned: impl IntoIterator<Item = OwnedChunk>,
    ) -> Self {
        let mut ledger = Self::new(chunk_of);
        for chunk in assigned {
            ledger.set_assigned(&chunk.worker, chunk.chunk, chunk.mod_revision, chunk.tasks);
        }
        for ((worker, chunk), assigned) in &ledger.assigned {
            let workers = ledger.unknown.entry(*chunk).or_default();
            workers.insert(worker.clone(), assigned.revision);
        }
        for chunk in owned {
            ledger.set_owned(
                &chunk.worker,
                chunk.chunk,
                chunk.applied_revision,
                chunk.tasks,
            );
        }
        ledger
    }

    /// Notes what an assignment chunk holds since revision `mod_revision`. Older news is passed over.
    ///
    /// A live worker's chunk is emptied, not deleted: a worker cannot answer for what is not there.
    pub fn set_assigned(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        mod_revision: i64,
        tasks: BTreeMap<TaskId, OwnerEpoch>,
    ) {
        let key = (worker.clone(), chunk);
        let before = self.assigned.get(&key);
        if before.is_some_and(|before| before.revision >= mod_revision) {
            return;
        }
        let before = self.assigned.remove(&key).map(|before| before.tasks);
        let answered = self.claimed.get(&key).map_or(i64::MIN, |own| own.applied);

        for task in before.unwrap_or_default().into_keys() {
            if tasks.contains_key(&task) {
                continue;
            }
            let is_open = answered < mod_revision;
            self.roles.change(&task, worker, chunk, |role| {
                role.assigned = None;
                role.removed = is_open;
            });
            if is_open {
                let removed = self.removed.entry(key.clone()).or_default();
                removed.insert(task, mod_revision);
            }
        }
        for (task, epoch) in &tasks {
            self.roles.change(task, worker, chunk, |role| {
                role.assigned = Some(*epoch);
                role.removed = false;
            });
            if let Some(removed) = self.removed.get_mut(&key) {
                removed.remove(task);
            }
        }
        let revision = mod_revision;
        self.assigned.insert(key, Assigned { revision, tasks });
    }

    /// Notes what a worker says it runs of a chunk, and which revision of the chunk it has acted on.
    pub fn set_owned(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        applied_revision: i64,
        tasks: BTreeMap<TaskId, Owned>,
    ) {
        let key = (worker.clone(), chunk);
        let before = self.claimed.remove(&key).map(|before| before.tasks);
        for task in before.unwrap_or_default().into_keys() {
            if !tasks.contains_key(&task) {
                self.roles
                    .change(&task, worker, chunk, |role| role.claimed = None);
            }
        }
        for (task, owned) in &tasks {
            self.roles
                .change(task, worker, chunk, |role| role.claimed = Some(*owned));
        }
        self.answer(&key, applied_revision);
        let applied = applied_revision;
        self.claimed.insert(key, Claimed { applied, tasks });
    }

    /// Notes that a worker's claims went with its lease.
    pub fn clear_owned(&mut self, worker: &WorkerId) {
        for chunk in chunks_of(&self.claimed, worker) {
            self.clear_owned_chunk(worker, chunk);
        }
    }

    /// Notes that one chunk of a worker's claims is gone from the store, which happens only when the
    /// worker's lease ended.
    pub fn clear_owned_chunk(&mut self, worker: &WorkerId, chunk: u32) {
        if let Some(claimed) = self.claimed.remove(&(worker.clone(), chunk)) {
            for task in claimed.tasks.into_keys() {
                self.roles
                    .change(&task, worker, chunk, |role| role.claimed = None);
            }
        }
    }

    /// Forgets a worker whose lease is over and whose assignment has been deleted.
    pub fn forget_worker(&mut self, worker: &WorkerId) {
        self.clear_owned(worker);
        for chunk in chunks_of(&self.assigned, worker) {
            if let Some(assigned) = self.assigned.remove(&(worker.clone(), chunk)) {
                for task in assigned.tasks.into_keys() {
                    self.roles
                        .change(&task, worker, chunk, |role| role.assigned = None);
                }
            }
        }
        for chunk in chunks_of(&self.removed, worker) {
            if let Some(removed) = self.removed.remove(&(worker.clone(), chunk)) {
                for task in removed.into_keys() {
                    self.roles
                        .change(&task, worker, chunk, |role| role.removed = false);
                }
            }
        }
        for workers in self.unknown.values_mut() {
            workers.remove(worker);
        }
    }

    /// The worker that a task is assigned to, and under which epoch. Should the store hold two
    /// assignments of it, the one with the higher epoch.
    #[must_use]
    pub fn assigned_to(&self, task: &TaskId) -> Option<(&WorkerId, OwnerEpoch)> {
        let mut best: Option<(&WorkerId, OwnerEpoch)> = None;
        for role in self.roles.of(task) {
            if let Some(epoch) = role.assigned
                && best.is_none_or(|(_, known)| known < epoch)
            {
                best = Some((&role.worker, epoch));
            }
        }
        best
    }

    /// Every assignment, in order of worker and task within each chunk.
    pub fn assignments(&self) -> impl Iterator<Item = (&WorkerId, &TaskId, OwnerEpoch)> {
        self.assigned.iter().flat_map(|((worker, _), assigned)| {
            let tasks = assigned.tasks.iter();
            tasks.map(move |(task, epoch)| (worker, task, *epoch))
        })
    }

    /// Workers that have an assignment, empty ones included.
    #[must_use]
    pub fn workers(&self) -> BTreeSet<WorkerId> {
        self.assigned
            .keys()
            .map(|(worker, _)| worker.clone())
            .collect()
    }

    /// The entry of a task in a worker's own list.
    #[must_use]
    pub fn owned_by(&self, worker: &WorkerId, task: &TaskId) -> Option<Owned> {
        let mut roles = self.roles.of(task).iter();
        roles.find_map(|role| role.claimed.filter(|_| role.worker == *worker))
    }

    /// The revision of a chunk that its worker has acted on, and the revision it has now. They differ
    /// while the worker has not answered.
    #[must_use]
    pub fn chunk_revisions(&self, worker: &WorkerId, chunk: u32) -> (Option<i64>, Option<i64>) {
        let key = (worker.clone(), chunk);
        let applied = self.claimed.get(&key).map(|claimed| claimed.applied);
        let assigned = self.assigned.get(&key).map(|assigned| assigned.revision);
        (applied, assigned)
    }

    /// Workers that may still run the task though it is not assigned to them.
    #[must_use]
    pub fn holders(&self, task: &TaskId) -> BTreeSet<WorkerId> {
        let owner = self.assigned_to(task).map(|(worker, _)| worker);
        let mut holders = BTreeSet::new();
        for role in self.roles.of(task) {
            let may_run = role.claimed.is_some() || role.removed || role.assigned.is_some();
            if may_run && owner != Some(&role.worker) {
                holders.insert(role.worker.clone());
            }
        }
        let chunk = (self.chunk_of)(&task.link, &task.topic);
        for worker in self
            .unknown
            .get(&chunk)
            .into_iter()
            .flat_map(BTreeMap::keys)
        {
            if owner != Some(worker) {
                holders.insert(worker.clone());
            }
        }
        holders
    }

    /// Tasks that more than one worker lists as its own. The protocol rules this out (C039) but for tasks
    /// taken from a suspected worker ([`suspicion`](crate::suspicion)), until its lease is over: every
    /// other one is worth an alarm.
    ///
    /// # Source
    /// `docs/adr/2026-11-30-going-on-without-a-lease.md`.
    #[must_use]
    pub fn double_claims(&self) -> Vec<(TaskId, Vec<WorkerId>)> {
        let mut doubles = Vec::new();
        for (task, roles) in self.roles.iter() {
            let claiming = roles.iter().filter(|role| role.claimed.is_some());
            let mut workers: Vec<WorkerId> = claiming.map(|role| role.worker.clone()).collect();
            workers.dedup();
            if workers.len() > 1 {
                doubles.push((task.clone(), workers));
            }
        }
        doubles
    }

    /// Closes what was open up to the answered revision.
    fn answer(&mut self, key: &(WorkerId, u32), applied: i64) {
        let (worker, chunk) = key;
        if let Some(workers) = self.unknown.get_mut(chunk)
            && workers.get(worker).is_some_and(|found| applied >= *found)
        {
            workers.remove(worker);
        }
        let Some(removed) = self.removed.get_mut(key) else {
            return;
        };
        let answered = take_answered(removed, applied);
        if removed.is_empty() {
            self.removed.remove(key);
        }
        for task in answered {
            self.roles
                .change(&task, worker, *chunk, |role| role.removed = false);
        }
    }
}

/// Takes out the tasks whose removal a revision has answered.
fn take_answered(removed: &mut BTreeMap<TaskId, i64>, applied: i64) -> Vec<TaskId> {
    let mut answered = Vec::new();
    removed.retain(|task, revision| {
        let is_open = *revision > applied;
        if !is_open {
            answered.push(task.clone());
        }
        is_open
    });
    answered
}

/// The chunk numbers that a worker has in a map.
fn chunks_of<T>(map: &BTreeMap<(WorkerId, u32), T>, worker: &WorkerId) -> Vec<u32> {
    let range = (worker.clone(), 0)..=(worker.clone(), u32::MAX);
    map.range(range).map(|((_, chunk), _)| *chunk).collect()
}

#[cfg(test)]
mod tests;
