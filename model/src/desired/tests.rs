use super::*;
use crate::{
    ids::NameError,
    spec::{
        ALLOW_AUTO_CREATE, CheckpointSide, Engine, GapPolicy, Naming, Pattern, Security,
        StartPolicy, TargetTopics,
    },
};

fn id<T: std::str::FromStr<Err = NameError>>(name: &str) -> T {
    name.parse().expect("legal")
}

fn topic(name: &str) -> TopicName {
    id(name)
}

/// A desired state, built link by link.
#[derive(Default)]
struct Wish(Desired);

impl Wish {
    /// A link such as `a-b` between clusters `a` and `b`, which it declares too.
    fn link(mut self, name: &str, prefix: &str, rename: &[(&str, &str)]) -> Self {
        let (source, target) = name.split_once('-').expect("named by its clusters");
        for cluster in [source, target] {
            let cluster: ClusterId = id(cluster);
            self.0
                .clusters
                .entry(cluster.clone())
                .or_insert_with(|| Cluster {
                    bootstrap_servers: vec![format!("{cluster}:9092")],
                    id: cluster,
                    security: Security::default(),
                    client_options: BTreeMap::new(),
                    expected_cluster_id: None,
                });
        }
        let link = Link {
            id: id(name),
            source: id(source),
            target: id(target),
            naming: Naming {
                prefix: prefix.to_owned(),
                rename: rename.iter().map(|(s, t)| (topic(s), topic(t))).collect(),
            },
            start: StartPolicy::Earliest,
            on_gap: GapPolicy::default(),
            checkpoint_on: CheckpointSide::default(),
            target_topics: TargetTopics::default(),
            paused: false,
            engine: None,
        };
        self.0.links.insert(link.id.clone(), link);
        self
    }

    fn subscribe(mut self, link: &str, selector: Selector) -> Self {
        let subscription = Subscription {
            link: id(link),
            selector,
            start: None,
            paused: false,
        };
        let key = (id(link), subscription.selector.id());
        self.0.subscriptions.insert(key, subscription);
        self
    }

    fn topics(self, link: &str, names: &[&str]) -> Self {
        names.iter().fold(self, |wish, name| {
            wish.subscribe(link, Selector::Topic(topic(name)))
        })
    }

    fn pattern(self, link: &str, include: &str, exclude: &[&str]) -> Self {
        let pattern = Pattern {
            include: include.to_owned(),
            exclude: exclude.iter().map(|text| (*text).to_owned()).collect(),
        };
        self.subscribe(link, Selector::Pattern(pattern))
    }

    fn cluster(&mut self, name: &str) -> &mut Cluster {
        self.0.clusters.get_mut(name).expect("declared")
    }

    fn link_mut(&mut self, name: &str) -> &mut Link {
        self.0.links.get_mut(name).expect("declared")
    }

    /// The one fault there is.
    #[track_caller]
    fn fault(&self) -> Fault {
        let faults = self.0.check();
        assert_eq!(faults.len(), 1, "{faults:#?}");
        faults.into_iter().next().expect("one")
    }

    #[track_caller]
    fn assert_fault(&self, subject: &str, kind: FaultKind, parts: &[&str]) {
        let fault = self.fault();
        assert_eq!(
            (fault.subject.as_str(), fault.kind),
            (subject, kind),
            "{fault}"
        );
        for part in parts {
            assert!(fault.message.contains(part), "{part:?} is not in: {fault}");
        }
    }

    #[track_caller]
    fn assert_fine(&self) {
        assert_eq!(self.0.check(), []);
    }
}

fn wish() -> Wish {
    Wish::default()
}

#[test]
fn a_sound_state_has_no_faults() {
    wish().assert_fine();
    wish()
        .link("a-b", "a.", &[])
        .topics("a-b", &["orders"])
        .pattern("a-b", "x.*", &[])
        .assert_fine();
}

