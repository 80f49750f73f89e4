//! Two mock clusters, an engine between them, and helpers to fill one and read the other.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::{
    ids::{ClusterId, LinkId, OwnerEpoch, Partition, TaskId, TopicName, WorkerId},
    spec::{CheckpointSide, Cluster, GapPolicy, Link, Naming, Security, StartPolicy, TargetTopics},
    target_limits::TargetLimits,
};
use kreplicator_worker::{
    budget::Budget,
    engine::{Engine, LinkContext, RunningTask, State, Status, TaskSpec},
    fence::OwnershipFence,
    records::{RecordsConfig, RecordsEngine},
};
use rdkafka::{
    ClientConfig, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, Message, OwnedHeaders},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest wait for anything that should happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a task may take to stop cleanly.
pub(crate) const STOP: Duration = Duration::from_secs(5);

pub(crate) type Mock = MockCluster<'static, DefaultProducerContext>;

/// A fence that a test opens and closes.
#[derive(Debug)]
pub(crate) struct Switch(AtomicBool);

impl Switch {
    pub(crate) fn open() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(crate) fn close(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl OwnershipFence for Switch {
    fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What a test can say about the engine; the rest is quick settings.
pub(crate) struct Rig {
    pub(crate) source: Mock,
    pub(crate) target: Mock,
    pub(crate) fence: Arc<Switch>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) engine: Arc<RecordsEngine>,
    pub(crate) context: Arc<LinkContext>,
}

pub(crate) fn quick_config() -> RecordsConfig {
    let mut config = RecordsConfig::new(WorkerId::new("worker-1").expect("legal"));
    config.checkpoint_interval = Duration::from_millis(100);
    config.inspection_interval = Duration::from_millis(500);
    config.statistics_interval = Duration::from_secs(1);
    config.retry_min = Duration::from_millis(200);
    config.retry_max = Duration::from_millis(500);
    config.call_timeout = Duration::from_secs(5);
    config.trouble_after = Duration::from_secs(1);
    config.stall_after = Duration::from_secs(3);
    config
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(quick_config(), 64 << 20)
    }

    pub(crate) fn with(config: RecordsConfig, budget_bytes: u64) -> Self {
        Self::with_target_brokers(config, budget_bytes, 1)
    }

    pub(crate) fn with_target_brokers(
        config: RecordsConfig,
        budget_bytes: u64,
        brokers: i32,
    ) -> Self {
        let source = MockCluster::new(1).expect("a mock cluster");
        let target = MockCluster::new(brokers).expect("a mock cluster");
        let context = context(&source.bootstrap_servers(), &target.bootstrap_servers());
        let fence = Switch::open();
        let budget = Budget::new(budget_bytes);
        let engine = engine(config, &fence, &budget);
        Self {
            source,
            target,
            fence,
            budget,
            engine,
            context: Arc::new(context),
        }
    }

    /// The same clusters and a worker that was started anew.
    pub(crate) async fn restart(&mut self, config: RecordsConfig) {
        self.engine.close(PATIENCE).await;
        self.fence = Switch::open();
        self.engine = engine(config, &self.fence, &self.budget);
    }

    pub(crate) fn topic(&self, topic: &str, partitions: i32) {
        for cluster in [&self.source, &self.target] {
            cluster.create_topic(topic, partitions, 1).expect("made");
        }
    }

    pub(crate) fn start(&self, topic: &str, partition: i32) -> Arc<dyn RunningTask> {
        self.start_spec(spec(topic, partition))
    }

    pub(crate) fn start_spec(&self, spec: TaskSpec) -> Arc<dyn RunningTask> {
        self.engine.start(spec, Arc::clone(&self.context))
    }

    /// Commits in the link's group on the source, as another tool or worker would.
    pub(crate) fn commit(&self, topic: &str, partition: i32, offset: i64, meta: &str) {
        let consumer = group_consumer(&self.source);
        let mut list = TopicPartitionList::new();
        {
            let mut element = list.add_partition(topic, partition);
            element
                .set_offset(rdkafka::Offset::Offset(offset))
                .expect("an offset");
            element.set_metadata(meta);
        }
        consumer
            .commit(&list, rdkafka::consumer::CommitMode::Sync)
            .expect("committed");
    }

    /// What is committed in the link's group on the source: offset and metadata.
    pub(crate) fn committed(&self, topic: &str, partition: i32) -> Option<(i64, String)> {
        let consumer = group_consumer(&self.source);
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let list = consumer.committed_offsets(list, PATIENCE).expect("answers");
        let element = list.find_partition(topic, partition).expect("asked for");
        match element.offset() {
            rdkafka::Offset::Offset(offset) => Some((offset, element.metadata().to_owned())),
            _ => None,
        }
    }
}

fn engine(config: RecordsConfig, fence: &Arc<Switch>, budget: &Arc<Budget>) -> Arc<RecordsEngine> {
    RecordsEngine::new(
        config,
        Arc::new(ProcessSecrets),
        Arc::clone(fence) as Arc<dyn OwnershipFence>,
        Arc::clone(budget),
        CancellationToken::new(),
    )
}

fn group_consumer(cluster: &Mock) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "kreplicator.a-b")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer")
}

pub(crate) fn cluster(id: &str, bootstrap: &str) -> Cluster {
    Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers: bootstrap.split(',').map(str::to_owned).collect(),
        security: Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    }
}

