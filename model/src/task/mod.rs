//! The machine of one running task: what a worker does next about one topic-partition.
//!
//! It decides only; the worker carries the actions out, in order, each finished before the next, and
//! reports back with inputs. Time is a `Duration` since any fixed start.

mod machine;

use std::{fmt, time::Duration};

use crate::backoff::Backoff;

pub use machine::Machine;

/// How patient a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Running with progress for this long makes earlier attempts forgotten.
    pub steady_after: Duration,
    /// Longest wait for acknowledgements after the task was told to stop.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(60)),
            steady_after: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Where a task stands.
///
/// ```text
///        Start            Started
///  Idle ───────► Starting ───────► Running ──── Stop ───► Draining ─── Drained ──► Stopped (clean)
///                 ▲    │              │                      │
///   Tick, Start   │    │ Fault        │ Fault                │ Fault, DeadlinePassed, Tick
///                 │    ▼              │                      ▼
///                Faulted ◄────────────┘              Stopped (not clean)
///                 │                                          ▲
///                 └───────────────── Stop ───────────────────┘
/// ```
///
/// Besides: `Stop` ends `Idle` and `Starting` at once, `DeadlinePassed` and `FenceLost` end every
/// state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Made, and not started.
    Idle,
    /// The reader is being opened.
    Starting {
        /// Attempts that failed in a row before this one.
        attempts: u32,
    },
    /// Records flow.
    Running {
        /// Since when.
        since: Duration,
        /// Attempts that failed in a row before this one; 0 again after steady progress.
        attempts: u32,
    },
    /// Nothing runs because of a fault.
    Faulted {
        /// Why, for people.
        cause: String,
        /// Since when.
        since: Duration,
        /// When it is tried again. None: not before [`Input::Start`].
        retry_at: Option<Duration>,
        /// Attempts that failed in a row, this one included.
        attempts: u32,
    },
    /// Told to stop: nothing more is read, acknowledgements are awaited.
    Draining {
        /// When waiting ends.
        deadline: Duration,
    },
    /// Nothing runs and nothing will.
    Stopped {
        /// Everything that was sent is acknowledged and saved: the next owner repeats nothing.
        clean: bool,
    },
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It may: after a back-off.
    Retryable,
    /// It cannot until somebody changes something.
    Terminal,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Run. Also takes a faulted task up again at once.
    Start,
    /// The reader is open.
    Started,
    /// The checkpoint moved, or the task is at the end of its partition.
    Progress,
    /// Reading or writing failed.
    Fault {
        /// Why, for people.
        cause: String,
        /// Whether trying again may help.
        kind: FaultKind,
        /// From 0 to 1, for the jitter of the back-off.
        random: f64,
    },
    /// Stop in good order.
    Stop,
    /// Everything that was sent is acknowledged.
    Drained,
    /// The caller will not wait any longer.
    DeadlinePassed,
    /// The worker's lease may be over: nothing may be done in its name.
    FenceLost,
    /// Time has passed.
    Tick,
}

/// What to do, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open the reader at the checkpoint.
    OpenReader,
    /// Read nothing more; what was sent goes on.
    PauseReader,
    /// Read nothing more and give up what is not acknowledged. Undoes an `OpenReader` under way.
    CloseReader,
    /// Save the checkpoint.
    CommitCheckpoint,
    /// Strike the task off the list of what this worker runs.
    Release,
    /// Destroy the task's clients without waiting for them, so that nothing more can be sent.
    Kill,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "idle",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Faulted { .. } => "faulted",
            Self::Draining { .. } => "draining",
            Self::Stopped { .. } => "stopped",
        })
    }
}

#[cfg(test)]
mod tests;
