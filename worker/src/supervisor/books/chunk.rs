//! One chunk: its tasks, and what the store holds of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kreplicator_model::{
    ids::{OwnerEpoch, TaskId},
    ownership::Owned,
};
use kreplicator_store::Revision;

use super::{Action, StopReason};
use crate::{
    assignment::Chunk,
    engine::{LinkContext, TaskSpec},
};

/// Where a task is.
#[derive(Debug)]
pub(super) enum Run {
    /// It does not run.
    Waiting,
    /// It was started and not told to stop.
    Running {
        spec: TaskSpec,
        context: Arc<LinkContext>,
    },
    /// It was told to stop and has not yet.
    Stopping { spec: TaskSpec, reason: StopReason },
}

/// One task.
#[derive(Debug)]
pub(super) struct Slot {
    /// As assigned; None: it shall not run.
    pub(super) wanted: Option<TaskSpec>,
    pub(super) run: Run,
}

impl Slot {
    /// Whether it runs or shall run.
    pub(super) fn is_needed(&self) -> bool {
        self.wanted.is_some() || !matches!(self.run, Run::Waiting)
    }

    /// Notes an action as done.
    pub(super) fn note(&mut self, action: &Action) {
        let before = std::mem::replace(&mut self.run, Run::Waiting);
        self.run = match (before, action) {
            (Run::Waiting, Action::Start(spec, context)) => Run::Running {
                spec: spec.clone(),
                context: Arc::clone(context),
            },
            (Run::Running { spec, .. }, Action::Stop(_, reason)) => Run::Stopping {
                spec,
                reason: *reason,
            },
            (before, action) => panic!("{action:?} on a task that is {before:?}"),
        };
    }
}

/// What the store is told of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    /// Revision of the assignment that this list was made from.
    pub(crate) applied: Revision,
    /// Tasks that run, may run, or are about to.
    pub(crate) tasks: BTreeMap<TaskId, Owned>,
}

/// One write to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publication {
    /// The revision that must have written the present list; None: there must be none.
    pub(crate) replaces: Option<Revision>,
    /// The list to write.
    pub(crate) list: List,
}

/// The books of one chunk.
#[derive(Debug, Default)]
pub(super) struct ChunkBook {
    applied: Revision,
    pub(super) slots: BTreeMap<TaskId, Slot>,
    /// Waiting tasks that would be started if they were listed.
    pub(super) listable: BTreeSet<TaskId>,
    /// Tasks, with their epochs, that are listed in every state which the store may hold now.
    pub(super) certain: BTreeMap<TaskId, OwnerEpoch>,
    /// The revision that wrote the list in the store, as far as known; None: there is no list.
    stored: Option<Revision>,
    /// The list that the store holds for certain.
    published: Option<List>,
    /// The list that was sent and not answered yet.
    sent: Option<List>,
    /// The list may differ from the one published.
    pub(super) changed: bool,
}

impl ChunkBook {
    pub(super) fn assign(&mut self, chunk: Chunk) {
        self.applied = chunk.revision;
        self.changed = true;
        for (id, slot) in &mut self.slots {
            if !chunk.tasks.contains_key(id) {
                slot.wanted = None;
            }
        }
        for (id, spec) in chunk.tasks {
            let slot = self.slots.entry(id).or_insert(Slot {
                wanted: None,
                run: Run::Waiting,
            });
            slot.wanted = Some(spec);
        }
        self.slots.retain(|_, slot| slot.is_needed());
        self.listable.retain(|id| self.slots.contains_key(id));
    }

    fn list(&self) -> List {
        let mut tasks = BTreeMap::new();
        for (id, slot) in &self.slots {
            let owned = match &slot.run {
                Run::Running { spec, .. } => Some((spec, false)),
                Run::Stopping { spec, .. } => Some((spec, true)),
                Run::Waiting if self.listable.contains(id) => {
                    slot.wanted.as_ref().map(|spec| (spec, false))
                }
                Run::Waiting => None,
            };
            if let Some((spec, stopping)) = owned {
                let epoch = spec.epoch;
                tasks.insert(id.clone(), Owned { epoch, stopping });
            }
        }
        List {
            applied: self.applied,
            tasks,
        }
    }

    /// Whether there may be something to tell, and nothing is under way.
    pub(super) fn is_unpublished(&self) -> bool {
        self.sent.is_none() && (self.changed || self.published.is_none())
    }

    pub(super) fn publish(&mut self) -> Option<Publication> {
        if self.sent.is_some() {
            return None;
        }
        let list = self.list();
        self.changed = false;
        if self.published.as_ref() == Some(&list) {
            return None;
        }
        // From here on the store may hold either list.
        let listed = |id: &TaskId| list.tasks.get(id).map(|owned| owned.epoch);
        self.certain.retain(|id, epoch| listed(id) == Some(*epoch));
        self.published = None;
        self.sent = Some(list.clone());
        Some(Publication {
            replaces: self.stored,
            list,
        })
    }

    pub(super) fn committed(&mut self, revision: Revision) {
        let list = self.sent.take().expect("an answer follows a publication");
        self.certain = list
            .tasks
            .iter()
            .map(|(id, owned)| (id.clone(), owned.epoch))
            .collect();
        self.stored = Some(revision);
        self.published = Some(list);
    }

    pub(super) fn found(&mut self, revision: Option<Revision>) {
        self.sent = None;
        self.published = None;
        self.certain.clear();
        self.stored = revision;
    }

    pub(super) fn unknown(&mut self) {
        self.sent = None;
    }

    pub(super) fn observed(&mut self, shown: Option<Revision>, seen: Revision) -> bool {
        if self.sent.is_some() {
            return false;
        }
        let foreign = match (self.stored, shown) {
            (Some(stored), Some(shown)) => shown > stored,
            (Some(stored), None) => seen >= stored,
            (None, Some(_)) => true,
            (None, None) => false,
        };
        if foreign {
            self.found(shown);
        }
        foreign
    }
}
