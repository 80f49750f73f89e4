//! The state of the whole, and every task.

use std::sync::Arc;

use kreplicator_model::{
    ids::{LinkId, Partition, TaskId, TopicName},
    spec::Selector,
};
use kreplicator_proto::{
    status::Refusal,
    v1::{self, status_server::Status as StatusApi},
};
use tonic::{Request, Response, Status};

use super::{
    clusters::count,
    core::Core,
    health::{Condition, Tally, overall},
    leadership::Standing,
    loaded::Loaded,
    page::Page,
    picture::{Picture, Task},
    workers,
};
use crate::reports::View;

/// Most problems told.
const PROBLEMS_MAX: usize = 50;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct StatusService(pub(crate) Arc<Core>);

impl StatusService {
    async fn get(&self) -> Result<v1::StatusResponse, Refusal> {
        let core = &self.0;
        let loaded = core.desired.load().await?;
        let fleet = core.fleet().await;
        let leader = match core.leadership.standing() {
            Standing::Leading(_) => v1::Leader {
                controller: core.parts.controller.to_string(),
                address: core.parts.address.clone(),
                ..v1::Leader::default()
            },
            Standing::Following(leader) => leader,
            Standing::Nobody => v1::Leader::default(),
        };
        let told = core.walk(|reports| whole(&loaded, Picture::new(&fleet, reports)));
        let mut told = told.await;
        told.leader = leader.controller;
        told.leader_address = leader.address;
        Ok(told)
    }

    async fn list_tasks(
        &self,
        request: v1::ListTasksRequest,
    ) -> Result<v1::ListTasksResponse, Refusal> {
        let page = Page::new(request.page_size, &request.page_token)?;
        let wanted = state_wanted(&request)?;
        let loaded = self.0.desired.load().await?;
        let fleet = self.0.fleet().await;
        let walk = |reports: &View| {
            let picture = Picture::new(&fleet, reports);
            tasks(&request, wanted, &page, &loaded, picture)
        };
        self.0.walk(walk).await
    }
}

/// A page of the tasks asked for.
fn tasks(
    request: &v1::ListTasksRequest,
    wanted: Option<v1::TaskState>,
    page: &Page,
    loaded: &Loaded,
    picture: Picture<'_>,
) -> Result<v1::ListTasksResponse, Refusal> {
    let after = page.after().and_then(read_key);
    // Once a list has begun, what it is filtered by may go.
    if page.after().is_none() {
        refuse_unknown(request, loaded, picture)?;
    }
    let matches = |filter: &str, value: &str| filter.is_empty() || filter == value;
    let tasks = picture
        .tasks_after(after.as_ref())
        .filter(|task| matches(&request.link, task.id.link.as_str()))
        .filter(|task| matches(&request.topic, task.id.topic.as_str()))
        .filter(|task| matches(&request.worker, task.worker().map_or("", |w| w.as_str())))
        .filter(|task| wanted.is_none_or(|wanted| task.state == wanted));
    let (tasks, next_page_token) = page.fill(tasks, |task| key(&task.id));
    Ok(v1::ListTasksResponse {
        tasks: tasks.into_iter().map(info).collect(),
        next_page_token,
    })
}

/// The state that tasks are to be in; None: any.
fn state_wanted(request: &v1::ListTasksRequest) -> Result<Option<v1::TaskState>, Refusal> {
    match v1::TaskState::try_from(request.state) {
        Ok(v1::TaskState::Unspecified) => Ok(None),
        Ok(state) => Ok(Some(state)),
        Err(_) => Err(Refusal::field(
            "state",
            format!("{} is no state of a task", request.state),
        )),
    }
}

