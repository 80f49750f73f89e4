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
mod tests {
    use kreplicator_model::{
        ids::{LinkId, Partition, TopicName},
        ownership::Owned,
    };

    use super::*;
    use crate::reconcile::fixtures;

    const AFTER: Duration = Duration::from_secs(10);

    fn task() -> TaskId {
        TaskId {
            link: LinkId::new("a-b").expect("legal"),
            topic: TopicName::new("orders").expect("legal"),
            partition: Partition(0),
        }
    }

    fn worker(name: &str) -> WorkerId {
        WorkerId::new(name).expect("legal")
    }

    fn workers(names: &[&str]) -> BTreeSet<WorkerId> {
        names.iter().map(|name| worker(name)).collect()
    }

    fn chunk() -> u32 {
        keys::chunk_of(&task().link, &task().topic)
    }

    /// Assigns the task at `revision`, which is its epoch too.
    fn assign(ledger: &mut Ledger, to: &str, revision: u64) {
        let tasks = [(task(), OwnerEpoch(revision))].into();
        let at = i64::try_from(revision).expect("small");
        ledger.set_assigned(&worker(to), chunk(), at, tasks);
    }

    /// The task is asked for.
    fn wanted() -> Resolved {
        fixtures::resolved(&[("orders", 1)])
    }

    /// The first of two workers refused the task 20 s ago: it is pinned to the other and was taken away.
    fn refused_by_the_first(live: &BTreeSet<WorkerId>) -> (StuckTasks, Ledger) {
        let mut ledger = Ledger::new(keys::chunk_of);
        let mut stuck = StuckTasks::new(AFTER);
        assign(&mut ledger, "w1", 5);
        ledger.set_owned(&worker("w1"), chunk(), 5, BTreeMap::new());
        stuck.step(seconds(0), &ledger, &wanted(), live, live);
        let findings = stuck.step(seconds(20), &ledger, &wanted(), live, live);
        assert_eq!(findings.pinned[&task()], worker("w2"));
        ledger.set_assigned(&worker("w1"), chunk(), 6, BTreeMap::new());
        (stuck, ledger)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_task_that_is_taken_on_in_time_is_never_stuck() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let mut stuck = StuckTasks::new(AFTER);
        let live = workers(&["w1", "w2"]);
        assign(&mut ledger, "w1", 5);
        let findings = stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
        assert_eq!(findings.next_check, Some(AFTER));
        let owned = Owned {
            epoch: OwnerEpoch(5),
            stopping: false,
        };
        ledger.set_owned(&worker("w1"), chunk(), 5, [(task(), owned)].into());
        assert_eq!(
            stuck.step(seconds(60), &ledger, &wanted(), &live, &live),
            Findings::default()
        );
    }

    #[test]
    fn c043_a_refused_task_is_written_again_then_tried_elsewhere_then_only_reported() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let mut stuck = StuckTasks::new(AFTER);
        let live = workers(&["w1", "w2", "w3", "w4", "w5", "w6"]);
        let mut at = 0;
        let mut revision = 5;
        let mut seen_on = Vec::new();
        assign(&mut ledger, "w1", revision);
        for _ in 0..=MOVES_MAX {
            let (owner, _) = ledger.assigned_to(&task()).expect("assigned");
            let owner = owner.clone();
            seen_on.push(owner.to_string());
            ledger.set_owned(&owner, chunk(), i64::MAX, BTreeMap::new());
            assert!(
                stuck
                    .step(seconds(at), &ledger, &wanted(), &live, &live)
                    .stuck
                    .is_empty()
            );
            let first = stuck.step(seconds(at + 10), &ledger, &wanted(), &live, &live);
            assert_eq!(first.again, [(owner.clone(), chunk())].into());
            assert!(first.stuck[&task()].refused);
            let again = stuck.step(seconds(at + 11), &ledger, &wanted(), &live, &live);
            assert!(again.again.is_empty(), "written again and again");
            let second = stuck.step(seconds(at + 20), &ledger, &wanted(), &live, &live);
            assert_eq!(second.stuck[&task()].worker, owner);
            let Some(next) = second.pinned.get(&task()) else {
                break;
            };
            assert_ne!(*next, owner);
            // Taken from one, given to the other.
            revision += 1;
            ledger.set_assigned(
                &owner,
                chunk(),
                i64::try_from(revision).expect("small"),
                BTreeMap::new(),
            );
            let between = stuck.step(seconds(at + 21), &ledger, &wanted(), &live, &live);
            assert_eq!(
                between.pinned.get(&task()),
                Some(next),
                "forgets where it goes"
            );
            revision += 1;
            assign(&mut ledger, next.as_str(), revision);
            at += 22;
        }
        assert_eq!(seen_on.len(), 1 + MOVES_MAX, "{seen_on:?}");
        let at_last = stuck.step(seconds(at + 1000), &ledger, &wanted(), &live, &live);
        assert!(at_last.pinned.is_empty());
        assert!(at_last.stuck.contains_key(&task()));
    }

    #[test]
    fn c043_a_task_stays_pinned_where_it_runs_as_long_as_that_worker_takes_tasks() {
        let live = workers(&["w1", "w2"]);
        let (mut stuck, mut ledger) = refused_by_the_first(&live);
        assign(&mut ledger, "w2", 7);
        let owned = Owned {
            epoch: OwnerEpoch(7),
            stopping: false,
        };
        ledger.set_owned(&worker("w2"), chunk(), 7, [(task(), owned)].into());
        let findings = stuck.step(seconds(500), &ledger, &wanted(), &live, &live);
        assert_eq!(findings.pinned[&task()], worker("w2"));
        assert!(findings.stuck.is_empty());
        let findings = stuck.step(seconds(501), &ledger, &wanted(), &live, &workers(&["w1"]));
        assert!(
            findings.pinned.is_empty(),
            "pinned to a worker that is emptied"
        );
    }

    #[test]
    fn a_worker_that_does_not_answer_keeps_its_task_in_the_books() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let mut stuck = StuckTasks::new(AFTER);
        let live = workers(&["w1", "w2"]);
        assign(&mut ledger, "w1", 5);
        stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
        let findings = stuck.step(seconds(100), &ledger, &wanted(), &live, &live);
        assert!(!findings.stuck[&task()].refused);
        assert!(findings.pinned.is_empty());
        assert_eq!(findings.again.len(), 1);
    }

    #[test]
    fn a_missing_worker_is_left_to_the_judgement_of_its_liveness() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let mut stuck = StuckTasks::new(AFTER);
        assign(&mut ledger, "w1", 5);
        let live = workers(&["w2"]);
        stuck.step(seconds(0), &ledger, &wanted(), &live, &live);
        assert_eq!(
            stuck.step(seconds(100), &ledger, &wanted(), &live, &live),
            Findings::default()
        );
    }

    #[test]
    fn a_task_that_nobody_asks_for_any_more_is_forgotten_with_its_pin() {
        let live = workers(&["w1", "w2"]);
        let (mut stuck, ledger) = refused_by_the_first(&live);
        let findings = stuck.step(seconds(21), &ledger, &Resolved::default(), &live, &live);
        assert!(findings.pinned.is_empty());
        assert!(stuck.tried.is_empty());
    }

    #[test]
    fn who_is_leaving_or_silent_takes_nothing() {
        let mut book = fixtures::empty_book();
        for name in ["w1", "w2", "w3"] {
            fixtures::register(&mut book, name, 1);
        }
        book.drains.insert(worker("w2"));
        let active = workers(&["w1", "w2", "w3"]);
        assert_eq!(takers(&book, &active, &workers(&["w3"])), workers(&["w1"]));
    }
}
