//! What controllers see and write.

use super::*;

impl World {
    pub(super) fn see_claim(&mut self, viewer: usize, key: &Key) {
        let view = &mut self.views[viewer];
        let Some(claim) = view.owned_inbox.entry(key.clone()).or_default().pop_front() else {
            return;
        };
        let leads = viewer == self.leader;
        match claim {
            Some((applied, tasks)) => {
                view.owned.insert(key.clone(), (applied, tasks.clone()));
                if leads {
                    self.ledger.set_owned(&key.0, key.1, applied, tasks);
                }
            }
            None => {
                view.owned.remove(key);
                if leads {
                    self.ledger.clear_owned_chunk(&key.0, key.1);
                }
            }
        }
    }

    pub(super) fn see_registration(&mut self, viewer: usize, worker: &WorkerId) {
        let view = &mut self.views[viewer];
        match view
            .live_inbox
            .entry(worker.clone())
            .or_default()
            .pop_front()
        {
            Some(true) => {
                view.live.insert(worker.clone());
            }
            Some(false) => {
                view.live.remove(worker);
            }
            None => {}
        }
    }

    pub(super) fn lost(&self) -> BTreeSet<WorkerId> {
        let live = &self.views[self.leader].live;
        let all = (0..self.size.workers).map(worker);
        all.filter(|worker| !live.contains(worker)).collect()
    }

    /// One round. A leader that dies after `writes` of its two transactions has done the first only.
    pub(super) fn reconcile(&mut self, writes: usize) -> Steps {
        let lost = self.lost();
        let known = Known {
            ledger: &self.ledger,
            lost: &lost,
            harmless: &Harmless::new(),
            words: &self.said,
        };
        let steps = steps(&self.plan, known);
        if writes >= 1 {
            self.write(&lost, &steps.revoke, &BTreeMap::new());
        }
        if writes >= 2 {
            self.write(&lost, &BTreeMap::new(), &steps.assign);
        }
        steps
    }

    pub(super) fn write(
        &mut self,
        lost: &BTreeSet<WorkerId>,
        revoke: &BTreeMap<WorkerId, BTreeSet<TaskId>>,
        assign: &BTreeMap<WorkerId, BTreeSet<TaskId>>,
    ) {
        // Every transaction compares the registrations of lost workers as absent.
        if lost.iter().any(|worker| self.store.live.contains(worker)) {
            return;
        }
        self.generation += 1;
        let mut changed: BTreeMap<Key, Tasks> = BTreeMap::new();
        let mut edit = |worker: &WorkerId, task: &TaskId, epoch: Option<OwnerEpoch>| {
            let key = (worker.clone(), chunk(task));
            let stored = self.store.assigned.get(&key);
            let tasks = changed.entry(key);
            let tasks = tasks.or_insert_with(|| stored.map(|(_, t)| t.clone()).unwrap_or_default());
            match epoch {
                Some(epoch) => tasks.insert(task.clone(), epoch),
                None => tasks.remove(task),
            };
        };
        for (worker, tasks) in revoke {
            tasks.iter().for_each(|task| edit(worker, task, None));
        }
        let epoch = OwnerEpoch(self.generation);
        for (worker, tasks) in assign {
            tasks
                .iter()
                .for_each(|task| edit(worker, task, Some(epoch)));
        }
        if changed.is_empty() {
            return;
        }
        self.store.revision += 1;
        let revision = self.store.revision;
        for (key, tasks) in changed {
            let value = (revision, tasks.clone());
            self.store.assigned.insert(key.clone(), value.clone());
            if let Some(process) = self.processes.get_mut(&key.0) {
                process.inbox.entry(key.1).or_default().push_back(value);
            }
            self.ledger.set_assigned(&key.0, key.1, revision, tasks);
        }
    }

    /// The other controller takes over with its own, perhaps older, view of claims.
    pub(super) fn change_leader(&mut self) {
        self.leader = 1 - self.leader;
        let assigned = self
            .store
            .assigned
            .iter()
            .map(|(key, (revision, tasks))| AssignedChunk {
                worker: key.0.clone(),
                chunk: key.1,
                mod_revision: *revision,
                tasks: tasks.clone(),
            });
        let owned = self.views[self.leader].owned.iter();
        let owned = owned.map(|(key, (applied, tasks))| OwnedChunk {
            worker: key.0.clone(),
            chunk: key.1,
            applied_revision: *applied,
            tasks: tasks.clone(),
        });
        self.ledger = Ledger::load(chunk_of, assigned, owned);
    }

    /// Deletes the assignment of a lost worker that has no task left.
    pub(super) fn forget(&mut self, worker: &WorkerId) {
        let has_tasks = self
            .ledger
            .assignments()
            .any(|(owner, _, _)| owner == worker);
        let is_live = self.store.live.contains(worker);
        if has_tasks || is_live || !self.lost().contains(worker) {
            return;
        }
        self.store.assigned.retain(|(owner, _), _| owner != worker);
        self.ledger.forget_worker(worker);
    }
}