/// The state of the whole, but for who leads.
fn whole(loaded: &Loaded, picture: Picture<'_>) -> v1::StatusResponse {
    let fleet = picture.fleet;
    let links = loaded.desired.links.iter();
    let conditions: Vec<(&LinkId, Condition)> =
        links.map(|(id, link)| (id, picture.link(link))).collect();
    let mut tally = Tally::default();
    for task in picture.tasks_after(None) {
        tally.add(&task);
    }
    let states = fleet.workers.values().map(workers::state);
    let in_state = |state| count(states.clone().filter(|is| *is == state).count());
    let health = if fleet.ready {
        overall(conditions.iter().map(|(_, condition)| condition))
    } else {
        v1::Health::Pending
    };
    v1::StatusResponse {
        health: health.into(),
        plan_generation: fleet.generation.0,
        tasks: Some(tally.counts),
        workers_active: in_state(v1::WorkerState::Active),
        workers_draining: in_state(v1::WorkerState::Draining),
        workers_lost: in_state(v1::WorkerState::Lost),
        problems: problems(loaded, picture, &conditions),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..v1::StatusResponse::default()
    }
}

/// What is wrong with what workers told: there was no room for it.
fn full_table(reports: &View) -> Option<String> {
    let left_out = reports.left_out();
    (left_out > 0).then(|| {
        format!(
            "{left_out} reports of tasks found no room in the leader's {} MiB, so lag and faults of some \
             tasks are unknown; run fewer tasks on this installation",
            reports.bytes_max() >> 20
        )
    })
}

/// Refuses filters by things that do not exist, so that a slip of the pen does not look like an empty
/// list. What still has tasks exists, asked for or not; what the fleet alone can tell is unknown only
/// once the fleet has been looked at.
fn refuse_unknown(
    request: &v1::ListTasksRequest,
    loaded: &Loaded,
    picture: Picture<'_>,
) -> Result<(), Refusal> {
    let (link, topic) = (request.link.as_str(), request.topic.as_str());
    let (desired, fleet) = (&loaded.desired, picture.fleet);
    let is_link = |id: &LinkId| link.is_empty() || id.as_str() == link;
    let is_meant = |id: &LinkId, name: &TopicName| is_link(id) && name.as_str() == topic;

    let knows_link = || {
        desired.links.contains_key(link)
            || picture.tasks_after(None).any(|task| is_link(&task.id.link))
    };
    let knows_topic = || {
        let mut asked_for = desired.subscriptions.values();
        let mut resolved = fleet.resolved.topics.keys();
        let mut tasks = picture.tasks_after(None);
        asked_for.any(|subscription| match &subscription.selector {
            Selector::Topic(name) => is_meant(&subscription.link, name),
            Selector::Pattern(_) => false,
        }) || resolved.any(|id| is_meant(&id.link, &id.topic))
            || tasks.any(|task| is_meant(&task.id.link, &task.id.topic))
    };
    let knows_worker = || fleet.workers.contains_key(request.worker.as_str());

    let unknown = if !link.is_empty() && !knows_link() {
        Some(("link", link))
    } else if !request.worker.is_empty() && fleet.ready && !knows_worker() {
        Some(("worker", request.worker.as_str()))
    } else if !topic.is_empty() && fleet.ready && !knows_topic() {
        Some(("topic", topic))
    } else {
        None
    };
    match unknown {
        None => Ok(()),
        Some((kind, id)) => Err(Refusal::NotFound {
            kind,
            id: id.to_owned(),
        }),
    }
}

