//! One byte budget for the records that this process holds (C107).
//!
//! First, each source's reader reserves what its client may fetch ahead, and all fetchers together have
//! a quarter of the limit, in equal parts. What is left is shared by the
//! tasks for records that were handed to a sink and are not acknowledged yet, in two halves:
//!
//! - the *fair* half belongs to the tasks in equal parts, so nobody can be locked out by a task whose
//!   target is slow or away (C030, C036);
//! - the *common* half goes to whoever asks first, so that few busy tasks can use more than their part.
//!
//! A task that gets nothing stops reading until acknowledgements come: the source is paused, never
//! buffered (C025). Acknowledged or given up bytes come back at once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Least that a reader reserves, however tight memory is.
const RESERVE_MIN: u64 = 1 << 20;
/// Most that a reader reserves.
const RESERVE_MAX: u64 = 16 << 20;
/// Part of the common half that one task may hold.
const COMMON_PART_PER_TASK: u64 = 4;

/// The part of the limit that all fetchers have together.
const FETCHERS_PART: u64 = 4;
/// Most that a fetcher has of it.
const FETCHER_MAX: u64 = 16 << 20;

/// The budget of a process.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    reserved: AtomicU64,
    fetchers: AtomicU64,
    used: AtomicU64,
    /// The part of `used` that came out of the common half.
    common: AtomicU64,
    tasks: AtomicU64,
}

/// Whether bytes were granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// They are held until given back.
    Granted,
    /// Not now: ask again when something was given back.
    NotNow,
    /// Never: more than the budget can hold at once.
    Never,
}

impl Budget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: limit_bytes,
            reserved: AtomicU64::new(0),
            fetchers: AtomicU64::new(0),
            used: AtomicU64::new(0),
            common: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
        })
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Bytes in use: reserved by readers and held by tasks.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.reserved() + self.used.load(Ordering::Relaxed)
    }

    /// What readers and fetchers have.
    fn reserved(&self) -> u64 {
        let fetchers = self.fetchers.load(Ordering::Acquire);
        self.reserved.load(Ordering::Acquire) + fetchers * self.fetcher_bytes(fetchers)
    }

    /// The part of each of so many fetchers.
    fn fetcher_bytes(&self, fetchers: u64) -> u64 {
        (self.limit / FETCHERS_PART / fetchers.max(1)).min(FETCHER_MAX)
    }

    /// Memory of one more fetcher: an equal part of a quarter of the limit, at most 16 MiB. It shrinks as
    /// others come, so that all together stay within the quarter, however many there are.
    #[must_use]
    pub fn fetcher(self: &Arc<Self>) -> FetcherPart {
        self.fetchers.fetch_add(1, Ordering::AcqRel);
        FetcherPart {
            budget: Arc::clone(self),
        }
    }

    /// Reserves memory for a reader: a quarter of what readers may still have (together half of the
    /// limit), between 1 and 16 MiB.
    #[must_use]
    pub fn reserve(self: &Arc<Self>) -> Reservation {
        let mut bytes = RESERVE_MIN;
        self.reserved
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
                let left = (self.limit / 2).saturating_sub(reserved);
                bytes = (left / 4).clamp(RESERVE_MIN, RESERVE_MAX);
                Some(reserved + bytes)
            })
            .expect("the closure always gives a value");
        Reservation {
            budget: Arc::clone(self),
            bytes,
        }
    }

    /// A task's share.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Share {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        Share {
            budget: Arc::clone(self),
            fair: 0,
            common: 0,
        }
    }

    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.reserved())
    }

    fn take(&self, bytes: u64) -> bool {
        let room = self.room();
        raise(&self.used, bytes, room)
    }

    fn take_common(&self, bytes: u64) -> bool {
        if !raise(&self.common, bytes, self.room() / 2) {
            return false;
        }
        let taken = self.take(bytes);
        if !taken {
            self.common.fetch_sub(bytes, Ordering::AcqRel);
        }
        taken
    }
}

/// Adds unless the sum would pass the limit.
fn raise(counter: &AtomicU64, bytes: u64, limit: u64) -> bool {
    counter
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        })
        .is_ok()
}

/// Memory of a reader; given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Memory of a fetcher; given back on drop.
#[derive(Debug)]
pub struct FetcherPart {
    budget: Arc<Budget>,
}

