//! What runs, what shall run, and what the store was told about it: the deciding part of the
//! supervisor, without clock, IO or waiting.
//!
//! The rules that keep a task from running in two places:
//! - a task is listed in `owned` *before* it is started: it starts only while every state that the
//!   store may hold of its chunk lists it;
//! - it stays listed until it has fully stopped;
//! - a chunk is acknowledged at a revision only with a list that was made from that revision.
//!
//! ```text
//!          listed for certain            told to stop
//! waiting ───────────────────► running ───────────────► stopping ──► (waiting, or off the list)
//! ```

mod chunk;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kreplicator_model::ids::{LinkId, TaskId};
use kreplicator_store::Revision;

use super::contexts::Contexts;
use crate::{
    assignment::Chunk,
    engine::{LinkContext, TaskSpec},
};
pub(super) use chunk::Publication;
use chunk::{ChunkBook, Run, Slot};

/// Most tasks of one link that are stopped at once, while they copy, to follow a changed setting.
pub(super) const RESTARTS_PER_LINK_MAX: usize = 16;

/// Why a task is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// It is not assigned here any more.
    Unassigned,
    /// It was given away and came back: its ownership is another one.
    NewEpoch,
    /// Its settings changed; it is started again at once.
    Changed,
    /// This worker leaves.
    Leaving,
    /// Ownership ended.
    Fenced,
}

impl StopReason {
    /// A name for metrics and logs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unassigned => "unassigned",
            Self::NewEpoch => "new_epoch",
            Self::Changed => "changed",
            Self::Leaving => "leaving",
            Self::Fenced => "fenced",
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Start a task.
    Start(TaskSpec, Arc<LinkContext>),
    /// Stop a task.
    Stop(TaskId, StopReason),
}

/// A task that runs, as it was started.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Carried {
    pub(super) spec: TaskSpec,
    pub(super) context: Arc<LinkContext>,
}

/// Circumstances of a decision.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// What is known of links.
    pub(super) contexts: &'a Contexts,
    /// Nothing new is started.
    pub(super) draining: bool,
    /// Whether a running task copies at present; stopping one that does not costs nothing.
    pub(super) copies: &'a dyn Fn(&TaskId) -> bool,
    /// Links whose clients are being let go of: nothing of them starts until that is done.
    pub(super) releasing: &'a BTreeSet<LinkId>,
}

/// The books of one registration.
#[derive(Debug, Default)]
pub(super) struct Books {
    chunks: BTreeMap<u32, ChunkBook>,
}

impl Books {
    /// What shall run of one chunk from now on.
    pub(super) fn assign(&mut self, number: u32, chunk: Chunk) {
        self.chunks.entry(number).or_default().assign(chunk);
    }

    /// A chunk for which the store holds a list, though nothing is assigned: it is emptied.
    pub(super) fn adopt(&mut self, number: u32, revision: Revision) {
        self.chunks.entry(number).or_insert_with(|| {
            let mut book = ChunkBook::default();
            book.assign(Chunk {
                revision,
                tasks: BTreeMap::new(),
            });
            book
        });
    }