#[test]
fn unknown_names_are_told() {
    let mut missing = wish().link("a-b", "", &[]);
    missing.0.clusters.remove("b");
    missing.assert_fault(
        "link a-b",
        FaultKind::UnknownCluster,
        &["target cluster b", "declare it"],
    );
    let orphan = wish().topics("a-b", &["orders"]);
    orphan.assert_fault(
        "subscription a-b/orders",
        FaultKind::UnknownLink,
        &["link a-b"],
    );
}

#[test]
fn a_link_from_a_cluster_to_itself_is_refused_under_any_name() {
    let mut same = wish().link("a-b", "", &[]);
    same.0.links.get_mut("a-b").expect("made").target = id("a");
    same.assert_fault("link a-b", FaultKind::SameCluster, &["both a"]);

    let mut address = wish().link("a-b", "", &[]);
    address.cluster("b").bootstrap_servers = vec!["other:1".to_owned(), "A:9092".to_owned()];
    address.assert_fault(
        "link a-b",
        FaultKind::SameCluster,
        &["source a and target b", "address"],
    );

    let mut pinned = wish().link("a-b", "", &[]);
    pinned.cluster("a").expected_cluster_id = Some("kafka-1".to_owned());
    pinned.cluster("b").expected_cluster_id = Some("kafka-1".to_owned());
    pinned.assert_fault("link a-b", FaultKind::SameCluster, &["pinned"]);
}

#[test]
fn bad_patterns_and_names_are_told() {
    let pattern = wish().link("a-b", "", &[]).pattern("a-b", "orders(", &[]);
    let parts = ["orders(", "unclosed group"];
    pattern.assert_fault("subscription a-b//orders(/", FaultKind::BadPattern, &parts);

    let prefix = wish().link("a-b", "a/", &[]).pattern("a-b", ".*", &[]);
    prefix.assert_fault("link a-b", FaultKind::BadName, &["prefix \"a/\""]);

    let long = "x".repeat(249);
    let long = wish().link("a-b", "a.", &[]).topics("a-b", &[&long]);
    assert_eq!(long.fault().kind, FaultKind::BadName);
}

#[test]
fn c071_topics_of_ours_are_refused() {
    let exact = wish()
        .link("a-b", "", &[])
        .topics("a-b", &["__kreplicator_origins"]);
    let subject = "subscription a-b/__kreplicator_origins";
    exact.assert_fault(subject, FaultKind::OursTopic, &["never copied"]);
    let rename = wish().link("a-b", "", &[("x", "__kreplicator_x")]);
    rename.assert_fault("link a-b", FaultKind::OursTopic, &["__kreplicator_x"]);
    let prefix = wish().link("a-b", "__kreplicator", &[]);
    prefix.assert_fault("link a-b", FaultKind::OursTopic, &["prefix"]);
    wish()
        .link("a-b", "", &[])
        .topics("a-b", &["_schemas"])
        .assert_fine();
}

#[test]
fn names_that_clash_are_told_with_both_topics() {
    let rename = wish().link("a-b", "", &[("x", "z"), ("y", "z")]);
    rename.assert_fault(
        "link a-b",
        FaultKind::NameClash,
        &["x and y", "renamed to z"],
    );

    let two_links = wish()
        .link("a-c", "", &[])
        .link("b-c", "", &[])
        .topics("a-c", &["orders"])
        .topics("b-c", &["orders"]);
    let parts = ["orders on cluster c", "by a-c/orders", "prefix"];
    two_links.assert_fault("subscription b-c/orders", FaultKind::NameClash, &parts);

    let one_link = wish()
        .link("a-b", "", &[("x", "y")])
        .topics("a-b", &["x", "y"]);
    one_link.assert_fault("subscription a-b/y", FaultKind::NameClash, &["by a-b/x"]);

    wish()
        .link("a-c", "a.", &[])
        .link("b-c", "b.", &[])
        .topics("a-c", &["orders"])
        .topics("b-c", &["orders"])
        .assert_fine();
}

