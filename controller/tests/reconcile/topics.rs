//! Topics come, grow and go on both sides.

use std::{collections::BTreeMap, time::Duration};

use kreplicator_model::{
    ids::Partition,
    resolve::TopicProblem,
    spec::{StartPolicy, TargetTopics},
};
use kreplicator_proto::{assignment::Assignment, stored::Stored};

use crate::support::{Fleet, Mode, Warnings, fleet::cluster_id, link, link_topic, task};

const SOON: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

/// What workers are told of a topic, over all workers.
async fn told(fleet: &Fleet, name: &str) -> BTreeMap<Partition, StartPolicy> {
    let plan = fleet
        .store
        .list("plan/assignment/")
        .await
        .expect("store works");
    let mut starts = BTreeMap::new();
    for (key, entry) in &plan.entries {
        let assignment = Assignment::decode(key, &entry.value).expect("readable");
        if let Some(assigned) = assignment.topics.get(&link_topic("a-b", name)) {
            for partition in assigned.partitions.keys() {
                starts.insert(*partition, assigned.start_of(*partition));
            }
        }
    }
    starts
}

#[tokio::test(start_paused = true)]
async fn c064_the_target_is_made_with_the_settings_of_the_source_before_anything_runs() {
    let fleet = Fleet::ready(&["w1"]).await;
    let settings = [("cleanup.policy", "compact"), ("retention.ms", "-1")];
    fleet.kafka.put_topic_with("a", "orders", 4, &settings);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet
        .until("the first task runs", SOON, |fleet| {
            !fleet.registry.running().is_empty()
        })
        .await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(4));
    for (name, value) in settings {
        let found = fleet.kafka.setting("b", "a.orders", name);
        assert_eq!(found.as_deref(), Some(value), "{name}");
    }
    assert_eq!(fleet.kafka.log("b"), ["create a.orders 4"]);
    let record = fleet.record("a-b", "orders").await.expect("noted");
    assert_eq!(record.target_partitions, 4);
    assert_eq!(record.source_cluster_id.as_deref(), Some("kafka-a"));
    assert_eq!(record.target_cluster_id.as_deref(), Some("kafka-b"));
}

#[tokio::test(start_paused = true)]
async fn c066_a_grown_source_grows_the_target_first_and_new_partitions_start_at_the_beginning() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.pass(MINUTE).await;
    let starts = fleet.registry.starts();
    fleet.kafka.put_topic("a", "orders", 8);
    fleet
        .until("a new partition runs", MINUTE, |fleet| {
            fleet.registry.running().len() > 4
        })
        .await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(8));
    fleet.until_running(8, SOON).await;
    let told = told(&fleet, "orders").await;
    for partition in 0..8 {
        let expected = if partition < 4 {
            StartPolicy::Latest
        } else {
            StartPolicy::Earliest
        };
        assert_eq!(
            told[&Partition(partition)],
            expected,
            "partition {partition}"
        );
    }
    let after = fleet.registry.starts();
    assert!(
        starts.iter().all(|(task, count)| after[task] == *count),
        "running tasks were restarted"
    );
}

#[tokio::test(start_paused = true)]
async fn c006_topics_that_appear_under_a_pattern_later_start_at_the_beginning() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders-1", 2);
    fleet.subscribe_pattern("a-b", "orders-.*").await;
    fleet.until_running(2, SOON).await;
    fleet.pass(MINUTE).await;
    fleet.kafka.put_topic("a", "orders-2", 2);
    fleet.kafka.put_topic("a", "other", 2);
    // Within one discovery interval, its jitter and the way from there.
    fleet.until_running(4, Duration::from_secs(13)).await;
    assert!(
        told(&fleet, "orders-1")
            .await
            .values()
            .all(|start| *start == StartPolicy::Latest)
    );
    assert!(
        told(&fleet, "orders-2")
            .await
            .values()
            .all(|start| *start == StartPolicy::Earliest)
    );
}