    /// Decides what to start and stop now, and notes it as done.
    pub(super) fn decide(&mut self, now: Circumstances<'_>) -> Vec<Action> {
        let mut restarting: BTreeMap<LinkId, usize> = BTreeMap::new();
        for slot in self.chunks.values().flat_map(|book| book.slots.values()) {
            if let Run::Stopping { spec, reason } = &slot.run
                && *reason == StopReason::Changed
            {
                *restarting.entry(spec.id.link.clone()).or_default() += 1;
            }
        }
        let mut actions = Vec::new();
        for book in self.chunks.values_mut() {
            let mut changed = false;
            book.slots.retain(|_, slot| slot.is_needed());
            let certain = &book.certain;
            for (id, slot) in &mut book.slots {
                let action = match &slot.run {
                    Run::Waiting => claim(id, slot, now)
                        .filter(|(spec, _)| certain.get(id) == Some(&spec.epoch))
                        .filter(|_| !now.releasing.contains(&id.link))
                        .map(|(spec, context)| Action::Start(spec, context)),
                    Run::Running { spec, context } => {
                        stop_reason(spec, context, slot.wanted.as_ref(), now)
                            .filter(|reason| may_stop(id, *reason, &mut restarting, now))
                            .map(|reason| Action::Stop(id.clone(), reason))
                    }
                    Run::Stopping { .. } => None,
                };
                if let Some(action) = action {
                    changed = true;
                    slot.note(&action);
                    actions.push(action);
                }
            }
            let listable = book
                .slots
                .iter()
                .filter(|(id, slot)| claim(id, slot, now).is_some())
                .map(|(id, _)| id.clone())
                .collect();
            changed |= listable != book.listable;
            book.listable = listable;
            book.changed |= changed;
        }
        actions
    }

    /// A task that went on from an earlier registration. False: it is not assigned here any more, or under
    /// another ownership; nothing is noted then.
    pub(super) fn resume(&mut self, carried: Carried) -> bool {
        let Carried { spec, context } = carried;
        let holds = |book: &&mut ChunkBook| book.slots.contains_key(&spec.id);
        let Some(book) = self.chunks.values_mut().find(holds) else {
            return false;
        };
        let Some(slot) = book.slots.get_mut(&spec.id) else {
            return false;
        };
        let wanted = slot.wanted.as_ref().map(|wanted| wanted.epoch);
        if wanted != Some(spec.epoch) || !matches!(slot.run, Run::Waiting) {
            return false;
        }
        slot.run = Run::Running { spec, context };
        book.changed = true;
        true
    }

    /// What runs and was not told to stop.
    pub(super) fn running(&self) -> Vec<Carried> {
        let slots = self.chunks.values().flat_map(|book| book.slots.values());
        let running = slots.filter_map(|slot| match &slot.run {
            Run::Running { spec, context } => Some(Carried {
                spec: spec.clone(),
                context: Arc::clone(context),
            }),
            Run::Waiting | Run::Stopping { .. } => None,
        });
        running.collect()
    }

    /// Everything that runs and was not told to stop yet, now told to; but for what is kept.
    pub(super) fn stop_all_but(
        &mut self,
        keeps: &dyn Fn(&TaskId) -> bool,
        reason: StopReason,
    ) -> Vec<TaskId> {
        let mut stopped = Vec::new();
        let slots = self.chunks.values_mut().flat_map(|book| &mut book.slots);
        for (id, slot) in slots {
            if matches!(slot.run, Run::Running { .. }) && !keeps(id) {
                slot.note(&Action::Stop(id.clone(), reason));
                stopped.push(id.clone());
            }
        }
        for book in self.chunks.values_mut() {
            book.changed = true;
        }
        stopped
    }

    /// A task has fully stopped.
    pub(super) fn stopped(&mut self, id: &TaskId) {
        let holds = |book: &&mut ChunkBook| book.slots.contains_key(id);
        let book = self.chunks.values_mut().find(holds);
        let book = book.unwrap_or_else(|| panic!("task {id} stopped but is in no chunk"));
        book.changed = true;
        match book.slots.get_mut(id) {
            Some(slot) if matches!(slot.run, Run::Stopping { .. }) => slot.run = Run::Waiting,
            slot => panic!("task {id} stopped without having been told to: {slot:?}"),
        }
    }

    /// Whether nothing runs or is being stopped.
    pub(super) fn is_idle(&self) -> bool {
        self.chunks
            .values()
            .flat_map(|book| book.slots.values())
            .all(|slot| matches!(slot.run, Run::Waiting))
    }

    /// Whether the link has or shall have a task here.
    pub(super) fn uses(&self, link: &LinkId) -> bool {
        self.chunks
            .values()
            .flat_map(|book| &book.slots)
            .any(|(id, slot)| id.link == *link && slot.is_needed())
    }

