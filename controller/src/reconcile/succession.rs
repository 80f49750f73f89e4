//! Succeeding a worker that is silent though its lease still holds: which of its tasks need not wait, and
//! what is told of them until the lease is over.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    handover::Harmless,
    ids::{TaskId, WorkerId},
    ownership::Ledger,
};

use super::decide::Decision;
use crate::reports::View;

/// Suspects with those of their tasks that bear a second owner.
pub(crate) fn harmless(suspects: &BTreeSet<WorkerId>, reports: &View<'_>) -> Harmless {
    let suspects = suspects.iter();
    suspects
        .map(|worker| (worker.clone(), reports.exactly_once(worker)))
        .collect()
}

/// Tasks that were taken from workers which may still list them.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    taken: BTreeMap<TaskId, BTreeSet<WorkerId>>,
}

impl Succession {
    /// Notes what a decision has taken from silent workers.
    pub(crate) fn note(&mut self, decision: &Decision, ledger: &Ledger) {
        for (task, worker) in &decision.succeeded {
            let workers = self.taken.entry(task.clone()).or_default();
            workers.insert(worker.clone());
        }
        self.taken.retain(|task, workers| {
            workers.retain(|worker| ledger.owned_by(worker, task).is_some());
            !workers.is_empty()
        });
    }

    /// Tasks that more than one worker lists as its own, though nobody was succeeded (C039).
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
    use kreplicator_model::{ids::OwnerEpoch, ownership::Owned};
    use kreplicator_store::keys;

    use super::*;
    use crate::reconcile::fixtures::{task, worker};

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