#[tokio::test(start_paused = true)]
async fn c006_what_was_there_when_the_source_was_first_seen_starts_as_asked_for() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.set_mode("a", Mode::Down);
    fleet.pass(MINUTE).await;
    fleet.subscribe_pattern("a-b", "orders-.*").await;
    fleet.pass(MINUTE).await;
    fleet.kafka.put_topic("a", "orders-1", 2);
    fleet.kafka.set_mode("a", Mode::Up);
    fleet.until_running(2, MINUTE).await;
    let told = told(&fleet, "orders-1").await;
    assert!(told.values().all(|start| *start == StartPolicy::Latest));
}

#[tokio::test(start_paused = true)]
async fn c067_a_larger_target_is_warned_of_in_the_log_once_until_it_changes() {
    let logged = Warnings::collect();
    let told = || logged.with("target topic has more partitions than its source");
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "large", 5);
    fleet.kafka.put_topic("b", "a.large", 8);
    fleet.subscribe("a-b", &["large"]).await;
    fleet.until_running(5, SOON).await;
    fleet.pass(20 * MINUTE).await;
    let first = told();
    assert_eq!(first.len(), 1, "{first:?}");
    for part in ["WARN", "a-b/large", "a.large", "8", "5"] {
        assert!(first[0].contains(part), "{part} is not in {}", first[0]);
    }
    fleet.kafka.put_topic("b", "a.large", 9);
    fleet.pass(MINUTE).await;
    assert_eq!(told().len(), 2, "{:?}", told());
}

#[tokio::test(start_paused = true)]
async fn c067_a_smaller_target_is_raised_or_refused_and_a_larger_one_taken_with_a_note() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "small", 5);
    fleet.kafka.put_topic("b", "a.small", 1);
    fleet.kafka.put_topic("a", "large", 5);
    fleet.kafka.put_topic("b", "a.large", 8);
    fleet.subscribe("a-b", &["small", "large"]).await;
    fleet.until_running(10, SOON).await;
    assert_eq!(fleet.kafka.partitions("b", "a.small"), Some(5));
    assert_eq!(fleet.kafka.partitions("b", "a.large"), Some(8));
    let note = fleet.state().target_notes[&link_topic("a-b", "large")].clone();
    assert!(note.contains('8') && note.contains('5'), "{note}");

    let mut strict = link("strict", "a", "c");
    strict.target_topics.refuse_grow = true;
    fleet.put_cluster("c", "c").await;
    fleet.put_link(&strict).await;
    fleet.kafka.put_topic("c", "a.small", 1);
    fleet.subscribe("strict", &["small"]).await;
    fleet
        .until("the small target is reported", MINUTE, |fleet| {
            fleet
                .state()
                .target_problems
                .contains_key(&link_topic("strict", "small"))
        })
        .await;
    let problem = fleet.state().target_problems[&link_topic("strict", "small")]
        .message
        .clone();
    for part in ["a.small", "cluster c", "refuse_grow"] {
        assert!(problem.contains(part), "{part} is not in {problem}");
    }
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.registry.running().len(), 10, "half a topic was begun");
    assert_eq!(fleet.kafka.partitions("c", "a.small"), Some(1));
    // The operator acts, and it goes on by itself.
    fleet.kafka.put_topic("c", "a.small", 5);
    fleet.until_running(15, MINUTE).await;
    assert!(fleet.state().target_problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c068_a_deleted_source_is_reported_and_its_target_untouched() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.kafka.put_topic("a", "clicks", 4);
    fleet.subscribe("a-b", &["orders", "clicks"]).await;
    fleet.until_running(8, SOON).await;
    fleet.kafka.delete_topic("a", "orders");
    fleet.until_running(4, MINUTE).await;
    let problem = fleet.state().resolved.topics[&link_topic("a-b", "orders")]
        .problem
        .clone();
    assert!(
        matches!(problem, Some(TopicProblem::SourceGone { .. })),
        "{problem:?}"
    );
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(4));
    assert_eq!(fleet.kafka.partitions("a", "orders"), None);

    // What has its name later is another topic: checkpoints of the first one do not hold for it (C002).
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.registry.running().len(), 4);
    let problem = fleet.state().target_problems[&link_topic("a-b", "orders")]
        .message
        .clone();
    assert!(problem.contains("made again"), "{problem}");
    fleet.unsubscribe("a-b", "orders").await;
    fleet.pass(Duration::from_secs(15)).await;
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(8, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn c068_a_deleted_target_stops_its_topic_and_is_made_again_only_when_asked() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.kafka.put_topic("a", "clicks", 4);
    fleet.subscribe("a-b", &["orders", "clicks"]).await;
    fleet.until_running(8, SOON).await;
    fleet.pass(MINUTE).await;
    let clicks = fleet.registry.starts()[&task("a-b", "clicks", 0)];
    fleet.kafka.delete_topic("b", "a.orders");
    fleet.until_running(4, MINUTE).await;
    let problem = fleet.state().target_problems[&link_topic("a-b", "orders")]
        .message
        .clone();
    assert!(
        problem.contains("a.orders") && problem.contains("deleted"),
        "{problem}"
    );
    fleet.pass(5 * MINUTE).await;
    assert_eq!(
        fleet.kafka.partitions("b", "a.orders"),
        None,
        "made again silently"
    );
    assert_eq!(fleet.registry.starts()[&task("a-b", "clicks", 0)], clicks);

    // As the message says: unsubscribe, subscribe again.
    fleet.unsubscribe("a-b", "orders").await;
    fleet.pass(Duration::from_secs(15)).await;
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(8, MINUTE).await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(4));

    // Or make it oneself.
    fleet.kafka.delete_topic("b", "a.clicks");
    fleet.until_running(4, MINUTE).await;
    fleet.kafka.put_topic("b", "a.clicks", 4);
    fleet.until_running(8, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn c068_a_new_leader_does_not_make_a_deleted_target_again_either() {
    let mut fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.pass(MINUTE).await;
    fleet.kill_controller("c0").await;
    fleet.kafka.delete_topic("b", "a.orders");
    fleet.start_controller("c1").await;
    fleet.until_running(0, MINUTE).await;
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), None);
    assert!(
        fleet
            .state()
            .target_problems
            .contains_key(&link_topic("a-b", "orders"))
    );
}

