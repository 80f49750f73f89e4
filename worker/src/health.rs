//! Whether this process is alive and ready, for probes.
//!
//! Alive: its main loop turns. Ready: it is registered and has read its assignment. Neither depends
//! on remote clusters: a cluster that is down is the links' matter, and restarting workers over it
//! would stop the links that run (C113).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The main loop turns at least once in this time, whatever happens around it.
pub const BEAT_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct State {
    beat_at: Instant,
    incarnation: Option<String>,
    synced: bool,
    draining: bool,
}

/// What probes are told.
#[derive(Debug)]
pub struct Health(Mutex<State>);

impl Health {
    /// A process that has just begun.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(State {
            beat_at: now,
            incarnation: None,
            synced: false,
            draining: false,
        }))
    }

    /// Why the process counts as dead; None: it is alive.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Option<String> {
        let silent = self.with(|state| now.saturating_duration_since(state.beat_at));
        (silent > BEAT_MAX).then(|| format!("the main loop has not turned for {silent:.0?}"))
    }

    /// Why the process is not ready; None: it is.
    #[must_use]
    pub fn unready(&self) -> Option<&'static str> {
        self.with(|state| {
            if state.draining {
                Some("draining")
            } else if state.incarnation.is_none() {
                Some("not registered")
            } else if !state.synced {
                Some("registered, but the assignment is not read yet")
            } else {
                None
            }
        })
    }

    /// The present registration; None while there is none.
    #[must_use]
    pub fn incarnation(&self) -> Option<String> {
        self.with(|state| state.incarnation.clone())
    }

    pub(crate) fn beat(&self, now: Instant) {
        self.with(|state| state.beat_at = now);
    }

    pub(crate) fn registered(&self, incarnation: String) {
        self.with(|state| state.incarnation = Some(incarnation));
    }

    pub(crate) fn synced(&self) {
        self.with(|state| state.synced = true);
    }

    pub(crate) fn lost(&self) {
        self.with(|state| {
            state.incarnation = None;
            state.synced = false;
        });
    }

    pub(crate) fn draining(&self) {
        self.with(|state| state.draining = true);
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readiness_follows_registration_and_assignment() {
        let health = Health::new(Instant::now());
        assert_eq!(health.unready(), Some("not registered"));
        health.registered("a-1".to_owned());
        assert!(health.unready().is_some());
        health.synced();
        assert_eq!(health.unready(), None);
        health.lost();
        assert_eq!(health.unready(), Some("not registered"));
        health.registered("a-2".to_owned());
        assert!(
            health.unready().is_some(),
            "read anew after each registration"
        );
        health.synced();
        health.draining();
        assert_eq!(health.unready(), Some("draining"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_dead() {
        let health = Health::new(Instant::now());
        tokio::time::advance(BEAT_MAX).await;
        assert_eq!(health.dead(Instant::now()), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(health.dead(Instant::now()).is_some());
        health.beat(Instant::now());
        assert_eq!(health.dead(Instant::now()), None);
    }
}
