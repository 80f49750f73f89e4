//! A supervisor on a store of its own, and the controller's side of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_model::{
    ids::{
        ClusterId, LinkId, OwnerEpoch, Partition, PlanGeneration, TaskId, TopicName, UnixMillis,
        WorkerId,
    },
    spec::{Cluster, Link, StartPolicy},
    target_limits::TargetLimits,
};
use kreplicator_proto::{
    assignment::{AssignedTopic, Assignment, Ownership},
    stored::{self, Stored},
    v1,
};
use kreplicator_store::{LeaseId, MetaStore, Op, Outcome, Revision, Txn, keys};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{engine::FakeEngine, store::FlakyStore};
use crate::{
    clock::WallClock,
    gate::Gate,
    health::Health,
    membership::{Identity, Membership},
    supervisor::{Error, Parts, Settings, Supervisor},
    tasks::Tasks,
};

pub(crate) const LEASE_TTL: Duration = Duration::from_secs(5);
pub(crate) const FENCE_MARGIN: Duration = Duration::from_secs(1);

pub(crate) fn link_id(name: &str) -> LinkId {
    LinkId::new(name).expect("legal")
}

/// A partition of `orders` on link `a-b`.
pub(crate) fn task(partition: i32) -> TaskId {
    task_on("a-b", "orders", partition)
}

pub(crate) fn task_on(link: &str, topic: &str, partition: i32) -> TaskId {
    TaskId {
        link: link_id(link),
        topic: TopicName::new(topic).expect("legal"),
        partition: Partition(partition),
    }
}

/// Waits until something holds, at most a minute of the test's time.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < until, "still not so: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A running supervisor.
pub(crate) struct Rig {
    pub(crate) store: Arc<FlakyStore>,
    pub(crate) engine: FakeEngine,
    pub(crate) gate: Gate,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) health: Arc<Health>,
    pub(crate) worker: WorkerId,
    leave: CancellationToken,
    supervisor: JoinSet<Result<(), Error>>,
    generation: u64,
}

impl Rig {
    /// A worker on a fresh store in which links `a-b` and `a-c` are known.
    pub(crate) async fn start() -> Self {
        let store = Arc::new(FlakyStore::new());
        for cluster in ["a", "b", "c"] {
            put_cluster(&store, cluster, &format!("{cluster}:9092")).await;
        }
        put_link(&store, "a-b", "a", "b").await;
        put_link(&store, "a-c", "a", "c").await;
        Self::on(store, "w-1", Duration::from_secs(15))
    }

    /// Another worker on the same store.
    pub(crate) fn on(store: Arc<FlakyStore>, worker: &str, handover_time: Duration) -> Self {
        let worker = WorkerId::new(worker).expect("legal");
        let gate = Gate::shut();
        let engine = FakeEngine::new(Arc::clone(&store), gate.clone());
        let tasks = Arc::new(Tasks::default());
        let health = Arc::new(Health::new(Instant::now()));
        let identity = Identity {
            worker: worker.clone(),
            address: "127.0.0.1:1".to_owned(),
            capacity_tasks: 0,
            started_at: UnixMillis(1),
            lease_ttl: LEASE_TTL,
            fence_margin: FENCE_MARGIN,
        };
        let shared: Arc<dyn MetaStore> = Arc::clone(&store) as _;
        let membership = Membership::start(Arc::clone(&shared), identity, CancellationToken::new())
            .expect("sound times");
        let leave = CancellationToken::new();
        let parts = Parts {
            store: shared,
            worker: worker.clone(),
            membership,
            engine: Arc::new(engine.clone()),
            gate: gate.clone(),
            tasks: Arc::clone(&tasks),
            health: Arc::clone(&health),
            clock: WallClock::from_fn(|| UnixMillis(1_000)),
            settings: Settings::new(Duration::from_secs(10), handover_time),
        };
        let mut supervisor = JoinSet::new();
        supervisor.spawn(Supervisor::new(parts).run(leave.clone()));
        Self {
            store,
            engine,
            gate,
            tasks,
            health,
            worker,
            leave,
            supervisor,
            generation: 0,
        }
    }

