//! One real cluster and an engine: records go from a topic to its copy on the same cluster, which the
//! engine takes for two, since it is given two names and addresses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
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

pub(crate) use kreplicator_tests::{contents::*, load::unix_millis as now_ms};

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