    /// Assigned tasks that do not run, by link.
    pub(super) fn waiting(&self) -> BTreeMap<LinkId, usize> {
        let mut waiting = BTreeMap::new();
        for (id, slot) in self.chunks.values().flat_map(|book| &book.slots) {
            if matches!(slot.run, Run::Waiting) && slot.wanted.is_some() {
                *waiting.entry(id.link.clone()).or_default() += 1;
            }
        }
        waiting
    }

    /// Chunks that the store has to be told of, in order.
    pub(super) fn unpublished(&self) -> Vec<u32> {
        let changed = self.chunks.iter().filter(|(_, book)| book.is_unpublished());
        changed.map(|(number, _)| *number).collect()
    }

    /// What to tell the store of a chunk now. Its outcome comes back by one of
    /// [`Books::committed`], [`Books::found`] and [`Books::unknown`].
    pub(super) fn publish(&mut self, number: u32) -> Option<Publication> {
        self.chunks.get_mut(&number)?.publish()
    }

    /// The store has taken what it was told.
    pub(super) fn committed(&mut self, number: u32, revision: Revision) {
        self.book(number).committed(revision);
    }

    /// The store has refused it, since it holds something else.
    pub(super) fn found(&mut self, number: u32, revision: Option<Revision>) {
        self.book(number).found(revision);
    }

    /// The store may or may not have taken it.
    pub(super) fn unknown(&mut self, number: u32) {
        self.book(number).unknown();
    }

    /// What a view that is complete up to `seen` shows of a chunk's list: the revision that wrote it,
    /// or None. True: somebody else changed it, so it is told again.
    pub(super) fn observed(
        &mut self,
        number: u32,
        shown: Option<Revision>,
        seen: Revision,
    ) -> bool {
        let book = self.chunks.get_mut(&number);
        book.is_some_and(|book| book.observed(shown, seen))
    }

    fn book(&mut self, number: u32) -> &mut ChunkBook {
        self.chunks
            .get_mut(&number)
            .expect("only chunks with a book are published")
    }
}

/// What a waiting task would be started with.
fn claim(id: &TaskId, slot: &Slot, now: Circumstances<'_>) -> Option<(TaskSpec, Arc<LinkContext>)> {
    if now.draining || !matches!(slot.run, Run::Waiting) {
        return None;
    }
    let spec = slot.wanted.clone()?;
    let context = now.contexts.get(&id.link)?;
    Some((spec, Arc::clone(context)))
}

/// Why a running task has to stop; None: it goes on.
fn stop_reason(
    running: &TaskSpec,
    context: &LinkContext,
    wanted: Option<&TaskSpec>,
    now: Circumstances<'_>,
) -> Option<StopReason> {
    let Some(wanted) = wanted else {
        return Some(StopReason::Unassigned);
    };
    if wanted.epoch != running.epoch {
        return Some(StopReason::NewEpoch);
    }
    if now.draining {
        return None;
    }
    // The start counts only where no checkpoint exists yet, which a task sees once.
    let respecified =
        wanted.target_topic != running.target_topic || wanted.limits != running.limits;
    let moved = now
        .contexts
        .get(&running.id.link)
        .is_some_and(|wanted| **wanted != *context);
    (respecified || moved).then_some(StopReason::Changed)
}

/// Whether a task may be stopped now: restarts of tasks that copy go a few at a time.
fn may_stop(
    id: &TaskId,
    reason: StopReason,
    restarting: &mut BTreeMap<LinkId, usize>,
    now: Circumstances<'_>,
) -> bool {
    if reason != StopReason::Changed {
        return true;
    }
    let under_way = restarting.entry(id.link.clone()).or_default();
    if *under_way >= RESTARTS_PER_LINK_MAX && (now.copies)(id) {
        return false;
    }
    *under_way += 1;
    true
}

#[cfg(test)]
mod tests;
