//! The transitions.

use std::time::Duration;

use super::{Action, FaultKind, Input, Settings, State};

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