/// What is wrong, most serious first.
fn problems(
    loaded: &Loaded,
    picture: Picture<'_>,
    conditions: &[(&LinkId, Condition)],
) -> Vec<String> {
    let fleet = picture.fleet;
    let unreadable = loaded.unreadable.iter().map(ToString::to_string);
    let clusters = fleet
        .clusters
        .iter()
        .filter(|(_, state)| state.reachable == Some(false))
        .map(|(id, state)| format!("cluster {id} is not reachable: {}", state.cause));
    let renewals = fleet.clusters.iter().filter_map(|(id, state)| {
        let fault = state.renewal_fault.as_ref()?;
        Some(format!(
            "renewed certificates or passwords of cluster {id} cannot be used, so clients keep theirs: {fault}"
        ))
    });
    let links = |health| {
        conditions
            .iter()
            .filter(move |(_, condition)| condition.health == health)
            .map(|(id, condition)| format!("link {id}: {}", condition.cause))
    };
    let topics = fleet
        .target_problems
        .iter()
        .map(|(topic, problem)| format!("topic {topic}: {}", problem.message));
    let lost = fleet
        .workers
        .iter()
        .filter(|(_, worker)| !worker.live)
        .map(|(id, worker)| {
            format!(
                "worker {id} is lost; it has {} tasks",
                worker.tasks_assigned
            )
        });
    unreadable
        .chain(links(v1::Health::Down))
        .chain(clusters)
        .chain(fleet.problems.iter().cloned())
        .chain(full_table(picture.reports))
        .chain(renewals)
        .chain(links(v1::Health::Degraded))
        .chain(topics)
        .chain(lost)
        .chain(links(v1::Health::Pending))
        .take(PROBLEMS_MAX)
        .collect()
}

fn info(task: Task<'_>) -> v1::Task {
    let report = task.report.map(|report| v1::TaskReport {
        link: task.id.link.to_string(),
        topic: task.id.topic.to_string(),
        lag_records: task.lag_records(),
        ..report.clone()
    });
    let moved = task
        .assigned
        .map_or("", |assigned| assigned.reason.as_str());
    let reason = match task.state {
        v1::TaskState::Running | v1::TaskState::Paused => moved.to_owned(),
        _ if task.cause.is_empty() => moved.to_owned(),
        _ => task.cause.clone().into_owned(),
    };
    v1::Task {
        link: task.id.link.to_string(),
        topic: task.id.topic.to_string(),
        partition: task.id.partition.0,
        target_topic: task
            .resolved
            .map(|resolved| resolved.target_topic.to_string())
            .unwrap_or_default(),
        state: task.state.into(),
        worker: task.worker().map(ToString::to_string).unwrap_or_default(),
        epoch: task.epoch().0,
        report,
        reason,
    }
}

fn key(id: &TaskId) -> String {
    format!("{}/{}/{}", id.link, id.topic, id.partition)
}

fn read_key(key: &str) -> Option<TaskId> {
    let mut parts = key.split('/');
    let id = TaskId {
        link: LinkId::new(parts.next()?).ok()?,
        topic: TopicName::new(parts.next()?).ok()?,
        partition: Partition(parts.next()?.parse().ok()?),
    };
    parts.next().is_none().then_some(id)
}

#[tonic::async_trait]
impl StatusApi for StatusService {
    async fn get_status(
        &self,
        _request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(self.get().await?))
    }

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        Ok(Response::new(
            Self::list_tasks(self, request.into_inner()).await?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{
        super::samples::{entry, fleet, report},
        *,
    };
    use crate::reports::{Limits, Reports};

    #[tokio::test]
    async fn what_found_no_room_in_the_table_of_reports_is_told() {
        let fleet = fleet(&["orders"]);
        let running = |partition| entry("orders", partition, v1::TaskState::Running);
        for (bytes_max, told) in [(512 << 20, None), (1 << 20, Some("1 reports of tasks"))] {
            let reports = Reports::new(Limits {
                bytes_max,
                ..Limits::default()
            });
            let long = v1::TaskReport {
                cause: "x".repeat(1 << 20),
                ..running(1)
            };
            report(&reports, &fleet, vec![running(0), long]);
            let problem = full_table(&reports.view(Instant::now()));
            assert_eq!(problem.is_some(), told.is_some(), "{problem:?}");
            for (problem, told) in problem.iter().zip(told) {
                assert!(
                    problem.starts_with(told) && problem.contains("1 MiB"),
                    "{problem}"
                );
            }
        }
    }
}
