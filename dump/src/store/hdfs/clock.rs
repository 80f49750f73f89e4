//! What time it is for the NameNode.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::wall_millis;

/// The NameNode's clock, as far as it is known: it says the time only as that of a file it has just changed. So a
/// worker whose clock is wrong does not take young files for old ones.
#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<Option<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Milliseconds since 1970.
    millis: u64,
    at: Instant,
}

impl Clock {
    /// It was `millis` just now.
    pub(super) fn learn(&self, millis: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        *seen = Some(Seen { millis, at });
    }

    /// Milliseconds since 1970; by the clock of this machine before anything is known.
    pub(super) fn now(&self) -> u64 {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or_else(wall_millis, |seen| {
            let since = u64::try_from(seen.at.elapsed().as_millis()).unwrap_or(u64::MAX);
            seen.millis.saturating_add(since)
        })
    }

    /// Time since then; none where it lies in the future.
    pub(super) fn age(&self, millis: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ages_are_told_by_the_clock_of_the_namenode() {
        let clock = Clock::default();
        let here = wall_millis();
        assert!(clock.age(here - 5_000) >= Duration::from_secs(5));
        assert_eq!(clock.age(here + 60_000), Duration::ZERO, "of the future");
        // Its clock is two hours behind ours.
        let there = here - 7_200_000;
        clock.learn(there);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.age(there), Duration::from_secs(3));
        assert_eq!(clock.age(here), Duration::ZERO);
    }
}
