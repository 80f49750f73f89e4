//! The state of every task, worked out from what the fleet and the workers say.

use std::{borrow::Cow, cmp::Ordering, iter::from_fn, ops::Bound, time::Duration};

use kreplicator_model::{
    ids::{LinkId, LinkTopic, OwnerEpoch, Partition, TaskId, WorkerId},
    resolve::ResolvedTopic,
};
use kreplicator_proto::v1::{self, TaskState};

use crate::{
    fleet::{Assigned, FleetState},
    reports::View,
};

/// Everything that states are worked out from. Pure: nothing is asked of anybody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picture<'a> {
    pub(crate) fleet: &'a FleetState,
    pub(crate) reports: &'a View,
}

/// One task as it stands.
#[derive(Debug, Clone)]
pub(crate) struct Task<'a> {
    pub(crate) id: TaskId,
    /// None: nobody asks for it any more.
    pub(crate) resolved: Option<&'a ResolvedTopic>,
    pub(crate) assigned: Option<&'a Assigned>,
    /// Fresh, and of the worker and epoch assigned.
    pub(crate) report: Option<&'a v1::TaskReport>,
    pub(crate) state: TaskState,
    /// Why it does not run; empty when it does, or when it shall not.
    pub(crate) cause: Cow<'a, str>,
    /// When the state began; 0: not known.
    pub(crate) since_ms: i64,
}

impl<'a> Task<'a> {
    pub(crate) fn worker(&self) -> Option<&'a WorkerId> {
        self.assigned.map(|assigned| &assigned.worker)
    }

    pub(crate) fn epoch(&self) -> OwnerEpoch {
        self.assigned.map_or_else(OwnerEpoch::default, |a| a.epoch)
    }

    /// Records between the checkpoint and the end, where it is known.
    pub(crate) fn lag_records(&self) -> Option<i64> {
        self.report?.lag_records.map(|lag| lag.max(0))
    }
}

/// State, cause and since of a task.
type Standing<'a> = (TaskState, Cow<'a, str>, i64);

impl<'a> Picture<'a> {
    pub(crate) fn new(fleet: &'a FleetState, reports: &'a View) -> Self {
        Self { fleet, reports }
    }

