//! Who gets what, and what moves when workers come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kreplicator_model::ids::{TaskId, WorkerId};

use crate::support::{Behaviour, Fleet, Settings, task};

const SOON: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

/// Tasks whose worker differs between two moments.
fn moved(
    before: &BTreeMap<TaskId, WorkerId>,
    after: &BTreeMap<TaskId, WorkerId>,
) -> BTreeSet<TaskId> {
    let differs = |(task, worker): (&TaskId, &WorkerId)| {
        (after.get(task) != Some(worker)).then(|| task.clone())
    };
    before.iter().filter_map(differs).collect()
}

#[tokio::test(start_paused = true)]
async fn a_subscription_becomes_running_tasks_within_two_seconds() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.pass(Duration::from_secs(12)).await;
    fleet.subscribe("a-b", &["orders"]).await;
    let took = fleet.until_running(4, SOON).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(fleet.registry.of("w1").len(), 2);
    assert_eq!(fleet.registry.of("w2").len(), 2);
    let state = fleet.state();
    assert!(state.assigned.values().all(|task| task.reason == "new"));
    assert!(
        state.unassigned.is_empty() && state.problems.is_empty(),
        "{:?}",
        state.problems
    );
}

#[tokio::test(start_paused = true)]
async fn unsubscribing_and_pausing_stop_what_was_asked_and_nothing_else() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.kafka.put_topic("a", "clicks", 4);
    fleet.subscribe("a-b", &["orders", "clicks"]).await;
    fleet.until_running(8, SOON).await;
    let before = fleet.registry.starts();
    fleet.unsubscribe("a-b", "orders").await;
    fleet.until_running(4, SOON).await;
    fleet.pass(MINUTE).await;
    assert_eq!(
        fleet.registry.starts(),
        before,
        "something was started anew"
    );
    assert!(
        fleet
            .registry
            .running()
            .keys()
            .all(|task| task.topic.as_str() == "clicks")
    );

    let mut link = crate::support::link("a-b", "a", "b");
    link.paused = true;
    fleet.put_link(&link).await;
    fleet.until_running(0, SOON).await;
    link.paused = false;
    fleet.put_link(&link).await;
    fleet.until_running(4, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_moves_only_its_tasks() {
    let mut fleet = Fleet::ready(&["w1", "w2", "w3"]).await;
    fleet.kafka.put_topic("a", "orders", 30);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(30, SOON).await;
    let before = fleet.registry.running();
    let its_own = fleet.registry.of("w2");
    fleet.crash_worker("w2");
    let took = fleet.until_running(30, MINUTE).await;
    let limit = fleet.settings.lease + Duration::from_secs(3);
    assert!(took < limit, "{took:?}");
    assert_eq!(moved(&before, &fleet.registry.running()), its_own);
    let state = fleet.state();
    assert!(
        its_own
            .iter()
            .all(|task| state.assigned[task].reason == "worker-lost: from w2")
    );
    // Whatever it had in the store is cleaned up.
    fleet
        .until("the lost worker is forgotten", MINUTE, |fleet| {
            !fleet.state().workers.contains_key("w2")
        })
        .await;
    let chunks = fleet
        .store
        .list("plan/assignment/w2/")
        .await
        .expect("store works");
    assert!(chunks.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c039_a_lost_worker_that_comes_back_starts_empty() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 10);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(10, SOON).await;
    fleet.crash_worker("w2");
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.registry.of("w1").len(), 10);
    let before = fleet.registry.running();
    fleet.start_worker("w2");
    fleet
        .until("the worker that is back has its share", MINUTE, |fleet| {
            fleet.registry.of("w2").len() == 5
        })
        .await;
    fleet.until_running(10, SOON).await;
    assert_eq!(moved(&before, &fleet.registry.running()).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_back_in_time_keeps_its_tasks() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 10);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(10, SOON).await;
    let before = fleet.registry.running();
    fleet.crash_worker("w2");
    // It waits for the lease of the one before it and registers the moment that is over.
    fleet.start_worker("w2");
    fleet.until_running(10, MINUTE).await;
    fleet.pass(MINUTE).await;
    assert!(moved(&before, &fleet.registry.running()).is_empty());
    assert_eq!(fleet.registry.of("w2").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_new_worker_takes_its_share_and_nothing_moves_between_the_others() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 30);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(30, SOON).await;
    let before = fleet.registry.running();
    fleet.start_worker("w3");
    fleet
        .until("the new worker has its share", SOON, |fleet| {
            fleet.registry.of("w3").len() == 10
        })
        .await;
    fleet.until_running(30, SOON).await;
    let after = fleet.registry.running();
    let moves = moved(&before, &after);
    assert_eq!(moves.len(), 10);
    assert!(moves.iter().all(|task| after[task].as_str() == "w3"));
}

