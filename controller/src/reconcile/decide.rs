//! What shall run where, and what is written next. Pure: everything known in, decision out.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_model::{
    handover::{Harmless, Known, Steps, Words, steps},
    ids::{LinkId, LinkTopic, Partition, TaskId, WorkerId},
    liveness::Verdict,
    ownership::Ledger,
    planner::{Input, Plan, Worker, WorkerState, plan},
    resolve::{Resolved, TopicRecord},
};

use super::book::LiveWorker;
use crate::targets::TargetState;

/// Everything that a decision rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation<'a> {
    /// Topics that are asked for.
    pub(crate) resolved: &'a Resolved,
    /// What was learned about them.
    pub(crate) records: &'a BTreeMap<LinkTopic, TopicRecord>,
    /// What is known of their target topics.
    pub(crate) targets: &'a BTreeMap<LinkTopic, TargetState>,
    /// Topics that must not run, with the reason: they or their clusters are not what they were.
    pub(crate) halted: &'a BTreeMap<LinkTopic, String>,
    /// Links of which something asked for cannot be read: what runs goes on.
    pub(crate) frozen: &'a BTreeSet<LinkId>,
    /// Who may run what.
    pub(crate) ledger: &'a Ledger,
    /// Workers with a lease.
    pub(crate) workers: &'a BTreeMap<WorkerId, LiveWorker>,
    /// Workers that operators want empty.
    pub(crate) drains: &'a BTreeSet<WorkerId>,
    /// Which workers count as lost.
    pub(crate) verdict: &'a Verdict,
    /// Workers that are silent though their lease still holds, with those of their tasks that need not wait
    /// for its end. They get nothing new.
    pub(crate) suspects: &'a Harmless,
    /// What workers say of what they were given.
    pub(crate) words: &'a dyn Words,
    /// Tasks that some workers do not take on, with the worker they are tried or run on. The planner
    /// has no say in them.
    pub(crate) pinned: &'a BTreeMap<TaskId, WorkerId>,
}

/// What shall run where, and what is written next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decision {
    /// Where each task shall run.
    pub(crate) plan: Plan,
    /// What is written next.
    pub(crate) steps: Steps,
    /// Tasks that should run and are not assigned, with the reason.
    pub(crate) unassigned: BTreeMap<TaskId, String>,
    /// Tasks that are taken from a silent worker before its lease ends, and from whom.
    pub(crate) succeeded: BTreeMap<TaskId, WorkerId>,
}

/// Decides.
#[must_use]
pub(crate) fn decide(situation: &Situation<'_>) -> Decision {
    let mut unassigned = BTreeMap::new();
    let mut tasks = tasks(situation, &mut unassigned);
    let mut workers = workers(situation);
    let mut pinned = Vec::new();
    for (task, to) in situation.pinned {
        if let Some(worker) = workers.get_mut(to)
            && tasks.remove(task).is_some()
        {
            let capacity = &mut worker.capacity_tasks;
            *capacity = capacity.map(|tasks| tasks.saturating_sub(1));
            pinned.push((task.clone(), to.clone()));
        }
    }
    let mut succeeded = succeeded(situation, &mut tasks);
    let mut plan = plan(&Input {
        tasks,
        workers,
        moves_max: None,
    });
    plan.placements.extend(pinned);
    // Where nobody can take it, a task stays with whom it was.
    succeeded.retain(|task, owner| {
        let is_unplaced = plan.unplaced.remove(task).is_some();
        if is_unplaced {
            plan.placements.insert(task.clone(), owner.clone());
        }
        !is_unplaced
    });
    let known = Known {
        ledger: situation.ledger,
        lost: &situation.verdict.lost,
        harmless: situation.suspects,
        words: situation.words,
    };
    let steps = steps(&plan.placements, known);
    for (task, reason) in &plan.unplaced {
        unassigned.insert(task.clone(), reason.to_string());
    }
    for (task, holders) in &steps.waiting {
        let holders: Vec<&str> = holders.iter().map(WorkerId::as_str).collect();
        let reason = format!("waits for {} to release it", holders.join(", "));
        unassigned.insert(task.clone(), reason);
    }
    Decision {
        plan,
        steps,
        unassigned,
        succeeded,
    }
}