    /// The tasks of a topic that is asked for.
    pub(crate) fn tasks_of(
        self,
        topic: &'a LinkTopic,
        resolved: &'a ResolvedTopic,
    ) -> impl Iterator<Item = Task<'a>> {
        (0..resolved.partitions).map(move |partition| {
            let id = TaskId {
                link: topic.link.clone(),
                topic: topic.topic.clone(),
                partition: Partition(partition),
            };
            self.task(id, Some((topic, resolved)))
        })
    }

    /// The tasks of a link that are asked for.
    pub(crate) fn tasks_of_link(self, link: &'a LinkId) -> impl Iterator<Item = Task<'a>> {
        self.topics_of_link(link)
            .flat_map(move |(topic, resolved)| self.tasks_of(topic, resolved))
    }

    /// The topics that a link's subscriptions come to.
    pub(crate) fn topics_of_link(
        self,
        link: &'a LinkId,
    ) -> impl Iterator<Item = (&'a LinkTopic, &'a ResolvedTopic)> {
        let topics = &self.fleet.resolved.topics;
        let begin = topics.keys().find(|topic| topic.link >= *link);
        begin
            .into_iter()
            .flat_map(|begin| topics.range(begin..))
            .take_while(move |(topic, _)| topic.link == *link)
    }

    /// Every task after `after`, in order: those asked for, and those still assigned though nobody asks
    /// for them any more.
    pub(crate) fn tasks_after(self, after: Option<&TaskId>) -> impl Iterator<Item = Task<'a>> {
        let begin = after.map(TaskId::link_topic);
        let topics = &self.fleet.resolved.topics;
        let asked = match begin {
            Some(begin) => topics.range(begin..),
            None => topics.range::<LinkTopic, _>(..),
        };
        // Whatever is assigned and not asked for is found on the way: no page walks the whole fleet.
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let assigned = self
            .fleet
            .assigned
            .range::<TaskId, _>((begin, Bound::Unbounded));
        let mut assigned = assigned.map(|(id, _)| id).peekable();
        let after = after.cloned();
        let mut asked = asked
            .flat_map(move |(topic, resolved)| self.tasks_of(topic, resolved))
            .skip_while(move |task| after.as_ref().is_some_and(|after| task.id <= *after))
            .peekable();
        from_fn(move || {
            let order = match (asked.peek(), assigned.peek()) {
                (Some(next), Some(id)) => next.id.cmp(id),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            match order {
                Ordering::Less => asked.next(),
                Ordering::Equal => {
                    assigned.next();
                    asked.next()
                }
                Ordering::Greater => assigned.next().map(|id| self.task(id.clone(), None)),
            }
        })
    }

    fn task(self, id: TaskId, asked: Option<(&'a LinkTopic, &'a ResolvedTopic)>) -> Task<'a> {
        let assigned = self.fleet.assigned.get(&id);
        let report = assigned.and_then(|assigned| self.reports.task(&id, assigned));
        let resolved = asked.map(|(_, resolved)| resolved);
        let (state, cause, since_ms) = match (assigned, asked) {
            (Some(_), None) => (TaskState::Stopping, Cow::Borrowed("not asked for"), 0),
            (Some(assigned), Some((_, resolved))) => self.assigned(assigned, resolved, report),
            (None, Some((topic, resolved))) => self.unassigned(&id, topic, resolved),
            (None, None) => (TaskState::Unassigned, Cow::Borrowed("not asked for"), 0),
        };
        Task {
            id,
            resolved,
            assigned,
            report,
            state,
            cause,
            since_ms,
        }
    }

    fn unassigned(
        self,
        id: &TaskId,
        topic: &LinkTopic,
        resolved: &'a ResolvedTopic,
    ) -> Standing<'a> {
        if resolved.paused {
            return (TaskState::Paused, Cow::Borrowed(""), 0);
        }
        if let Some(problem) = &resolved.problem {
            return (TaskState::Faulted, Cow::Owned(problem.to_string()), 0);
        }
        if let Some(problem) = self.fleet.target_problems.get(topic) {
            let cause = Cow::Borrowed(problem.message.as_str());
            return (TaskState::Faulted, cause, problem.since.0);
        }
        let reason = self.fleet.unassigned.get(id).map_or("", String::as_str);
        let cause = if reason.is_empty() {
            "is about to be assigned"
        } else {
            reason
        };
        (TaskState::Unassigned, Cow::Borrowed(cause), 0)
    }

    fn assigned(
        self,
        assigned: &'a Assigned,
        resolved: &ResolvedTopic,
        report: Option<&'a v1::TaskReport>,
    ) -> Standing<'a> {
        let worker = &assigned.worker;
        if assigned.stopping || !resolved.runs() {
            return (TaskState::Stopping, Cow::Borrowed("is being stopped"), 0);
        }
        let is_live = self.fleet.workers.get(worker).is_some_and(|w| w.live);
        if !is_live {
            let cause = format!("worker {worker} is lost; the task moves when its lease is over");
            return (TaskState::Starting, Cow::Owned(cause), 0);
        }
        if let Some(report) = report {
            let state = match report.state() {
                TaskState::Unspecified => TaskState::Starting,
                state => state,
            };
            let cause = match (state, report.cause.as_str()) {
                (TaskState::Faulted, "") => Cow::Borrowed("the worker gave no cause; see its log"),
                (TaskState::Starting, "") => Cow::Borrowed("is starting"),
                (_, cause) => Cow::Borrowed(cause),
            };
            return (state, cause, report.since_ms);
        }
        let cause = match (self.reports.silent_for(worker), assigned.owned) {
            (_, false) => format!("worker {worker} has not taken it up yet"),
            (Some(silent), true) => {
                let silent = Duration::from_secs(silent.as_secs());
                format!("worker {worker} has not reported for {silent:?}; see its log")
            }
            (None, true) => format!("worker {worker} has not reported on it yet"),
        };
        (TaskState::Starting, Cow::Owned(cause), 0)
    }
}
