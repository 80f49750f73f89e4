//! Whole networks of links: no record comes home.

use proptest::prelude::*;

use super::world::{World, running};
use crate::resolve::*;

/// Links between up to four clusters, each with or without a prefix, and patterns or names on them.
fn networks() -> impl Strategy<Value = World> {
    let link = (0_usize..4, 1_usize..4, any::<bool>(), 0_usize..5);
    let links = prop::collection::vec(link, 1..7);
    let held = prop::collection::vec((0_usize..4, 0_usize..3), 1..6);
    (links, held).prop_map(|(links, held)| {
        let clusters = ["a", "b", "c", "d"];
        let topics = ["x", "y", "a.x"];
        let mut world = World::new();
        for (from, step, has_prefix, what) in links {
            let (source, target) = (clusters[from], clusters[(from + step) % 4]);
            let name = format!("{source}-{target}");
            let prefix = if has_prefix {
                format!("{source}.")
            } else {
                String::new()
            };
            world = world.link(&name, &prefix);
            world = match what {
                0 => world.topic(&name, "x"),
                1 => world.pattern(&name, "x|y"),
                2 => world.pattern(&name, ".*x"),
                _ => world.pattern(&name, ".*"),
            };
        }
        for (cluster, topic) in held {
            world = world.holds(clusters[cluster], &[(topics[topic], 1)]);
        }
        world
    })
}

/// The topics whose records a topic holds in truth, by following who copies what.
fn roots(
    world: &World,
    copies: &BTreeMap<(ClusterId, TopicName), Vec<LinkTopic>>,
    at: (ClusterId, TopicName),
    depth: usize,
) -> BTreeSet<ClusterId> {
    assert!(depth < 20, "records go round and round at {at:?}");
    let mut clusters = BTreeSet::from([at.0.clone()]);
    for writer in copies.get(&at).into_iter().flatten() {
        let source = world.desired.links[&writer.link].source.clone();
        clusters.extend(roots(
            world,
            copies,
            (source, writer.topic.clone()),
            depth + 1,
        ));
    }
    clusters
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn c074_c075_in_no_accepted_network_does_a_record_come_home(world in networks()) {
        let mut world = world;
        prop_assume!(world.desired.check().is_empty());
        let resolved = world.settle();
        let mut copies: BTreeMap<(ClusterId, TopicName), Vec<LinkTopic>> = BTreeMap::new();
        for (id, topic) in resolved.topics.iter().filter(|(_, topic)| topic.runs()) {
            let target = world.desired.links[&id.link].target.clone();
            copies.entry((target, topic.target_topic.clone())).or_default().push(id.clone());
        }
        let was_stopped = resolved.topics.iter().any(|(id, topic)| {
            world.records.contains_key(id) && !topic.runs()
        });
        for (to, writers) in &copies {
            prop_assert_eq!(writers.len(), 1, "two writers of {:?}", to);
            let source = world.desired.links[&writers[0].link].source.clone();
            let origins = roots(&world, &copies, (source, writers[0].topic.clone()), 0);
            prop_assert!(!origins.contains(&to.0), "{} comes home to {:?}", writers[0], to);
            // What was written by links that were stopped since is still told.
            let told = &resolved.topics[&writers[0]].origin_clusters;
            let told: BTreeSet<ClusterId> = told.iter().cloned().collect();
            prop_assert!(told.is_superset(&origins), "{told:?} {origins:?}");
            prop_assert!(was_stopped || told == origins, "{told:?} {origins:?}");
        }
        // Nothing changes when it is resolved again.
        let again = world.resolve();
        prop_assert_eq!(running(&again), running(&resolved));
    }
}
