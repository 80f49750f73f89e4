//! From the chunks that the controller writes to the tasks that shall run here.
//!
//! # Invariants
//! - Within one registration a chunk never goes back to an older generation, and a generation never
//!   changes its content: both are refused, and what was there before goes on. The controller then
//!   sees that its change is not acknowledged. After a new registration everything is read anew, so a
//!   store that was restored from a backup is followed as well.

use std::collections::BTreeMap;

use kreplicator_model::ids::{PlanGeneration, TaskId};
use kreplicator_proto::{
    assignment::Assignment,
    stored::{Stored, Unreadable},
};
use kreplicator_store::{Entry, Revision, keys};

use crate::engine::TaskSpec;

/// A change of an assignment that is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The key is none of an assignment chunk.
    #[error("key {0} is no assignment chunk")]
    StrangeKey(String),
    /// The value cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A plan that is older than the one followed.
    #[error("generation {found} is older than {followed}")]
    Older {
        /// The generation followed.
        followed: PlanGeneration,
        /// The generation found.
        found: PlanGeneration,
    },
    /// One plan with two contents.
    #[error("generation {0} was written twice with different content")]
    Rewritten(PlanGeneration),
    /// A topic in a chunk that cannot hold it.
    #[error("topic {0} does not belong into this chunk")]
    Misplaced(String),
}

impl Refused {
    /// A name for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::StrangeKey(_) => "strange_key",
            Self::Unreadable(_) => "unreadable",
            Self::Older { .. } => "older",
            Self::Rewritten(_) => "rewritten",
            Self::Misplaced(_) => "misplaced",
        }
    }
}

/// One chunk as it is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The store's revision that it stands for.
    pub revision: Revision,
    /// What shall run.
    pub tasks: BTreeMap<TaskId, TaskSpec>,
}

/// The chunks of one worker.
#[derive(Debug, Default)]
pub struct Assignments {
    followed: BTreeMap<u32, Assignment>,
}

impl Assignments {
    /// Takes in what the store holds at `key` as of revision `at`: the chunk's number and content.
    ///
    /// # Errors
    /// [`Refused`]; what was followed before goes on.
    pub fn apply(
        &mut self,
        key: &str,
        entry: Option<&Entry>,
        at: Revision,
    ) -> Result<(u32, Chunk), Refused> {
        let number = keys::split_chunk(key, keys::ASSIGNMENTS)
            .map(|(_, number)| number)
            .filter(|number| *number < keys::ASSIGNMENT_CHUNKS)
            .ok_or_else(|| Refused::StrangeKey(key.to_owned()))?;
        let Some(entry) = entry else {
            let generation = self.followed.get(&number).map(|before| before.generation);
            self.followed.insert(
                number,
                Assignment {
                    generation: generation.unwrap_or_default(),
                    topics: BTreeMap::new(),
                },
            );
            let chunk = Chunk {
                revision: at,
                tasks: BTreeMap::new(),
            };
            return Ok((number, chunk));
        };
        let assignment = Assignment::decode(key, &entry.value)?;
        self.check(number, &assignment)?;
        let chunk = Chunk {
            revision: entry.mod_revision,
            tasks: tasks(&assignment),
        };
        self.followed.insert(number, assignment);
        Ok((number, chunk))
    }

    fn check(&self, number: u32, assignment: &Assignment) -> Result<(), Refused> {
        let misplaced = assignment
            .topics
            .keys()
            .find(|topic| keys::chunk_of(&topic.link, &topic.topic) != number);
        if let Some(topic) = misplaced {
            return Err(Refused::Misplaced(topic.to_string()));
        }
        match self.followed.get(&number) {
            Some(before) if assignment.generation < before.generation => Err(Refused::Older {
                followed: before.generation,
                found: assignment.generation,
            }),
            Some(before)
                if assignment.generation == before.generation
                    && assignment.topics != before.topics =>
            {
                Err(Refused::Rewritten(assignment.generation))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn tasks(assignment: &Assignment) -> BTreeMap<TaskId, TaskSpec> {
    let mut tasks = BTreeMap::new();
    for (topic, assigned) in &assignment.topics {
        for (partition, epoch) in &assigned.partitions {
            let id = TaskId {
                link: topic.link.clone(),
                topic: topic.topic.clone(),
                partition: *partition,
            };
            let spec = TaskSpec {
                id: id.clone(),
                epoch: *epoch,
                target_topic: assigned.target_topic.clone(),
                start: assigned.start_of(*partition),
                limits: assigned.limits,
            };
            tasks.insert(id, spec);
        }
    }
    tasks
}

#[cfg(test)]
mod tests;
