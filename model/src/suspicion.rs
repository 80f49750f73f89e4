//! Which workers are succeeded before their lease ends.
//!
//! A worker that is not heard of for a second is probably gone, and its lease takes several more to end.
//! Tasks for which a second owner does no harm need not wait for that. Being wrong about it costs some
//! reading and a move, so being wrong about many at once must be impossible: when more workers are silent
//! than a small part of the fleet, it is more likely that the listener is deaf.
//!
//! - Only workers that say how often they are to be heard are suspected.
//! - A listener that was held up itself begins to listen anew.
//! - At most a tenth of the fleet is suspected at a time, and as many within a minute. A suspect whose registration
//!   ends was gone indeed and counts no longer: its tasks would have moved in any case.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::ids::WorkerId;

/// A silence of fewer heartbeats than this is none.
const HEARTBEATS_MISSED_MIN: u32 = 4;
/// One worker in so many may be suspected, and at least one.
const FLEET_PER_SUSPECT: usize = 10;
/// In this time as many may be suspected anew.
const REFILL: Duration = Duration::from_secs(60);

/// What is known of a worker that has a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Names its registration: a worker that starts anew has another.
    pub incarnation: String,
    /// For how long it has been silent.
    pub silent: Duration,
    /// How often it means to be heard; zero: it has not said so.
    pub interval: Duration,
}

/// Remembers who is suspected. Time is a `Duration` since any fixed start of a monotonic clock.
#[derive(Debug, Clone)]
pub struct Suspicion {
    /// Silence after which a worker is suspected; zero: never.
    after: Duration,
    looked_at: Option<Duration>,
    /// Nobody is suspected anew before.
    quiet_until: Duration,
    /// Who was suspected within the last [`REFILL`] and has not been shown to be gone.
    recent: Vec<Recent>,
    suspects: BTreeSet<WorkerId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Recent {
    at: Duration,
    worker: WorkerId,
    incarnation: String,
}

impl Suspicion {
    /// Suspects after a silence of `after`; zero: nobody. [`Suspicion::step`] is to be called at least twice
    /// in that time.
    #[must_use]
    pub fn new(after: Duration) -> Self {
        Self {
            after,
            looked_at: None,
            quiet_until: Duration::ZERO,
            recent: Vec::new(),
            suspects: BTreeSet::new(),
        }
    }

