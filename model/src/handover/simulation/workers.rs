//! What worker processes do.

use super::*;

impl World {
    pub(super) fn register(&mut self, worker: &WorkerId) {
        if !self.store.live.insert(worker.clone()) {
            return;
        }
        self.store.revision += 1;
        for view in &mut self.views {
            let inbox = view.live_inbox.entry(worker.clone()).or_default();
            inbox.push_back(true);
        }
        // It acts on its assignment only as read after it registered.
        let mut process = Process::default();
        for ((owner, chunk), value) in &self.store.assigned {
            if owner == worker {
                process.seen.insert(*chunk, value.clone());
            }
        }
        self.processes.insert(worker.clone(), process);
    }

    /// The fence closes, then the lease ends and takes its keys along.
    pub(super) fn lose_lease(&mut self, worker: &WorkerId) {
        if !self.store.live.remove(worker) {
            return;
        }
        let process = self
            .processes
            .remove(worker)
            .expect("registered workers have a process");
        self.store.revision += 1;
        for view in &mut self.views {
            for chunk in process.listed.keys() {
                let inbox = view
                    .owned_inbox
                    .entry((worker.clone(), *chunk))
                    .or_default();
                inbox.push_back(None);
            }
            let inbox = view.live_inbox.entry(worker.clone()).or_default();
            inbox.push_back(false);
        }
    }

    pub(super) fn see_assignment(&mut self, worker: &WorkerId, chunk: u32) {
        let Some(process) = self.processes.get_mut(worker) else {
            return;
        };
        if let Some(value) = process.inbox.entry(chunk).or_default().pop_front() {
            process.seen.insert(chunk, value);
        }
    }

    pub(super) fn publish(&mut self, worker: &WorkerId, number: u32) {
        let Some(process) = self.processes.get_mut(worker) else {
            return;
        };
        let Some((applied, wanted)) = process.seen.get(&number) else {
            return;
        };
        let mut tasks = BTreeMap::new();
        for (task, &epoch) in process
            .running
            .iter()
            .filter(|(task, _)| chunk(task) == number)
        {
            let stopping = wanted.get(task) != Some(&epoch);
            tasks.insert(task.clone(), Owned { epoch, stopping });
        }
        for (task, &epoch) in wanted {
            let stopping = false;
            tasks
                .entry(task.clone())
                .or_insert(Owned { epoch, stopping });
        }
        process.listed.insert(number, tasks.clone());
        self.store.revision += 1;
        for view in &mut self.views {
            let inbox = view
                .owned_inbox
                .entry((worker.clone(), number))
                .or_default();
            inbox.push_back(Some((*applied, tasks.clone())));
        }
    }

    pub(super) fn start(&mut self, worker: &WorkerId, task: &TaskId) {
        let Some(process) = self.processes.get_mut(worker) else {
            return;
        };
        let number = chunk(task);
        let wanted = process
            .seen
            .get(&number)
            .and_then(|(_, tasks)| tasks.get(task));
        let listed = process
            .listed
            .get(&number)
            .and_then(|tasks| tasks.get(task));
        if let (Some(&epoch), Some(entry)) = (wanted, listed)
            && entry.epoch == epoch
            && !process.running.contains_key(task)
        {
            process.running.insert(task.clone(), epoch);
        }
    }

    pub(super) fn stop(&mut self, worker: &WorkerId, task: &TaskId) {
        let Some(process) = self.processes.get_mut(worker) else {
            return;
        };
        let wanted = process
            .seen
            .get(&chunk(task))
            .and_then(|(_, tasks)| tasks.get(task));
        if process.running.get(task) != wanted {
            process.running.remove(task);
        }
    }

    /// Tells the leader what it copies.
    pub(super) fn report(&mut self, worker: &WorkerId) {
        self.said.0.retain(|(owner, _), _| owner != worker);
        let Some(process) = self.processes.get(worker) else {
            return;
        };
        for (task, epoch) in &process.running {
            let key = (worker.clone(), task.clone());
            self.said.0.insert(key, *epoch);
        }
    }
}
