//! How long to wait before trying again: exponential, bounded, jittered.

use std::time::Duration;

/// Waiting times that double from `first` up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Waits about `first` before the first retry and never more than `max`.
    ///
    /// # Panics
    /// When `first` is zero, which would spin, or above `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        assert!(!first.is_zero(), "a back-off of zero spins");
        assert!(
            first.as_nanos() <= max.as_nanos(),
            "the first wait is above the longest"
        );
        Self { first, max }
    }

    /// The longest wait.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The wait before retry number `attempt`, from 0. `random` from 0 to 1 picks a point in the
    /// upper half of the wait, so that those who failed together do not come back together;
    /// values outside are clamped.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let factor = 2_u32.checked_pow(attempt).unwrap_or(u32::MAX);
        let ceiling = self.first.saturating_mul(factor).min(self.max);
        // NaN clamps to NaN: it counts as 0.
        let random = if random.is_nan() {
            0.0
        } else {
            random.clamp(0.0, 1.0)
        };
        ceiling.mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

    #[test]
    fn waits_double_up_to_the_limit() {
        let at_most = |attempt| BACKOFF.delay(attempt, 1.0);
        assert_eq!(at_most(0), Duration::from_millis(200));
        assert_eq!(at_most(1), Duration::from_millis(400));
        assert_eq!(at_most(7), Duration::from_millis(25_600));
        assert_eq!(at_most(8), Duration::from_secs(30));
        assert_eq!(at_most(u32::MAX), Duration::from_secs(30));
    }

    #[test]
    #[should_panic(expected = "spins")]
    fn a_wait_of_zero_is_refused() {
        let backoff = Backoff::new(Duration::ZERO, Duration::from_secs(1));
        panic!("accepted: {backoff:?}");
    }

    proptest! {
        #[test]
        fn every_wait_lies_in_the_upper_half_of_its_ceiling(attempt: u32, random: f64) {
            let ceiling = BACKOFF.delay(attempt, 1.0);
            let wait = BACKOFF.delay(attempt, random);
            prop_assert!(wait <= ceiling);
            prop_assert!(wait >= ceiling / 2);
            prop_assert!(wait > Duration::ZERO);
        }
    }
}
