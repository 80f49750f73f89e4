//! One real cluster and an engine: records go from a topic to its copy on the same cluster, which the
//! engine takes for two, since it is given two names and addresses.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::{
    ids::{ClusterId, LinkId, OwnerEpoch, Partition, TaskId, TopicName},
    spec::{CheckpointSide, Cluster, GapPolicy, Link, Naming, Security, StartPolicy, TargetTopics},
    target_limits::TargetLimits,
};
use kreplicator_tests::{kafka::KafkaCluster, wait};
use kreplicator_worker::{
    engine::{LinkContext, RunningTask, State, Status, TaskSpec},
    fence::OwnershipFence,
};
use rdkafka::{
    ClientConfig, TopicPartitionList,
    client::ClientContext,
    consumer::{BaseConsumer, Consumer as _},
    message::{DeliveryResult, Header, Headers as _, Message as _, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
};

/// Longest wait for anything that should happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The group of the link.
pub(crate) const GROUP: &str = "kreplicator.a-b";

/// A fence that is open.
#[derive(Debug)]
pub(crate) struct Open;

impl OwnershipFence for Open {
    fn is_open(&self) -> bool {
        true
    }
}

/// Times of an engine under test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) checkpoint_interval: Duration,
    pub(crate) recommit_interval: Duration,
    pub(crate) inspection_interval: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
}

/// Short waits.
pub(crate) fn quick() -> Times {
    Times {
        checkpoint_interval: Duration::from_millis(200),
        recommit_interval: Duration::from_secs(600),
        inspection_interval: Duration::from_millis(500),
        retry_min: Duration::from_millis(200),
        retry_max: Duration::from_secs(1),
    }
}

/// A link from the cluster to itself, past its client listener.
pub(crate) fn context(cluster: &KafkaCluster) -> Arc<LinkContext> {
    Arc::new(context_with(
        cluster.direct().split(',').map(str::to_owned).collect(),
        Security::default(),
    ))
}

/// The same by other addresses and with security.
pub(crate) fn context_with(bootstrap: Vec<String>, security: Security) -> LinkContext {
    let side = |id: &str| Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers: bootstrap.clone(),
        security: security.clone(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let (source, target) = (side("a"), side("b"));
    LinkContext {
        link: Link {
            id: LinkId::new("a-b").expect("legal"),
            source: source.id.clone(),
            target: target.id.clone(),
            naming: Naming {
                prefix: "copy.".to_owned(),
                rename: BTreeMap::new(),
            },
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

/// A task from a topic to its copy.
pub(crate) fn spec(topic: &str, partition: i32) -> TaskSpec {
    TaskSpec {
        id: TaskId {
            link: LinkId::new("a-b").expect("legal"),
            topic: TopicName::new(topic).expect("legal"),
            partition: Partition(partition),
        },
        epoch: OwnerEpoch(7),
        target_topic: TopicName::new(format!("copy.{topic}")).expect("legal"),
        start: StartPolicy::Earliest,
        limits: TargetLimits::default(),
    }
}

/// A topic and its copy.
pub(crate) async fn topic_pair(
    cluster: &KafkaCluster,
    topic: &str,
    partitions: i32,
    copy_config: &[(&str, &str)],
) -> Result<()> {
    let tolerant = [
        ("max.message.bytes", "10485760"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
    ];
    cluster.create_topic(topic, partitions, &tolerant).await?;
    cluster
        .create_topic(&format!("copy.{topic}"), partitions, copy_config)
        .await
}

/// A record as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rec {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Rec {
    pub(crate) fn new(value: impl Into<Vec<u8>>) -> Self {
        Self {
            key: Some(b"k".to_vec()),
            value: Some(value.into()),
            timestamp: Some(now_ms()),
            headers: Vec::new(),
        }
    }
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("fits")
}

/// Counts records that were not written.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicUsize);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A producer of the harness.
pub(crate) type Producer = BaseProducer<Failures>;

/// A producer of the harness with further settings.
pub(crate) fn producer(cluster: &KafkaCluster, settings: &[(&str, &str)]) -> Result<Producer> {
    let mut config = cluster.client_config();
    config
        .set("message.max.bytes", "10485760")
        .set("linger.ms", "1");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    Ok(config.create_with_context(Failures::default())?)
}

/// Hands records to a producer.
pub(crate) fn send(
    producer: &Producer,
    topic: &str,
    partition: i32,
    records: &[Rec],
) -> Result<()> {
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
            partition: Some(partition),
            payload: record.value.as_deref(),
            key: record.key.as_deref(),
            timestamp: record.timestamp,
            headers: (!record.headers.is_empty()).then_some(headers),
            delivery_opaque: (),
        };
        producer
            .send(message)
            .map_err(|(fault, _)| fault)
            .context("not queued")?;
    }
    Ok(())
}

/// Writes records and waits until they are there.
pub(crate) fn fill(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    records: &[Rec],
) -> Result<()> {
    let producer = producer(cluster, &[])?;
    send(&producer, topic, partition, records)?;
    written(&producer)
}

/// Waits until everything that was sent is written.
pub(crate) fn written(producer: &Producer) -> Result<()> {
    producer.flush(PATIENCE)?;
    let failures = producer.context().0.load(Ordering::Relaxed);
    ensure!(
        failures == 0,
        "{failures} records were refused by the source"
    );
    Ok(())
}

/// Everything in a partition that a reader of committed records gets.
pub(crate) async fn read(cluster: &KafkaCluster, topic: &str, partition: i32) -> Result<Vec<Rec>> {
    let mut config = cluster.client_config();
    let topic = topic.to_owned();
    config
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true");
    tokio::task::spawn_blocking(move || read_blocking(&config, &topic, partition)).await?
}

fn read_blocking(config: &ClientConfig, topic: &str, partition: i32) -> Result<Vec<Rec>> {
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, rdkafka::Offset::Beginning)?;
    consumer.assign(&list)?;
    let mut found = Vec::new();
    loop {
        match consumer.poll(PATIENCE).context("no end of the partition")? {
            Ok(message) => found.push(Rec {
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                timestamp: message.timestamp().to_millis(),
                headers: message.headers().map_or_else(Vec::new, |headers| {
                    let headers = headers.iter();
                    let owned = headers
                        .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)));
                    owned.collect()
                }),
            }),
            Err(rdkafka::error::KafkaError::PartitionEOF(_)) => return Ok(found),
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// The values of records, as text.
pub(crate) fn values(records: &[Rec]) -> Vec<String> {
    let values = records.iter().map(|record| record.value.clone());
    values
        .map(|value| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
        .collect()
}

/// Waits until a task's status fulfils a condition.
pub(crate) async fn status_where(
    task: &dyn RunningTask,
    what: &str,
    condition: impl Fn(&Status) -> bool,
) -> Result<Status> {
    wait::until(what, PATIENCE, async || {
        let status = task.status();
        ensure!(condition(&status), "{status:#?}");
        Ok(Some(status))
    })
    .await
}

/// Waits until a task is at the end of its partition, whatever it took to get there.
pub(crate) async fn caught_up(task: &dyn RunningTask, end: i64) -> Result<Status> {
    status_where(task, "the end of the partition", |status| {
        status.checkpoint.is_some_and(|at| at.0 == end)
            && status.log_end.is_some_and(|at| at.0 == end)
    })
    .await
}

/// Waits until a task is faulted for a reason that names all of `parts`.
pub(crate) async fn faulted(task: &dyn RunningTask, parts: &[&str]) -> Result<Status> {
    status_where(task, "the fault", |status| {
        status.state == State::Faulted && parts.iter().all(|part| status.cause.contains(part))
    })
    .await
}
