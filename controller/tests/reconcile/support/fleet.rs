//! Store, clusters, controllers and workers of one test.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_controller::{
    api::SystemClock, config::Config, fleet::FleetState, wiring::Controller,
};
use kreplicator_model::{
    ids::{ClusterId, LinkId, LinkTopic, Partition, TaskId, UnixMillis, WorkerId},
    resolve::TopicRecord,
    spec::{
        CheckpointSide, Cluster, GapPolicy, Link, Naming, Pattern, Security, Selector, StartPolicy,
        Subscription, TargetTopics,
    },
};
use kreplicator_proto::{stored::Stored, subscription_record::SubscriptionRecord, v1};
use kreplicator_store::{
    EmbeddedStore,
    api::{MetaStore, Op, Outcome, TXN_OPS_MAX, Txn},
    keys,
};
use prost::Message;
use tokio::time::{Instant, sleep};

use super::{
    kafka::{FakeKafka, topic},
    registry::Registry,
    store::Line,
    worker::{Behaviour, FakeWorker},
};

/// What a test's controllers are set to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) startup_grace: Duration,
    pub(crate) mass_loss_grace: Duration,
    pub(crate) stuck_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            startup_grace: Duration::from_secs(5),
            mass_loss_grace: Duration::from_secs(30),
            stuck_after: Duration::from_secs(10),
        }
    }
}

/// A running controller with its own line to the store.
#[derive(Debug)]
pub(crate) struct RunningController {
    pub(crate) controller: Controller,
    pub(crate) line: Line,
}

/// A fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) kafka: FakeKafka,
    pub(crate) registry: Registry,
    pub(crate) controllers: BTreeMap<String, RunningController>,
    pub(crate) workers: BTreeMap<String, FakeWorker>,
}

pub(crate) fn link_id(name: &str) -> LinkId {
    LinkId::new(name).expect("legal")
}

pub(crate) fn cluster_id(name: &str) -> ClusterId {
    ClusterId::new(name).expect("legal")
}

pub(crate) fn link_topic(link: &str, name: &str) -> LinkTopic {
    LinkTopic {
        link: link_id(link),
        topic: topic(name),
    }
}

pub(crate) fn task(link: &str, name: &str, partition: i32) -> TaskId {
    TaskId {
        link: link_id(link),
        topic: topic(name),
        partition: Partition(partition),
    }
}

