//! The plan as published: generation and assignment chunks with the revisions that wrote them.

use std::collections::BTreeMap;

use kreplicator_model::ids::{LinkTopic, PlanGeneration, WorkerId};
use kreplicator_proto::{
    assignment::{AssignedTopic, Assignment},
    stored::{Stored, message},
    v1,
};
use kreplicator_store::{
    api::{Compare, Entry, Key, Revision},
    keys,
};
use tracing::error;

use super::book::chunk_key;

/// Everything the leader writes when it publishes.
pub(crate) const PLAN: &str = "plan/";

/// The plan as published.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanBook {
    generation: PlanGeneration,
    /// Revision that wrote the generation; None: the key does not exist.
    state_revision: Option<Revision>,
    chunks: BTreeMap<(WorkerId, u32), Chunk>,
    /// News up to this revision is known: it was read or written by this leader.
    known_to: Revision,
}

/// One assignment chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Revision that wrote it.
    pub(crate) revision: Revision,
    /// What it holds; empty where it cannot be read.
    pub(crate) assignment: Assignment,
}

impl PlanBook {
    /// The plan found in the store at `revision`.
    pub(super) fn load(
        entries: &BTreeMap<Key, Entry>,
        revision: Revision,
        unreadable: &mut BTreeMap<Key, String>,
    ) -> Self {
        let mut plan = Self::default();
        plan.replace(entries, revision, unreadable);
        plan
    }

    /// Takes in everything under `plan/` as read at `revision`; gives the chunks that differ.
    pub(super) fn replace(
        &mut self,
        entries: &BTreeMap<Key, Entry>,
        revision: Revision,
        unreadable: &mut BTreeMap<Key, String>,
    ) -> Vec<(WorkerId, u32)> {
        let mut gone = Vec::new();
        self.chunks.retain(|(worker, chunk), _| {
            let stays = entries.contains_key(&keys::assignment(worker, *chunk));
            if !stays {
                gone.push((worker.clone(), *chunk));
            }
            stays
        });
        if !entries.contains_key(keys::PLAN_STATE) {
            self.state_revision = None;
        }
        let changed = entries
            .iter()
            .filter_map(|(key, entry)| self.put(key, entry, unreadable));
        gone.extend(changed);
        self.known_to = self.known_to.max(revision);
        gone
    }

    /// Takes in one change from a view that has come to `revision`; gives the chunk that differs.
    pub(super) fn changed(
        &mut self,
        key: &str,
        after: Option<&Entry>,
        revision: Revision,
        unreadable: &mut BTreeMap<Key, String>,
    ) -> Option<(WorkerId, u32)> {
        match after {
            Some(entry) if entry.mod_revision > self.known_to => self.put(key, entry, unreadable),
            Some(_) => None,
            None if revision <= self.known_to => None,
            None => {
                if key == keys::PLAN_STATE {
                    error!(key, "the plan's generation was deleted by somebody else");
                    self.state_revision = None;
                    return None;
                }
                let chunk = chunk_key(key, keys::ASSIGNMENTS)?;
                self.chunks.remove(&chunk)?;
                Some(chunk)
            }
        }
    }

    fn put(
        &mut self,
        key: &str,
        entry: &Entry,
        unreadable: &mut BTreeMap<Key, String>,
    ) -> Option<(WorkerId, u32)> {
        if key == keys::PLAN_STATE {
            self.state_revision = Some(entry.mod_revision);
            match message::<v1::PlanState>(key, &entry.value) {
                Ok(state) => self.raise(PlanGeneration(state.generation)),
                Err(fault) => {
                    unreadable.insert(fault.key, fault.reason);
                }
            }
            return None;
        }
        let (worker, chunk) = chunk_key(key, keys::ASSIGNMENTS)?;
        let known = self.chunks.get(&(worker.clone(), chunk));
        if known.is_some_and(|known| known.revision >= entry.mod_revision) {
            return None;
        }
        let assignment = match Assignment::decode(key, &entry.value) {
            Ok(assignment) => {
                unreadable.remove(key);
                assignment
            }
            // It gives nothing to the worker, who cannot read it either, and is written anew.
            Err(fault) => {
                error!(key, reason = fault.reason, "assignment cannot be read");
                unreadable.insert(fault.key, fault.reason);
                Assignment::default()
            }
        };
        self.raise(assignment.generation);
        let revision = entry.mod_revision;
        let chunk = (worker, chunk);
        self.chunks.insert(
            chunk.clone(),
            Chunk {
                revision,
                assignment,
            },
        );
        Some(chunk)
    }

    /// Generations never fall, whatever became of the key that counts them.
    fn raise(&mut self, generation: PlanGeneration) {
        self.generation = self.generation.max(generation);
    }

    /// Enters a chunk as written at `revision`.
    pub(super) fn written(
        &mut self,
        worker: &WorkerId,
        chunk: u32,
        assignment: Assignment,
        revision: Revision,
    ) {
        self.known_to = self.known_to.max(revision);
        self.chunks.insert(
            (worker.clone(), chunk),
            Chunk {
                revision,
                assignment,
            },
        );
    }

    /// Enters a chunk as deleted at `revision`.
    pub(super) fn deleted(&mut self, worker: &WorkerId, chunk: u32, revision: Revision) {
        self.known_to = self.known_to.max(revision);
        self.chunks.remove(&(worker.clone(), chunk));
    }

    /// Enters a generation as published at `revision`.
    pub(super) fn published(&mut self, generation: PlanGeneration, revision: Revision) {
        assert!(
            generation > self.generation,
            "published generation {generation} after {}",
            self.generation
        );
        self.known_to = self.known_to.max(revision);
        self.generation = generation;
        self.state_revision = Some(revision);
    }

    /// The generation in force.
    pub(crate) fn generation(&self) -> PlanGeneration {
        self.generation
    }

    /// Holds as long as nothing was published since.
    pub(super) fn parent(&self) -> Compare {
        let key = keys::PLAN_STATE.to_owned();
        match self.state_revision {
            Some(revision) => Compare::ModifiedAt(key, revision),
            None => Compare::Absent(key),
        }
    }

    /// One chunk.
    pub(crate) fn chunk(&self, worker: &WorkerId, chunk: u32) -> Option<&Chunk> {
        self.chunks.get(&(worker.clone(), chunk))
    }

    /// Every chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (&(WorkerId, u32), &Chunk)> {
        self.chunks.iter()
    }

    /// The chunks of one worker.
    pub(crate) fn of_worker(&self, worker: &WorkerId) -> impl Iterator<Item = (u32, &Chunk)> {
        let range = (worker.clone(), 0)..=(worker.clone(), u32::MAX);
        let chunks = self.chunks.range(range);
        chunks.map(|((_, chunk), entry)| (*chunk, entry))
    }

    /// What was told to the workers last, by topic: of several chunks with a topic the one of the latest
    /// generation counts.
    pub(crate) fn told_last(&self) -> BTreeMap<&LinkTopic, &AssignedTopic> {
        let mut chunks: Vec<&Assignment> = self
            .chunks
            .values()
            .map(|chunk| &chunk.assignment)
            .collect();
        chunks.sort_by_key(|assignment| assignment.generation);
        let topics = chunks.into_iter().flat_map(|chunk| &chunk.topics);
        topics.collect()
    }
}

#[cfg(test)]
#[path = "plan_book_tests.rs"]
mod tests;
