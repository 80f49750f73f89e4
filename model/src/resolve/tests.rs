use proptest::prelude::*;

use super::*;
use crate::{
    ids::NameError,
    spec::{
        CheckpointSide, Cluster, GapPolicy, Link, Naming, Pattern, Security, Selector,
        Subscription, TargetTopics,
    },
};

fn id<T: std::str::FromStr<Err = NameError>>(name: &str) -> T {
    name.parse().expect("legal")
}

/// A topic of a link, written `link/topic`.
fn of(name: &str) -> LinkTopic {
    let (link, topic) = name.split_once('/').expect("link/topic");
    LinkTopic {
        link: id(link),
        topic: id(topic),
    }
}

/// Everything that resolving takes, built step by step.
#[derive(Debug, Clone, Default)]
struct World {
    desired: Desired,
    inventory: Inventory,
    records: BTreeMap<LinkTopic, TopicRecord>,
    baseline: BTreeSet<(LinkId, String)>,
}

impl World {
    fn new() -> Self {
        Self::default()
    }

    /// A link such as `a-b` between clusters `a` and `b`.
    fn link(mut self, name: &str, prefix: &str) -> Self {
        let (source, target) = name.split_once('-').expect("named by its clusters");
        for cluster in [source, target] {
            let cluster: ClusterId = id(cluster);
            let declared = Cluster {
                id: cluster.clone(),
                bootstrap_servers: vec![format!("{cluster}:9092")],
                security: Security::default(),
                client_options: BTreeMap::new(),
                expected_cluster_id: None,
            };
            self.desired.clusters.insert(cluster, declared);
        }
        let link = Link {
            id: id(name),
            source: id(source),
            target: id(target),
            naming: Naming {
                prefix: prefix.to_owned(),
                rename: BTreeMap::new(),
            },
            start: StartPolicy::Latest,
            on_gap: GapPolicy::default(),
            checkpoint_on: CheckpointSide::default(),
            target_topics: TargetTopics::default(),
            paused: false,
        };
        self.desired.links.insert(link.id.clone(), link);
        self
    }

    fn edit_link(&mut self, name: &str) -> &mut Link {
        self.desired.links.get_mut(name).expect("made")
    }

    fn subscribe(mut self, link: &str, selector: Selector) -> Self {
        let subscription = Subscription {
            link: id(link),
            selector,
            start: None,
            paused: false,
        };
        let key = (id(link), subscription.selector.id());
        self.desired.subscriptions.insert(key, subscription);
        self
    }

    fn topic(self, link: &str, name: &str) -> Self {
        self.subscribe(link, Selector::Topic(id(name)))
    }

    fn pattern(self, link: &str, include: &str) -> Self {
        let include = include.to_owned();
        let exclude = Vec::new();
        self.subscribe(link, Selector::Pattern(Pattern { include, exclude }))
    }

    fn unsubscribe(mut self, link: &str, subscription: &str) -> Self {
        let key = (id(link), subscription.to_owned());
        self.desired.subscriptions.remove(&key).expect("subscribed");
        self
    }

    fn edit_subscription(&mut self, link: &str, subscription: &str) -> &mut Subscription {
        let key = (id(link), subscription.to_owned());
        self.desired
            .subscriptions
            .get_mut(&key)
            .expect("subscribed")
    }

    /// Topics on a cluster with their numbers of partitions.
    fn holds(mut self, cluster: &str, topics: &[(&str, i32)]) -> Self {
        let found = self.inventory.entry(id(cluster)).or_default();
        for (name, partitions) in topics {
            let source = SourceTopic {
                partitions: *partitions,
                topic_id: None,
            };
            found.insert(id(name), source);
        }
        self
    }

    fn resolve(&self) -> Resolved {
        resolve(
            &self.desired,
            &self.inventory,
            &self.records,
            &self.baseline,
        )
    }

    /// What the controller does about an answer: it notes new topics, makes target topics on clusters
    /// that are known, and the first discovery pass of every subscription is over.
    fn carry_out(&mut self) -> Resolved {
        let resolved = self.resolve();
        for (id, topic) in resolved.topics.iter().filter(|(_, topic)| topic.runs()) {
            self.records
                .entry(id.clone())
                .or_insert_with(|| record(topic));
            let target = &self.desired.links[&id.link].target;
            let found = self.inventory.entry(target.clone()).or_default();
            let made = SourceTopic {
                partitions: topic.partitions,
                topic_id: None,
            };
            found.entry(topic.target_topic.clone()).or_insert(made);
        }
        for (id, topic) in &resolved.topics {
            if let Some(record) = self.records.get_mut(id) {
                record.partitions = topic.partitions;
            }
        }
        self.baseline = self.desired.subscriptions.keys().cloned().collect();
        resolved
    }

    /// Carries answers out until nothing new comes up.
    fn settle(&mut self) -> Resolved {
        for _ in 0..20 {
            let before = self.records.len();
            let resolved = self.carry_out();
            if self.records.len() == before {
                return resolved;
            }
        }
        panic!("topics without end: {:?}", self.records.keys());
    }
}

fn record(topic: &ResolvedTopic) -> TopicRecord {
    TopicRecord {
        target_topic: topic.target_topic.clone(),
        first_partitions: topic.first_partitions,
        partitions: topic.partitions,
        target_partitions: topic.partitions,
        start: topic.start,
        first_seen: UnixMillis(1),
        origin_clusters: topic.origin_clusters.clone(),
        source_cluster_id: None,
        target_cluster_id: None,
        source_topic_id: None,
    }
}

/// Which topic goes where, as `link/topic>target`.
fn running(resolved: &Resolved) -> Vec<String> {
    let running = resolved.topics.iter().filter(|(_, topic)| topic.runs());
    running
        .map(|(id, topic)| format!("{id}>{}", topic.target_topic))
        .collect()
}

fn problem<'a>(resolved: &'a Resolved, name: &str) -> Option<&'a TopicProblem> {
    resolved.topics[&of(name)].problem.as_ref()
}

// --- which subscription

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

// --- where it came from

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

// --- who writes to it

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

// --- whole networks

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