#[tokio::test(start_paused = true)]
async fn c073_a_rebuilt_target_cluster_stops_the_link_and_asks() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.pass(MINUTE).await;
    fleet.kafka.wipe("b", "kafka-b-rebuilt");
    fleet.until_running(0, MINUTE).await;
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.kafka.topics("b"), 0, "a half copy was begun");
    let problem = fleet.state().target_problems[&link_topic("a-b", "orders")]
        .message
        .clone();
    for part in ["target cluster b", "kafka-b-rebuilt", "unsubscribe"] {
        assert!(problem.contains(part), "{part} is not in {problem}");
    }
    // The operator decides to go on.
    fleet.unsubscribe("a-b", "orders").await;
    fleet.pass(Duration::from_secs(15)).await;
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, MINUTE).await;
    let record = fleet.record("a-b", "orders").await.expect("noted");
    assert_eq!(record.target_cluster_id.as_deref(), Some("kafka-b-rebuilt"));
}

#[tokio::test(start_paused = true)]
async fn c073_a_cluster_that_is_not_the_pinned_one_is_not_copied_to() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.put_cluster_pinned("b", "b", "kafka-other").await;
    fleet.until_running(0, SOON).await;
    let problem = fleet.state().target_problems[&link_topic("a-b", "orders")]
        .message
        .clone();
    assert!(problem.contains("kafka-b") && problem.contains("kafka-other"));
    let state = fleet.state();
    assert_eq!(state.clusters[&cluster_id("b")].reachable, Some(false));
    fleet.put_cluster_pinned("b", "b", "kafka-b").await;
    fleet.until_running(4, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn c002_a_source_topic_made_again_with_fewer_partitions_stops() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.kafka.put_topic("a", "orders", 2);
    fleet.until_running(0, MINUTE).await;
    let problem = fleet.state().target_problems[&link_topic("a-b", "orders")]
        .message
        .clone();
    assert!(problem.contains("made again"), "{problem}");
    fleet.unsubscribe("a-b", "orders").await;
    fleet.pass(Duration::from_secs(15)).await;
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(2, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn c050_a_black_holed_cluster_delays_nobody_and_a_new_address_works_at_once() {
    let mut fleet = Fleet::new();
    fleet.put_cluster("b", "b").await;
    let sources = ["s1", "s2", "s3", "s4", "s5"];
    fleet.kafka.set_mode("s3", Mode::BlackHole);
    for source in sources {
        fleet.put_cluster(source, source).await;
        fleet
            .put_link(&link(&format!("{source}-b"), source, "b"))
            .await;
        fleet.kafka.put_topic(source, "orders", 2);
        fleet.subscribe(&format!("{source}-b"), &["orders"]).await;
    }
    fleet.start_controller("c0").await;
    fleet.start_worker("w1");
    let took = fleet.until_running(8, MINUTE).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    fleet.pass(MINUTE).await;
    let state = fleet.state();
    let cluster = &state.clusters[&cluster_id("s3")];
    assert_eq!(cluster.reachable, Some(false));
    assert!(
        cluster.cause.contains("s3") && cluster.cause.contains("no answer"),
        "{}",
        cluster.cause
    );
    assert!(cluster.since.0 > 0);
    // Clients are made anew now and then, since names and secrets may have changed, and no more (C126).
    let clients = fleet.kafka.connects("s3");
    assert!((2..10).contains(&clients), "{clients} clients");
    assert_eq!(fleet.kafka.connects("s1"), 1);

    fleet.kafka.put_topic("good", "orders", 2);
    fleet.put_cluster("s3", "good").await;
    fleet.until_running(10, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_goes_away_keeps_its_tasks_and_an_unreachable_target_waits() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    fleet.kafka.set_mode("a", Mode::Down);
    fleet.kafka.set_mode("b", Mode::BlackHole);
    fleet.pass(5 * MINUTE).await;
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);

    // A new topic of another source for that target waits with the reason, and starts by itself.
    fleet.put_cluster("d", "d").await;
    fleet.put_link(&link("d-b", "d", "b")).await;
    fleet.kafka.put_topic("d", "orders", 2);
    fleet.subscribe("d-b", &["orders"]).await;
    fleet
        .until("it waits with a reason", MINUTE, |fleet| {
            let state = fleet.state();
            state.unassigned.contains_key(&task("d-b", "orders", 0))
        })
        .await;
    fleet.kafka.set_mode("b", Mode::Up);
    fleet.until_running(6, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_does_not_believe_a_first_look_that_shows_nothing() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    fleet.pass(MINUTE).await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    for (source, target) in [(true, false), (false, true), (true, true)] {
        fleet.kill_controller("c0").await;
        fleet.kafka.set_hidden("a", source);
        fleet.kafka.set_hidden("b", target);
        fleet.start_controller("c0").await;
        fleet
            .until("it leads", MINUTE, |fleet| fleet.state().ready)
            .await;
        fleet.pass(Duration::from_secs(1)).await;
        fleet.kafka.set_hidden("a", false);
        fleet.kafka.set_hidden("b", false);
        fleet.pass(MINUTE).await;
        assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_shows_none_of_its_topics_any_more_stops_nothing() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    for name in ["orders", "clicks", "events"] {
        fleet.kafka.put_topic("a", name, 2);
    }
    fleet
        .subscribe("a-b", &["orders", "clicks", "events"])
        .await;
    fleet.until_running(6, SOON).await;
    fleet.pass(MINUTE).await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    fleet.kafka.set_hidden("a", true);
    fleet
        .until("it is reported", MINUTE, |fleet| {
            let state = fleet.state();
            let mut problems = state.problems.iter();
            problems.any(|text| text.contains("cluster a shows none of the 3 topics"))
        })
        .await;
    fleet.pass(MINUTE).await;
    fleet.kafka.set_hidden("a", false);
    fleet.kafka.set_hidden("b", true);
    fleet
        .until("it is reported", MINUTE, |fleet| {
            let state = fleet.state();
            let mut problems = state.target_problems.values();
            problems.any(|problem| problem.message.contains("cluster b shows none of the 3"))
        })
        .await;
    fleet.pass(MINUTE).await;
    fleet.kafka.set_hidden("b", false);
    fleet
        .until("all is well", MINUTE, |fleet| {
            let state = fleet.state();
            state.problems.is_empty() && state.target_problems.is_empty()
        })
        .await;
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_is_replaced_while_no_cluster_can_be_reached_even_by_a_new_leader() {
    let mut fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.kafka.put_topic("a", "orders", 8);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(8, SOON).await;
    fleet.pass(MINUTE).await;
    fleet.kafka.set_mode("a", Mode::Down);
    fleet.kafka.set_mode("b", Mode::Down);
    fleet.kill_controller("c0").await;
    fleet.crash_worker("w2");
    fleet.start_controller("c1").await;
    fleet.until_running(8, MINUTE).await;
    assert_eq!(fleet.registry.of("w1").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_link_whose_settings_are_refused_says_so_and_holds_up_nobody() {
    let fleet = Fleet::ready(&["w1"]).await;
    let mut bad = link("bad", "a", "b");
    bad.naming.prefix = "bad.".to_owned();
    bad.target_topics = TargetTopics {
        config: [("no.such.setting".to_owned(), "1".to_owned())].into(),
        ..TargetTopics::default()
    };
    fleet.put_link(&bad).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("bad", &["orders"]).await;
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    let problem = fleet.state().target_problems[&link_topic("bad", "orders")]
        .message
        .clone();
    assert!(
        problem.contains("bad.orders") && problem.contains("no.such.setting"),
        "{problem}"
    );
    // Corrected, it goes on within the longest wait between attempts.
    bad.target_topics = TargetTopics::default();
    fleet.put_link(&bad).await;
    fleet.until_running(8, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn clusters_that_only_make_topics_when_asked_are_asked() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.set_mode("a", Mode::Mock);
    fleet.kafka.set_mode("b", Mode::Mock);
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    assert_eq!(fleet.kafka.log("b"), ["ask a.orders"]);
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(4));
}

#[tokio::test(start_paused = true)]
async fn c074_two_links_in_opposite_directions_with_prefixes_do_not_loop() {
    let fleet = Fleet::ready(&["w1", "w2"]).await;
    fleet.put_link(&link("b-a", "b", "a")).await;
    fleet.kafka.put_topic("a", "orders", 2);
    fleet.kafka.put_topic("b", "orders", 2);
    fleet.kafka.put_topic("a", "__consumer_offsets", 50);
    fleet.subscribe_pattern("a-b", ".*").await;
    fleet.subscribe_pattern("b-a", ".*").await;
    fleet.until_running(4, SOON).await;
    fleet.pass(10 * MINUTE).await;
    assert_eq!(fleet.registry.running().len(), 4);
    assert_eq!(fleet.kafka.topics("a"), 3);
    assert_eq!(fleet.kafka.topics("b"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_reported_and_what_runs_goes_on() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(4, SOON).await;
    let before = (fleet.registry.running(), fleet.registry.starts());
    fleet.put("config/link/a-b".to_owned(), vec![0xff; 8]).await;
    fleet
        .until("it is reported", SOON, |fleet| {
            fleet
                .state()
                .problems
                .iter()
                .any(|text| text.contains("config/link/a-b"))
        })
        .await;
    fleet.pass(MINUTE).await;
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
    fleet.put_link(&link("a-b", "a", "b")).await;
    fleet
        .until("it is well again", SOON, |fleet| {
            fleet.state().problems.is_empty()
        })
        .await;
    assert_eq!((fleet.registry.running(), fleet.registry.starts()), before);
}
