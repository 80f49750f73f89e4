//! Which workers count as lost.

use std::{collections::BTreeSet, time::Duration};

use crate::ids::WorkerId;

/// How long to wait before a missing worker counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// After a worker's lease was seen to be gone.
    pub margin: Duration,
    /// After a leader started.
    pub startup_grace: Duration,
    /// After every worker that has tasks went missing.
    pub mass_loss_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            margin: Duration::from_millis(500),
            startup_grace: Duration::from_secs(5),
            mass_loss_grace: Duration::from_secs(30),
        }
    }
}

/// What became of the workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Registered now.
    pub active: BTreeSet<WorkerId>,
    /// Missing, with tasks, not given up yet.
    pub suspended: BTreeSet<WorkerId>,
    /// Missing for good: their tasks may start elsewhere.
    pub lost: BTreeSet<WorkerId>,
    /// When a verdict may change without any news. None: only with news.
    pub next_check: Option<Duration>,
}

/// Remembers since when workers are missing.
#[derive(Debug, Clone)]
pub struct Liveness {
    settings: Settings,
}

impl Liveness {
    /// Starts watching at `now`, a time since any fixed start.
    #[must_use]
    pub fn new(settings: Settings, now: Duration) -> Self {
        let _ = now;
        Self { settings }
    }

    /// Judges the workers: `live` are registered now, `with_tasks` have tasks assigned.
    pub fn step(
        &mut self,
        now: Duration,
        live: &BTreeSet<WorkerId>,
        with_tasks: &BTreeSet<WorkerId>,
    ) -> Verdict {
        let _ = (now, live, with_tasks, self.settings);
        todo!()
    }
}
