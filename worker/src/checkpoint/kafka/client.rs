//! The client behind a group's checkpoints, and its threads.

use std::{
    fmt,
    sync::{Arc, Weak, mpsc},
    thread,
    time::Duration,
};

use kreplicator_kafka::{
    blocking::blocking, diagnosis::Diagnosis, error::Error as ClusterError,
    properties::ClientProperties,
};
use kreplicator_model::spec::Cluster;
use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::RDKafkaErrorCode as Code,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::fence::OwnershipFence;

/// How long the thread that serves events waits before it looks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// What the library may take over a deadline that it was given.
const GRACE: Duration = Duration::from_secs(1);

type Consumer = BaseConsumer<Diagnosis>;

/// A client that reads and writes the offsets of a group without being a member.
pub(super) struct GroupClient {
    /// Weak: dropped on its own threads (C109).
    consumer: Weak<Consumer>,
    diagnosis: Diagnosis,
    commits: mpsc::Sender<Commit>,
    ended: watch::Receiver<bool>,
}

/// A commit to be carried out, and who waits for its outcome.
struct Commit {
    list: TopicPartitionList,
    waiter: oneshot::Sender<Result<(), Code>>,
}

impl GroupClient {
    pub(super) fn create(
        group: &str,
        cluster: &Cluster,
        properties: &ClientProperties,
        fence: Arc<dyn OwnershipFence>,
    ) -> Result<Self, ClusterError> {
        let diagnosis = Diagnosis::new(cluster.id.clone());
        let mut config = properties.to_config();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // How long the library keeps a commit that finds no coordinator.
            .set("session.timeout.ms", "6000");
        let consumer: Consumer = config
            .create_with_context(diagnosis.clone())
            .map_err(|fault| ClusterError::from_creation(&cluster.id, &fault))?;
        let consumer = Arc::new(consumer);
        let weak = Arc::downgrade(&consumer);
        let (commits, orders) = mpsc::channel();
        let (end, ended) = watch::channel(false);
        let no_thread = |cause: std::io::Error| ClusterError::Settings {
            cluster: cluster.id.clone(),
            detail: format!("no thread for the client: {cause}"),
        };
        let committing = Arc::clone(&consumer);
        let committer = thread::Builder::new()
            .name(format!("commits-{}", cluster.id))
            .spawn(move || commit_all(&committing, &orders, fence.as_ref()))
            .map_err(no_thread)?;
        thread::Builder::new()
            .name(format!("group-{}", cluster.id))
            .spawn(move || {
                while !committer.is_finished() {
                    // Gives nothing but callbacks: nothing is assigned.
                    drop(consumer.poll(POLL_INTERVAL));
                }
                drop(consumer);
                end.send_replace(true);
            })
            .map_err(no_thread)?;
        Ok(Self {
            consumer: weak,
            diagnosis,
            commits,
            ended,
        })
    }

    /// Committed offsets.
    pub(super) async fn committed(
        &self,
        list: TopicPartitionList,
        deadline: Duration,
    ) -> Result<TopicPartitionList, Code> {
        let consumer = Weak::clone(&self.consumer);
        let asked = blocking(move || {
            let consumer = consumer.upgrade().ok_or(Code::BrokerDestroy)?;
            consumer
                .committed_offsets(list, deadline)
                .map_err(|fault| fault.rdkafka_error_code().unwrap_or(Code::Fail))
        });
        match timeout_at(Instant::now() + deadline + GRACE, asked).await {
            Ok(answer) => answer.inspect(|_| self.diagnosis.clear()),
            Err(_) => Err(Code::OperationTimedOut),
        }
    }

    /// Commits and waits for the outcome until `end`. Commits are carried out one after the other; one
    /// that nobody waits for any more keeps its place. An error of a single partition is the error of
    /// all: the library does not tell which.
    pub(super) async fn commit(&self, list: TopicPartitionList, end: Instant) -> Result<(), Code> {
        let (waiter, outcome) = oneshot::channel();
        self.commits
            .send(Commit { list, waiter })
            .map_err(|_| Code::BrokerDestroy)?;
        match timeout_at(end, outcome).await {
            Ok(Ok(outcome)) => outcome.inspect(|()| self.diagnosis.clear()),
            // The client is gone.
            Ok(Err(_)) => Err(Code::BrokerDestroy),
            Err(_) => Err(Code::OperationTimedOut),
        }
    }

    /// Why nobody answered.
    pub(super) fn unreachable(&self, code: Code) -> String {
        self.diagnosis.unreachable(code).to_string()
    }

    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }
}

/// A thread of its own, and not one of the runtime's: the library has no deadline for a commit, and a
/// runtime waits for its threads when it ends.
fn commit_all(consumer: &Consumer, orders: &mpsc::Receiver<Commit>, fence: &dyn OwnershipFence) {
    while let Ok(Commit { list, waiter }) = orders.recv() {
        if waiter.is_closed() {
            // Nobody knows any more whether it still may be written.
            continue;
        }
        // Asked last of all: the commit may have waited for the one before.
        let outcome = if fence.is_open() {
            consumer
                .commit(&list, CommitMode::Sync)
                .map_err(|fault| fault.rdkafka_error_code().unwrap_or(Code::Fail))
        } else {
            Err(Code::Fenced)
        };
        // Whoever waited may have lost patience.
        waiter.send(outcome).ok();
    }
}

impl fmt::Debug for GroupClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupClient").finish_non_exhaustive()
    }
}
