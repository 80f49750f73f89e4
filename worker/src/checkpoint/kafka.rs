//! Checkpoints as offset commits of the group `kreplicator.<link>`.
//!
//! The client is one of its own, not the reader's: a commit that waits for a coordinator would keep
//! the library from opening partitions, and the group may live on the other cluster. Commits are
//! carried out one after the other on a thread, and the outcome is waited for with our own deadline.
//! The library tells one error for a whole commit; which partitions were written after all is found
//! out by reading them back.

mod client;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::{
    error::{Error as ClusterError, explain},
    properties::ClientProperties,
};
use kreplicator_model::{
    checkpoint::CheckpointMeta,
    ids::{Offset, Partition, TaskId, TopicName, WorkerId},
    spec::{CheckpointSide, Cluster, Link, Naming},
};
use rdkafka::{
    TopicPartitionList, error::RDKafkaErrorCode as Code,
    topic_partition_list::TopicPartitionListElem,
};
use tokio::time::{Instant, sleep, timeout_at};

use self::client::GroupClient;
use super::{CheckpointStore, Committed, Error, Loaded, Save, group_of, names::Names};
use crate::fence::OwnershipFence;

/// Checkpoints in a consumer group of a Kafka cluster.
#[derive(Debug)]
pub struct KafkaCheckpoints {
    group: String,
    side: CheckpointSide,
    naming: Naming,
    worker: WorkerId,
    client: GroupClient,
    made_from: ClientProperties,
    books: Arc<Books>,
}

/// What goes on from one client to the next.
#[derive(Debug, Default)]
struct Books {
    /// Highest offsets saved or found by this worker.
    saved: Mutex<BTreeMap<TaskId, Offset>>,
    /// Held while a commit is under way.
    turn: tokio::sync::Mutex<()>,
}

impl KafkaCheckpoints {
    /// Checkpoints of `link` on `cluster`. Blocks for some milliseconds, never for the network.
    ///
    /// # Errors
    /// Settings that the client library refuses.
    pub fn create(
        link: &Link,
        cluster: &Cluster,
        properties: &ClientProperties,
        worker: WorkerId,
        fence: Arc<dyn OwnershipFence>,
    ) -> Result<Self, ClusterError> {
        let group = group_of(&link.id);
        Ok(Self {
            client: GroupClient::create(&group, cluster, properties, fence)?,
            group,
            side: link.checkpoint_on,
            naming: link.naming.clone(),
            worker,
            made_from: properties.clone(),
            books: Arc::default(),
        })
    }

    /// The same checkpoints by another client. Commits of both are carried out one after the other, so
    /// none goes back. Blocks for some milliseconds, never for the network.
    ///
    /// # Errors
    /// Settings that the client library refuses.
    pub(crate) fn renewed(
        &self,
        cluster: &Cluster,
        properties: &ClientProperties,
        fence: Arc<dyn OwnershipFence>,
    ) -> Result<Self, ClusterError> {
        Ok(Self {
            client: GroupClient::create(&self.group, cluster, properties, fence)?,
            group: self.group.clone(),
            side: self.side,
            naming: self.naming.clone(),
            worker: self.worker.clone(),
            made_from: properties.clone(),
            books: Arc::clone(&self.books),
        })
    }

    /// What the client was made from.
    pub(crate) fn made_from(&self) -> &ClientProperties {
        &self.made_from
    }

    /// Resolves when the client is gone after this value was dropped.
    pub(crate) fn ended(&self) -> tokio::sync::watch::Receiver<bool> {
        self.client.ended()
    }

