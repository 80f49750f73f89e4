//! The machine of one running task: what a worker does next about one topic-partition.
//!
//! It decides only; the worker carries the actions out, in order, each finished before the next, and
//! reports back with inputs. Time is a `Duration` since any fixed start.

use std::{fmt, time::Duration};

use crate::backoff::Backoff;

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

/// The machine of one task under one ownership.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    state: State,
}

impl Machine {
    /// A task that waits for [`Input::Start`].
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Idle,
        }
    }

    /// Where the task stands.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the machine has come to its end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped { .. })
    }

    /// When the next [`Input::Tick`] is due; None while only events matter.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        match &self.state {
            State::Faulted { retry_at, .. } => *retry_at,
            State::Draining { deadline } => Some(*deadline),
            State::Idle
            | State::Starting { .. }
            | State::Running { .. }
            | State::Stopped { .. } => None,
        }
    }

    /// Takes one input; what is to be done is added to `actions`.
    pub fn step(&mut self, now: Duration, input: Input, actions: &mut Vec<Action>) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.state = match state {
            State::Idle => Self::when_idle(input, actions),
            State::Starting { attempts } => self.when_starting(now, attempts, input, actions),
            State::Running { since, attempts } => {
                self.when_running(now, since, attempts, input, actions)
            }
            State::Faulted {
                cause,
                since,
                retry_at,
                attempts,
            } => {
                let wait = Wait {
                    cause,
                    since,
                    retry_at,
                    attempts,
                };
                Self::when_faulted(now, wait, input, actions)
            }
            State::Draining { deadline } => Self::when_draining(now, deadline, input, actions),
            State::Stopped { clean } => Self::when_stopped(clean, input),
        };
    }

    fn when_idle(input: Input, actions: &mut Vec<Action>) -> State {
        match input {
            Input::Start => start(0, actions),
            Input::Stop | Input::DeadlinePassed => {
                actions.push(Action::Release);
                State::Stopped { clean: true }
            }
            Input::FenceLost => State::Stopped { clean: true },
            // Nothing was opened, so nothing can be reported about it.
            Input::Started
            | Input::Progress
            | Input::Fault { .. }
            | Input::Drained
            | Input::Tick => State::Idle,
        }
    }

    fn when_starting(
        &self,
        now: Duration,
        attempts: u32,
        input: Input,
        actions: &mut Vec<Action>,
    ) -> State {
        match input {
            Input::Started => State::Running {
                since: now,
                attempts,
            },
            Input::Fault {
                cause,
                kind,
                random,
            } => {
                actions.push(Action::CloseReader);
                self.faulted(now, attempts, cause, kind, random)
            }
            Input::Stop => {
                actions.extend([Action::CloseReader, Action::Release]);
                State::Stopped {
                    clean: attempts == 0,
                }
            }
            Input::DeadlinePassed => {
                actions.extend([Action::Kill, Action::Release]);
                State::Stopped {
                    clean: attempts == 0,
                }
            }
            Input::FenceLost => fenced(actions),
            // Being started already; late news of the attempt before; nothing is due.
            Input::Start | Input::Progress | Input::Drained | Input::Tick => {
                State::Starting { attempts }
            }
        }
    }

    fn when_running(
        &self,
        now: Duration,
        since: Duration,
        attempts: u32,
        input: Input,
        actions: &mut Vec<Action>,
    ) -> State {
        match input {
            Input::Progress => {
                let is_steady = now.saturating_sub(since) >= self.settings.steady_after;
                let attempts = if is_steady { 0 } else { attempts };
                State::Running { since, attempts }
            }
            Input::Fault {
                cause,
                kind,
                random,
            } => {
                // What is acknowledged in a row is saved, so only the rest is repeated (C032).
                actions.extend([Action::CloseReader, Action::CommitCheckpoint]);
                self.faulted(now, attempts, cause, kind, random)
            }
            Input::Stop => {
                actions.push(Action::PauseReader);
                State::Draining {
                    deadline: now + self.settings.drain_timeout,
                }
            }
            Input::DeadlinePassed => killed(actions),
            Input::FenceLost => fenced(actions),
            // Running already; everything sent is acknowledged, and more will be; nothing is due.
            Input::Start | Input::Started | Input::Drained | Input::Tick => {
                State::Running { since, attempts }
            }
        }
    }

    fn when_faulted(now: Duration, wait: Wait, input: Input, actions: &mut Vec<Action>) -> State {
        match input {
            Input::Start => start(wait.attempts, actions),
            Input::Tick if wait.retry_at.is_some_and(|at| now >= at) => {
                start(wait.attempts, actions)
            }
            // Nothing runs and what was acknowledged is saved; what was given up may be repeated by the
            // next owner.
            Input::Stop | Input::DeadlinePassed => {
                actions.push(Action::Release);
                State::Stopped { clean: false }
            }
            Input::FenceLost => fenced(actions),
            // Late news of the attempt that failed, or a tick too early.
            Input::Started
            | Input::Progress
            | Input::Fault { .. }
            | Input::Drained
            | Input::Tick => wait.into(),
        }
    }

    fn when_draining(
        now: Duration,
        deadline: Duration,
        input: Input,
        actions: &mut Vec<Action>,
    ) -> State {
        match input {
            Input::Drained => {
                actions.extend([
                    Action::CloseReader,
                    Action::CommitCheckpoint,
                    Action::Release,
                ]);
                State::Stopped { clean: true }
            }
            // The next owner will meet the fault; this one has been told to go.
            Input::Fault { .. } => {
                actions.extend([
                    Action::CloseReader,
                    Action::CommitCheckpoint,
                    Action::Release,
                ]);
                State::Stopped { clean: false }
            }
            Input::DeadlinePassed => killed(actions),
            Input::Tick if now >= deadline => killed(actions),
            Input::FenceLost => fenced(actions),
            // Stopping is not taken back: a new assignment has a new epoch and a machine of its own.
            Input::Start | Input::Started | Input::Progress | Input::Stop | Input::Tick => {
                State::Draining { deadline }
            }
        }
    }

    fn when_stopped(clean: bool, input: Input) -> State {
        match input {
            // The end: whatever arrives was on its way before.
            Input::Start
            | Input::Started
            | Input::Progress
            | Input::Fault { .. }
            | Input::Stop
            | Input::Drained
            | Input::DeadlinePassed
            | Input::FenceLost
            | Input::Tick => State::Stopped { clean },
        }
    }

    fn faulted(
        &self,
        now: Duration,
        attempts: u32,
        cause: String,
        kind: FaultKind,
        random: f64,
    ) -> State {
        let retry_at = match kind {
            FaultKind::Retryable => Some(now + self.settings.backoff.delay(attempts, random)),
            FaultKind::Terminal => None,
        };
        State::Faulted {
            cause,
            since: now,
            retry_at,
            attempts: attempts.saturating_add(1),
        }
    }
}

/// The fields of [`State::Faulted`].
struct Wait {
    cause: String,
    since: Duration,
    retry_at: Option<Duration>,
    attempts: u32,
}

impl From<Wait> for State {
    fn from(wait: Wait) -> Self {
        Self::Faulted {
            cause: wait.cause,
            since: wait.since,
            retry_at: wait.retry_at,
            attempts: wait.attempts,
        }
    }
}

fn start(attempts: u32, actions: &mut Vec<Action>) -> State {
    actions.push(Action::OpenReader);
    State::Starting { attempts }
}

/// Ends a task that would not end by itself. After `Kill` nothing more can be acknowledged, so the
/// checkpoint that is saved then is final (C046).
fn killed(actions: &mut Vec<Action>) -> State {
    actions.extend([Action::Kill, Action::CommitCheckpoint, Action::Release]);
    State::Stopped { clean: false }
}

/// Ends a task whose worker may have been replaced: nothing is saved in its name, and its entry in
/// the list has gone with the lease (C037).
fn fenced(actions: &mut Vec<Action>) -> State {
    actions.push(Action::Kill);
    State::Stopped { clean: false }
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
#[path = "task_tests.rs"]
mod tests;