/// Lets the planner give away what need not wait for a silent worker; gives whose it is.
fn succeeded(
    situation: &Situation<'_>,
    tasks: &mut BTreeMap<TaskId, Option<WorkerId>>,
) -> BTreeMap<TaskId, WorkerId> {
    let mut owners = BTreeMap::new();
    for (worker, harmless) in situation.suspects {
        for task in harmless {
            if let Some(owner) = tasks.get_mut(task)
                && owner.as_ref() == Some(worker)
            {
                *owner = None;
                owners.insert(task.clone(), worker.clone());
            }
        }
    }
    owners
}

/// Tasks that shall run, with their owner now; those that should and cannot go to `unassigned`.
fn tasks(
    situation: &Situation<'_>,
    unassigned: &mut BTreeMap<TaskId, String>,
) -> BTreeMap<TaskId, Option<WorkerId>> {
    let mut tasks = BTreeMap::new();
    for (topic, resolved) in &situation.resolved.topics {
        if !resolved.runs() {
            continue;
        }
        let ready = readiness(situation, topic);
        for partition in 0..resolved.partitions {
            let task = TaskId {
                link: topic.link.clone(),
                topic: topic.topic.clone(),
                partition: Partition(partition),
            };
            let owner = situation.ledger.assigned_to(&task);
            let owner = owner.map(|(worker, _)| worker.clone());
            let goes_on = owner.is_some() && !ready.stops;
            if partition < ready.partitions || goes_on {
                tasks.insert(task, owner);
            } else {
                unassigned.insert(task, ready.reason.clone());
            }
        }
    }
    if !situation.frozen.is_empty() {
        for (_, task, _) in situation.ledger.assignments() {
            let known = situation.resolved.topics.contains_key(&task.link_topic());
            if situation.frozen.contains(&task.link) && !known {
                let owner = situation.ledger.assigned_to(task);
                tasks.insert(task.clone(), owner.map(|(worker, _)| worker.clone()));
            }
        }
    }
    tasks
}

/// How far a topic's target is ready.
#[derive(Debug)]
struct Readiness {
    /// Partitions below this one may begin.
    partitions: i32,
    /// What runs must stop.
    stops: bool,
    /// Why the others wait.
    reason: String,
}

fn readiness(situation: &Situation<'_>, topic: &LinkTopic) -> Readiness {
    if let Some(reason) = situation.halted.get(topic) {
        return Readiness {
            partitions: 0,
            stops: true,
            reason: reason.clone(),
        };
    }
    let Some(record) = situation.records.get(topic) else {
        return Readiness {
            partitions: 0,
            stops: false,
            reason: "waits until the topic is noted down".to_owned(),
        };
    };
    let Some(target) = situation.targets.get(topic) else {
        // A leader that has just begun goes on with what another one has verified.
        return Readiness {
            partitions: record.target_partitions,
            stops: false,
            reason: "waits for a look at the target topic".to_owned(),
        };
    };
    let problem = target.problem.as_ref();
    let stops = problem.is_some_and(|problem| problem.stops);
    // Nothing is begun before it is noted down that the target is there: once it is missing, it must
    // be known that it was deleted (C068).
    let noted = record.target_partitions;
    let verified = target.partitions.map_or(noted, |found| found.min(noted));
    Readiness {
        partitions: if stops { 0 } else { verified },
        stops,
        reason: problem.map_or_else(
            || "waits for a look at the target topic".to_owned(),
            |problem| problem.message.clone(),
        ),
    }
}

/// Workers as the planner sees them. Lost ones are not among them.
fn workers(situation: &Situation<'_>) -> BTreeMap<WorkerId, Worker> {
    let verdict = situation.verdict;
    let active = verdict.active.iter().map(|id| {
        let live = situation.workers.get(id).map(|worker| &worker.live);
        let leaving = live.is_some_and(|live| live.draining);
        let draining = leaving || situation.drains.contains(id);
        let capacity = live.map_or(0, |live| live.capacity_tasks);
        let worker = Worker {
            state: if situation.suspects.contains_key(id) {
                WorkerState::Suspended
            } else if draining {
                WorkerState::Draining
            } else {
                WorkerState::Active
            },
            capacity_tasks: u32::try_from(capacity).ok().filter(|tasks| *tasks > 0),
        };
        (id.clone(), worker)
    });
    let suspended = verdict.suspended.iter().map(|id| {
        let worker = Worker {
            state: WorkerState::Suspended,
            capacity_tasks: None,
        };
        (id.clone(), worker)
    });
    active.chain(suspended).collect()
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