#[tokio::test(start_paused = true)]
async fn a_drained_worker_hands_its_tasks_over_one_by_one_and_stays_empty() {
    let mut fleet = Fleet::ready(&["w1"]).await;
    let slow = Behaviour {
        stop_delay: Duration::from_secs(2),
        ..Behaviour::default()
    };
    fleet.start_worker_with("w2", slow);
    for name in ["orders", "clicks", "events", "logs"] {
        fleet.kafka.put_topic("a", name, 4);
    }
    fleet
        .subscribe("a-b", &["orders", "clicks", "events", "logs"])
        .await;
    fleet.until_running(16, MINUTE).await;
    let its_own = fleet.registry.of("w2");
    assert!(!its_own.is_empty());
    let before = fleet.registry.running();
    fleet.drain("w2").await;
    fleet
        .until("the drained worker is empty", MINUTE, |fleet| {
            fleet.registry.of("w2").is_empty() && fleet.registry.running().len() == 16
        })
        .await;
    assert_eq!(moved(&before, &fleet.registry.running()), its_own);
    assert!(fleet.state().workers["w2"].draining);
    fleet.pass(MINUTE).await;
    assert!(fleet.registry.of("w2").is_empty());

    fleet.undrain("w2").await;
    fleet
        .until("it takes its share again", MINUTE, |fleet| {
            fleet.registry.of("w2").len() == 8 && fleet.registry.running().len() == 16
        })
        .await;

    // A worker that says itself that it leaves is emptied in the same way.
    fleet.workers["w1"].announce_leaving();
    fleet
        .until("the leaving worker is empty", MINUTE, |fleet| {
            fleet.registry.of("w1").is_empty() && fleet.registry.running().len() == 16
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn capacity_is_kept_and_what_does_not_fit_waits_with_a_reason() {
    let mut fleet = Fleet::ready(&[]).await;
    let small = Behaviour {
        capacity: 3,
        ..Behaviour::default()
    };
    fleet.kafka.put_topic("a", "orders", 8);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet
        .until("nobody takes the tasks", MINUTE, |fleet| {
            let state = fleet.state();
            let reasons = state.unassigned.values();
            reasons
                .filter(|reason| reason.contains("no worker"))
                .count()
                == 8
        })
        .await;
    fleet.start_worker_with("w1", small.clone());
    fleet.start_worker_with("w2", small);
    fleet.until_running(6, SOON).await;
    fleet.pass(MINUTE).await;
    let state = fleet.state();
    assert_eq!((state.assigned.len(), state.unassigned.len()), (6, 2));
    assert!(
        state
            .unassigned
            .values()
            .all(|reason| reason.contains("full"))
    );
    fleet.start_worker("w3");
    fleet.until_running(8, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn c043_refused_tasks_are_tried_elsewhere_and_reported() {
    let settings = Settings {
        stuck_after: Duration::from_secs(10),
        ..Settings::default()
    };
    let mut fleet = Fleet::with(settings);
    fleet.declare_ab().await;
    fleet.start_controller("c0").await;
    fleet.kafka.put_topic("a", "orders", 6);
    let stubborn = Behaviour {
        refuses: (0..3)
            .map(|partition| task("a-b", "orders", partition))
            .collect(),
        ..Behaviour::default()
    };
    fleet.start_worker_with("w1", stubborn);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(3, SOON).await;
    fleet
        .until("the drift is reported", MINUTE, |fleet| {
            let state = fleet.state();
            state
                .problems
                .iter()
                .any(|text| text.contains("w1 has not taken on 3"))
        })
        .await;
    // As soon as there is another worker, it gets them; what runs does not stop.
    fleet.start_worker("w2");
    fleet.until_running(6, MINUTE).await;
    fleet.pass(2 * MINUTE).await;
    assert_eq!(fleet.registry.running().len(), 6);
    for partition in 0..3 {
        let on = fleet.registry.history(&task("a-b", "orders", partition));
        assert_eq!(on, ["w2"], "partition {partition}");
    }
    assert!(
        fleet.state().problems.is_empty(),
        "{:?}",
        fleet.state().problems
    );
}

#[tokio::test(start_paused = true)]
async fn c043_a_worker_that_does_not_answer_is_reported_and_keeps_its_tasks() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 8);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(8, SOON).await;
    fleet.workers["w2"].behave(|behaviour| behaviour.deaf = true);
    fleet.kafka.put_topic("a", "clicks", 8);
    fleet.subscribe("a-b", &["clicks"]).await;
    fleet
        .until("the deaf worker is reported", MINUTE, |fleet| {
            let state = fleet.state();
            state
                .problems
                .iter()
                .any(|text| text.contains("w2 has not acted on its assignment"))
        })
        .await;
    fleet.pass(2 * MINUTE).await;
    // Nothing of its is given to anybody else while it may run it.
    assert_eq!(fleet.registry.of("w2").len(), 4);
    let state = fleet.state();
    let its_own = state
        .assigned
        .values()
        .filter(|task| task.worker.as_str() == "w2");
    assert_eq!(its_own.count(), 8);
    fleet.crash_worker("w2");
    fleet.until_running(16, MINUTE).await;
}
