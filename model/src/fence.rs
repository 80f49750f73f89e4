//! Until when a worker may act on its lease.
//!
//! The store ends a lease its time to live after the last keep-alive that it answered. A worker
//! cannot know when the store handled the keep-alive, but it was not before the worker sent it. So a
//! worker that stops at `sent + ttl - margin`, on its own monotonic clock, has stopped before anybody
//! else can see its lease end (C037, C038).

use std::time::Duration;

/// The moment at which a worker stops by itself. Time is a `Duration` since any fixed start of a
/// monotonic clock that also runs while the process is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceDeadline {
    at: Duration,
}

impl FenceDeadline {
    /// The deadline after a keep-alive sent at `sent` was answered with `ttl`. A margin that takes up
    /// all of the lease leaves no time at all.
    #[must_use]
    pub fn new(sent: Duration, ttl: Duration, margin: Duration) -> Self {
        Self {
            at: sent + ttl.saturating_sub(margin),
        }
    }

    /// The deadline after one more keep-alive was answered. Answers may overtake each other: the
    /// deadline never moves back.
    #[must_use]
    pub fn renewed(self, sent: Duration, ttl: Duration, margin: Duration) -> Self {
        Self {
            at: self.at.max(Self::new(sent, ttl, margin).at),
        }
    }

    /// When the worker stops.
    #[must_use]
    pub fn at(self) -> Duration {
        self.at
    }

    /// Whether the worker may still act; at the deadline itself it may not.
    #[must_use]
    pub fn is_open(self, now: Duration) -> bool {
        now < self.at
    }

    /// Time left; zero once closed.
    #[must_use]
    pub fn remaining(self, now: Duration) -> Duration {
        self.at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn c037_the_fence_closes_before_the_lease_can_end() {
        let fence = FenceDeadline::new(S(10), S(5), S(1));
        assert!(fence.is_open(S(13)));
        assert!(!fence.is_open(S(14)));
        assert_eq!(fence.remaining(S(12)), S(2));
        // The store cannot end the lease before 10 s + 5 s.
        assert!(fence.at() < S(15));
    }

    #[test]
    fn c038_a_frozen_worker_wakes_up_fenced() {
        let fence = FenceDeadline::new(S(10), S(5), S(1));
        assert!(!fence.is_open(S(10) + S(3 * 5)));
        assert_eq!(fence.remaining(S(25)), Duration::ZERO);
    }

    #[test]
    fn an_answer_that_was_overtaken_does_not_shorten_the_deadline() {
        let fence = FenceDeadline::new(S(10), S(5), S(1));
        assert_eq!(fence.renewed(S(8), S(5), S(1)), fence);
        assert_eq!(fence.renewed(S(12), S(5), S(1)).at(), S(16));
    }

    #[test]
    fn a_margin_longer_than_the_lease_leaves_no_time() {
        let fence = FenceDeadline::new(S(10), S(1), S(2));
        assert!(!fence.is_open(S(10)));
    }
}