    /// Looks at all workers that have a lease; gives those that are suspected now.
    pub fn step(
        &mut self,
        now: Duration,
        workers: &BTreeMap<WorkerId, Heard>,
    ) -> &BTreeSet<WorkerId> {
        let since = self.looked_at.replace(now);
        let was_held_up = since.is_none_or(|since| now.saturating_sub(since) > self.after / 2);
        if was_held_up {
            self.quiet_until = now + self.after;
        }
        let is_silent = |worker: &WorkerId| {
            workers.get(worker).is_some_and(|heard| {
                let patience = self.after.max(heard.interval * HEARTBEATS_MISSED_MIN);
                !heard.interval.is_zero() && heard.silent > patience
            })
        };
        let silent: BTreeSet<&WorkerId> = workers.keys().filter(|id| is_silent(id)).collect();
        self.suspects.retain(|worker| silent.contains(worker));
        self.recent.retain(|suspected| {
            let registered = workers
                .get(&suspected.worker)
                .is_some_and(|heard| heard.incarnation == suspected.incarnation);
            registered && now.saturating_sub(suspected.at) < REFILL
        });
        let allowed = (workers.len() / FLEET_PER_SUSPECT).max(1);
        let may = !self.after.is_zero() && now >= self.quiet_until && silent.len() <= allowed;
        for worker in silent {
            if may && self.recent.len() < allowed && self.suspects.insert(worker.clone()) {
                self.recent.push(Recent {
                    at: now,
                    worker: worker.clone(),
                    incarnation: workers[worker].incarnation.clone(),
                });
            }
        }
        &self.suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(250);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn fleet(size: usize, silent: &[(usize, u64)]) -> BTreeMap<WorkerId, Heard> {
        let silent: BTreeMap<_, _> = silent.iter().copied().collect();
        let worker = |index| {
            let heard = Heard {
                incarnation: "first".to_owned(),
                silent: ms(silent.get(&index).copied().unwrap_or(100)),
                interval: BEAT,
            };
            (name(index), heard)
        };
        (0..size).map(worker).collect()
    }

    fn name(index: usize) -> WorkerId {
        WorkerId::new(format!("w-{index}")).expect("legal")
    }

    /// One that has listened to all of them for a second.
    fn listening(size: usize) -> Suspicion {
        let mut suspicion = Suspicion::new(ms(1_000));
        for at in (0..=1_000).step_by(200) {
            assert!(suspicion.step(ms(at), &fleet(size, &[])).is_empty());
        }
        suspicion
    }

    fn suspects(found: &BTreeSet<WorkerId>) -> Vec<&str> {
        found.iter().map(WorkerId::as_str).collect()
    }

    #[test]
    fn a_silent_worker_is_suspected_until_it_is_heard_again() {
        let mut suspicion = listening(3);
        assert!(
            suspicion
                .step(ms(1_200), &fleet(3, &[(1, 1_000)]))
                .is_empty()
        );
        let found = suspicion.step(ms(1_400), &fleet(3, &[(1, 1_001)]));
        assert_eq!(suspects(found), ["w-1"]);
        assert!(suspicion.step(ms(1_600), &fleet(3, &[])).is_empty());
    }

    #[test]
    fn one_whose_lease_is_over_is_no_suspect_any_more() {
        let mut suspicion = listening(3);
        suspicion.step(ms(1_200), &fleet(3, &[(2, 1_500)]));
        assert!(suspicion.step(ms(1_400), &fleet(2, &[])).is_empty());
    }

    #[test]
    fn more_silent_workers_than_a_tenth_of_the_fleet_are_left_to_their_leases() {
        let mut suspicion = listening(20);
        let three = [(1, 1_500), (2, 1_500), (3, 1_500)];
        assert!(suspicion.step(ms(1_200), &fleet(20, &three)).is_empty());
        let found = suspicion.step(ms(1_400), &fleet(20, &three[..2]));
        assert_eq!(suspects(found), ["w-1", "w-2"]);
        // Within a minute no more.
        assert!(suspicion.step(ms(1_600), &fleet(20, &[])).is_empty());
        let mut at = 1_800;
        while at < 61_400 {
            assert!(suspicion.step(ms(at), &fleet(20, &[(7, 1_500)])).is_empty());
            at += 400;
        }
        let found = suspicion.step(ms(at), &fleet(20, &[(7, 1_500)]));
        assert_eq!(suspects(found), ["w-7"]);
    }

    #[test]
    fn a_suspect_that_was_gone_indeed_does_not_count_against_the_next() {
        let mut suspicion = listening(3);
        let found = suspicion.step(ms(1_200), &fleet(3, &[(1, 1_500)]));
        assert_eq!(suspects(found), ["w-1"]);
        // Falsely suspected, it counts.
        assert!(suspicion.step(ms(1_400), &fleet(3, &[])).is_empty());
        let second = fleet(3, &[(0, 1_500)]);
        assert!(suspicion.step(ms(1_600), &second).is_empty());
        // Started anew, it was gone.
        let mut anew = fleet(3, &[]);
        "second".clone_into(&mut anew.get_mut(&name(1)).expect("there").incarnation);
        assert!(suspicion.step(ms(1_800), &anew).is_empty());
        anew.get_mut(&name(0)).expect("there").silent = ms(1_500);
        assert_eq!(suspects(suspicion.step(ms(2_000), &anew)), ["w-0"]);
        // Without a lease any more, it was gone too.
        anew.remove(&name(0));
        assert!(suspicion.step(ms(2_200), &anew).is_empty());
        anew.get_mut(&name(1)).expect("there").silent = ms(1_500);
        assert_eq!(suspects(suspicion.step(ms(2_400), &anew)), ["w-1"]);
    }

    /// The leader was frozen, or starved: everybody seems to have been silent.
    #[test]
    fn a_listener_that_was_held_up_begins_to_listen_anew() {
        let mut suspicion = listening(3);
        for at in [5_000, 5_200, 5_400, 5_800] {
            assert!(suspicion.step(ms(at), &fleet(3, &[(1, 4_000)])).is_empty());
        }
        let found = suspicion.step(ms(6_000), &fleet(3, &[(1, 5_000)]));
        assert_eq!(suspects(found), ["w-1"], "still silent a second later");
    }

    #[test]
    fn who_is_heard_seldom_or_does_not_say_how_often_is_not_suspected_early() {
        let mut suspicion = listening(3);
        let mut workers = fleet(3, &[(1, 1_500)]);
        let interval = |workers: &mut BTreeMap<WorkerId, Heard>, interval| {
            workers.get_mut(&name(1)).expect("there").interval = interval;
        };
        interval(&mut workers, Duration::ZERO);
        assert!(suspicion.step(ms(1_200), &workers).is_empty());
        interval(&mut workers, ms(500));
        assert!(suspicion.step(ms(1_400), &workers).is_empty());
        interval(&mut workers, ms(300));
        assert_eq!(suspects(suspicion.step(ms(1_600), &workers)), ["w-1"]);
    }

    #[test]
    fn with_zero_nobody_is_suspected() {
        let mut suspicion = Suspicion::new(Duration::ZERO);
        for at in 0..100 {
            let found = suspicion.step(ms(at), &fleet(3, &[(1, 60_000)]));
            assert!(found.is_empty());
        }
    }
}