/// A link with prefix naming, `<source>.`.
pub(crate) fn link(name: &str, source: &str, target: &str) -> Link {
    Link {
        id: link_id(name),
        source: cluster_id(source),
        target: cluster_id(target),
        naming: Naming {
            prefix: format!("{source}."),
            rename: BTreeMap::new(),
        },
        start: StartPolicy::Latest,
        on_gap: GapPolicy::default(),
        checkpoint_on: CheckpointSide::default(),
        target_topics: TargetTopics::default(),
        paused: false,
        engine: None,
    }
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self {
            settings,
            store: Arc::new(EmbeddedStore::in_memory()),
            kafka: FakeKafka::default(),
            registry: Registry::default(),
            controllers: BTreeMap::new(),
            workers: BTreeMap::new(),
        }
    }

    /// One controller, these workers, clusters `a` and `b`, and the link `a-b`.
    pub(crate) async fn ready(workers: &[&str]) -> Self {
        let mut fleet = Self::new();
        fleet.declare_ab().await;
        fleet.start_controller("c0").await;
        for worker in workers {
            fleet.start_worker(worker);
        }
        fleet
    }

    pub(crate) async fn declare_ab(&self) {
        self.put_cluster("a", "a").await;
        self.put_cluster("b", "b").await;
        self.put_link(&link("a-b", "a", "b")).await;
    }

    pub(crate) async fn start_controller(&mut self, name: &str) {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config {
            id: name.to_owned(),
            listen_grpc: loopback,
            listen_http: loopback,
            lease_ttl: self.settings.lease,
            startup_grace: self.settings.startup_grace,
            mass_loss_grace: self.settings.mass_loss_grace,
            stuck_after: self.settings.stuck_after,
            ..Config::default()
        };
        let line = Line::new(Arc::clone(&self.store));
        let controller = Controller::start_with(
            config,
            Arc::new(line.clone()),
            Arc::new(self.kafka.clone()),
            Arc::new(SystemClock),
            None,
        )
        .await
        .expect("starts");
        let running = RunningController { controller, line };
        self.controllers.insert(name.to_owned(), running);
    }

    pub(crate) async fn kill_controller(&mut self, name: &str) {
        let running = self.controllers.remove(name).expect("runs");
        running.controller.kill().await;
    }

    pub(crate) async fn stop_controller(&mut self, name: &str) {
        let running = self.controllers.remove(name).expect("runs");
        running.controller.stop().await.expect("clean");
    }

    pub(crate) fn start_worker(&mut self, name: &str) {
        self.start_worker_with(name, Behaviour::default());
    }

    pub(crate) fn start_worker_with(&mut self, name: &str, behaviour: Behaviour) {
        let worker = FakeWorker::start(
            Arc::clone(&self.store),
            name,
            self.settings.lease,
            self.registry.clone(),
            behaviour,
        );
        self.workers.insert(name.to_owned(), worker);
    }

    pub(crate) fn crash_worker(&mut self, name: &str) {
        self.workers.remove(name).expect("runs").crash();
    }

    /// The state that the leader published.
    pub(crate) fn state(&self) -> Arc<FleetState> {
        let states = self
            .controllers
            .values()
            .map(|running| Arc::clone(&running.controller.fleet().borrow()));
        states
            .into_iter()
            .find(|state| state.ready)
            .unwrap_or_default()
    }

    pub(crate) async fn write(&self, ops: Vec<Op>) {
        for batch in ops.chunks(TXN_OPS_MAX) {
            let txn = Txn {
                compares: Vec::new(),
                ops: batch.to_vec(),
            };
            let outcome = self.store.commit(txn).await.expect("store works");
            assert!(matches!(outcome, Outcome::Committed(_)));
        }
    }

    pub(crate) async fn put(&self, key: String, value: Vec<u8>) {
        let lease = None;
        self.write(vec![Op::Put { key, value, lease }]).await;
    }

    pub(crate) async fn put_cluster(&self, name: &str, host: &str) {
        self.put_cluster_with(name, host, None).await;
    }

    /// A cluster that must have this Kafka cluster id.
    pub(crate) async fn put_cluster_pinned(&self, name: &str, host: &str, kafka: &str) {
        self.put_cluster_with(name, host, Some(kafka.to_owned()))
            .await;
    }

    async fn put_cluster_with(&self, name: &str, host: &str, expected_cluster_id: Option<String>) {
        let cluster = Cluster {
            id: cluster_id(name),
            bootstrap_servers: vec![format!("{host}:9092")],
            security: Security::default(),
            client_options: BTreeMap::new(),
            expected_cluster_id,
        };
        self.put(keys::cluster(&cluster.id), cluster.encode()).await;
    }

    pub(crate) async fn put_link(&self, link: &Link) {
        self.put(keys::link(&link.id), link.encode()).await;
    }

    pub(crate) async fn subscribe_with(&self, subscriptions: Vec<Subscription>) {
        let ops = subscriptions.into_iter().map(|subscription| {
            let key = keys::subscription(&subscription.link, &subscription.selector.id());
            let record = SubscriptionRecord {
                subscription,
                created_at: UnixMillis(1),
                baseline: false,
            };
            Op::Put {
                key,
                value: record.encode(),
                lease: None,
            }
        });
        self.write(ops.collect()).await;
    }

    pub(crate) async fn subscribe(&self, link: &str, topics: &[&str]) {
        let each = topics.iter().map(|name| Subscription {
            link: link_id(link),
            selector: Selector::Topic(topic(name)),
            start: None,
            paused: false,
        });
        self.subscribe_with(each.collect()).await;
    }

    pub(crate) async fn subscribe_pattern(&self, link: &str, include: &str) {
        let subscription = Subscription {
            link: link_id(link),
            selector: Selector::Pattern(Pattern {
                include: include.to_owned(),
                exclude: Vec::new(),
            }),
            start: None,
            paused: false,
        };
        self.subscribe_with(vec![subscription]).await;
    }

    pub(crate) async fn unsubscribe(&self, link: &str, name: &str) {
        let key = keys::subscription(&link_id(link), name);
        self.write(vec![Op::Delete(key)]).await;
    }

    pub(crate) async fn drain(&self, worker: &str) {
        let worker = WorkerId::new(worker).expect("legal");
        let value = v1::WorkerDrain {
            requested_at_ms: 1,
            reason: "test".to_owned(),
        };
        self.put(keys::worker_drain(&worker), value.encode_to_vec())
            .await;
    }

    pub(crate) async fn undrain(&self, worker: &str) {
        let worker = WorkerId::new(worker).expect("legal");
        self.write(vec![Op::Delete(keys::worker_drain(&worker))])
            .await;
    }

    pub(crate) async fn record(&self, link: &str, name: &str) -> Option<TopicRecord> {
        let key = keys::topic_record(&link_id(link), &topic(name));
        let entry = self.store.get(&key).await.expect("store works")?;
        Some(TopicRecord::decode(&key, &entry.value).expect("readable"))
    }

    /// Waits for a condition, in virtual time; tells how long it took.
    pub(crate) async fn until(
        &self,
        what: &str,
        limit: Duration,
        met: impl Fn(&Self) -> bool,
    ) -> Duration {
        let began = Instant::now();
        while !met(self) {
            assert!(
                began.elapsed() < limit,
                "not within {limit:?}: {what}\n{}",
                self.summary(),
            );
            sleep(Duration::from_millis(20)).await;
        }
        self.registry.assert_single_owners();
        began.elapsed()
    }

    /// Waits until this many tasks run.
    pub(crate) async fn until_running(&self, tasks: usize, limit: Duration) -> Duration {
        let what = format!("{tasks} tasks run");
        self.until(&what, limit, |fleet| {
            fleet.registry.running().len() == tasks
        })
        .await
    }

    /// Lets time pass, and looks that nobody broke the rules meanwhile.
    pub(crate) async fn pass(&self, time: Duration) {
        sleep(time).await;
        self.registry.assert_single_owners();
    }

    fn summary(&self) -> String {
        let state = self.state();
        let running = self.registry.running();
        let running = running
            .iter()
            .take(40)
            .map(|(task, worker)| format!("{task} on {worker}"));
        format!(
            "running: {}\ngeneration {}, {} assigned\nunassigned: {:?}\nproblems: {:?}\ntargets: \
             {:?}\nclusters: {:?}\nworkers: {:?}",
            running.collect::<Vec<_>>().join(", "),
            state.generation,
            state.assigned.len(),
            state.unassigned.iter().take(5).collect::<Vec<_>>(),
            state.problems,
            state.target_problems,
            state.clusters,
            state.workers,
        )
    }
}