impl FetcherPart {
    /// Its size at the moment.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let fetchers = self.budget.fetchers.load(Ordering::Acquire);
        self.budget.fetcher_bytes(fetchers)
    }
}

impl Drop for FetcherPart {
    fn drop(&mut self) {
        self.budget.fetchers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one task holds; given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    fair: u64,
    common: u64,
}

impl Share {
    /// Asks for `bytes` more.
    pub fn take(&mut self, bytes: u64) -> Grant {
        let half = self.budget.room() / 2;
        if bytes > half {
            return Grant::Never;
        }
        let tasks = self.budget.tasks.load(Ordering::Acquire).max(1);
        if self.fair + bytes <= half / tasks && self.budget.take(bytes) {
            self.fair += bytes;
            return Grant::Granted;
        }
        // A record larger than any part may be taken by a task that holds nothing.
        let part = half / COMMON_PART_PER_TASK;
        let within = self.common + bytes <= part || self.held_bytes() == 0;
        if within && self.budget.take_common(bytes) {
            self.common += bytes;
            return Grant::Granted;
        }
        Grant::NotNow
    }

    /// Gives bytes back.
    ///
    /// # Panics
    /// When they are more than are held: the books of the task are wrong.
    pub fn give(&mut self, bytes: u64) {
        let common = self.common.min(bytes);
        let fair = bytes - common;
        assert!(
            fair <= self.fair,
            "{bytes} bytes are given back of {} held",
            self.held_bytes()
        );
        self.common -= common;
        self.fair -= fair;
        self.budget.common.fetch_sub(common, Ordering::AcqRel);
        self.budget.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The most that can be granted at once, to a task that holds nothing.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.budget.room() / 2
    }

    /// Parts with `bytes` of what is held: they stay taken from the budget, whatever becomes of the share.
    ///
    /// # Panics
    /// When they are more than are held: the books of the task are wrong.
    pub fn lend(&mut self, bytes: u64) -> Loan {
        let common = self.common.min(bytes);
        let fair = bytes - common;
        assert!(
            fair <= self.fair,
            "{bytes} bytes are lent of {} held",
            self.held_bytes()
        );
        self.common -= common;
        self.fair -= fair;
        Loan {
            budget: Arc::clone(&self.budget),
            fair,
            common,
        }
    }

    /// Takes back what was lent by it.
    pub fn take_back(&mut self, mut loan: Loan) {
        self.fair += std::mem::take(&mut loan.fair);
        self.common += std::mem::take(&mut loan.common);
    }

