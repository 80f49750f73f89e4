//! Waiting between attempts: exponential, bounded, with jitter, so that a fleet that lost its store
//! does not come back in step and costs next to nothing while the store is away (C055).

use std::time::Duration;

use rand::Rng;

/// Limits of the waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Longest wait after the first failure.
    pub min: Duration,
    /// Longest wait of all.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            min: Duration::from_millis(200),
            max: Duration::from_secs(5),
        }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row: between half of and the whole of
    /// `min * 2^(failures - 1)`, at most `max`.
    #[must_use]
    pub fn delay(&self, failures: u32, rng: &mut impl Rng) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let longest = self.min.saturating_mul(1 << doublings).min(self.max);
        longest.mul_f64(rng.random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_differ() {
        let backoff = Backoff {
            min: Duration::from_millis(100),
            max: Duration::from_secs(2),
        };
        let mut rng = StdRng::seed_from_u64(7);
        for (failures, longest) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (5, 1600),
            (6, 2000),
            (99, 2000),
        ] {
            let longest = Duration::from_millis(longest);
            let delays: Vec<_> = (0..50).map(|_| backoff.delay(failures, &mut rng)).collect();
            assert!(delays.iter().all(|d| *d <= longest && *d >= longest / 2));
            assert!(delays.iter().any(|d| *d != delays[0]), "no jitter");
        }
    }
}
