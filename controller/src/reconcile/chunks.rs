//! From a decision to the assignment chunks that have to be written. Pure.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use kreplicator_model::{
    ids::{LinkTopic, OwnerEpoch, PlanGeneration, TaskId, WorkerId},
    resolve::Resolved,
};
use kreplicator_proto::assignment::{AssignedTopic, Assignment};
use kreplicator_store::{api::Revision, keys};

use super::{book::Book, decide::Decision};
use crate::targets::TargetState;

/// One chunk to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkWrite {
    /// Whose it is.
    pub(crate) worker: WorkerId,
    /// Its number.
    pub(crate) chunk: u32,
    /// The write it replaces; None: there is no such key.
    pub(crate) parent: Option<Revision>,
    /// What has to hold of the worker.
    pub(crate) requires: Requires,
    /// What it shall hold; None: the key is deleted.
    pub(crate) content: Option<Content>,
    /// Tasks that are new to this worker.
    pub(crate) gained: BTreeSet<TaskId>,
}

/// What has to hold of a worker when its chunk is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requires {
    /// It has no registration: it counts as lost.
    Absent,
    /// Nothing: tasks are only taken away, and it has to answer for that.
    Nothing,
    /// It has the registration that was made by this revision.
    Registered(Revision),
}

/// What a chunk shall hold; tasks without an epoch get the generation that publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content(pub(crate) BTreeMap<LinkTopic, TopicContent>);

/// One topic of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicContent {
    /// What the worker is told of the topic; its partitions are those below.
    pub(crate) told: AssignedTopic,
    /// Tasks with the epoch they have already.
    pub(crate) tasks: BTreeMap<TaskId, Option<OwnerEpoch>>,
}

impl Content {
    /// The value to store.
    pub(crate) fn assignment(&self, generation: PlanGeneration) -> Assignment {
        let fresh = OwnerEpoch(generation.0);
        let topics = self.0.iter().map(|(topic, content)| {
            let mut told = content.told.clone();
            let tasks = content.tasks.iter();
            told.partitions = tasks
                .map(|(task, epoch)| (task.partition, epoch.unwrap_or(fresh)))
                .collect();
            (topic.clone(), told)
        });
        Assignment {
            generation,
            topics: topics.collect(),
        }
    }
}

/// What workers are told of topics.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    resolved: &'a Resolved,
    targets: &'a BTreeMap<LinkTopic, TargetState>,
    /// As told last, for topics that were not looked at yet by this leader.
    told: BTreeMap<&'a LinkTopic, &'a AssignedTopic>,
}

impl<'a> Terms<'a> {
    pub(crate) fn new(
        book: &'a Book,
        resolved: &'a Resolved,
        targets: &'a BTreeMap<LinkTopic, TargetState>,
    ) -> Self {
        Self {
            resolved,
            targets,
            told: book.plan.told_last(),
        }
    }

    /// What a worker is told of a topic; None: nothing is known of it.
    fn of(&self, topic: &LinkTopic) -> Option<AssignedTopic> {
        let Some(resolved) = self.resolved.topics.get(topic) else {
            // Of a link that cannot be read: it goes on as it was.
            let told = *self.told.get(topic)?;
            return Some(AssignedTopic {
                target_topic: told.target_topic.clone(),
                partitions: BTreeMap::new(),
                ..*told
            });
        };
        let looked_at = self.targets.get(topic).and_then(|target| target.limits);
        let limits = looked_at.or_else(|| self.told.get(topic).map(|told| told.limits));
        Some(AssignedTopic {
            target_topic: resolved.target_topic.clone(),
            start: resolved.start,
            first_partitions: resolved.first_partitions,
            partitions: BTreeMap::new(),
            limits: limits.unwrap_or_default(),
        })
    }
}

/// The chunks that differ from what is stored, in the order in which they must be written: what is
/// taken from lost workers first, what is given last. `again` are written even if they do not differ.
#[must_use]
pub(crate) fn chunk_writes(
    book: &Book,
    decision: &Decision,
    terms: &Terms<'_>,
    lost: &BTreeSet<WorkerId>,
    again: &BTreeSet<(WorkerId, u32)>,
) -> Vec<ChunkWrite> {
    let mut wanted: BTreeMap<(WorkerId, u32), Content> = BTreeMap::new();
    let mut add = |worker: &WorkerId, task: &TaskId, epoch: Option<OwnerEpoch>| {
        let topic = task.link_topic();
        let chunk = keys::chunk_of(&task.link, &task.topic);
        let content = wanted.entry((worker.clone(), chunk)).or_default();
        let content = match content.0.entry(topic) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let Some(told) = terms.of(new.key()) else {
                    return;
                };
                let tasks = BTreeMap::new();
                new.insert(TopicContent { told, tasks })
            }
        };
        content.tasks.insert(task.clone(), epoch);
    };
    for (worker, task, epoch) in book.ledger.assignments() {
        let revoked = decision.steps.revoke.get(worker);
        if !revoked.is_some_and(|revoked| revoked.contains(task)) {
            add(worker, task, Some(epoch));
        }
    }
    for (worker, tasks) in &decision.steps.assign {
        for task in tasks {
            add(worker, task, None);
        }
    }
    let stored = book.plan.chunks().map(|(id, _)| id.clone());
    let ids: BTreeSet<_> = stored.chain(wanted.keys().cloned()).collect();
    let mut writes: Vec<ChunkWrite> = ids
        .into_iter()
        .filter_map(|id| {
            let content = wanted.remove(&id).unwrap_or_default();
            let again = again.contains(&id);
            chunk_write(book, id, content, lost, again)
        })
        .collect();
    writes.sort_by_key(|write| (write.requires, !write.gained.is_empty()));
    writes
}

/// The write of one chunk; None: nothing differs.
fn chunk_write(
    book: &Book,
    (worker, chunk): (WorkerId, u32),
    content: Content,
    lost: &BTreeSet<WorkerId>,
    again: bool,
) -> Option<ChunkWrite> {
    let stored = book.plan.chunk(&worker, chunk);
    let parent = stored.map(|stored| stored.revision);
    if lost.contains(&worker) {
        parent?;
        assert!(
            content.0.is_empty(),
            "lost worker {worker} would keep tasks"
        );
        return Some(ChunkWrite {
            worker,
            chunk,
            parent,
            requires: Requires::Absent,
            content: None,
            gained: BTreeSet::new(),
        });
    }
    let tasks = content.0.values().flat_map(|topic| &topic.tasks);
    let gained: BTreeSet<TaskId> = tasks
        .filter(|(_, epoch)| epoch.is_none())
        .map(|(task, _)| task.clone())
        .collect();
    if let Some(stored) = stored
        && !again
        // What is given anew to whom has it gets another epoch.
        && gained.is_empty()
        && content.assignment(stored.assignment.generation) == stored.assignment
        && !book
            .unreadable
            .contains_key(&keys::assignment(&worker, chunk))
    {
        return None;
    }
    let requires = if gained.is_empty() {
        Requires::Nothing
    } else {
        Requires::Registered(book.workers.get(&worker)?.created)
    };
    Some(ChunkWrite {
        worker,
        chunk,
        parent,
        requires,
        content: Some(content),
        gained,
    })
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
