//! What a plan is made from and what it says.

use std::{collections::BTreeMap, fmt};

use crate::ids::{TaskId, WorkerId};

/// What a plan is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// Tasks that shall run, with their owner now. An owner that is not in `workers` is lost.
    pub tasks: BTreeMap<TaskId, Option<WorkerId>>,
    /// Workers that are known.
    pub workers: BTreeMap<WorkerId, Worker>,
    /// Most tasks that this plan takes from workers which could keep them for now: those of draining
    /// workers and those moved for balance. None: no limit. The rest follows with the next plans.
    pub moves_max: Option<usize>,
}

/// A worker as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Whether it may take tasks.
    pub state: WorkerState,
    /// Most tasks it may run. None: no limit of its own.
    pub capacity_tasks: Option<u32>,
}

/// Whether a worker may take tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerState {
    /// Takes tasks.
    Active,
    /// Gives its tasks away and takes none; keeps those that nobody else can take.
    Draining,
    /// Missing, but not given up yet: keeps its tasks, gets none.
    Suspended,
}

/// Where every task shall run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The worker of each task.
    pub placements: BTreeMap<TaskId, WorkerId>,
    /// Placements that differ from the owner now, in order of task.
    pub moves: Vec<Move>,
    /// Tasks without a worker.
    pub unplaced: BTreeMap<TaskId, Unplaced>,
    /// No plan that gives every worker as many tasks as this one does can do with fewer moves.
    pub moves_lower_bound: usize,
}

/// A task that changes worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Its owner now, known or lost.
    pub from: Option<WorkerId>,
    /// Its owner to be.
    pub to: WorkerId,
    /// Why it moves.
    pub reason: Reason,
}

/// Why a task moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It has no owner.
    New,
    /// Its owner is gone.
    WorkerLost,
    /// Its owner is being emptied.
    WorkerDraining,
    /// Its owner has more tasks than it may run.
    OverCapacity,
    /// Its owner has more than its fair share, or another worker has less.
    Rebalance,
}

impl Reason {
    /// The reason as one word, for labels and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::WorkerLost => "worker-lost",
            Self::WorkerDraining => "worker-draining",
            Self::OverCapacity => "over-capacity",
            Self::Rebalance => "rebalance",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a task has no worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unplaced {
    /// No worker takes tasks.
    NoWorkers,
    /// Every worker that takes tasks is full.
    NoCapacity,
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoWorkers => "no worker takes tasks; start one or undrain one",
            Self::NoCapacity => "every worker is full; start another or raise capacity_tasks",
        })
    }
}