    /// Assigns exactly these tasks with these epochs, as the next plan. Chunks that stay the same are
    /// not written.
    pub(crate) async fn assign(&mut self, tasks: impl IntoIterator<Item = (TaskId, u64)>) {
        self.generation += 1;
        let tasks: Vec<_> = tasks.into_iter().collect();
        let newest = tasks.iter().map(|(_, epoch)| *epoch).max().unwrap_or(0);
        self.generation = self.generation.max(newest);
        let mut chunks = chunks(&tasks);
        for number in 0..keys::ASSIGNMENT_CHUNKS {
            let wanted = chunks.remove(&number).unwrap_or_default();
            let key = keys::assignment(&self.worker, number);
            let before = self.store.inner().get(&key).await.expect("there");
            let before = before.map(|entry| {
                Assignment::decode(&key, &entry.value)
                    .expect("readable")
                    .topics
            });
            if before.unwrap_or_default() != wanted.topics {
                self.write_chunk(self.generation, number, wanted).await;
            }
        }
    }

    pub(crate) async fn write_chunk(&self, generation: u64, number: u32, chunk: Assignment) {
        let chunk = Assignment {
            generation: PlanGeneration(generation),
            ..chunk
        };
        put(
            &self.store,
            keys::assignment(&self.worker, number),
            chunk.encode(),
        )
        .await;
    }