    fn saved(&self) -> MutexGuard<'_, BTreeMap<TaskId, Offset>> {
        let saved = &self.books.saved;
        saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self, task: &TaskId) -> Names {
        // A name that Kafka does not allow has no target topic, and no task.
        let target = self.naming.target_of(&task.topic);
        let target = target.unwrap_or_else(|_| task.topic.clone());
        Names::new(self.side, &task.topic, &target)
    }

    /// What is found of a task, under the name that it is kept under or else under its former one.
    fn answer(&self, task: &TaskId, list: &TopicPartitionList) -> Result<Option<Committed>, Error> {
        let find = |topic: &TopicName| {
            let element = list.find_partition(topic.as_str(), task.partition.0);
            let element = element.ok_or_else(|| self.fault(Code::OperationTimedOut))?;
            element
                .error()
                .map_err(|fault| self.fault(fault.rdkafka_error_code().unwrap_or(Code::Fail)))?;
            self.read(task, &element)
        };
        let names = self.names(task);
        if let Some(found) = find(names.kept())?
            && names.is_ours(found.meta.as_ref())
        {
            return Ok(Some(found));
        }
        let Some(former) = names.former() else {
            return Ok(None);
        };
        let found = find(former)?;
        Ok(found.filter(|found| Names::is_former(found.meta.as_ref())))
    }

    fn fault(&self, code: Code) -> Error {
        match code {
            Code::Fenced => Error::Fenced,
            code if !is_answer(code) => Error::Unreachable {
                group: self.group.clone(),
                cause: self.client.unreachable(code),
            },
            Code::UnknownMemberId | Code::IllegalGeneration | Code::RebalanceInProgress => {
                Error::Refused {
                    group: self.group.clone(),
                    cause:
                        "the group has members; it belongs to KReplicator, so stop the consumers \
                            that use it"
                            .to_owned(),
                }
            }
            other => Error::Refused {
                group: self.group.clone(),
                cause: explain(other),
            },
        }
    }

    fn read(
        &self,
        task: &TaskId,
        element: &TopicPartitionListElem<'_>,
    ) -> Result<Option<Committed>, Error> {
        let rdkafka::Offset::Offset(offset) = element.offset() else {
            return Ok(None);
        };
        // The library panics on metadata that is no text; another tool may have written any bytes.
        let text = catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()));
        let Ok(text) = text else {
            return Err(Error::Refused {
                group: self.group.clone(),
                cause: format!("the commit of {task} holds metadata that is no text; reset it"),
            });
        };
        let meta = CheckpointMeta::parse(&text).map_err(|fault| Error::Unreadable {
            task: task.clone(),
            group: self.group.clone(),
            fault,
        })?;
        Ok(Some(Committed {
            offset: Offset(offset),
            meta,
        }))
    }

    /// What has to be written, and the list for the library.
    fn due(&self, saves: &[Save]) -> Result<(Vec<Save>, TopicPartitionList), Error> {
        let saved = self.saved();
        let due: Vec<Save> = saves
            .iter()
            .filter(|save| {
                saved
                    .get(&save.task)
                    .is_none_or(|before| *before <= save.offset)
            })
            .cloned()
            .collect();
        let mut list = TopicPartitionList::with_capacity(due.len());
        for save in &due {
            let names = self.names(&save.task);
            let meta = CheckpointMeta::new(save.epoch, self.worker.clone(), None);
            let meta = meta.with_gaps(save.gaps);
            let meta = names.mark(meta).to_string();
            let mut element = list.add_partition(names.kept().as_str(), save.task.partition.0);
            element
                .set_offset(rdkafka::Offset::Offset(save.offset.0))
                .map_err(|_| self.fault(Code::InvalidArgument))?;
            element.set_metadata(meta);
        }
        Ok((due, list))
    }

    fn note_saved(&self, due: &[Save], failures: &BTreeMap<TaskId, Error>) {
        let mut saved = self.saved();
        for save in due.iter().filter(|save| !failures.contains_key(&save.task)) {
            saved.insert(save.task.clone(), save.offset);
        }
    }

    /// Which of `due` were not written by a commit that ended with `code`.
    async fn find_failures(
        &self,
        due: &[Save],
        code: Code,
        end: Instant,
    ) -> Result<BTreeMap<TaskId, Error>, Error> {
        let mut list = TopicPartitionList::with_capacity(due.len());
        for save in due {
            let names = self.names(&save.task);
            list.add_partition(names.kept().as_str(), save.task.partition.0);
        }
        let left = end.saturating_duration_since(Instant::now());
        let found = self
            .client
            .committed(list, left)
            .await
            .map_err(|_| self.fault(code))?;
        let failed = due.iter().filter(|save| {
            let names = self.names(&save.task);
            let element = found.find_partition(names.kept().as_str(), save.task.partition.0);
            let offset = element.map(|element| element.offset());
            offset != Some(rdkafka::Offset::Offset(save.offset.0))
        });
        Ok(failed
            .map(|save| (save.task.clone(), self.fault(code)))
            .collect())
    }
}