#[test]
fn clashes_are_seen_through_two_names_of_one_cluster() {
    let mut wish = wish()
        .link("a-c", "", &[])
        .link("b-d", "", &[])
        .topics("a-c", &["orders"])
        .topics("b-d", &["orders"]);
    wish.assert_fine();
    wish.cluster("d").bootstrap_servers = vec!["c:9092".to_owned()];
    assert_eq!(wish.fault().kind, FaultKind::NameClash);
}

#[test]
fn the_batch_engine_is_refused_where_the_target_makes_topics_by_itself() {
    let mut wish = wish().link("a-b", "", &[]).link("b-a", "", &[]);
    let options = &mut wish.cluster("b").client_options;
    options.insert(ALLOW_AUTO_CREATE.to_owned(), "true".to_owned());
    for (link, engine) in [("a-b", Engine::Records), ("b-a", Engine::Batches)] {
        wish.link_mut(link).engine = Some(engine);
    }
    wish.assert_fine();
    wish.link_mut("a-b").engine = None;
    let parts = ["engine batches", "target b", ALLOW_AUTO_CREATE, "records"];
    wish.assert_fault("link a-b", FaultKind::EngineUnfit, &parts);
    let options = &mut wish.cluster("b").client_options;
    options.insert(ALLOW_AUTO_CREATE.to_owned(), "false".to_owned());
    wish.assert_fine();
}

#[test]
fn c074_two_links_that_copy_the_same_topics_both_ways_are_refused() {
    let both = wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-a", ".*", &[]);
    let parts = ["links a-b and b-a", "topic a ", "prefix", "exclude"];
    both.assert_fault("link a-b", FaultKind::Loop, &parts);
}

