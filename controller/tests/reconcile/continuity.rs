//! Leaders change, everything dies, leases vanish: what runs goes on, and never twice.

use std::time::Duration;

use kreplicator_store::{api::Op, keys};

use crate::support::{Behaviour, Fleet};

const SOON: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

async fn running_fleet() -> Fleet {
    let fleet = Fleet::ready(&["w1", "w2", "w3"]).await;
    for name in ["orders", "clicks", "events"] {
        fleet.kafka.put_topic("a", name, 8);
    }
    fleet
        .subscribe("a-b", &["orders", "clicks", "events"])
        .await;
    fleet.until_running(24, SOON).await;
    fleet
}

#[tokio::test(start_paused = true)]
async fn a_change_of_leader_moves_nothing() {
    let mut fleet = running_fleet().await;
    fleet.start_controller("c1").await;
    fleet.pass(MINUTE).await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    let generation = fleet.state().generation;
    fleet.kill_controller("c0").await;
    fleet
        .until("the other one leads", MINUTE, |fleet| fleet.state().ready)
        .await;
    fleet.pass(2 * MINUTE).await;
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
    assert_eq!(
        fleet.state().generation,
        generation,
        "the same plan was published anew"
    );

    // A clean stop gives the key up, so nobody waits for a lease.
    fleet.start_controller("c2").await;
    fleet.pass(SOON).await;
    fleet.stop_controller("c1").await;
    let took = fleet
        .until("the third one leads", MINUTE, |fleet| fleet.state().ready)
        .await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
}

#[tokio::test(start_paused = true)]
async fn while_no_controller_runs_everything_goes_on_and_nothing_moves_after() {
    let mut fleet = running_fleet().await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    fleet.kill_controller("c0").await;
    fleet.pass(MINUTE).await;
    fleet.start_controller("c0").await;
    fleet.pass(MINUTE).await;
    assert!(fleet.state().ready);
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
}

