//! The fleet's state as published after a pass. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kreplicator_model::{
    ids::{ClusterId, LinkTopic, TaskId, UnixMillis, WorkerId},
    liveness::Verdict,
    resolve::Resolved,
};

use super::{book::Book, decide::Decision, stuck::Findings};
use crate::{
    discovery::Snapshot,
    fleet::{Assigned, FleetState, Problem, WorkerView},
    targets::TargetState,
};

/// Most problems of one kind that are named one by one.
const NAMED_MAX: usize = 10;

/// Everything that the state is made from.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) book: &'a Book,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) resolved: Resolved,
    pub(crate) targets: &'a BTreeMap<LinkTopic, TargetState>,
    pub(crate) halted: &'a BTreeMap<LinkTopic, String>,
    pub(crate) decision: Decision,
    pub(crate) verdict: &'a Verdict,
    pub(crate) stuck: &'a Findings,
    /// Tasks that several workers claim though they must not.
    pub(crate) doubles: Vec<(TaskId, Vec<WorkerId>)>,
    /// Why each task came to its worker.
    pub(crate) reasons: &'a BTreeMap<TaskId, String>,
    /// Clusters that show none of this many topics that are copied from them.
    pub(crate) suspicious: &'a BTreeMap<ClusterId, usize>,
    /// Workers with more tasks than can be written down.
    pub(crate) oversized: &'a BTreeSet<WorkerId>,
    /// What is wrong with following the store, and for how long.
    pub(crate) store_fault: Option<(String, Duration)>,
    /// The last write failed.
    pub(crate) write_fault: Option<String>,
    /// A complete pass was made.
    pub(crate) ready: bool,
    pub(crate) now: UnixMillis,
}

/// Puts the state together; `before` tells since when problems are known.
#[must_use]
pub(crate) fn fleet_state(facts: Facts<'_>, before: &FleetState) -> FleetState {
    let problems = problems(&facts);
    let assigned = assigned(&facts);
    let workers = workers(&facts, &assigned);
    let mut unassigned = facts.decision.unassigned;
    unassigned.retain(|task, _| !assigned.contains_key(task));
    for task in facts.decision.plan.placements.into_keys() {
        if !assigned.contains_key(&task) && !unassigned.contains_key(&task) {
            unassigned.insert(task, "is being assigned".to_owned());
        }
    }
    FleetState {
        generation: facts.book.plan.generation(),
        ready: facts.ready,
        clusters: facts
            .snapshot
            .iter()
            .map(|(id, cluster)| (id.clone(), cluster.state.clone()))
            .collect(),
        records: facts.book.records.clone(),
        target_problems: held_up(facts.targets, facts.halted, before, facts.now),
        target_notes: facts
            .targets
            .iter()
            .filter_map(|(topic, target)| Some((topic.clone(), target.note.clone()?)))
            .collect(),
        resolved: facts.resolved,
        assigned,
        unassigned,
        workers,
        problems,
    }
}

fn assigned(facts: &Facts<'_>) -> BTreeMap<TaskId, Assigned> {
    let ledger = &facts.book.ledger;
    let covering = &facts.decision.steps.covering;
    let assignments = ledger.assignments().filter(|(worker, task, _)| {
        ledger
            .assigned_to(task)
            .is_some_and(|(owner, _)| owner == *worker)
    });
    assignments
        .map(|(worker, task, epoch)| {
            let owned = ledger.owned_by(worker, task);
            let same = owned.filter(|owned| owned.epoch == epoch);
            let reason = facts.reasons.get(task).cloned();
            let assigned = Assigned {
                worker: worker.clone(),
                epoch,
                owned: same.is_some(),
                stopping: owned.is_some_and(|owned| owned.stopping),
                reason: reason.unwrap_or_else(|| "was there before this leader".to_owned()),
                covered_by: covering.get(task).cloned().unwrap_or_default(),
            };
            (task.clone(), assigned)
        })
        .collect()
}