pub(crate) fn context(source: &str, target: &str) -> LinkContext {
    let (source, target) = (cluster("a", source), cluster("b", target));
    LinkContext {
        link: Link {
            id: LinkId::new("a-b").expect("legal"),
            source: source.id.clone(),
            target: target.id.clone(),
            naming: Naming::default(),
            start: StartPolicy::Earliest,
            on_gap: GapPolicy::ContinueAndReport,
            checkpoint_on: CheckpointSide::Source,
            target_topics: TargetTopics::default(),
            paused: false,
            engine: None,
        },
        source,
        target,
    }
}

pub(crate) fn spec(topic: &str, partition: i32) -> TaskSpec {
    let topic = TopicName::new(topic).expect("legal");
    TaskSpec {
        id: TaskId {
            link: LinkId::new("a-b").expect("legal"),
            topic: topic.clone(),
            partition: Partition(partition),
        },
        epoch: OwnerEpoch(7),
        target_topic: topic,
        start: StartPolicy::Earliest,
        limits: TargetLimits::default(),
    }
}

/// A record as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rec {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Rec {
    pub(crate) fn new(partition: i32, value: &str) -> Self {
        Self {
            partition,
            key: Some(b"k".to_vec()),
            value: Some(value.as_bytes().to_vec()),
            timestamp: Some(1_700_000_000_123),
            headers: Vec::new(),
        }
    }
}

/// Writes records, in order.
pub(crate) fn fill(cluster: &Mock, topic: &str, records: &[Rec]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("linger.ms", "1")
        .create()
        .expect("a producer");
    for record in records {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &record.headers {
            headers = headers.insert(Header {
                key,
                value: value.as_ref(),
            });
        }
        let message = BaseRecord::<[u8], [u8]> {
            topic,
            partition: Some(record.partition),
            payload: record.value.as_deref(),
            key: record.key.as_deref(),
            timestamp: record.timestamp,
            headers: (!record.headers.is_empty()).then_some(headers),
            delivery_opaque: (),
        };
        producer
            .send(message)
            .map_err(|(fault, _)| fault)
            .expect("queued");
    }
    producer.flush(PATIENCE).expect("written");
}

/// Writes a record every few milliseconds until this is dropped.
pub(crate) struct Stream {
    end: Arc<AtomicBool>,
}

impl Stream {
    /// Into partition 0 of a topic.
    pub(crate) fn into(cluster: &Mock, topic: &'static str) -> Self {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("linger.ms", "0")
            .create()
            .expect("a producer");
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
                    .partition(0)
                    .payload(b"busy".as_slice());
                producer
                    .send(record)
                    .map_err(|(fault, _)| fault)
                    .expect("queued");
                producer.poll(Duration::from_millis(5));
            }
        });
        Self { end }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
    }
}

/// Numbered records of one partition.
pub(crate) fn numbered(partition: i32, numbers: std::ops::Range<usize>) -> Vec<Rec> {
    numbers
        .map(|number| Rec::new(partition, &format!("{partition},{number}")))
        .collect()
}

/// Reads everything of a topic until `count` records have come and no more follow for a moment.
pub(crate) async fn read(cluster: &Mock, topic: &str, partitions: i32, count: usize) -> Vec<Rec> {
    let bootstrap = cluster.bootstrap_servers();
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || read_blocking(&bootstrap, &topic, partitions, count))
        .await
        .expect("no panic")
}

fn read_blocking(bootstrap: &str, topic: &str, partitions: i32, count: usize) -> Vec<Rec> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, rdkafka::Offset::Beginning)
            .expect("added");
    }
    consumer.assign(&list).expect("assigned");
    let mut found = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut quiet_since = Instant::now();
    while Instant::now() < end {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                found.push(Rec {
                    partition: message.partition(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    timestamp: message.timestamp().to_millis(),
                    headers: message.headers().map_or_else(Vec::new, |headers| {
                        headers
                            .iter()
                            .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                            .collect()
                    }),
                });
                quiet_since = Instant::now();
            }
            Some(Err(_)) => {}
            None => {
                let is_quiet = quiet_since.elapsed() > Duration::from_millis(700);
                if found.len() >= count && is_quiet {
                    break;
                }
            }
        }
    }
    found
}

/// The values of one partition, in order.
pub(crate) fn values(records: &[Rec], partition: i32) -> Vec<String> {
    records
        .iter()
        .filter(|record| record.partition == partition)
        .map(|record| String::from_utf8(record.value.clone().expect("a value")).expect("text"))
        .collect()
}

/// Waits until a task's status fulfils a condition.
pub(crate) async fn status_where(
    task: &dyn RunningTask,
    what: &str,
    condition: impl Fn(&Status) -> bool,
) -> Status {
    let waited = timeout(PATIENCE, async {
        loop {
            let status = task.status();
            if condition(&status) {
                return status;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen: {:#?}", task.status()))
}

/// Waits until a task has copied everything below `checkpoint`.
pub(crate) async fn copied(task: &dyn RunningTask, checkpoint: i64) -> Status {
    status_where(task, &format!("checkpoint {checkpoint}"), |status| {
        status.checkpoint.is_some_and(|at| at.0 >= checkpoint)
    })
    .await
}

/// Waits until a task is faulted.
pub(crate) async fn faulted(task: &dyn RunningTask) -> Status {
    status_where(task, "a fault", |status| status.state == State::Faulted).await
}

/// All metrics of this process, as rendered.
pub(crate) fn metrics() -> String {
    static HANDLE: std::sync::LazyLock<metrics_exporter_prometheus::PrometheusHandle> =
        std::sync::LazyLock::new(|| {
            let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
            builder.install_recorder().expect("installed once")
        });
    HANDLE.render()
}

/// The value of one sample, named with its labels; 0: it is not there.
pub(crate) fn sample(name: &str) -> u64 {
    let metrics = metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
