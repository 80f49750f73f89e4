//! One task's life: its machine is fed, its actions are carried out in order, its state is shown.

use std::time::Duration;

use kreplicator_model::task::{Action, FaultKind, Input, State as TaskState};
use tracing::{debug, warn};

use super::{
    Done, Driver, LaneNumber,
    entry::{Blocked, Unproven},
};
use crate::{checkpoint::CheckpointStore as _, engine::State, fault::Fault};

impl Driver {
    /// Nothing of the task is outstanding any more.
    pub(super) fn settled(&mut self, lane: LaneNumber) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        match entry.machine.state() {
            TaskState::Starting { .. } => {
                self.to_start.insert(lane);
            }
            TaskState::Draining { .. } => self.step(lane, Input::Drained),
            TaskState::Stopped { .. } if entry.blocked == Some(Blocked::Settling) => {
                entry.blocked = None;
                entry.queue.push_front(Action::CommitCheckpoint);
                self.advance(lane);
            }
            TaskState::Idle
            | TaskState::Running { .. }
            | TaskState::Faulted { .. }
            | TaskState::Stopped { .. } => {}
        }
    }

    pub(super) fn fault(&mut self, lane: LaneNumber, fault: Fault) {
        let Some(entry) = self.entries.get(&lane) else {
            return;
        };
        let is_news = !matches!(
            entry.machine.state(),
            TaskState::Faulted { .. } | TaskState::Stopped { .. }
        );
        if !is_news {
            return;
        }
        self.shared.metrics.fault(fault.kind);
        let spec = &entry.lane.spec;
        if fault.kind.retry() == FaultKind::Terminal {
            warn!(task = %spec.id, epoch = %spec.epoch, cause = %fault, "task stopped for good");
        } else if entry.complained_about.as_deref() == Some(fault.cause.as_str()) {
            debug!(task = %spec.id, cause = %fault, "task faulted again");
        } else {
            warn!(task = %spec.id, epoch = %spec.epoch, cause = %fault, "task faulted; it is tried again");
        }
        let input = Input::Fault {
            cause: fault.cause.clone(),
            kind: fault.kind.retry(),
            random: rand::random(),
        };
        if let Some(entry) = self.entries.get_mut(&lane) {
            entry.complained_about = Some(fault.cause);
            entry.unproven = Some(Unproven {
                checkpoint: entry.lane.checkpoint(),
            });
        }
        self.step(lane, input);
    }

    /// Feeds the machine of a task and carries out what it wants.
    pub(super) fn step(&mut self, lane: LaneNumber, input: Input) {
        let now = self.base.elapsed();
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let mut actions = Vec::new();
        entry.machine.step(now, input, &mut actions);
        entry.queue.extend(actions);
        self.show(lane);
        self.advance(lane);
    }

    /// The task got further than its last fault.
    pub(super) fn proven(&mut self, lane: LaneNumber) {
        if let Some(entry) = self.entries.get_mut(&lane)
            && entry.is_reading()
            && entry.unproven.take().is_some()
        {
            self.show(lane);
        }
    }

    /// Carries out a task's actions, in order, until one has to be waited for.
    pub(super) fn advance(&mut self, lane: LaneNumber) {
        loop {
            let Some(entry) = self.entries.get_mut(&lane) else {
                return;
            };
            if entry.blocked.is_some() {
                return;
            }
            let Some(action) = entry.queue.pop_front() else {
                break;
            };
            match action {
                Action::OpenReader => self.open_reader(lane),
                Action::PauseReader => {
                    self.close_reader(lane);
                    if self.entries[&lane].lane.watch_settled() {
                        self.step(lane, Input::Drained);
                        return;
                    }
                }
                Action::CloseReader => self.close_reader(lane),
                Action::CommitCheckpoint => self.save_one(lane),
                Action::Kill => self.kill(lane),
                Action::Release => self.finish(lane),
            }
        }
        let Some(entry) = self.entries.get(&lane) else {
            return;
        };
        if entry.machine.is_stopped() {
            self.conclude(lane);
        }
    }

    fn open_reader(&mut self, lane: LaneNumber) {
        // What an earlier attempt left outstanding comes back first: it would be sent twice.
        if self.entries[&lane].lane.watch_settled() {
            self.to_start.insert(lane);
        }
    }

    fn close_reader(&mut self, lane: LaneNumber) {
        self.to_start.remove(&lane);
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        entry.look.forget();
        match &self.clients {
            Some(clients) => clients.reader.close(&entry.lane),
            None => entry.lane.close(),
        }
    }

    pub(super) fn kill(&mut self, lane: LaneNumber) {
        self.close_reader(lane);
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let Some(outlet) = entry.lane.outlet() else {
            return;
        };
        let grace = if entry.fenced {
            Duration::ZERO
        } else {
            self.config.kill_grace
        };
        entry.blocked = Some(Blocked::Killing);
        self.jobs
            .spawn(async move { Done::Killed(lane, outlet.forget(grace).await) });
    }

    pub(super) fn killed(&mut self, lane: LaneNumber, given_up: u64) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        entry.given_up += given_up;
        entry.note_kill();
        entry.lane.give_up();
        entry.blocked = None;
        if given_up > 0 {
            self.shared.metrics.given_up.increment(given_up);
        }
        self.advance(lane);
    }

    /// The task leaves; what is still outstanding is waited for until its stop's deadline.
    fn finish(&mut self, lane: LaneNumber) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let is_waiting_worthwhile = entry.stop.is_some() && !entry.was_killed() && !entry.fenced;
        let is_busy = entry.finding_start || !entry.lane.watch_settled();
        if is_waiting_worthwhile && is_busy {
            entry.queue.push_front(Action::Release);
            entry.blocked = Some(Blocked::Settling);
        }
    }

    /// Everything is done that the machine wanted; tells whoever stopped the task.
    pub(super) fn conclude(&mut self, lane: LaneNumber) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        entry.ended = true;
        self.show(lane);
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let Some(stop) = entry.stop.take() else {
            return;
        };
        let stopped = entry.result();
        let task = entry.lane.spec.id.clone();
        debug!(%task, epoch = %entry.lane.spec.epoch, ?stopped, "task stopped");
        // The engine's own patience may have ended.
        stop.reply.send(stopped).ok();
        self.entries.remove(&lane);
        self.saves.forget(lane);
        if let Some(clients) = &self.clients {
            clients.checkpoints.forget(&task);
        }
    }

    /// Shows a task's state to whoever looks.
    fn show(&self, lane: LaneNumber) {
        let Some(entry) = self.entries.get(&lane) else {
            return;
        };
        let board = &entry.lane.board;
        let now = self.shared.clock.now();
        match entry.machine.state() {
            TaskState::Idle | TaskState::Starting { .. } | TaskState::Running { .. }
                if entry.unproven.is_some() => {}
            TaskState::Idle | TaskState::Starting { .. } => board.enter(State::Starting, now),
            TaskState::Running { .. } => board.enter(State::Running, now),
            TaskState::Faulted {
                cause, retry_at, ..
            } => {
                let retry_at = retry_at.map(|at| {
                    let wait = at.saturating_sub(self.base.elapsed());
                    self.shared.clock.after(wait)
                });
                board.fault(cause, retry_at, now);
            }
            TaskState::Draining { .. } => board.enter(State::Stopping, now),
            TaskState::Stopped { .. } if entry.ended => board.enter(State::Stopped, now),
            TaskState::Stopped { .. } => board.enter(State::Stopping, now),
        }
    }
}
