//! What the tests stand on.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_controller::{
    api::{self, ApiParts, Clock, ClusterView, DiscoveryPort},
    fleet::{ClusterState, FleetState, WorkerView},
    reports::{Limits, Reports},
};
use kreplicator_model::{
    ids::{ClusterId, ControllerId, LinkId, LinkTopic, TopicName, UnixMillis, WorkerId},
    resolve::ResolvedTopic,
    spec::{Cluster, StartPolicy},
};
use kreplicator_proto::v1::{
    self, clusters_client::ClustersClient, desired_client::DesiredClient,
    fleet_client::FleetClient, links_client::LinksClient, status_client::StatusClient,
    subscriptions_client::SubscriptionsClient, workers_client::WorkersClient,
};
use kreplicator_store::{
    Compare, Entry, Error, LeaseId, MetaStore, Op, Outcome, Result as StoreResult, Revision,
    Snapshot, Txn, Watch,
    election::{Role, Term},
    embedded::EmbeddedStore,
    fence::Fence,
    keys,
};
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

/// Longer than anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Several controllers over one store.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) discovery: Arc<FakeClusters>,
    terms: u64,
}

/// One controller's API.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) id: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) role: watch::Sender<Role>,
    pub(crate) fleet: watch::Sender<Arc<FleetState>>,
    pub(crate) reports: Arc<Reports>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), api::Error>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::new(FaultyStore::new()),
            discovery: Arc::default(),
            terms: 0,
        }
    }

    /// A rig with one leading controller.
    pub(crate) async fn with_leader() -> (Self, Controller) {
        let mut rig = Self::new();
        let leader = rig.controller("c1").await;
        rig.elect(&leader).await;
        (rig, leader)
    }

    /// Starts a controller that knows of no leader.
    pub(crate) async fn controller(&self, id: &'static str) -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let role = watch::Sender::new(Role::Following { leader_value: None });
        let ready = FleetState {
            ready: true,
            ..FleetState::default()
        };
        let fleet = watch::Sender::new(Arc::new(ready));
        let reports = Arc::new(Reports::new(Limits::default()));
        let shutdown = CancellationToken::new();
        let parts = ApiParts {
            controller: ControllerId::new(id).expect("legal"),
            address: address.to_string(),
            store: Arc::clone(&self.store) as Arc<dyn MetaStore>,
            role: role.subscribe(),
            fleet: fleet.subscribe(),
            discovery: Arc::clone(&self.discovery) as Arc<dyn DiscoveryPort>,
            reports: Arc::clone(&reports),
            clock: Arc::new(FixedClock),
            request_retention: Duration::from_secs(3_600),
        };
        let task = tokio::spawn(api::serve(parts, listener, shutdown.clone()));
        Controller {
            id,
            address,
            role,
            fleet,
            reports,
            shutdown,
            task,
        }
    }

    /// Makes a controller the leader: writes the key and tells it. Others are told by
    /// [`Controller::follow`].
    pub(crate) async fn elect(&mut self, controller: &Controller) {
        let key = keys::LEADER.to_owned();
        let depose = Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete(key.clone())],
        };
        self.store.commit(depose).await.expect("in memory");
        let value = controller.leader_value();
        let elect = Txn {
            compares: vec![Compare::Absent(key.clone())],
            ops: vec![Op::Put {
                key: key.clone(),
                value,
                lease: None,
            }],
        };
        let Outcome::Committed(revision) = self.store.commit(elect).await.expect("in memory")
        else {
            panic!("somebody else leads");
        };
        self.terms += 1;
        controller.role.send_replace(Role::Leading(Term {
            guard: Compare::CreatedAt(key, revision),
            fence: Fence::open_until(Instant::now() + Duration::from_secs(3_600)),
            number: self.terms,
        }));
    }
}

impl Controller {
    fn leader_value(&self) -> Vec<u8> {
        v1::Leader {
            controller: self.id.to_owned(),
            address: self.address.to_string(),
            elected_at_ms: 1,
        }
        .encode_to_vec()
    }

    /// Tells this controller that another one leads.
    pub(crate) fn follow(&self, leader: &Controller) {
        self.role.send_replace(Role::Following {
            leader_value: Some(leader.leader_value()),
        });
    }

