//! Which workers count as lost.
//!
//! A worker whose registration is gone may come back at once: it restarted, or the store let its lease
//! go by mistake. Giving it up costs moves; waiting costs time in which its tasks stand still. One
//! worker missing is given up after a short margin. All of them missing is more likely a fault of the
//! store than of every worker (C044, C058), so that is given more time, also when the first ones are
//! back: they must not be handed everything. While nobody at all is registered nobody is given up,
//! for there is nobody to take over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::ids::WorkerId;

/// How long to wait before a missing worker counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// After a worker's registration was seen to be gone.
    pub margin: Duration,
    /// After a leader started, and after the first worker is back when nobody was there.
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
    /// When the verdict may change without any news. None: only with news.
    pub next_check: Option<Duration>,
}

/// Remembers since when workers are missing. Time is a `Duration` since any fixed start of a
/// monotonic clock.
#[derive(Debug, Clone)]
pub struct Liveness {
    settings: Settings,
    /// Nobody is given up before: the leader is new, or the first worker is just back.
    startup_until: Duration,
    /// Nobody is given up before, unless all come back: all went missing.
    mass_loss_until: Option<Duration>,
    /// Missing workers with tasks, and since when.
    missing: BTreeMap<WorkerId, Duration>,
    /// All workers with tasks were missing when last looked at.
    was_mass_loss: bool,
    /// Nobody was registered when last looked at.
    was_empty: bool,
}

impl Liveness {
    /// Starts watching at `now`.
    #[must_use]
    pub fn new(settings: Settings, now: Duration) -> Self {
        Self {
            settings,
            startup_until: now + settings.startup_grace,
            mass_loss_until: None,
            missing: BTreeMap::new(),
            was_mass_loss: false,
            was_empty: false,
        }
    }

    /// Judges the workers: `live` are registered now, `with_tasks` have an assignment, which a missing
    /// worker keeps until it is lost and somebody took it away.
    pub fn step(
        &mut self,
        now: Duration,
        live: &BTreeSet<WorkerId>,
        with_tasks: &BTreeSet<WorkerId>,
    ) -> Verdict {
        let gone: BTreeSet<&WorkerId> = with_tasks.difference(live).collect();
        self.missing.retain(|worker, _| gone.contains(worker));
        for worker in gone {
            self.missing.entry(worker.clone()).or_insert(now);
        }
        self.note_mass_loss(now, live, with_tasks);

        let mut verdict = Verdict {
            active: live.clone(),
            ..Verdict::default()
        };
        for (worker, since) in &self.missing {
            let give_up = (*since + self.settings.margin)
                .max(self.startup_until)
                .max(self.mass_loss_until.unwrap_or_default());
            if live.is_empty() {
                verdict.suspended.insert(worker.clone());
            } else if now < give_up {
                verdict.suspended.insert(worker.clone());
                let next = verdict.next_check.map_or(give_up, |next| next.min(give_up));
                verdict.next_check = Some(next);
            } else {
                verdict.lost.insert(worker.clone());
            }
        }
        verdict
    }

    fn note_mass_loss(
        &mut self,
        now: Duration,
        live: &BTreeSet<WorkerId>,
        with_tasks: &BTreeSet<WorkerId>,
    ) {
        // One worker that has all the tasks may well be lost while others are there to take over.
        let is_suspicious = live.is_empty() || with_tasks.len() > 1;
        let is_mass_loss =
            is_suspicious && !self.missing.is_empty() && self.missing.len() == with_tasks.len();
        if is_mass_loss && !self.was_mass_loss {
            self.mass_loss_until = Some(now + self.settings.mass_loss_grace);
        }
        if self.missing.is_empty() {
            self.mass_loss_until = None;
        }
        if self.was_empty && !live.is_empty() {
            self.startup_until = now + self.settings.startup_grace;
        }
        self.was_mass_loss = is_mass_loss;
        self.was_empty = live.is_empty();
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
