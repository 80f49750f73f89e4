//! Where topics came from, and who writes to a target topic.

use super::world::{World, id, of, problem, running};
use crate::resolve::*;

fn both_ways() -> World {
    World::new()
        .link("a-b", "a.")
        .link("b-a", "b.")
        .pattern("a-b", ".*")
        .pattern("b-a", ".*")
        .holds("a", &[("orders", 1)])
        .holds("b", &[("clicks", 1)])
}

#[test]
fn c074_two_links_with_prefixes_copy_each_topic_once() {
    let mut world = both_ways();
    let resolved = world.settle();
    assert_eq!(
        running(&resolved),
        ["a-b/orders>a.orders", "b-a/clicks>b.clicks"]
    );
    assert_eq!(
        resolved.topics.len(),
        2,
        "a copy on its way back is not what a pattern means"
    );
    assert_eq!(world.inventory["a"].len() + world.inventory["b"].len(), 4);
}

#[test]
fn c074_a_copy_that_was_there_before_is_known_in_the_first_round() {
    let world = both_ways().holds("b", &[("a.orders", 1)]);
    assert_eq!(
        running(&world.resolve()),
        ["a-b/orders>a.orders", "b-a/clicks>b.clicks"]
    );
}

#[test]
fn c074_origin_is_never_guessed_from_a_name() {
    let mut world = both_ways().holds("b", &[("a.mine", 1), ("b.mine", 1)]);
    let resolved = world.settle();
    let mine: Vec<_> = running(&resolved)
        .into_iter()
        .filter(|id| id.contains("mine"))
        .collect();
    assert_eq!(mine, ["b-a/a.mine>b.a.mine", "b-a/b.mine>b.b.mine"]);
}

#[test]
fn c074_what_a_deleted_link_has_written_is_still_known_for_a_copy() {
    let mut world = both_ways();
    world.settle();
    let deleted = LinkId::new("a-b").expect("legal");
    world.desired.links.remove(&deleted);
    let subscriptions = &mut world.desired.subscriptions;
    subscriptions.retain(|(link, _), _| *link != deleted);
    let resolved = world.settle();
    assert_eq!(running(&resolved), ["b-a/clicks>b.clicks"]);
    assert_eq!(resolved.topics.len(), 1, "a.orders stays where it is");
}

#[test]
fn c074_by_exact_name_a_copy_on_its_way_back_is_a_problem() {
    let mut world = both_ways().topic("b-a", "a.orders");
    let resolved = world.settle();
    let looping = problem(&resolved, "b-a/a.orders").expect("loops");
    assert_eq!(looping, &TopicProblem::WouldLoop { target: id("a") });
    assert!(looping.to_string().contains("cluster a"), "{looping}");
}

#[test]
fn c075_a_ring_of_three_copies_each_topic_to_the_other_two() {
    let mut world = World::new()
        .link("a-b", "a.")
        .link("b-c", "b.")
        .link("c-a", "c.")
        .pattern("a-b", ".*")
        .pattern("b-c", ".*")
        .pattern("c-a", ".*")
        .holds("a", &[("x", 1)])
        .holds("b", &[("y", 1)])
        .holds("c", &[("z", 1)]);
    let resolved = world.settle();
    let expected = [
        "a-b/c.z>a.c.z",
        "a-b/x>a.x",
        "b-c/a.x>b.a.x",
        "b-c/y>b.y",
        "c-a/b.y>c.b.y",
        "c-a/z>c.z",
    ];
    assert_eq!(running(&resolved), expected);
    let chain = &resolved.topics[&of("b-c/a.x")].origin_clusters;
    assert_eq!(chain, &[id("a"), id("b")]);
}

#[test]
fn c074_origin_outlives_the_subscription_that_wrote_it() {
    let mut world = both_ways();
    world.settle();
    let world = world.unsubscribe("a-b", "/.*/");
    assert_eq!(running(&world.resolve()), ["b-a/clicks>b.clicks"]);
}

#[test]
fn after_a_failover_a_topic_can_be_sent_back_by_its_name() {
    let mut world = World::new()
        .link("a-b", "")
        .link("b-a", "")
        .topic("a-b", "orders")
        .holds("a", &[("orders", 1)]);
    world.settle();
    let back = world.unsubscribe("a-b", "orders").topic("b-a", "orders");
    assert_eq!(running(&back.resolve()), ["b-a/orders>orders"]);
    // And once more the other way round.
    let mut back = back;
    back.settle();
    let again = back.unsubscribe("b-a", "orders").topic("a-b", "orders");
    assert_eq!(running(&again.resolve()), ["a-b/orders>orders"]);
}

#[test]
fn what_runs_is_not_pushed_out_by_what_is_new() {
    // Refused when applied; should it come about, what runs goes on and the new way is not begun.
    let mut world = World::new()
        .link("b-a", "")
        .pattern("b-a", "t")
        .holds("b", &[("t", 1)]);
    world.settle();
    let mut world = world.link("a-b", "").pattern("a-b", "t");
    assert_eq!(running(&world.settle()), ["b-a/t>t"]);
}

#[test]
fn clusters_with_two_names_are_one_origin() {
    let mut world = World::new()
        .link("a-b", "a.")
        .link("b-c", "b.")
        .pattern("a-b", ".*")
        .pattern("b-c", ".*")
        .holds("a", &[("orders", 1)]);
    let other = world.desired.clusters.get_mut("c").expect("declared");
    other.bootstrap_servers = vec!["a:9092".to_owned()];
    assert_eq!(running(&world.settle()), ["a-b/orders>a.orders"]);
}

#[test]
fn of_two_writers_the_recorded_one_goes_on_and_the_other_is_told() {
    let mut world = World::new()
        .link("b-c", "")
        .holds("b", &[("orders", 1)])
        .pattern("b-c", ".*");
    world.settle();
    let world = world
        .link("a-c", "")
        .holds("a", &[("orders", 1)])
        .pattern("a-c", ".*");
    let resolved = world.resolve();
    assert_eq!(running(&resolved), ["b-c/orders>orders"]);
    let clash = problem(&resolved, "a-c/orders").expect("clashes");
    let expected = TopicProblem::NameClash {
        target_topic: id("orders"),
        other: of("b-c/orders"),
    };
    assert_eq!(clash, &expected);
    assert!(
        clash.to_string().contains("written by b-c/orders"),
        "{clash}"
    );
}

#[test]
fn of_two_new_writers_the_first_by_name_is_taken() {
    let mut world = World::new()
        .link("a-b", "")
        .holds("a", &[("x", 1), ("y", 1)])
        .pattern("a-b", ".*");
    world
        .edit_link("a-b")
        .naming
        .rename
        .insert(id("x"), id("y"));
    let resolved = world.resolve();
    assert_eq!(running(&resolved), ["a-b/x>y"]);
    assert!(matches!(
        problem(&resolved, "a-b/y"),
        Some(TopicProblem::NameClash { .. })
    ));
}

#[test]
fn a_name_that_kafka_does_not_allow_is_a_problem_of_its_topic_alone() {
    let long = "x".repeat(248);
    let world = World::new()
        .link("a-b", "a.")
        .holds("a", &[(&long, 1), ("orders", 1)])
        .pattern("a-b", ".*");
    let resolved = world.resolve();
    assert_eq!(running(&resolved), ["a-b/orders>a.orders"]);
    let fault = problem(&resolved, &format!("a-b/{long}")).expect("too long");
    assert!(
        fault.to_string().contains("rename it on the link"),
        "{fault}"
    );
}
