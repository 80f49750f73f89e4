//! Which topics run, under which subscription and from where on.

use super::world::{World, id, of, problem, running};
use crate::resolve::*;

#[test]
fn an_exact_subscription_goes_before_patterns_and_those_by_id() {
    let world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 1), ("other", 1), ("x", 1)])
        .pattern("a-b", "o.*")
        .pattern("a-b", "[a-z]*")
        .topic("a-b", "orders");
    let resolved = world.resolve();
    let by: Vec<_> = resolved
        .topics
        .values()
        .map(|topic| topic.subscription.as_str())
        .collect();
    assert_eq!(by, ["orders", "/[a-z]*/", "/[a-z]*/"]);
}

#[test]
fn paused_is_either_subscription_or_link() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 1), ("clicks", 1)])
        .topic("a-b", "orders")
        .topic("a-b", "clicks");
    world.edit_subscription("a-b", "orders").paused = true;
    let resolved = world.resolve();
    assert!(resolved.topics[&of("a-b/orders")].paused);
    assert_eq!(running(&resolved), ["a-b/clicks>clicks"]);
    world.edit_link("a-b").paused = true;
    assert_eq!(running(&world.resolve()), Vec::<String>::new());
}

#[test]
fn c071_internal_topics_run_by_exact_name_only_and_ours_never() {
    let topics = [
        ("__consumer_offsets", 50),
        ("_schemas", 1),
        ("__kreplicator_x", 1),
        ("orders", 1),
    ];
    let world = World::new()
        .link("a-b", "")
        .holds("a", &topics)
        .pattern("a-b", ".*")
        .topic("a-b", "_schemas")
        .topic("a-b", "__kreplicator_x");
    let resolved = world.resolve();
    assert_eq!(
        running(&resolved),
        ["a-b/_schemas>_schemas", "a-b/orders>orders"]
    );
    assert_eq!(resolved.missing, BTreeMap::new());
}

// --- what is recorded

#[test]
fn a_recorded_topic_keeps_its_name_start_and_first_partitions() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 4)])
        .pattern("a-b", ".*");
    world.carry_out();
    world.edit_link("a-b").naming.prefix = "new.".to_owned();
    world.edit_link("a-b").start = StartPolicy::Earliest;
    let world = world.holds("a", &[("orders", 8), ("clicks", 1)]);
    let resolved = world.resolve();
    assert_eq!(
        running(&resolved),
        ["a-b/clicks>new.clicks", "a-b/orders>orders"]
    );
    let orders = &resolved.topics[&of("a-b/orders")];
    assert_eq!((orders.partitions, orders.first_partitions), (8, 4));
    assert_eq!(orders.start, StartPolicy::Latest);
    assert!(!orders.is_new);
}

#[test]
fn no_news_of_a_source_changes_nothing() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 4)])
        .pattern("a-b", ".*")
        .topic("a-b", "wanted");
    let before = world.carry_out();
    assert_eq!(before.missing.len(), 1);
    world.inventory.clear();
    let resolved = world.resolve();
    let orders = &resolved.topics[&of("a-b/orders")];
    assert!(orders.runs());
    assert_eq!(orders.partitions, 4);
    assert_eq!(resolved.topics.len(), 1);
    assert_eq!(resolved.missing, BTreeMap::new(), "not known to be missing");
}

#[test]
fn c068_a_topic_that_is_gone_does_not_run_and_is_not_forgotten() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 4), ("clicks", 1)])
        .pattern("a-b", ".*");
    world.carry_out();
    world.inventory.get_mut("a").expect("held").remove("orders");
    let resolved = world.resolve();
    let gone = problem(&resolved, "a-b/orders").expect("gone");
    assert_eq!(gone, &TopicProblem::SourceGone { cluster: id("a") });
    assert!(gone.to_string().contains("cluster a"), "{gone}");
    assert_eq!(running(&resolved), ["a-b/clicks>clicks"]);
    assert_eq!(resolved.topics[&of("a-b/orders")].partitions, 4);
}

#[test]
fn an_exact_topic_that_never_was_is_missing() {
    let world = World::new()
        .link("a-b", "")
        .holds("a", &[])
        .topic("a-b", "orders");
    let resolved = world.resolve();
    let key = (id("a-b"), "orders".to_owned());
    assert_eq!(resolved.missing, BTreeMap::from([(key, id("orders"))]));
    assert_eq!(resolved.topics, BTreeMap::new());
}

// --- where it starts

#[test]
fn c006_what_appears_later_starts_at_offset_0_whatever_the_policy() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 2)])
        .pattern("a-b", ".*")
        .topic("a-b", "wanted");
    let first = world.carry_out();
    let orders = &first.topics[&of("a-b/orders")];
    assert_eq!(
        (orders.start, orders.first_partitions),
        (StartPolicy::Latest, 2)
    );
    assert!(orders.is_new);

    let world = world.holds("a", &[("orders", 4), ("clicks", 3), ("wanted", 1)]);
    let resolved = world.resolve();
    let orders = &resolved.topics[&of("a-b/orders")];
    assert_eq!((orders.partitions, orders.first_partitions), (4, 2));
    for name in ["a-b/clicks", "a-b/wanted"] {
        let topic = &resolved.topics[&of(name)];
        assert_eq!(
            (topic.start, topic.first_partitions),
            (StartPolicy::Earliest, 0),
            "{name}"
        );
    }
}

#[test]
fn a_subscription_s_own_start_goes_before_the_link_s() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("orders", 2), ("clicks", 1)])
        .topic("a-b", "orders")
        .topic("a-b", "clicks");
    let start = StartPolicy::Timestamp(UnixMillis(1_000));
    world.edit_subscription("a-b", "orders").start = Some(start);
    let resolved = world.resolve();
    assert_eq!(resolved.topics[&of("a-b/orders")].start, start);
    assert_eq!(
        resolved.topics[&of("a-b/clicks")].start,
        StartPolicy::Latest
    );
}