fn workers(
    facts: &Facts<'_>,
    assigned: &BTreeMap<TaskId, Assigned>,
) -> BTreeMap<WorkerId, WorkerView> {
    let mut counts: BTreeMap<&WorkerId, (usize, usize)> = BTreeMap::new();
    for task in assigned.values() {
        let count = counts.entry(&task.worker).or_default();
        count.0 += 1;
        count.1 += usize::from(task.owned);
    }
    let live = &facts.book.workers;
    let known: BTreeSet<&WorkerId> = live.keys().chain(counts.keys().copied()).collect();
    known
        .into_iter()
        .map(|id| {
            let registered = live.get(id).map(|worker| &worker.live);
            let (tasks_assigned, tasks_owned) = counts.get(id).copied().unwrap_or_default();
            let says_so = registered.is_some_and(|live| live.draining);
            let view = WorkerView {
                address: registered
                    .map(|live| live.address.clone())
                    .unwrap_or_default(),
                live: registered.is_some(),
                incarnation: registered
                    .map(|live| live.incarnation.clone())
                    .unwrap_or_default(),
                draining: says_so || facts.book.drains.contains(id),
                lost: facts.verdict.lost.contains(id),
                version: registered
                    .map(|live| live.version.clone())
                    .unwrap_or_default(),
                started_at: UnixMillis(registered.map_or(0, |live| live.started_at_ms)),
                tasks_assigned,
                tasks_owned,
            };
            (id.clone(), view)
        })
        .collect()
}

/// Topics that are held up. A problem keeps its time for as long as there is one.
fn held_up(
    targets: &BTreeMap<LinkTopic, TargetState>,
    halted: &BTreeMap<LinkTopic, String>,
    before: &FleetState,
    now: UnixMillis,
) -> BTreeMap<LinkTopic, Problem> {
    let of_targets = targets.iter().filter_map(|(topic, target)| {
        let problem = target.problem.as_ref()?;
        Some((topic, &problem.message))
    });
    of_targets
        .chain(halted)
        .map(|(topic, message)| {
            let known = before.target_problems.get(topic);
            let problem = Problem {
                message: message.clone(),
                since: known.map_or(now, |known| known.since),
            };
            (topic.clone(), problem)
        })
        .collect()
}

fn problems(facts: &Facts<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some((cause, age)) = &facts.store_fault {
        problems.push(format!(
            "metadata store cannot be followed for {} s: {cause}; nothing is moved meanwhile",
            age.as_secs()
        ));
    }
    if let Some(cause) = &facts.write_fault {
        problems.push(format!("the plan cannot be written: {cause}"));
    }
    push_some(&mut problems, facts.doubles.iter(), |(task, workers)| {
        let workers: Vec<&str> = workers.iter().map(WorkerId::as_str).collect();
        format!("task {task} is claimed by {}", workers.join(" and "))
    });
    push_some(
        &mut problems,
        facts.book.unreadable.iter(),
        |(key, reason)| format!("stored value {key} cannot be read: {reason}; put it again"),
    );
    let mut stuck: BTreeMap<(&WorkerId, bool), (usize, Duration, &TaskId)> = BTreeMap::new();
    for (task, found) in &facts.stuck.stuck {
        let entry =
            stuck
                .entry((&found.worker, found.refused))
                .or_insert((0, Duration::ZERO, task));
        entry.0 += 1;
        entry.1 = entry.1.max(found.waited);
    }
    push_some(
        &mut problems,
        stuck.iter(),
        |((worker, refused), (count, waited, first))| {
            let seconds = waited.as_secs();
            if *refused {
                format!(
                    "worker {worker} has not taken on {count} of its tasks for {seconds} s, {first} among them"
                )
            } else {
                format!(
                    "worker {worker} has not acted on its assignment for {seconds} s ({count} tasks wait); \
                 look at its log, restart it"
                )
            }
        },
    );
    push_some(
        &mut problems,
        facts.suspicious.iter(),
        |(cluster, topics)| {
            format!(
                "cluster {cluster} shows none of the {topics} topics copied from it any more; check the rights of \
             its user; nothing is stopped"
            )
        },
    );
    push_some(&mut problems, facts.oversized.iter(), |worker| {
        format!("worker {worker} has more tasks than its assignment can hold; add workers")
    });
    let missing = facts.verdict.suspended.iter();
    push_some(&mut problems, missing, |worker| {
        format!("worker {worker} is missing; its tasks stay until it is given up")
    });
    let unplaced = facts.decision.plan.unplaced.len();
    if let Some((_, reason)) = facts.decision.plan.unplaced.first_key_value() {
        problems.push(format!("{unplaced} tasks have no worker: {reason}"));
    }
    problems
}

/// Names the first ones and counts the rest.
fn push_some<T>(
    problems: &mut Vec<String>,
    mut items: impl ExactSizeIterator<Item = T>,
    text: impl Fn(&T) -> String,
) {
    for item in items.by_ref().take(NAMED_MAX) {
        problems.push(text(&item));
    }
    let left = items.len();
    if left > 0 {
        problems.push(format!("and {left} more like the one before"));
    }
}
