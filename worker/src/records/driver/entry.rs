//! What the driver knows of one task.

use std::{collections::VecDeque, sync::Arc};

use kreplicator_model::{
    ids::Offset,
    task::{Action, Machine},
};
use tokio::{sync::oneshot, time::Instant};

use super::looks::LookState;
use crate::{engine::Stopped, records::lane::Lane};

/// One task.
pub(super) struct Entry {
    pub(super) lane: Arc<Lane>,
    pub(super) machine: Machine,
    /// Actions that are not carried out yet.
    pub(super) queue: VecDeque<Action>,
    /// What the next action waits for.
    pub(super) blocked: Option<Blocked>,
    pub(super) stop: Option<Stop>,
    pub(super) look: LookState,
    /// The checkpoint that is known to be saved.
    pub(super) saved: Option<Offset>,
    /// To be saved though it may not have moved: brokers forget old commits.
    pub(super) is_stale: bool,
    /// Records that may or may not arrive.
    pub(super) given_up: u64,
    pub(super) fenced: bool,
    /// All actions are done and none will come.
    pub(super) ended: bool,
    /// The cause of the last fault, until the task has run well: it is not logged again.
    pub(super) complained_about: Option<String>,
    /// Where the task was when it faulted, until it has got further: the fault is shown until then,
    /// since an attempt alone proves nothing.
    pub(super) unproven: Option<Unproven>,
    /// A job is finding its start, and may save it.
    pub(super) finding_start: bool,
    was_killed: bool,
}

/// What a task's next action waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A save of at least this checkpoint.
    Saving(Offset),
    /// What is stuck in the sink is being thrown out.
    Killing,
    /// Outstanding records, or the job that finds its start, until the deadline of the stop.
    Settling,
}

/// A fault that may be met again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unproven {
    /// The checkpoint at the fault.
    pub(super) checkpoint: Option<Offset>,
}

/// Who wants the task to stop.
pub(super) struct Stop {
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Stopped>,
}

impl Entry {
    pub(super) fn new(lane: Arc<Lane>, machine: Machine) -> Self {
        Self {
            lane,
            machine,
            queue: VecDeque::new(),
            blocked: None,
            stop: None,
            look: LookState::default(),
            saved: None,
            is_stale: false,
            given_up: 0,
            fenced: false,
            ended: false,
            complained_about: None,
            unproven: None,
            finding_start: false,
            was_killed: false,
        }
    }

    pub(super) fn was_killed(&self) -> bool {
        self.was_killed
    }

    pub(super) fn note_kill(&mut self) {
        self.was_killed = true;
    }

    /// How the task ended, by what is known.
    pub(super) fn result(&self) -> Stopped {
        let numbers = self.lane.numbers();
        let in_flight_records = self.given_up
            + if self.was_killed {
                0
            } else {
                numbers.in_flight
            };
        let is_saved = numbers.checkpoint.is_none() || numbers.checkpoint == self.saved;
        let is_settled = numbers.checkpoint == numbers.position;
        let was_forced = self.was_killed || self.fenced;
        if in_flight_records > 0 || !is_settled || was_forced {
            Stopped::Forced { in_flight_records }
        } else if is_saved {
            Stopped::Clean
        } else {
            Stopped::Unsaved
        }
    }
}
