use proptest::prelude::*;

use super::*;

fn set(names: &[&str]) -> BTreeSet<WorkerId> {
    names
        .iter()
        .map(|name| WorkerId::new(name).expect("legal"))
        .collect()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const ALL: &[&str] = &["a", "b", "c"];

/// A leader that has been there for a while, with three workers that all have tasks.
fn settled() -> Liveness {
    let mut liveness = Liveness::new(Settings::default(), ms(0));
    liveness.step(ms(0), &set(ALL), &set(ALL));
    liveness.step(ms(60_000), &set(ALL), &set(ALL));
    liveness
}

/// Suspended and lost workers at a time.
#[track_caller]
fn assert_verdict(
    liveness: &mut Liveness,
    at: Duration,
    live: &[&str],
    suspended: &[&str],
    lost: &[&str],
) {
    let verdict = liveness.step(at, &set(live), &set(ALL));
    assert_eq!(verdict.active, set(live), "active");
    assert_eq!(verdict.suspended, set(suspended), "suspended");
    assert_eq!(verdict.lost, set(lost), "lost");
}

#[test]
fn one_missing_worker_is_lost_after_the_margin() {
    let mut liveness = settled();
    let verdict = liveness.step(ms(61_000), &set(&["b", "c"]), &set(ALL));
    assert_eq!(verdict.suspended, set(&["a"]));
    assert_eq!(verdict.next_check, Some(ms(61_500)));
    assert_verdict(&mut liveness, ms(61_499), &["b", "c"], &["a"], &[]);
    assert_verdict(&mut liveness, ms(61_500), &["b", "c"], &[], &["a"]);
}

#[test]
fn a_worker_that_is_back_within_the_margin_keeps_its_tasks() {
    let mut liveness = settled();
    assert_verdict(&mut liveness, ms(61_000), &["b", "c"], &["a"], &[]);
    assert_verdict(&mut liveness, ms(61_400), ALL, &[], &[]);
    assert_verdict(&mut liveness, ms(62_000), &["b", "c"], &["a"], &[]);
    assert_verdict(&mut liveness, ms(62_500), &["b", "c"], &[], &["a"]);
}

#[test]
fn a_missing_worker_without_tasks_is_nobody() {
    let mut liveness = settled();
    let verdict = liveness.step(ms(61_000), &set(&["b"]), &set(&["b"]));
    assert_eq!(verdict.active, set(&["b"]));
    assert!(verdict.suspended.is_empty() && verdict.lost.is_empty());
    assert_eq!(verdict.next_check, None);
}

#[test]
fn c058_all_leases_revoked_at_once_moves_nothing() {
    let mut liveness = settled();
    assert_verdict(&mut liveness, ms(61_000), &["c"], &["a", "b"], &[]);
    assert_verdict(&mut liveness, ms(61_400), &[], ALL, &[]);
    // The first ones are back long after the margin; they are not handed what the others had.
    assert_verdict(&mut liveness, ms(65_000), &["a"], &["b", "c"], &[]);
    assert_verdict(&mut liveness, ms(80_000), &["a", "b"], &["c"], &[]);
    assert_verdict(&mut liveness, ms(91_399), &["a", "b"], &["c"], &[]);
    assert_verdict(&mut liveness, ms(91_400), &["a", "b"], &[], &["c"]);
}

#[test]
fn c058_once_all_are_back_a_single_loss_is_a_single_loss() {
    let mut liveness = settled();
    assert_verdict(&mut liveness, ms(61_000), &[], ALL, &[]);
    assert_verdict(&mut liveness, ms(63_000), ALL, &[], &[]);
    // Beyond the start-up grace that the return of the first one began.
    assert_verdict(&mut liveness, ms(70_000), &["b", "c"], &["a"], &[]);
    assert_verdict(&mut liveness, ms(70_500), &["b", "c"], &[], &["a"]);
}

#[test]
fn c044_while_nobody_is_there_nobody_is_given_up() {
    let mut liveness = Liveness::new(Settings::default(), ms(0));
    let verdict = liveness.step(ms(1_000), &set(&[]), &set(ALL));
    assert_eq!(verdict.suspended, set(ALL));
    assert_eq!(verdict.next_check, None, "only news can change it");
    assert_verdict(&mut liveness, ms(600_000), &[], ALL, &[]);
    // However late the first one is, the others get time to follow it.
    assert_verdict(&mut liveness, ms(600_100), &["b"], &["a", "c"], &[]);
    assert_verdict(&mut liveness, ms(605_099), &["b", "c"], &["a"], &[]);
    assert_verdict(&mut liveness, ms(605_100), &["b", "c"], &[], &["a"]);
}

#[test]
fn c044_a_new_leader_waits_for_workers_that_are_starting_too() {
    let mut liveness = Liveness::new(Settings::default(), ms(0));
    assert_verdict(&mut liveness, ms(10), &["a"], &["b", "c"], &[]);
    assert_verdict(&mut liveness, ms(4_999), &["a", "b"], &["c"], &[]);
    assert_verdict(&mut liveness, ms(5_000), &["a", "b"], &[], &["c"]);
}

#[test]
fn c053_a_worker_that_died_unseen_is_found_missing() {
    // The leader was cut off from the store for a while and looks again.
    let mut liveness = settled();
    assert_verdict(&mut liveness, ms(90_000), &["a", "c"], &["b"], &[]);
    assert_verdict(&mut liveness, ms(90_500), &["a", "c"], &[], &["b"]);
}

#[test]
fn the_only_worker_with_tasks_is_lost_when_others_can_take_over() {
    let mut liveness = settled();
    let idle = set(&["b", "c"]);
    let one = set(&["a"]);
    assert_eq!(liveness.step(ms(61_000), &idle, &one).suspended, one);
    assert_eq!(liveness.step(ms(61_500), &idle, &one).lost, one);
}

proptest! {
    #[test]
    fn every_verdict_is_complete_and_the_next_check_is_when_it_changes(
        steps in prop::collection::vec((0_u64..20_000, 0_u8..8), 1..40),
    ) {
        let mut liveness = Liveness::new(Settings::default(), ms(0));
        let mut now = ms(0);
        for (wait, bits) in steps {
            now += ms(wait);
            let all = set(ALL);
            let present = all.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0);
            let live: BTreeSet<WorkerId> = present.map(|(_, worker)| worker.clone()).collect();
            let verdict = liveness.step(now, &live, &all);

            let mut judged = verdict.active.clone();
            judged.extend(verdict.suspended.iter().cloned());
            judged.extend(verdict.lost.iter().cloned());
            prop_assert_eq!(&judged, &all);
            let count = verdict.active.len() + verdict.suspended.len() + verdict.lost.len();
            prop_assert_eq!(count, all.len(), "a worker was judged twice");
            prop_assert!(!live.is_empty() || verdict.lost.is_empty());

            if let Some(next) = verdict.next_check {
                prop_assert!(next > now);
                let mut ahead = liveness.clone();
                let before = ahead.step(next - Duration::from_nanos(1), &live, &all);
                prop_assert_eq!(&before.lost, &verdict.lost, "changed before the next check");
                let after = ahead.step(next, &live, &all);
                prop_assert!(after.lost.len() > verdict.lost.len(), "nothing changed");
            }
        }
    }
}