    /// The present assignment chunk of link `a-b`, topic `orders`.
    pub(crate) async fn chunk(&self) -> (u32, Assignment, Revision) {
        let id = task(0);
        let number = keys::chunk_of(&id.link, &id.topic);
        let key = keys::assignment(&self.worker, number);
        let entry = self
            .store
            .inner()
            .get(&key)
            .await
            .expect("there")
            .expect("assigned");
        let chunk = Assignment::decode(&key, &entry.value).expect("readable");
        (number, chunk, entry.mod_revision)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What the store says this worker runs, over all chunks.
    pub(crate) async fn owned(&self) -> BTreeMap<u32, Ownership> {
        let prefix = keys::owned_of(&self.worker);
        let snapshot = self.store.inner().list(&prefix).await.expect("there");
        let entries = snapshot.entries.iter();
        entries
            .map(|(key, entry)| {
                let (_, number) = keys::split_chunk(key, keys::OWNED).expect("a chunk");
                (
                    number,
                    Ownership::decode(key, &entry.value).expect("readable"),
                )
            })
            .collect()
    }

    /// Whether the store lists exactly these tasks, none of them stopping, and acknowledges every
    /// chunk as it stands.
    pub(crate) async fn has_settled_on(&self, tasks: &[(TaskId, u64)]) -> bool {
        let wanted: BTreeMap<TaskId, OwnerEpoch> = tasks
            .iter()
            .map(|(id, epoch)| (id.clone(), OwnerEpoch(*epoch)))
            .collect();
        let owned = self.owned().await;
        let listed: BTreeMap<TaskId, OwnerEpoch> = owned
            .values()
            .flat_map(|owned| &owned.tasks)
            .filter(|(_, owned)| !owned.stopping)
            .map(|(id, owned)| (id.clone(), owned.epoch))
            .collect();
        let stopping = owned
            .values()
            .flat_map(|owned| owned.tasks.values())
            .any(|o| o.stopping);
        let prefix = keys::assignments_of(&self.worker);
        let assigned = self.store.inner().list(&prefix).await.expect("there");
        let acknowledged = assigned.entries.iter().all(|(key, entry)| {
            let (_, number) = keys::split_chunk(key, keys::ASSIGNMENTS).expect("a chunk");
            owned.get(&number).map(|owned| owned.applied_revision) == Some(entry.mod_revision.0)
        });
        let running: Vec<TaskId> = wanted.keys().cloned().collect();
        listed == wanted && !stopping && acknowledged && self.engine.running() == running
    }

    pub(crate) async fn settle_on(&self, tasks: &[(TaskId, u64)]) {
        eventually("the worker runs what is assigned", async || {
            self.has_settled_on(tasks).await
        })
        .await;
    }

    /// What this worker says of itself, and its lease; None: it is not registered.
    pub(crate) async fn live(&self) -> Option<(v1::WorkerLive, LeaseId)> {
        let key = keys::worker_live(&self.worker);
        let entry = self.store.inner().get(&key).await.expect("there")?;
        let live = stored::message(&key, &entry.value).expect("readable");
        Some((live, entry.lease.expect("leased")))
    }

    pub(crate) fn leave(&self) {
        self.leave.cancel();
    }

    /// How the supervisor ended.
    pub(crate) async fn ended(&mut self) -> Result<(), Error> {
        let ended = self.supervisor.join_next().await.expect("it ran");
        ended.expect("it did not panic")
    }

    pub(crate) fn is_over(&mut self) -> bool {
        match self.supervisor.try_join_next() {
            Some(ended) => {
                ended.expect("it did not panic").expect("it left");
                true
            }
            None => self.supervisor.is_empty(),
        }
    }
}

/// The chunks that hold these tasks.
fn chunks(tasks: &[(TaskId, u64)]) -> BTreeMap<u32, Assignment> {
    let mut chunks: BTreeMap<u32, Assignment> = BTreeMap::new();
    for (id, epoch) in tasks {
        let number = keys::chunk_of(&id.link, &id.topic);
        let topic = AssignedTopic {
            target_topic: id.topic.clone(),
            start: StartPolicy::Earliest,
            first_partitions: 0,
            partitions: BTreeMap::new(),
            limits: TargetLimits::default(),
        };
        let topics = &mut chunks.entry(number).or_default().topics;
        topics
            .entry(id.link_topic())
            .or_insert(topic)
            .partitions
            .insert(id.partition, OwnerEpoch(*epoch));
    }
    chunks
}

/// Assigns tasks to a worker that has none, by a plan of their newest epoch.
pub(crate) async fn put_assignment(store: &FlakyStore, worker: &str, tasks: &[(TaskId, u64)]) {
    let worker = WorkerId::new(worker).expect("legal");
    let newest = tasks.iter().map(|(_, epoch)| *epoch).max().unwrap_or(0);
    for (number, chunk) in chunks(tasks) {
        let chunk = Assignment {
            generation: PlanGeneration(newest),
            ..chunk
        };
        put(store, keys::assignment(&worker, number), chunk.encode()).await;
    }
}

pub(crate) async fn put(store: &FlakyStore, key: String, value: Vec<u8>) {
    let op = Op::Put {
        key,
        value,
        lease: None,
    };
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![op],
    };
    let outcome = store.inner().commit(txn).await.expect("there");
    assert!(matches!(outcome, Outcome::Committed(_)));
}

pub(crate) async fn delete(store: &FlakyStore, key: String) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::Delete(key)],
    };
    store.inner().commit(txn).await.expect("there");
}

pub(crate) async fn put_cluster(store: &FlakyStore, name: &str, server: &str) {
    let message = v1::Cluster {
        id: name.to_owned(),
        bootstrap_servers: vec![server.to_owned()],
        ..v1::Cluster::default()
    };
    let cluster = Cluster::try_from(&message).expect("legal");
    let key = keys::cluster(&ClusterId::new(name).expect("legal"));
    put(store, key, cluster.encode()).await;
}

pub(crate) async fn put_link(store: &FlakyStore, name: &str, source: &str, target: &str) {
    let message = v1::Link {
        id: name.to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        ..v1::Link::default()
    };
    let link = Link::try_from(&message).expect("legal");
    put(store, keys::link(&link.id), link.encode()).await;
}
