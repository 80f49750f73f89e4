//! What the leader knows of the fleet, published as one immutable value after every pass of the
//! reconcile loop. The API answers from it; nothing in here is a second source of truth.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    ids::{ClusterId, LinkTopic, OwnerEpoch, PlanGeneration, TaskId, UnixMillis, WorkerId},
    resolve::{Resolved, TopicRecord},
};

/// The fleet as the leader saw it at the end of a pass.
#[derive(Debug, Clone, Default)]
pub struct FleetState {
    /// Generation of the plan in force.
    pub generation: PlanGeneration,
    /// Whether a first complete pass was made since this process became leader.
    pub ready: bool,
    /// Source and target clusters as discovery saw them last.
    pub clusters: BTreeMap<ClusterId, ClusterState>,
    /// Topics that the subscriptions come to.
    pub resolved: Resolved,
    /// What was learned about each topic.
    pub records: BTreeMap<LinkTopic, TopicRecord>,
    /// Topics that are asked for and held up: their target topic is not ready (new partitions wait), or
    /// they or their clusters are not what they were (nothing of them runs). With since when.
    pub target_problems: BTreeMap<LinkTopic, Problem>,
    /// Warnings about target topics that are in use, each to be read after the topic's name.
    pub target_notes: BTreeMap<LinkTopic, String>,
    /// Tasks as assigned.
    pub assigned: BTreeMap<TaskId, Assigned>,
    /// Tasks that should run and are not assigned, with the reason for people.
    pub unassigned: BTreeMap<TaskId, String>,
    /// Workers that live, or that have tasks.
    pub workers: BTreeMap<WorkerId, WorkerView>,
    /// Other things that are wrong, most serious first.
    pub problems: Vec<String>,
}

/// A cluster as discovery saw it last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterState {
    /// The last attempt succeeded; None: none has ended yet.
    pub reachable: Option<bool>,
    /// Why not.
    pub cause: String,
    /// When `reachable` last changed.
    pub since: UnixMillis,
    /// Topics, internal ones left out.
    pub topics: usize,
    /// Their partitions.
    pub partitions: usize,
    /// Brokers.
    pub brokers: usize,
    /// Kafka's own cluster id.
    pub kafka_cluster_id: Option<String>,
    /// When a discovery last succeeded.
    pub discovered_at: Option<UnixMillis>,
    /// Why renewed certificates or passwords are not used; clients go on with those that they have.
    pub renewal_fault: Option<String>,
}

/// Something wrong, since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Names the thing and the remedy.
    pub message: String,
    /// When it was first seen.
    pub since: UnixMillis,
}

/// Who a task is assigned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The worker.
    pub worker: WorkerId,
    /// The task's ownership.
    pub epoch: OwnerEpoch,
    /// The worker reports that it runs this epoch.
    pub owned: bool,
    /// The worker reports that it is stopping it.
    pub stopping: bool,
    /// Why it came to this worker, as far as this leader knows.
    pub reason: String,
    /// Workers that go on with it until this one copies.
    pub covered_by: BTreeSet<WorkerId>,
}

impl Assigned {
    /// Whether the worker has the task, or covers for whom it was given to.
    #[must_use]
    pub fn concerns(&self, worker: &WorkerId) -> bool {
        self.worker == *worker || self.covered_by.contains(worker)
    }
}

/// A worker as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// `host:port` of its HTTP endpoint.
    pub address: String,
    /// Has a lease.
    pub live: bool,
    /// Its present registration; empty without a lease.
    pub incarnation: String,
    /// Told to stop, by itself or by an operator.
    pub draining: bool,
    /// Its lease is gone and its tasks were given up or are about to be.
    pub lost: bool,
    /// Software version.
    pub version: String,
    /// When the process started.
    pub started_at: UnixMillis,
    /// Tasks assigned to it.
    pub tasks_assigned: usize,
    /// Tasks that it says it runs.
    pub tasks_owned: usize,
}

#[cfg(test)]
impl WorkerView {
    /// One that lives under the registration `i1` and has nothing to do.
    pub(crate) fn idle() -> Self {
        Self {
            address: String::new(),
            live: true,
            incarnation: "i1".to_owned(),
            draining: false,
            lost: false,
            version: String::new(),
            started_at: UnixMillis(0),
            tasks_assigned: 0,
            tasks_owned: 0,
        }
    }
}