/// Everything dies at once and starts in every order of controller and workers.
#[tokio::test(start_paused = true)]
async fn c044_everything_runs_again_whatever_the_order_of_starts() {
    let orders = [
        ["c0", "w1", "w2", "w3"],
        ["w1", "c0", "w2", "w3"],
        ["w3", "w2", "w1", "c0"],
        ["w2", "w3", "c0", "w1"],
    ];
    for gap in [1, 7, 60] {
        for order in orders {
            let mut fleet = running_fleet().await;
            fleet.kill_controller("c0").await;
            for worker in ["w1", "w2", "w3"] {
                fleet.crash_worker(worker);
            }
            assert!(fleet.registry.running().is_empty());
            for part in order {
                fleet.pass(Duration::from_secs(gap)).await;
                if part == "c0" {
                    fleet.start_controller(part).await;
                } else {
                    fleet.start_worker(part);
                }
            }
            fleet.until_running(24, 2 * MINUTE).await;
            fleet.pass(MINUTE).await;
            assert_eq!(
                fleet.registry.running().len(),
                24,
                "{order:?} every {gap} s"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c044_the_first_worker_back_is_not_handed_everything() {
    let mut fleet = running_fleet().await;
    let before = fleet.registry.running();
    for worker in ["w1", "w2", "w3"] {
        fleet.crash_worker(worker);
    }
    fleet.pass(Duration::from_secs(10)).await;
    fleet.start_worker("w1");
    fleet
        .until("the first one is back", SOON, |fleet| {
            !fleet.registry.of("w1").is_empty()
        })
        .await;
    fleet.pass(Duration::from_secs(10)).await;
    assert_eq!(fleet.registry.of("w1").len(), 8);
    fleet.start_worker("w2");
    fleet.start_worker("w3");
    fleet.until_running(24, SOON).await;
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.registry.running(), before);
}

#[tokio::test(start_paused = true)]
async fn c058_all_leases_revoked_at_once_moves_nothing() {
    let fleet = running_fleet().await;
    let before = fleet.registry.running();
    let generation = fleet.state().generation;
    let live = fleet
        .store
        .list(keys::WORKERS_LIVE)
        .await
        .expect("store works");
    assert_eq!(live.entries.len(), 3);
    for entry in live.entries.values() {
        let lease = entry.lease.expect("leased");
        fleet.store.revoke(lease).await.expect("store works");
    }
    fleet
        .until("every task was started again", MINUTE, |fleet| {
            fleet.registry.starts().values().all(|count| *count == 2)
        })
        .await;
    fleet.until_running(24, Duration::from_secs(30)).await;
    fleet.pass(2 * MINUTE).await;
    assert_eq!(fleet.registry.running(), before);
    assert_eq!(fleet.state().generation, generation);
}

#[tokio::test(start_paused = true)]
async fn c058_workers_that_all_stay_away_are_given_up_in_the_end() {
    let mut fleet = running_fleet().await;
    for worker in ["w1", "w2", "w3"] {
        fleet.crash_worker(worker);
    }
    fleet.pass(Duration::from_secs(20)).await;
    let state = fleet.state();
    assert_eq!(state.assigned.len(), 24, "wiped while everybody is missing");
    assert!(
        state.problems.iter().any(|text| text.contains("missing")),
        "{:?}",
        state.problems
    );
    fleet.start_worker("w9");
    fleet.until_running(24, MINUTE).await;
    assert_eq!(fleet.registry.of("w9").len(), 24);
}

#[tokio::test(start_paused = true)]
async fn c062_a_leader_cut_off_from_the_store_writes_nothing_once_it_is_back() {
    let mut fleet = running_fleet().await;
    fleet.start_controller("c1").await;
    fleet.pass(SOON).await;
    let first = fleet.controllers["c0"].line.clone();
    first.set_cut(true);
    fleet
        .until("the other one leads", MINUTE, |fleet| {
            fleet.controllers["c1"].controller.fleet().borrow().ready
        })
        .await;
    assert!(
        !fleet.controllers["c0"].controller.fleet().borrow().ready,
        "two lead"
    );
    // Things change while it is away.
    let commits = first.commits();
    fleet.start_worker("w4");
    fleet.unsubscribe("a-b", "clicks").await;
    fleet.until_running(16, MINUTE).await;
    let plan = fleet.store.list("plan/").await.expect("store works");
    first.set_cut(false);
    fleet.pass(MINUTE).await;
    assert_eq!(first.commits(), commits, "the deposed leader wrote");
    let after = fleet.store.list("plan/").await.expect("store works");
    assert_eq!(after.entries, plan.entries);
}

#[tokio::test(start_paused = true)]
async fn c062_a_leader_whose_key_was_taken_away_steps_down() {
    let mut fleet = running_fleet().await;
    fleet.start_controller("c1").await;
    fleet.pass(SOON).await;
    let before = fleet.registry.running();
    // Deleted by hand: whoever is first makes it anew, and no write of the term before commits.
    fleet.write(vec![Op::Delete(keys::LEADER.to_owned())]).await;
    fleet.subscribe("a-b", &["more"]).await;
    fleet.kafka.put_topic("a", "more", 3);
    fleet.until_running(27, MINUTE).await;
    fleet.pass(MINUTE).await;
    let leaders = fleet
        .controllers
        .values()
        .filter(|running| running.controller.fleet().borrow().ready);
    assert_eq!(leaders.count(), 1);
    let after = fleet.registry.running();
    assert!(
        before
            .iter()
            .all(|(task, worker)| after.get(task) == Some(worker))
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_in_the_middle_of_a_handover_never_leaves_two_owners() {
    // Kills at many moments after the handover began.
    for millis in (0..3_000).step_by(150) {
        let mut fleet = Fleet::ready(&[]).await;
        let slow = Behaviour {
            stop_delay: Duration::from_millis(900),
            ..Behaviour::default()
        };
        for worker in ["w1", "w2"] {
            fleet.start_worker_with(worker, slow.clone());
        }
        for name in ["orders", "clicks", "events", "logs"] {
            fleet.kafka.put_topic("a", name, 4);
        }
        fleet
            .subscribe("a-b", &["orders", "clicks", "events", "logs"])
            .await;
        fleet.until_running(16, MINUTE).await;
        // A new worker, and one that is emptied: revocations and assignments at once.
        fleet.start_worker_with("w3", slow);
        fleet.drain("w1").await;
        fleet.pass(Duration::from_millis(millis)).await;
        fleet.kill_controller("c0").await;
        fleet.pass(Duration::from_millis(500)).await;
        fleet.start_controller("c1").await;
        fleet
            .until("the handover is over", 2 * MINUTE, |fleet| {
                fleet.registry.of("w1").is_empty() && fleet.registry.running().len() == 16
            })
            .await;
        fleet.pass(MINUTE).await;
        assert_eq!(fleet.registry.running().len(), 16);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_longer_than_a_lease_costs_no_moves() {
    let fleet = running_fleet().await;
    let before = fleet.registry.running();
    // The leader alone cannot reach the store: its term ends, its lease too.
    let line = fleet.controllers["c0"].line.clone();
    line.set_cut(true);
    fleet
        .until("it is told while the term lasts", SOON, |fleet| {
            let state = fleet.state();
            let mut problems = state.problems.iter();
            problems.any(|text| text.contains("metadata store cannot be followed"))
        })
        .await;
    fleet.pass(MINUTE).await;
    assert!(!fleet.state().ready);
    line.set_cut(false);
    fleet
        .until("it leads again", MINUTE, |fleet| fleet.state().ready)
        .await;
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.registry.running(), before);
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_lost_are_found_out_and_not_done_twice() {
    let mut fleet = running_fleet().await;
    let starts = fleet.registry.starts();
    let line = fleet.controllers["c0"].line.clone();
    line.set_deaf(true);
    fleet.kafka.put_topic("a", "more", 6);
    fleet.subscribe("a-b", &["more"]).await;
    fleet.start_worker("w4");
    fleet.pass(Duration::from_secs(2)).await;
    line.set_deaf(false);
    fleet.until_running(30, MINUTE).await;
    fleet.pass(MINUTE).await;
    assert_eq!(
        fleet.kafka.log("b").len(),
        4,
        "a target topic was made twice"
    );
    let after = fleet.registry.starts();
    let moved = starts
        .iter()
        .filter(|(task, count)| after[*task] != **count);
    assert!(
        moved.count() <= 8,
        "more than the new worker's share was moved"
    );
    assert!(after.values().all(|count| *count <= 2));
}

#[tokio::test(start_paused = true)]
async fn assignments_deleted_by_hand_are_put_again() {
    let fleet = running_fleet().await;
    let plan = fleet.store.list("plan/").await.expect("store works");
    let deletes = plan.entries.keys().map(|key| Op::Delete(key.clone()));
    fleet.write(deletes.collect()).await;
    fleet.pass(SOON).await;
    fleet.until_running(24, MINUTE).await;
    fleet.pass(MINUTE).await;
    let generation = fleet.state().generation;
    let epochs = fleet
        .state()
        .assigned
        .values()
        .map(|task| task.epoch.0)
        .max();
    assert!(epochs <= Some(generation.0));
}
