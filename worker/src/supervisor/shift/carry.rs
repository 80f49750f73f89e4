//! Tasks that bear a second owner go on while this worker is registered nowhere. The next registration
//! reads what is assigned to it before anything is done in its name: what is still assigned under the same
//! ownership runs on as if nothing had been, everything else stops first.

use std::time::Duration;

use kreplicator_model::ids::TaskId;
use tracing::info;

use super::{Shift, StopReason};

impl Shift<'_> {
    /// Sets apart what goes on. What was carried into this registration and not looked at yet stays carried.
    pub(super) fn carry_over(&mut self) {
        let supervisor = &mut *self.supervisor;
        for carried in self.books.running() {
            let id = &carried.spec.id;
            let live = supervisor.parts.tasks.get(id);
            if live.is_some_and(|live| live.task.may_go_on()) {
                supervisor.carried.insert(id.clone(), carried);
            }
        }
    }

    /// Lets the data path act in the name of this registration, once everything that runs is known to be
    /// ours. The assignment has been read. True: it may.
    pub(super) fn admit(&mut self) -> bool {
        if self.is_admitted {
            return true;
        }
        let mut resumed = 0;
        for (id, carried) in std::mem::take(&mut self.supervisor.carried) {
            let live = self.supervisor.parts.tasks.get(&id);
            let may_go_on = live.is_some_and(|live| live.task.may_go_on());
            if may_go_on && self.books.resume(carried) {
                resumed += 1;
            } else {
                self.clear(id, StopReason::Fenced, Duration::ZERO);
            }
        }
        if resumed > 0 || !self.clearing.is_empty() {
            let stopping = self.clearing.len();
            info!(resumed, stopping, "tasks went on without a registration");
        }
        if !self.clearing.is_empty() {
            return false;
        }
        let fence = self.tenure.registration.fence.clone();
        self.supervisor.parts.gate.admit(fence);
        self.is_admitted = true;
        true
    }

    /// Stops what was carried into this registration and not looked at yet.
    pub(super) fn clear_carried(&mut self, reason: StopReason, limit: Duration) {
        for id in std::mem::take(&mut self.supervisor.carried).into_keys() {
            self.clear(id, reason, limit);
        }
    }

    /// Whether nothing runs or is being stopped.
    pub(super) fn is_idle(&self) -> bool {
        self.books.is_idle() && self.clearing.is_empty() && self.supervisor.carried.is_empty()
    }

    fn clear(&mut self, id: TaskId, reason: StopReason, limit: Duration) {
        self.stop(&id, reason, limit);
        self.clearing.insert(id);
    }
}