#[test]
fn c074_prefixes_both_ways_are_fine() {
    wish()
        .link("a-b", "a.", &[])
        .link("b-a", "b.", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-a", ".*", &[])
        .assert_fine();
    // One prefix is enough: the copy has another name.
    wish()
        .link("a-b", "a.", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-a", ".*", &[])
        .assert_fine();
}

#[test]
fn c074_disjoint_patterns_both_ways_are_fine() {
    wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*-eu", &[])
        .pattern("b-a", ".*-us", &[])
        .assert_fine();
    wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*", &["us\\..*"])
        .pattern("b-a", "us\\..*", &[])
        .assert_fine();
}

#[test]
fn c075_exact_names_both_ways_are_refused_by_name() {
    let both = wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .topics("a-b", &["orders", "clicks"])
        .topics("b-a", &["views", "orders"]);
    both.assert_fault(
        "link a-b",
        FaultKind::Loop,
        &["links a-b and b-a", "topic orders"],
    );
    let mixed = wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .topics("a-b", &["orders"])
        .pattern("b-a", "ord.*", &[]);
    mixed.assert_fault("link a-b", FaultKind::Loop, &["topic orders"]);
}

#[test]
fn c074_renames_that_lead_back_are_refused() {
    let renames = wish()
        .link("a-b", "", &[("orders", "sales")])
        .link("b-a", "", &[("sales", "orders")])
        .topics("a-b", &["orders"])
        .pattern("b-a", "sales", &[]);
    renames.assert_fault("link a-b", FaultKind::Loop, &["links a-b and b-a"]);
    // A prefix that a rename takes off again.
    let undone = wish()
        .link("a-b", "a.", &[])
        .link("b-a", "", &[("a.orders", "orders")])
        .pattern("a-b", "orders", &[])
        .pattern("b-a", "a\\..*", &[]);
    undone.assert_fault("link a-b", FaultKind::Loop, &["orders"]);
    // Renamed away, the only common name does not come back.
    wish()
        .link("a-b", "", &[("orders", "sales")])
        .link("b-a", "", &[])
        .pattern("a-b", "orders", &[])
        .pattern("b-a", "orders|other", &[])
        .assert_fine();
}

#[test]
fn c075_a_ring_of_three_is_refused_unless_no_topic_goes_all_the_way() {
    let ring = || {
        wish()
            .link("a-b", "", &[])
            .link("b-c", "", &[])
            .link("c-a", "", &[])
    };
    let all = ring()
        .pattern("a-b", ".*", &[])
        .pattern("b-c", ".*", &[])
        .pattern("c-a", ".*", &[]);
    all.assert_fault("link a-b", FaultKind::Loop, &["links a-b, b-c and c-a"]);
    let named = ring()
        .topics("a-b", &["x"])
        .pattern("b-c", ".*", &[])
        .topics("c-a", &["x"]);
    named.assert_fault("link a-b", FaultKind::Loop, &["topic x"]);
    ring()
        .pattern("a-b", "x|y", &[])
        .pattern("b-c", "y|z", &[])
        .pattern("c-a", "z|x", &[])
        .assert_fine();
    // A chain is no ring.
    wish()
        .link("a-b", "", &[])
        .link("b-c", "", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-c", ".*", &[])
        .assert_fine();
}

#[test]
fn loops_are_seen_through_two_names_of_one_cluster() {
    let mut wish = wish()
        .link("a-b", "", &[])
        .link("b-c", "", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-c", ".*", &[]);
    wish.assert_fine();
    wish.cluster("c").bootstrap_servers = vec!["a:9092".to_owned()];
    wish.assert_fault("link a-b", FaultKind::Loop, &["links a-b and b-c"]);
}

#[test]
fn paused_links_count_for_they_may_be_resumed() {
    let mut both = wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*", &[])
        .pattern("b-a", ".*", &[]);
    both.0.links.get_mut("a-b").expect("made").paused = true;
    assert_eq!(both.fault().kind, FaultKind::Loop);
}

#[test]
fn what_cannot_be_ruled_out_is_refused_and_says_so() {
    let both = wish()
        .link("a-b", "", &[])
        .link("b-a", "", &[])
        .pattern("a-b", ".*a.{16}", &[])
        .pattern("b-a", ".*b.{16}", &[]);
    both.assert_fault(
        "link a-b",
        FaultKind::Loop,
        &["might copy", "do not rule out"],
    );
}

#[test]
fn a_great_mesh_is_checked_within_limits() {
    let clusters = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut mesh = wish();
    for source in clusters {
        for target in clusters.iter().filter(|target| **target != source) {
            let name = format!("{source}-{target}");
            mesh = mesh.link(&name, "", &[]).pattern(&name, ".*", &[]);
        }
    }
    let faults = mesh.0.check();
    assert!(faults.iter().all(|fault| fault.kind == FaultKind::Loop));
    assert_eq!(faults.len(), 20, "as many as are reported at once");
}

#[test]
fn each_selector_is_compiled_once_for_all_checks_of_a_change() {
    let before = wish()
        .link("a-b", "", &[])
        .link("b-c", "", &[])
        .pattern("a-b", "x.*", &["x1", "x2"])
        .pattern("b-c", "y.*", &[])
        .pattern("b-c", "z.*", &[]);
    let mut matchers = Matchers::default();
    assert_eq!(before.0.check_with(&mut matchers), []);
    assert_eq!(matchers.compiled(), 3);
    let after = before.pattern("a-b", "v.*", &["v1"]);
    assert_eq!(after.0.check_with(&mut matchers), []);
    assert_eq!(matchers.compiled(), 4);
}

#[test]
fn all_faults_are_told_at_once() {
    let mut wish = wish()
        .link("a-b", "", &[("x", "z"), ("y", "z")])
        .pattern("a-b", "(", &[])
        .topics("nowhere-else", &["orders"]);
    wish.0.clusters.remove("a");
    let kinds: Vec<FaultKind> = wish.0.check().into_iter().map(|fault| fault.kind).collect();
    let expected = [
        FaultKind::UnknownCluster,
        FaultKind::NameClash,
        FaultKind::BadPattern,
        FaultKind::UnknownLink,
    ];
    assert_eq!(kinds, expected);
}
