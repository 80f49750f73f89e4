//! Committed offsets of a simple group, one without members: its coordinator is found and asked, and
//! found anew when it has moved.

mod messages;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};

use kafka_protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};
use kreplicator_model::ids::Offset;
use tokio::time::Instant;

use self::messages::{
    commit_request, fetch_request, find_coordinator, read_commit, read_coordinator, read_fetch,
};
use super::{ClusterClient, Purpose, leaders::ByPartition};
use crate::{
    code::{Class, Code},
    error::Error,
    topic::{BrokerId, TopicPartition},
};

/// Which broker coordinates which group, as far as it is known.
pub(super) type Coordinators = BTreeMap<String, BrokerId>;

/// An offset to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The next offset to be read.
    pub offset: Offset,
    /// Epoch of the leader that wrote the record before it.
    pub leader_epoch: Option<i32>,
    /// Text kept with it; brokers take 4,096 bytes by default.
    pub metadata: String,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to be read.
    pub offset: Offset,
    /// Epoch of the leader that wrote the record before it, when it was committed.
    pub leader_epoch: Option<i32>,
    /// Text kept with it; empty when there is none.
    pub metadata: String,
}

impl ClusterClient {
    /// Commits offsets in a group without members. Every partition has an outcome of its own; faults that
    /// may pass are tried again until `deadline`. A topic that the coordinator does not know is final for
    /// this call: brokers refuse commits for topics that their cluster lacks, and one such shall not
    /// delay the others.
    pub async fn commit_offsets(
        &self,
        group: &str,
        commits: &BTreeMap<TopicPartition, Commit>,
        deadline: Instant,
    ) -> ByPartition<()> {
        let mut done = ByPartition::new();
        let mut open = commits.clone();
        let mut retry = self.retry(deadline);
        while !open.is_empty() {
            let mut faults = BTreeMap::new();
            let fault = match self.commit_once(group, &open, deadline).await {
                Ok(told) => {
                    for (at, code) in told {
                        if !open.contains_key(&at) {
                            continue;
                        }
                        match self.outcome(group, &at, code) {
                            Err(fault) if may_pass(&fault) => {
                                faults.insert(at, fault);
                            }
                            outcome => {
                                open.remove(&at);
                                done.insert(at, outcome);
                            }
                        }
                    }
                    if open.is_empty() {
                        return done;
                    }
                    let first = faults.values().next().cloned();
                    first.unwrap_or_else(|| silence(group))
                }
                Err(fault) => fault,
            };
            self.forget_coordinator(group, &fault);
            if let Err(fault) = retry.pause(fault).await {
                for at in std::mem::take(&mut open).into_keys() {
                    let fault = faults.remove(&at).unwrap_or_else(|| fault.clone());
                    done.insert(at, Err(fault));
                }
            }
        }
        done
    }

    /// Committed offsets of a group; None: there is none.
    /// What concerns one partition is told of it at once, also what may pass, such as an offset that a
    /// transaction is committing; faults of the coordinator that may pass are tried again until `deadline`.
    ///
    /// # Errors
    /// When the coordinator cannot be found or asked until `deadline`.
    pub async fn committed_offsets(
        &self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<ByPartition<Option<Committed>>, Error> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut retry = self.retry(deadline);
        loop {
            let fault = match self.committed_once(group, partitions, deadline).await {
                Ok(committed) => return Ok(committed),
                Err(fault) => fault,
            };
            self.forget_coordinator(group, &fault);
            retry.pause(fault).await?;
        }
    }

    async fn commit_once(
        &self,
        group: &str,
        commits: &BTreeMap<TopicPartition, Commit>,
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, Code)>, Error> {
        let coordinator = self.coordinator(group, deadline).await?;
        let attempt = self.attempt(deadline);
        let connection = self
            .connection(coordinator, Purpose::Control, attempt)
            .await?;
        let version = connection.version::<OffsetCommitRequest>()?;
        let request = commit_request(group, commits, version);
        let answer = connection.send(request, attempt).await?;
        Ok(read_commit(answer))
    }

    async fn committed_once(
        &self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<ByPartition<Option<Committed>>, Error> {
        let coordinator = self.coordinator(group, deadline).await?;
        let attempt = self.attempt(deadline);
        let connection = self
            .connection(coordinator, Purpose::Control, attempt)
            .await?;
        let version = connection.version::<OffsetFetchRequest>()?;
        let request = fetch_request(group, partitions, version);
        let answer = connection.send(request, attempt).await?;
        let told = read_fetch(answer).map_err(|code| Error::Refused {
            what: format!("committed offsets of group {group}"),
            code,
        })?;
        let mut committed = ByPartition::new();
        for (at, outcome) in told {
            if !partitions.contains(&at) {
                continue;
            }
            let offset = outcome.map_err(|code| Error::Refused {
                what: format!("committed offset of group {group} in {at}"),
                code,
            });
            committed.insert(at, offset);
        }
        // A partition not told of is not one without an offset: to start from nothing would be wrong.
        if committed.len() == partitions.len() {
            Ok(committed)
        } else {
            Err(silence(group))
        }
    }

    fn outcome(&self, group: &str, at: &TopicPartition, code: Code) -> Result<(), Error> {
        Error::check(code.0, || format!("commit of group {group} in {at}"))
    }

    /// The broker that coordinates `group`.
    async fn coordinator(&self, group: &str, deadline: Instant) -> Result<BrokerId, Error> {
        if let Some(known) = self.coordinators().get(group) {
            return Ok(*known);
        }
        let answer = self.call_any(find_coordinator(group), deadline).await?;
        let (code, node) = read_coordinator(&answer);
        Error::check(code.0, || format!("coordinator of group {group}"))?;
        let node = node.ok_or_else(|| silence(group))?;
        let id = node.id;
        // It may be one that the metadata does not name yet.
        self.metadata().note_node(node);
        self.coordinators().insert(group.to_owned(), id);
        Ok(id)
    }

    fn coordinators(&self) -> std::sync::MutexGuard<'_, Coordinators> {
        self.inner
            .coordinators
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_coordinator(&self, group: &str, fault: &Error) {
        if fault.class() == Class::Refresh {
            self.coordinators().remove(group);
        }
    }
}

/// Whether a commit that was refused may be taken a little later.
fn may_pass(fault: &Error) -> bool {
    fault.is_retryable() && fault.code() != Some(Code::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The coordinator's answer lacks what was asked for.
fn silence(group: &str) -> Error {
    Error::Refused {
        what: format!("group {group}: the coordinator's answer is not complete"),
        code: Code::COORDINATOR_NOT_AVAILABLE,
    }
}