    /// Tells this controller that nobody leads.
    pub(crate) fn follow_nobody(&self) {
        self.role
            .send_replace(Role::Following { leader_value: None });
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address))
            .expect("an address")
            .timeout(LIMIT)
            .connect_lazy()
    }

    pub(crate) fn clusters(&self) -> ClustersClient<Channel> {
        ClustersClient::new(self.channel())
    }

    pub(crate) fn links(&self) -> LinksClient<Channel> {
        LinksClient::new(self.channel())
    }

    pub(crate) fn subscriptions(&self) -> SubscriptionsClient<Channel> {
        SubscriptionsClient::new(self.channel())
    }

    pub(crate) fn workers(&self) -> WorkersClient<Channel> {
        WorkersClient::new(self.channel())
    }

    pub(crate) fn status(&self) -> StatusClient<Channel> {
        StatusClient::new(self.channel())
    }

    pub(crate) fn desired(&self) -> DesiredClient<Channel> {
        DesiredClient::new(self.channel()).max_decoding_message_size(64 << 20)
    }

    pub(crate) fn fleet_api(&self) -> FleetClient<Channel> {
        FleetClient::new(self.channel())
    }

    /// Declares clusters `a` and `b` and the link `a-b`.
    pub(crate) async fn declare_link(&self) {
        for id in ["a", "b"] {
            self.clusters()
                .put_cluster(put_cluster(id))
                .await
                .expect("accepted");
        }
        self.links()
            .put_link(put_link(link("a-b", "a", "b")))
            .await
            .expect("accepted");
    }

    /// Stops the controller in an orderly way.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.task)
            .await
            .expect("it ends")
            .expect("no panic")
            .expect("no error");
    }

    /// Stops the controller as a crash does.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

/// Wall-clock time that stands still.
#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000)
    }
}

/// Clusters that answer as the test says.
#[derive(Debug, Default)]
pub(crate) struct FakeClusters {
    views: Mutex<BTreeMap<String, Result<ClusterView, String>>>,
    looks: Mutex<Vec<String>>,
    pokes: Mutex<Vec<String>>,
}

impl FakeClusters {
    /// Sets the topics of a cluster, each with one partition.
    pub(crate) fn set_topics<'a>(&self, cluster: &str, topics: impl IntoIterator<Item = &'a str>) {
        let view = ClusterView {
            topics: topics.into_iter().map(|name| (topic(name), 1)).collect(),
            kafka_cluster_id: None,
        };
        let mut views = self.views.lock().expect("no panic");
        views.insert(cluster.to_owned(), Ok(view));
    }

    /// Has a cluster fail.
    pub(crate) fn set_cause(&self, cluster: &str, cause: &str) {
        let mut views = self.views.lock().expect("no panic");
        views.insert(cluster.to_owned(), Err(cause.to_owned()));
    }

    /// Looks so far.
    pub(crate) fn looks(&self) -> usize {
        self.looks.lock().expect("no panic").len()
    }

    /// Clusters that were poked since the last call.
    pub(crate) fn take_pokes(&self) -> Vec<String> {
        std::mem::take(&mut self.pokes.lock().expect("no panic"))
    }
}

#[async_trait]
impl DiscoveryPort for FakeClusters {
    async fn look(&self, cluster: &Cluster, _deadline: Duration) -> Result<ClusterView, String> {
        let id = cluster.id.to_string();
        self.looks.lock().expect("no panic").push(id.clone());
        let views = self.views.lock().expect("no panic");
        views
            .get(&id)
            .cloned()
            .unwrap_or_else(|| Ok(ClusterView::default()))
    }

    fn poke(&self, cluster: &ClusterId) {
        let mut pokes = self.pokes.lock().expect("no panic");
        pokes.push(cluster.to_string());
    }
}

/// The store in memory, with faults on demand.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: EmbeddedStore,
    /// The next commits happen, but their answers are lost.
    lose_answers: AtomicBool,
    /// The process that commits is stopped for good after this many more commits.
    commits_left: Mutex<Option<u32>>,
    commits: Mutex<Vec<Txn>>,
}

impl FaultyStore {
    fn new() -> Self {
        Self {
            inner: EmbeddedStore::in_memory(),
            lose_answers: AtomicBool::new(false),
            commits_left: Mutex::new(None),
            commits: Mutex::default(),
        }
    }

    /// The answer of the next commit is lost.
    pub(crate) fn lose_next_answer(&self) {
        self.lose_answers.store(true, Ordering::SeqCst);
    }

    /// After `commits` more, every commit fails without happening; None: all go well.
    pub(crate) fn fail_after(&self, commits: Option<u32>) {
        *self.commits_left.lock().expect("no panic") = commits;
    }

    /// Transactions committed since the last call.
    pub(crate) fn take_commits(&self) -> Vec<Txn> {
        std::mem::take(&mut self.commits.lock().expect("no panic"))
    }
}

