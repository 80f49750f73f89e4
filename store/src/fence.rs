//! Self-fencing: whoever holds a lease must stop acting on it before the store can have given it to
//! somebody else, also when the store is out of reach or this process was frozen (C037, C038).
//!
//! A [`Fence`] is a deadline on the monotonic clock, pushed on by each answered keep-alive. Asking it
//! compares clocks, so the first question after a freeze already gets "closed": no timer or task has
//! to run first. Once closed it stays closed; the next registration comes with a fence of its own.
//!
//! The monotonic clock of Linux stands still while a machine is suspended as a whole. What a sender
//! does then is caught by the guards on every write (owner epochs, [`crate::election::Term::txn`]).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Tells whether the lease behind it still holds for certain. Clones are the same fence.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    base: Instant,
    /// Nanoseconds after `base`; [`CLOSED`]: closed for good.
    closes_at: AtomicU64,
    closed: Notify,
}

const CLOSED: u64 = 0;

impl Fence {
    /// A fence that is open until `closes_at`.
    #[must_use]
    pub fn open_until(closes_at: Instant) -> Self {
        let base = Instant::now();
        Self(Arc::new(Inner {
            base,
            closes_at: AtomicU64::new(nanos(base, closes_at)),
            closed: Notify::new(),
        }))
    }

    /// A fence that never was open.
    #[must_use]
    pub fn shut() -> Self {
        Self::open_until(Instant::now())
    }

    /// Whether the lease holds for certain now. Two atomic-cheap reads: fit for every batch.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the fence stays open without another keep-alive; zero once closed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.closes_at().saturating_duration_since(Instant::now())
    }

    /// Waits until the fence is closed. Cancel safe.
    pub async fn closed(&self) {
        loop {
            let closed = self.0.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            if !self.is_open() {
                return;
            }
            tokio::select! {
                () = sleep_until(self.closes_at()) => {}
                () = closed => {}
            }
        }
    }

    /// Whether both are the same fence.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Keeps the fence open until `closes_at`, unless it has closed already. Never brings the
    /// closing forward. False: it is closed and stays so.
    pub(crate) fn extend(&self, closes_at: Instant) -> bool {
        let now = nanos(self.0.base, Instant::now());
        let later = nanos(self.0.base, closes_at);
        self.0
            .closes_at
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
                (now < current).then_some(current.max(later))
            })
            .is_ok()
            && self.is_open()
    }

    /// Closes the fence for good.
    pub(crate) fn close(&self) {
        self.0.closes_at.store(CLOSED, Ordering::Release);
        self.0.closed.notify_waiters();
    }

    fn closes_at(&self) -> Instant {
        self.0.base + Duration::from_nanos(self.0.closes_at.load(Ordering::Acquire))
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("remaining", &self.remaining())
            .finish()
    }
}

fn nanos(base: Instant, at: Instant) -> u64 {
    let after = at.saturating_duration_since(base).as_nanos();
    u64::try_from(after).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn c038_the_first_look_after_a_freeze_is_closed() {
        let fence = Fence::open_until(Instant::now() + 3 * SECOND);
        assert!(fence.is_open());
        advance(2 * SECOND).await;
        assert!(fence.is_open());
        assert_eq!(fence.remaining(), SECOND);
        // No task of ours runs between the jump of the clock and the question.
        advance(SECOND).await;
        assert!(!fence.is_open());
        assert_eq!(fence.remaining(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_fence_cannot_be_reopened() {
        let fence = Fence::open_until(Instant::now() + SECOND);
        assert!(fence.extend(Instant::now() + 2 * SECOND));
        advance(2 * SECOND).await;
        assert!(!fence.extend(Instant::now() + SECOND), "lapsed");
        assert!(!fence.is_open());

        let fence = Fence::open_until(Instant::now() + SECOND);
        fence.close();
        assert!(!fence.extend(Instant::now() + SECOND), "closed by hand");
        assert!(!fence.is_open());
        assert!(!Fence::shut().is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn extending_never_brings_the_closing_forward() {
        let fence = Fence::open_until(Instant::now() + 5 * SECOND);
        assert!(fence.extend(Instant::now() + SECOND));
        assert_eq!(fence.remaining(), 5 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_follow_extensions_and_are_woken_by_closing() {
        let fence = Fence::open_until(Instant::now() + SECOND);
        let began = Instant::now();
        let waiter = tokio::spawn({
            let fence = fence.clone();
            async move {
                fence.closed().await;
                began.elapsed()
            }
        });
        assert!(fence.extend(began + 4 * SECOND));
        assert_eq!(waiter.await.expect("no panic").as_secs(), 4);

        let fence = Fence::open_until(Instant::now() + 60 * SECOND);
        let began = Instant::now();
        let waiter = tokio::spawn({
            let fence = fence.clone();
            async move {
                fence.closed().await;
                began.elapsed()
            }
        });
        advance(SECOND).await;
        fence.close();
        assert_eq!(waiter.await.expect("no panic").as_secs(), 1);
    }
}