    /// What is held.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.fair + self.common
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.held_bytes());
        self.budget.tasks.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a task has lent to work that may outlive it; given back to the budget on drop.
#[derive(Debug)]
pub struct Loan {
    budget: Arc<Budget>,
    fair: u64,
    common: u64,
}

impl Loan {
    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.fair + self.common
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.budget.common.fetch_sub(self.common, Ordering::AcqRel);
        self.budget.used.fetch_sub(self.bytes(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn c107_the_limit_holds_whatever_the_number_of_tasks() {
        for tasks in [1, 3, 100, 2_000] {
            let budget = Budget::new(64 * MIB);
            let mut shares: Vec<_> = (0..tasks).map(|_| budget.share()).collect();
            let _reader = budget.reserve();
            for share in &mut shares {
                while share.take(10_000) == Grant::Granted {}
            }
            assert!(budget.used_bytes() <= budget.limit_bytes(), "{tasks} tasks");
            assert!(
                budget.used_bytes() > budget.limit_bytes() / 4,
                "{tasks} tasks"
            );
        }
    }

    #[test]
    fn c036_a_task_that_takes_all_it_can_leaves_the_others_their_part() {
        let budget = Budget::new(64 * MIB);
        let mut shares: Vec<_> = (0..10).map(|_| budget.share()).collect();
        let (greedy, modest) = shares.split_at_mut(5);
        for share in greedy.iter_mut() {
            while share.take(100_000) == Grant::Granted {}
        }
        let part = 32 * MIB / 10;
        for share in modest {
            let mut taken = 0;
            while taken + 100_000 <= part {
                assert_eq!(share.take(100_000), Grant::Granted, "after {taken}");
                taken += 100_000;
            }
        }
    }

    #[test]
    fn a_lone_task_may_use_more_than_its_fair_half() {
        let budget = Budget::new(64 * MIB);
        let mut busy = budget.share();
        let _idle = budget.share();
        while busy.take(MIB) == Grant::Granted {}
        assert!(busy.held_bytes() > 16 * MIB, "{}", busy.held_bytes());
    }

    #[test]
    fn a_record_larger_than_a_part_is_taken_by_a_task_that_holds_nothing() {
        let budget = Budget::new(64 * MIB);
        let mut shares: Vec<_> = (0..1_000).map(|_| budget.share()).collect();
        assert_eq!(shares[0].take(20 * MIB), Grant::Granted);
        assert_eq!(shares[0].take(20 * MIB), Grant::NotNow);
        assert_eq!(
            shares[1].take(20 * MIB),
            Grant::NotNow,
            "the common half is used"
        );
        shares[0].give(20 * MIB);
        assert_eq!(shares[1].take(20 * MIB), Grant::Granted);
        assert_eq!(shares[2].take(33 * MIB), Grant::Never);
    }

    #[test]
    fn everything_comes_back() {
        let budget = Budget::new(64 * MIB);
        let reader = budget.reserve();
        assert_eq!(reader.bytes(), 8 * MIB);
        let mut share = budget.share();
        assert_eq!(share.take(5 * MIB), Grant::Granted);
        share.give(2 * MIB);
        assert_eq!(share.held_bytes(), 3 * MIB);
        drop(share);
        drop(reader);
        assert_eq!(budget.used_bytes(), 0);
        let mut share = budget.share();
        while share.take(MIB) == Grant::Granted {}
        drop(share);
        assert_eq!(budget.used_bytes(), 0);
        assert_eq!(budget.common.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_lent_stays_taken_when_the_task_ends_and_comes_back_once() {
        let budget = Budget::new(64 * MIB);
        let mut share = budget.share();
        let _others: Vec<_> = (0..9).map(|_| budget.share()).collect();
        // Out of both halves.
        assert_eq!(share.take(2 * MIB), Grant::Granted);
        assert_eq!(share.take(8 * MIB), Grant::Granted);
        let loan = share.lend(9 * MIB);
        assert_eq!((loan.bytes(), share.held_bytes()), (9 * MIB, MIB));
        assert_eq!(budget.used_bytes(), 10 * MIB);
        share.take_back(loan);
        assert_eq!(share.held_bytes(), 10 * MIB);
        assert_eq!(budget.used_bytes(), 10 * MIB);
        let loan = share.lend(10 * MIB);
        drop(share);
        assert_eq!(budget.used_bytes(), 10 * MIB, "its work goes on");
        drop(loan);
        assert_eq!(budget.used_bytes(), 0);
        assert_eq!(budget.common.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_get_less_the_more_there_are_and_never_nothing() {
        let budget = Budget::new(64 * MIB);
        let readers: Vec<_> = (0..40).map(|_| budget.reserve()).collect();
        assert_eq!(readers[0].bytes(), 8 * MIB);
        assert!(
            readers
                .windows(2)
                .all(|two| two[0].bytes() >= two[1].bytes())
        );
        assert_eq!(readers[39].bytes(), MIB);
    }

    #[test]
    fn c107_any_number_of_fetchers_leaves_the_tasks_three_quarters_and_gives_all_back() {
        let budget = Budget::new(512 * MIB);
        let first = budget.fetcher();
        assert_eq!(first.bytes(), 16 * MIB);
        // 30 clusters of 10 brokers.
        let others: Vec<_> = (0..299).map(|_| budget.fetcher()).collect();
        assert_eq!(first.bytes(), 128 * MIB / 300);
        assert!(budget.used_bytes() <= 128 * MIB, "{}", budget.used_bytes());
        let mut share = budget.share();
        assert_eq!(share.take(8 * MIB), Grant::Granted);
        drop(share);
        drop(others);
        assert_eq!(first.bytes(), 16 * MIB);
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "given back")]
    fn giving_back_more_than_is_held_is_a_bug() {
        let budget = Budget::new(64 * MIB);
        let mut share = budget.share();
        assert_eq!(share.take(10), Grant::Granted);
        share.give(11);
    }
}
