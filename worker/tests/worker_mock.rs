//! A whole worker between two mock clusters on a store in memory: what is assigned is copied, a worker
//! that leaves in order repeats nothing, one that is killed loses nothing.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::{
    ids::{LinkId, LinkTopic, OwnerEpoch, Partition, PlanGeneration, TopicName, WorkerId},
    spec::{Cluster, Link, StartPolicy},
    target_limits::TargetLimits,
};
use kreplicator_proto::{
    assignment::{AssignedTopic, Assignment},
    stored::Stored,
    v1,
};
use kreplicator_store::{EmbeddedStore, MetaStore, Op, Txn, keys};
use kreplicator_worker::{config::Config, wiring::Worker};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer},
};
use tokio::time::{Instant, sleep, timeout};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 2;
const PATIENCE: Duration = Duration::from_secs(30);

type Mock = MockCluster<'static, DefaultProducerContext>;

struct Rig {
    source: Mock,
    target: Mock,
    store: Arc<EmbeddedStore>,
    produced: usize,
    generation: u64,
}

impl Rig {
    async fn start() -> Self {
        let [source, target] = [(); 2].map(|()| MockCluster::new(1).expect("a mock cluster"));
        for cluster in [&source, &target] {
            cluster.create_topic(TOPIC, PARTITIONS, 1).expect("a topic");
        }
        let rig = Self {
            source,
            target,
            store: Arc::new(EmbeddedStore::in_memory()),
            produced: 0,
            generation: 0,
        };
        for (id, cluster) in [("a", &rig.source), ("b", &rig.target)] {
            let message = v1::Cluster {
                id: id.to_owned(),
                bootstrap_servers: vec![cluster.bootstrap_servers()],
                ..v1::Cluster::default()
            };
            let cluster = Cluster::try_from(&message).expect("legal");
            rig.put(keys::cluster(&cluster.id), cluster.encode()).await;
        }
        let message = v1::Link {
            id: "a-b".to_owned(),
            source: "a".to_owned(),
            target: "b".to_owned(),
            // A mock cluster cannot say what it has of a producer.
            engine: v1::Engine::Records.into(),
            ..v1::Link::default()
        };
        let link = Link::try_from(&message).expect("legal");
        rig.put(keys::link(&link.id), link.encode()).await;
        rig
    }

    async fn put(&self, key: String, value: Vec<u8>) {
        let op = Op::Put {
            key,
            value,
            lease: None,
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        self.store.commit(txn).await.expect("written");
    }

    /// Gives both partitions to a worker, and starts it.
    async fn worker(&mut self, id: &str) -> Worker {
        self.generation += 1;
        let topic = LinkTopic {
            link: LinkId::new("a-b").expect("legal"),
            topic: TopicName::new(TOPIC).expect("legal"),
        };
        let number = keys::chunk_of(&topic.link, &topic.topic);
        let assigned = AssignedTopic {
            target_topic: topic.topic.clone(),
            start: StartPolicy::Earliest,
            first_partitions: PARTITIONS,
            partitions: (0..PARTITIONS)
                .map(|partition| (Partition(partition), OwnerEpoch(self.generation)))
                .collect(),
            limits: TargetLimits::default(),
        };
        let assignment = Assignment {
            generation: PlanGeneration(self.generation),
            topics: BTreeMap::from([(topic, assigned)]),
        };
        let worker = WorkerId::new(id).expect("legal");
        self.put(keys::assignment(&worker, number), assignment.encode())
            .await;
        let config = Config {
            id: id.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            lease_ttl: Duration::from_secs(2),
            fence_margin: Duration::from_millis(400),
            checkpoint_interval: Duration::from_millis(200),
            inspection_interval: Duration::from_secs(60),
            ..Config::default()
        };
        let store: Arc<dyn MetaStore> = Arc::clone(&self.store) as _;
        Worker::start(config, store, Arc::new(ProcessSecrets), None)
            .await
            .expect("started")
    }

    /// Writes that many records more to the source, numbered on.
    fn produce(&mut self, count: usize) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.source.bootstrap_servers())
            .set("linger.ms", "1")
            .create()
            .expect("a producer");
        for number in self.produced..self.produced + count {
            let partition = if number % 2 == 0 { 0 } else { 1 };
            let value = number.to_string();
            let record = BaseRecord::<[u8], str>::to(TOPIC)
                .partition(partition)
                .payload(&value);
            producer
                .send(record)
                .map_err(|(fault, _)| fault)
                .expect("queued");
        }
        producer.flush(PATIENCE).expect("written");
        self.produced += count;
    }

    /// What the target holds once everything produced is there, in order of arrival by partition.
    async fn mirrored(&self) -> Vec<usize> {
        let bootstrap = self.target.bootstrap_servers();
        let wanted = self.produced;
        let read = tokio::task::spawn_blocking(move || read(&bootstrap, wanted));
        read.await.expect("no panic")
    }
}

fn read(bootstrap: &str, wanted: usize) -> Vec<usize> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(TOPIC, partition, Offset::Beginning)
            .expect("added");
    }
    consumer.assign(&list).expect("assigned");
    let mut found = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut quiet_since = Instant::now();
    while Instant::now() < end {
        let missing = (0..wanted).any(|number| !found.contains(&number));
        if !missing && quiet_since.elapsed() > Duration::from_millis(700) {
            break;
        }
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let payload = message.payload().expect("a value");
            let number = std::str::from_utf8(payload).expect("text");
            found.push(number.parse().expect("a number"));
            quiet_since = Instant::now();
        }
    }
    found
}

async fn stop(worker: Worker) {
    timeout(PATIENCE, worker.stop())
        .await
        .expect("in time")
        .expect("left in order");
}

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c041_a_worker_that_leaves_in_order_repeats_nothing() {
    let mut rig = Rig::start().await;
    rig.produce(200);
    let first = rig.worker("w-1").await;
    assert_eq!(sorted(rig.mirrored().await), (0..200).collect::<Vec<_>>());
    rig.produce(200);
    stop(first).await;
    let second = rig.worker("w-2").await;
    rig.produce(100);
    assert_eq!(sorted(rig.mirrored().await), (0..500).collect::<Vec<_>>());
    stop(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_loses_nothing() {
    let mut rig = Rig::start().await;
    rig.produce(100);
    let first = rig.worker("w-1").await;
    assert_eq!(sorted(rig.mirrored().await), (0..100).collect::<Vec<_>>());
    // Checkpoints follow within their interval.
    sleep(Duration::from_secs(1)).await;
    rig.produce(100);
    first.kill().await;
    let second = rig.worker("w-2").await;
    rig.produce(100);
    let mirrored = rig.mirrored().await;
    let mut once = sorted(mirrored.clone());
    once.dedup();
    assert_eq!(once, (0..300).collect::<Vec<_>>());
    let repeated = mirrored.len() - once.len();
    assert!(
        repeated <= 100,
        "{repeated} repeated: more than was not saved"
    );
    stop(second).await;
}
