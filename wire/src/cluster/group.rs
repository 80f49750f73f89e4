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
    /// Commits offsets in a group without members. Each partition has an outcome of its own; faults
    /// that may pass are tried again until `deadline`.
    ///
    /// # Errors
    /// When the coordinator cannot be found or asked until `deadline`; nothing is known then.
    pub async fn commit_offsets(
        &self,
        group: &str,
        commits: &BTreeMap<TopicPartition, Commit>,
        deadline: Instant,
    ) -> Result<ByPartition<()>, Error> {
        let mut done = BTreeMap::new();
        let mut open = commits.clone();
        let mut retry = self.retry(deadline);
        loop {
            let outcome = self.commit_once(group, &open, deadline).await;
            let fault = match outcome {
                Ok(told) => {
                    let mut last = None;
                    for (at, outcome) in told {
                        let outcome = self.outcome(group, &at, outcome);
                        if let Err(fault) = &outcome
                            && fault.is_retryable()
                        {
                            last = Some(fault.clone());
                        } else if open.remove(&at).is_some() {
                            done.insert(at, outcome);
                        }
                    }
                    last.unwrap_or_else(|| silence(group))
                }
                Err(fault) => fault,
            };
            if open.is_empty() {
                return Ok(done);
            }
            self.forget_coordinator(group, &fault);
            retry.pause(fault).await?;
        }
    }

    /// Committed offsets of a group; partitions without one are left out. Waits for transactions that
    /// are committing one. Faults that may pass are tried again until `deadline`.
    ///
    /// # Errors
    /// When the coordinator cannot be found or asked until `deadline`, or a partition is refused.
    pub async fn committed_offsets(
        &self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<BTreeMap<TopicPartition, Committed>, Error> {
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
    ) -> Result<BTreeMap<TopicPartition, Committed>, Error> {
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
        let mut committed = BTreeMap::new();
        let mut missing = partitions.clone();
        for (at, outcome) in told {
            if !missing.remove(&at) {
                continue;
            }
            let offset = outcome.map_err(|code| Error::Refused {
                what: format!("committed offset of group {group} in {at}"),
                code,
            })?;
            if let Some(offset) = offset {
                committed.insert(at, offset);
            }
        }
        // A partition not told of is not one without an offset: to start from nothing would be wrong.
        if missing.is_empty() {
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

/// The coordinator's answer lacks what was asked for.
fn silence(group: &str) -> Error {
    Error::Refused {
        what: format!("group {group}: the coordinator's answer is not complete"),
        code: Code::COORDINATOR_NOT_AVAILABLE,
    }
}
