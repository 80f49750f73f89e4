//! Two owners on purpose: succeeding a worker that is silent though its lease still holds, and moving a task
//! without a pause. Which tasks bear it, and what is told of them until the older owner has let go.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    handover::{Harmless, Word, Words},
    ids::{LinkId, OwnerEpoch, TaskId, WorkerId},
    ownership::Ledger,
    spec::{Engine, Link},
};
use tokio::time::Instant;

use super::decide::Decision;
use crate::reports::{Reports, View};

/// Suspects with those of their tasks that bear a second owner.
pub(crate) fn harmless(suspects: &BTreeSet<WorkerId>, reports: &View, ledger: &Ledger) -> Harmless {
    let suspects = suspects.iter();
    let with_tasks = suspects.map(|worker| {
        let tasks = reports.exactly_once(worker);
        // What was said of an earlier ownership says nothing of this one.
        let tasks =
            tasks.filter(|(task, epoch)| ledger.assigned_to(task) == Some((worker, *epoch)));
        (
            worker.clone(),
            tasks.map(|(task, _)| task.clone()).collect(),
        )
    });
    with_tasks.collect()
}

/// What workers say, held against the links as they are declared.
#[derive(Debug)]
pub(crate) struct Spoken<'a> {
    pub(crate) reports: &'a Reports,
    pub(crate) links: &'a BTreeMap<LinkId, Link>,
    pub(crate) now: Instant,
}

impl Words for Spoken<'_> {
    fn of(&self, worker: &WorkerId, task: &TaskId, epoch: OwnerEpoch) -> Word {
        let word = self.reports.word(self.now, worker, task, epoch);
        // Who succeeds it begins on the engine that its link names.
        let link = self.links.get(&task.link);
        let counts = link.is_some_and(|link| link.engine() == Engine::Batches);
        Word {
            bears_second: word.bears_second && counts,
            ..word
        }
    }
}

/// Tasks that were taken from workers which may still list them.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    taken: BTreeMap<TaskId, BTreeSet<WorkerId>>,
}

impl Succession {
    /// Notes what a decision has taken from silent workers, and where others cover for a successor.
    pub(crate) fn note(&mut self, decision: &Decision, ledger: &Ledger) {
        for (task, worker) in &decision.succeeded {
            let workers = self.taken.entry(task.clone()).or_default();
            workers.insert(worker.clone());
        }
        for (task, covering) in &decision.steps.covering {
            let workers = self.taken.entry(task.clone()).or_default();
            workers.extend(covering.iter().cloned());
        }
        self.taken.retain(|task, workers| {
            workers.retain(|worker| ledger.owned_by(worker, task).is_some());
            !workers.is_empty()
        });
    }