/// Between questions to a coordinator that is not there yet.
const MOVING_WAIT: Duration = Duration::from_millis(100);

/// Whether the group has no coordinator at this moment: it is being chosen (the first commit ever to a
/// cluster has it make its topic for that), it loads, or it has moved.
fn is_moving(code: Code) -> bool {
    matches!(
        code,
        Code::CoordinatorNotAvailable | Code::CoordinatorLoadInProgress | Code::NotCoordinator
    )
}

/// Whether the coordinator answered, and not the library in its place.
fn is_answer(code: Code) -> bool {
    !matches!(
        code,
        Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::WaitingForCoordinator
            | Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::BrokerDestroy
            | Code::Resolve
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::NotCoordinator
    )
}

#[async_trait]
impl CheckpointStore for KafkaCheckpoints {
    async fn load(&self, tasks: &[TaskId], deadline: Duration) -> Result<Loaded, Error> {
        let mut asked: BTreeSet<(TopicName, Partition)> = BTreeSet::new();
        for task in tasks {
            let names = self.names(task);
            asked.insert((names.kept().clone(), task.partition));
            asked.extend(names.former().map(|topic| (topic.clone(), task.partition)));
        }
        let mut list = TopicPartitionList::with_capacity(asked.len());
        for (topic, partition) in &asked {
            list.add_partition(topic.as_str(), partition.0);
        }
        let end = Instant::now() + deadline;
        let list = loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.client.committed(list.clone(), left).await {
                Ok(found) => break found,
                Err(code) if is_moving(code) && left > MOVING_WAIT => sleep(MOVING_WAIT).await,
                Err(code) => return Err(self.fault(code)),
            }
        };
        let mut loaded = Loaded::new();
        for task in tasks {
            let answer = self.answer(task, &list);
            if let Ok(Some(committed)) = &answer {
                // An operator's reset may lie below what this worker saved before: it holds.
                self.saved().insert(task.clone(), committed.offset);
            }
            loaded.insert(task.clone(), answer);
        }
        Ok(loaded)
    }

    async fn save(
        &self,
        saves: &[Save],
        deadline: Duration,
    ) -> Result<BTreeMap<TaskId, Error>, Error> {
        let end = Instant::now() + deadline;
        let Ok(_turn) = timeout_at(end, self.books.turn.lock()).await else {
            return Err(self.fault(Code::OperationTimedOut));
        };
        let (due, list) = self.due(saves)?;
        if due.is_empty() {
            return Ok(BTreeMap::new());
        }
        let committed = loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.client.commit(list.clone(), end).await {
                Err(code) if is_moving(code) && left > MOVING_WAIT => sleep(MOVING_WAIT).await,
                committed => break committed,
            }
        };
        let failures = match committed {
            Ok(()) => BTreeMap::new(),
            Err(code) if due.len() > 1 && is_answer(code) => {
                self.find_failures(&due, code, end).await?
            }
            Err(code) => return Err(self.fault(code)),
        };
        self.note_saved(&due, &failures);
        Ok(failures)
    }

    fn forget(&self, task: &TaskId) {
        self.saved().remove(task);
    }
}
