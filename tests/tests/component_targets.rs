//! A whole controller on two real clusters: what it makes, grows, checks and leaves alone there.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_controller::{config::Config, fleet::FleetState, wiring::Controller};
use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::{
    ids::{ClusterId, LinkId, LinkTopic, TopicName, UnixMillis, WorkerId},
    spec::{
        CheckpointSide, Cluster, GapPolicy, Link, Naming, Pattern, Security, Selector, StartPolicy,
        Subscription, TargetTopics,
    },
    target_limits::TargetLimits,
};
use kreplicator_proto::{
    assignment::Assignment, stored::Stored, subscription_record::SubscriptionRecord,
};
use kreplicator_store::{EmbeddedStore, MetaStore, Op, Outcome, Txn, keys};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
    wait::{holds_for, until_true},
};
use tokio::time::Instant;

/// Generous: brokers share the machine with other tests.
const SOON: Duration = Duration::from_secs(60);

/// A controller, the clusters that it knows as `a` and `b`, and the link `a-b`.
struct Scene {
    a: KafkaCluster,
    b: KafkaCluster,
    store: Arc<dyn MetaStore>,
    controller: Controller,
}

fn link() -> Link {
    Link {
        id: LinkId::new("a-b").expect("legal"),
        source: ClusterId::new("a").expect("legal"),
        target: ClusterId::new("b").expect("legal"),
        naming: Naming {
            prefix: "a.".to_owned(),
            rename: BTreeMap::new(),
        },
        start: StartPolicy::Earliest,
        on_gap: GapPolicy::default(),
        checkpoint_on: CheckpointSide::default(),
        target_topics: TargetTopics::default(),
        paused: false,
        engine: None,
    }
}

fn cluster(id: &str, bootstrap_servers: Vec<String>) -> Cluster {
    Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers,
        security: Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    }
}

fn topic(name: &str) -> LinkTopic {
    LinkTopic {
        link: link().id,
        topic: TopicName::new(name).expect("legal"),
    }
}

impl Scene {
    async fn start() -> Self {
        let options = |name| {
            KafkaOptions::single(name)
                .property("auto.create.topics.enable", true)
                .property("log.retention.ms", 60_000)
        };
        let (a, b) = tokio::join!(
            KafkaCluster::start(options("source")),
            KafkaCluster::start(options("target")),
        );
        let (a, b) = (a.expect("a broker starts"), b.expect("a broker starts"));
        let store: Arc<dyn MetaStore> = Arc::new(EmbeddedStore::in_memory());
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config {
            id: "c0".to_owned(),
            listen_grpc: loopback,
            listen_http: loopback,
            discovery_interval: Duration::from_secs(1),
            target_check_interval: Duration::from_secs(2),
            startup_grace: Duration::ZERO,
            ..Config::default()
        };
        let secrets = Arc::new(ProcessSecrets);
        let controller = Controller::start(config, Arc::clone(&store), secrets, None)
            .await
            .expect("starts");
        let scene = Self {
            a,
            b,
            store,
            controller,
        };
        let (a, b) = (
            cluster("a", scene.a.bootstrap()),
            cluster("b", scene.b.bootstrap()),
        );
        scene.put(keys::cluster(&a.id), a.encode()).await;
        scene.put(keys::cluster(&b.id), b.encode()).await;
        scene.put(keys::link(&link().id), link().encode()).await;
        // Tasks are given to it; nobody runs them.
        let worker = WorkerId::new("w1").expect("legal");
        scene.put(keys::worker_live(&worker), Vec::new()).await;
        scene
    }

    async fn write(&self, ops: Vec<Op>) {
        let txn = Txn {
            compares: Vec::new(),
            ops,
        };
        let outcome = self.store.commit(txn).await.expect("store works");
        assert!(matches!(outcome, Outcome::Committed(_)));
    }

    async fn put(&self, key: String, value: Vec<u8>) {
        let lease = None;
        self.write(vec![Op::Put { key, value, lease }]).await;
    }

    async fn subscribe(&self, selector: Selector) {
        let record = SubscriptionRecord {
            subscription: Subscription {
                link: link().id,
                selector,
                start: None,
                paused: false,
            },
            created_at: UnixMillis(1),
            baseline: false,
        };
        let id = record.subscription.selector.id();
        self.put(keys::subscription(&link().id, &id), record.encode())
            .await;
    }

    async fn subscribe_topic(&self, name: &str) {
        self.subscribe(Selector::Topic(topic(name).topic)).await;
    }

    fn state(&self) -> Arc<FleetState> {
        Arc::clone(&self.controller.fleet().borrow())
    }

    /// Waits until this many tasks are assigned.
    async fn until_assigned(&self, tasks: usize, deadline: Duration) {
        let assigned = async || Ok(self.state().assigned.len() == tasks);
        until_true(&format!("{tasks} tasks assigned"), deadline, assigned)
            .await
            .unwrap_or_else(|fault| panic!("{fault:#}: {:?}", self.state()));
    }

