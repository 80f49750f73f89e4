//! Many topics at once (C049).

use std::time::Duration;

use crate::support::Fleet;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn c049_500_topics_at_once_take_seconds_few_writes_and_pause_nothing() {
    let fleet = Fleet::ready(&["w1", "w2", "w3"]).await;
    fleet.kafka.put_topic("a", "running", 30);
    fleet.subscribe("a-b", &["running"]).await;
    fleet.until_running(30, MINUTE).await;
    let starts = fleet.registry.starts();
    let names: Vec<String> = (0..500)
        .map(|number| format!("topic-{number:03}"))
        .collect();
    for name in &names {
        fleet.kafka.put_topic("a", name, 6);
    }
    fleet.pass(MINUTE).await;
    let commits = fleet.controllers["c0"].line.commits();

    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fleet.subscribe("a-b", &names).await;
    let took = fleet.until_running(3_030, MINUTE).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    fleet.pass(MINUTE).await;

    let commits = fleet.controllers["c0"].line.commits() - commits;
    assert!(commits < 60, "{commits} transactions");
    let after = fleet.registry.starts();
    assert!(
        starts.iter().all(|(task, count)| after[task] == *count),
        "running tasks were restarted"
    );
    assert!(
        after.values().all(|count| *count == 1),
        "tasks were started twice"
    );
    for worker in ["w1", "w2", "w3"] {
        assert_eq!(fleet.registry.of(worker).len(), 1_010);
    }
    let made = fleet.kafka.log("b");
    assert_eq!(made.len(), 501, "a target topic was made twice");
    assert!(
        fleet.state().problems.is_empty(),
        "{:?}",
        fleet.state().problems
    );
}

/// A broker makes some hundred partitions a second, one after the other. Asked for all at once, and
/// again and again while they do not show, it has no time for anybody else.
#[tokio::test(start_paused = true)]
async fn c049_a_slow_target_is_asked_for_each_topic_once_and_for_few_at_a_time() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.show_slowly("b", 100);
    let names: Vec<String> = (0..150)
        .map(|number| format!("topic-{number:03}"))
        .collect();
    for name in &names {
        fleet.kafka.put_topic("a", name, 6);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fleet.subscribe("a-b", &names).await;
    let took = fleet.until_running(900, MINUTE).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let unshown = fleet.kafka.unshown_max("b");
    assert!(unshown <= 256, "{unshown} partitions at a time");
    assert_eq!(
        fleet.kafka.log("b").len(),
        150,
        "each topic is asked for once"
    );

    // One that alone is too large is asked for all the same.
    fleet.kafka.put_topic("a", "wide", 400);
    fleet.subscribe("a-b", &["wide"]).await;
    fleet.until_running(1_300, MINUTE).await;
    assert_eq!(
        fleet.kafka.log("b").len(),
        151,
        "each topic is asked for once"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_writes_nothing() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 8);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(8, MINUTE).await;
    fleet.pass(MINUTE).await;
    let before = fleet.store.list("").await.expect("store works");
    fleet.pass(10 * MINUTE).await;
    let after = fleet.store.list("").await.expect("store works");
    assert_eq!(after.entries, before.entries);
    assert_eq!(after.revision, before.revision);
}