    /// Tasks that more than one worker lists as its own, though that was not meant to be (C039).
    pub(crate) fn double_claims(&self, ledger: &Ledger) -> Vec<(TaskId, Vec<WorkerId>)> {
        let mut doubles = ledger.double_claims();
        doubles.retain_mut(|(task, workers)| {
            if let Some(taken) = self.taken.get(task) {
                workers.retain(|worker| !taken.contains(worker));
            }
            workers.len() > 1
        });
        doubles
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ownership::Owned;
    use kreplicator_proto::v1;
    use kreplicator_store::keys;

    use super::*;
    use crate::{
        fleet::{FleetState, WorkerView},
        reconcile::fixtures::{link, task, worker},
        reports::{Limits, Verdict},
    };

    /// `w1` says that it copies `orders/0` under epoch 7, exactly once.
    fn said() -> Reports {
        let view = WorkerView {
            tasks_assigned: 1,
            tasks_owned: 1,
            ..WorkerView::idle()
        };
        let fleet = FleetState {
            workers: [(worker("w1"), view)].into(),
            ..FleetState::default()
        };
        let id = task("orders", 0);
        let report = v1::WorkerReport {
            worker: "w1".to_owned(),
            incarnation: "i1".to_owned(),
            full: true,
            tasks: vec![v1::TaskReport {
                link: id.link.to_string(),
                topic: id.topic.to_string(),
                partition: id.partition.0,
                epoch: 7,
                state: v1::TaskState::Running.into(),
                log_end: Some(9),
                delivery: "exactly_once".to_owned(),
                ..v1::TaskReport::default()
            }],
            ..v1::WorkerReport::default()
        };
        let reports = Reports::new(Limits::default());
        let verdict = reports.accept(Instant::now(), reports.open_stream(), report, &fleet);
        assert_eq!(verdict, Verdict::Accepted);
        reports
    }

    #[test]
    fn a_link_that_names_the_other_engine_bears_no_second_owner() {
        let reports = said();
        let id = task("orders", 0);
        let word = |engine: Option<Engine>| {
            let declared = Link { engine, ..link() };
            let links = BTreeMap::from([(declared.id.clone(), declared)]);
            let spoken = Spoken {
                reports: &reports,
                links: &links,
                now: Instant::now(),
            };
            spoken.of(&worker("w1"), &id, OwnerEpoch(7))
        };
        for engine in [None, Some(Engine::Batches)] {
            assert!(word(engine).copies && word(engine).bears_second);
        }
        let other = word(Some(Engine::Records));
        assert!(other.copies && !other.bears_second);
    }

    #[test]
    fn a_silent_workers_promise_counts_for_its_present_ownership_only() {
        let reports = said();
        let id = task("orders", 0);
        let chunk = keys::chunk_of(&id.link, &id.topic);
        let suspects = BTreeSet::from([worker("w1")]);
        let given = |epoch| {
            let mut ledger = Ledger::new(keys::chunk_of);
            let tasks = BTreeMap::from([(id.clone(), OwnerEpoch(epoch))]);
            ledger.set_assigned(&worker("w1"), chunk, 1, tasks);
            let harmless = harmless(&suspects, &reports.view(Instant::now()), &ledger);
            harmless[&worker("w1")].clone()
        };
        assert_eq!(given(7), [id.clone()].into());
        assert_eq!(given(8), BTreeSet::new());
    }

    #[test]
    fn c039_who_covers_for_a_successor_is_no_alarm() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let id = task("orders", 0);
        let chunk = keys::chunk_of(&id.link, &id.topic);
        for (name, epoch) in [("w1", 1), ("w2", 2)] {
            let owned = Owned {
                epoch: OwnerEpoch(epoch),
                stopping: false,
            };
            let tasks = BTreeMap::from([(id.clone(), owned)]);
            ledger.set_owned(&worker(name), chunk, 1, tasks);
        }
        let mut decision = Decision::default();
        let covering = [worker("w1")].into();
        decision.steps.covering.insert(id, covering);
        let mut succession = Succession::default();
        succession.note(&decision, &ledger);
        assert_eq!(succession.double_claims(&ledger), []);
    }

    #[test]
    fn c039_who_was_succeeded_is_no_alarm_until_it_lists_the_task_again() {
        let mut ledger = Ledger::new(keys::chunk_of);
        let id = task("orders", 0);
        let chunk = keys::chunk_of(&id.link, &id.topic);
        let owned = Owned {
            epoch: OwnerEpoch(1),
            stopping: false,
        };
        let claim = |ledger: &mut Ledger, name: &str| {
            let tasks = BTreeMap::from([(task("orders", 0), owned)]);
            ledger.set_owned(&worker(name), chunk, 1, tasks);
        };
        claim(&mut ledger, "w1");
        claim(&mut ledger, "w2");
        let mut succession = Succession::default();
        let alarm = vec![(id.clone(), vec![worker("w1"), worker("w2")])];
        assert_eq!(succession.double_claims(&ledger), alarm);
        let decision = Decision {
            succeeded: BTreeMap::from([(id, worker("w1"))]),
            ..Decision::default()
        };
        succession.note(&decision, &ledger);
        assert_eq!(succession.double_claims(&ledger), []);
        // Its lease is over, or it has let go.
        ledger.clear_owned(&worker("w1"));
        succession.note(&Decision::default(), &ledger);
        claim(&mut ledger, "w1");
        assert_eq!(succession.double_claims(&ledger), alarm);
    }
}
