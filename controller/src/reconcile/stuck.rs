//! Plan and reality drift apart: tasks that a live worker was given and does not take on (C043).
//! Pure, but for what it remembers.
//!
//! Such a task's chunk is written again once, so that the worker looks at it anew. If the worker has
//! answered and still does not list the task, the task is tried elsewhere, a few times, and stays pinned
//! where it runs; after that it is only reported. A worker that does not answer at all keeps the task in
//! the books: it may run it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kreplicator_model::{
    ids::{OwnerEpoch, TaskId, WorkerId},
    ownership::Ledger,
    resolve::Resolved,
};
use kreplicator_store::keys;

use super::book::Book;

/// Workers that a task is tried on after the first one.
const MOVES_MAX: usize = 3;

/// Remembers which tasks are not taken on, since when, and what was tried.
#[derive(Debug, Clone)]
pub(crate) struct StuckTasks {
    after: Duration,
    waiting: BTreeMap<TaskId, Waiting>,
    tried: BTreeMap<TaskId, Tried>,
}

/// An assignment that the worker has not taken on.
#[derive(Debug, Clone)]
struct Waiting {
    worker: WorkerId,
    epoch: OwnerEpoch,
    since: Duration,
    written_again: bool,
}

/// What was tried for a task.
#[derive(Debug, Clone, Default)]
struct Tried {
    /// Who has refused it.
    refused_by: BTreeSet<WorkerId>,
    /// Where it goes, and stays as long as that worker takes tasks: balance must not bring it back.
    to: Option<WorkerId>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Findings {
    /// Chunks to write again though they do not differ.
    pub(crate) again: BTreeSet<(WorkerId, u32)>,
    /// Tasks that have waited too long.
    pub(crate) stuck: BTreeMap<TaskId, StuckTask>,
    /// Where tasks that were refused elsewhere have to be.
    pub(crate) pinned: BTreeMap<TaskId, WorkerId>,
    /// When something is to be done without any news.
    pub(crate) next_check: Option<Duration>,
}

/// A task that has waited too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StuckTask {
    /// Who does not take it on.
    pub(crate) worker: WorkerId,
    /// For how long.
    pub(crate) waited: Duration,
    /// The worker has acted on its assignment and left this task out.
    pub(crate) refused: bool,
}

/// Who may be given tasks: active workers that are neither to be emptied nor silent.
pub(crate) fn takers(
    book: &Book,
    active: &BTreeSet<WorkerId>,
    suspects: &BTreeSet<WorkerId>,
) -> BTreeSet<WorkerId> {
    let takes = |id: &&WorkerId| {
        let live = book.workers.get(*id);
        let is_leaving = live.is_some_and(|worker| worker.live.draining);
        !is_leaving && !book.drains.contains(*id) && !suspects.contains(*id)
    };
    active.iter().filter(takes).cloned().collect()
}

/// Whether a task is asked for.
fn is_wanted(resolved: &Resolved, task: &TaskId) -> bool {
    let topic = resolved.topics.get(&task.link_topic());
    topic.is_some_and(|topic| topic.runs() && task.partition.0 < topic.partitions)
}

impl StuckTasks {
    /// Tasks count as stuck when they were not taken on `after` they were assigned.
    pub(crate) fn new(after: Duration) -> Self {
        Self {
            after,
            waiting: BTreeMap::new(),
            tried: BTreeMap::new(),
        }
    }

    /// Looks at every assignment of the workers that live. `takers` may be given tasks; what was tried
    /// for tasks that are neither assigned nor asked for any more is forgotten.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        ledger: &Ledger,
        resolved: &Resolved,
        live: &BTreeSet<WorkerId>,
        takers: &BTreeSet<WorkerId>,
    ) -> Findings {
        let before = std::mem::take(&mut self.waiting);
        let mut loads: BTreeMap<&WorkerId, usize> =
            takers.iter().map(|worker| (worker, 0)).collect();
        let mut assigned = BTreeSet::new();
        for (worker, task, epoch) in ledger.assignments() {
            if let Some(load) = loads.get_mut(worker) {
                *load += 1;
            }
            if !live.contains(worker) {
                continue;
            }
            assigned.insert(task);
            let runs = ledger
                .owned_by(worker, task)
                .is_some_and(|owned| owned.epoch == epoch);
            if runs {
                continue;
            }
            let known = before
                .get(task)
                .filter(|known| known.worker == *worker && known.epoch == epoch);
            let waiting = known.cloned().unwrap_or_else(|| Waiting {
                worker: worker.clone(),
                epoch,
                since: now,
                written_again: false,
            });
            self.waiting.insert(task.clone(), waiting);
        }
        self.tried.retain(|task, tried| {
            if tried.to.as_ref().is_some_and(|to| !takers.contains(to)) {
                tried.to = None;
            }
            assigned.contains(task) || (tried.to.is_some() && is_wanted(resolved, task))
        });
        self.act(now, ledger, loads)
    }

    fn act(
        &mut self,
        now: Duration,
        ledger: &Ledger,
        mut loads: BTreeMap<&WorkerId, usize>,
    ) -> Findings {
        let mut findings = Findings::default();
        for (task, waiting) in &mut self.waiting {
            let waited = now.saturating_sub(waiting.since);
            if waited < self.after {
                note_next(&mut findings, waiting.since + self.after);
                continue;
            }
            let chunk = keys::chunk_of(&task.link, &task.topic);
            let (answered, written) = ledger.chunk_revisions(&waiting.worker, chunk);
            let refused = answered >= written;
            findings.stuck.insert(
                task.clone(),
                StuckTask {
                    worker: waiting.worker.clone(),
                    waited,
                    refused,
                },
            );
            if !waiting.written_again {
                waiting.written_again = true;
                findings.again.insert((waiting.worker.clone(), chunk));
            }
            if waited < self.after * 2 {
                note_next(&mut findings, waiting.since + self.after * 2);
                continue;
            }
            if !refused {
                continue;
            }
            let tried = self.tried.entry(task.clone()).or_default();
            if tried.to.as_ref().is_some_and(|to| *to != waiting.worker) {
                continue;
            }
            tried.to = None;
            tried.refused_by.insert(waiting.worker.clone());
            if tried.refused_by.len() > MOVES_MAX {
                continue;
            }
            let others = loads
                .iter_mut()
                .filter(|(worker, _)| !tried.refused_by.contains(**worker));
            if let Some((worker, load)) = others.min_by_key(|(worker, load)| (**load, **worker)) {
                *load += 1;
                tried.to = Some((*worker).clone());
            }
        }
        for (task, tried) in &self.tried {
            if let Some(to) = &tried.to {
                findings.pinned.insert(task.clone(), to.clone());
            }
        }
        findings
    }
}

fn note_next(findings: &mut Findings, at: Duration) {
    let next = findings.next_check.unwrap_or(at);
    findings.next_check = Some(next.min(at));
}

#[cfg(test)]
#[path = "stuck_tests.rs"]
mod tests;