    /// What the worker was told that a target topic refuses.
    async fn limits(&self, name: &str) -> Option<TargetLimits> {
        let chunks = self
            .store
            .list(keys::ASSIGNMENTS)
            .await
            .expect("store works");
        chunks.entries.iter().find_map(|(key, entry)| {
            let assignment = Assignment::decode(key, &entry.value).expect("readable");
            Some(assignment.topics.get(&topic(name))?.limits)
        })
    }

    async fn stop(self) {
        self.controller.stop().await.expect("clean");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c064_c066_c068_target_topics_are_made_grown_checked_and_never_made_again_silently() {
    if skip(Tier::Component) {
        return;
    }
    let scene = Scene::start().await;
    let settings = [
        ("cleanup.policy", "compact"),
        ("retention.ms", "-1"),
        ("max.message.bytes", "3000000"),
    ];
    scene
        .a
        .create_topic("orders", 4, &settings)
        .await
        .expect("created");
    scene.subscribe_topic("orders").await;
    scene.until_assigned(4, SOON).await;
    let made = scene.b.topic_config("a.orders").await.expect("it is there");
    for (name, value) in settings {
        assert_eq!(made[name], value, "{name}");
    }
    assert_eq!(scene.b.partitions("a.orders").await.expect("told"), 4);
    let limits = scene.limits("orders").await.expect("told");
    assert_eq!(limits.max_message_bytes, Some(3_000_000));
    assert!(limits.compacted && !limits.log_append_time);
    assert_eq!(limits.timestamp_after_max, Some(Duration::from_secs(3600)));
    assert_eq!(limits.timestamp_before_max, None);

    // Partitions.
    scene.a.grow_topic("orders", 6).await.expect("grown");
    scene.until_assigned(6, SOON).await;
    assert_eq!(scene.b.partitions("a.orders").await.expect("told"), 6);

    // A setting changed on the target reaches the worker.
    let smaller = [("max.message.bytes", "2000000")];
    scene
        .b
        .configure_topic("a.orders", &smaller)
        .await
        .expect("altered");
    let told = async || {
        let limits = scene.limits("orders").await;
        Ok(limits.and_then(|limits| limits.max_message_bytes) == Some(2_000_000))
    };
    until_true("the new limit is told", SOON, told)
        .await
        .expect("told");
    let note = scene.state().target_notes[&topic("orders")].clone();
    assert!(
        note.contains("2000000") && note.contains("3000000"),
        "{note}"
    );

    // A deleted target stays deleted, though both clusters make topics on demand.
    scene.b.delete_topics(&["a.orders"]).await.expect("deleted");
    scene.until_assigned(0, SOON).await;
    let problem = scene.state().target_problems[&topic("orders")]
        .message
        .clone();
    assert!(
        problem.contains("a.orders") && problem.contains("deleted"),
        "{problem}"
    );
    let missing = async || Ok(!scene.b.topics().await?.contains_key("a.orders"));
    holds_for("the target stays deleted", Duration::from_secs(5), missing)
        .await
        .expect("it does");

    // A deleted source is not made again either.
    scene
        .a
        .create_topic("clicks", 2, &[])
        .await
        .expect("created");
    scene.subscribe_topic("clicks").await;
    scene.until_assigned(2, SOON).await;
    scene.a.delete_topics(&["clicks"]).await.expect("deleted");
    scene.until_assigned(0, SOON).await;
    let gone = async || Ok(!scene.a.topics().await?.contains_key("clicks"));
    holds_for("the source stays deleted", Duration::from_secs(5), gone)
        .await
        .expect("it does");
    assert_eq!(scene.b.partitions("a.clicks").await.expect("untouched"), 2);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c049_500_target_topics_are_made_as_fast_as_the_broker_can() {
    if skip(Tier::Component) {
        return;
    }
    let scene = Scene::start().await;
    let names: Vec<String> = (0..500)
        .map(|number| format!("topic-{number:03}"))
        .collect();
    let settings = [("retention.ms", "3600000")];
    scene
        .a
        .create_topics(&names, 6, &settings)
        .await
        .expect("created");
    let began = Instant::now();
    scene
        .subscribe(Selector::Pattern(Pattern {
            include: "topic-.*".to_owned(),
            exclude: Vec::new(),
        }))
        .await;
    // Brokers make some 30 topics of six partitions a second here; alone they need 15 s.
    scene.until_assigned(3_000, Duration::from_secs(180)).await;
    println!("3,000 tasks assigned after {:?}", began.elapsed());
    let made = scene.b.topics().await.expect("told");
    assert!(names.iter().all(|name| made[&format!("a.{name}")] == 6));
    let one = scene
        .b
        .topic_config("a.topic-499")
        .await
        .expect("it is there");
    assert_eq!(one["retention.ms"], "3600000");
    scene.stop().await;
}