#[async_trait]
impl MetaStore for FaultyStore {
    async fn get(&self, key: &str) -> StoreResult<Option<Entry>> {
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Snapshot> {
        self.inner.list(prefix).await
    }

    async fn commit(&self, txn: Txn) -> StoreResult<Outcome> {
        if let Some(left) = &mut *self.commits_left.lock().expect("no panic") {
            if *left == 0 {
                return Err(Error::Unavailable("cut off by the test".to_owned()));
            }
            *left -= 1;
        }
        let outcome = self.inner.commit(txn.clone()).await?;
        if let Outcome::Committed(_) = outcome {
            self.commits.lock().expect("no panic").push(txn);
        }
        if self.lose_answers.swap(false, Ordering::SeqCst) {
            return Err(Error::Unavailable("answer lost by the test".to_owned()));
        }
        Ok(outcome)
    }

    async fn grant(&self, ttl: Duration) -> StoreResult<LeaseId> {
        self.inner.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> StoreResult<Duration> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> StoreResult<()> {
        self.inner.revoke(lease).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> StoreResult<Box<dyn Watch>> {
        self.inner.watch(prefix, from).await
    }
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

pub(crate) fn cluster(id: &str) -> v1::Cluster {
    v1::Cluster {
        id: id.to_owned(),
        bootstrap_servers: vec![format!("{id}.example:9092")],
        ..v1::Cluster::default()
    }
}

pub(crate) fn put_cluster(id: &str) -> v1::PutClusterRequest {
    v1::PutClusterRequest {
        cluster: Some(cluster(id)),
        ..v1::PutClusterRequest::default()
    }
}

pub(crate) fn link(id: &str, source: &str, target: &str) -> v1::Link {
    v1::Link {
        id: id.to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        ..v1::Link::default()
    }
}

pub(crate) fn put_link(link: v1::Link) -> v1::PutLinkRequest {
    v1::PutLinkRequest {
        link: Some(link),
        ..v1::PutLinkRequest::default()
    }
}

pub(crate) fn exact(link: &str, topic: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Topic(topic.to_owned())),
        }),
        ..v1::Subscription::default()
    }
}

pub(crate) fn pattern(link: &str, include: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Pattern(v1::Pattern {
                include: include.to_owned(),
                exclude: Vec::new(),
            })),
        }),
        ..v1::Subscription::default()
    }
}

pub(crate) fn subscribe(subscriptions: Vec<v1::Subscription>) -> v1::SubscribeRequest {
    v1::SubscribeRequest {
        subscriptions,
        ..v1::SubscribeRequest::default()
    }
}

pub(crate) fn reference(link: &str, id: &str) -> v1::SubscriptionRef {
    v1::SubscriptionRef {
        link: link.to_owned(),
        id: id.to_owned(),
    }
}

/// Two reachable clusters, one live worker `w1`, and `topics` of the link `a-b` with two partitions
/// each, asked for by the exact subscription of the same name.
pub(crate) fn running_fleet(topics: &[&str]) -> FleetState {
    let reachable = ClusterState {
        reachable: Some(true),
        since: UnixMillis(5),
        topics: 3,
        partitions: 7,
        brokers: 1,
        discovered_at: Some(UnixMillis(6)),
        ..ClusterState::default()
    };
    let mut fleet = FleetState {
        ready: true,
        clusters: ["a", "b"]
            .map(|id| (ClusterId::new(id).expect("legal"), reachable.clone()))
            .into(),
        workers: [(worker("w1"), live_worker())].into(),
        ..FleetState::default()
    };
    for name in topics {
        let key = LinkTopic {
            link: LinkId::new("a-b").expect("legal"),
            topic: topic(name),
        };
        let resolved = ResolvedTopic {
            subscription: (*name).to_owned(),
            target_topic: topic(name),
            partitions: 2,
            first_partitions: 2,
            start: StartPolicy::Earliest,
            paused: false,
            problem: None,
            origin_clusters: Vec::new(),
            is_new: false,
        };
        fleet.resolved.topics.insert(key, resolved);
    }
    fleet
}

pub(crate) fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).expect("legal")
}

pub(crate) fn live_worker() -> WorkerView {
    WorkerView {
        address: "127.0.0.1:1".to_owned(),
        live: true,
        draining: false,
        lost: false,
        version: "1.2.3".to_owned(),
        started_at: UnixMillis(4),
        tasks_assigned: 0,
        tasks_owned: 0,
    }
}

/// Checks that a call was refused with this code, and that the message names each of these.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    names: &[&str],
) -> String {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    for name in names {
        assert!(status.message().contains(name), "no {name:?} in {status:?}");
    }
    status.message().to_owned()
}
