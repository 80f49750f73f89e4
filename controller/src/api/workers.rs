//! Workers.

use std::{collections::BTreeMap, sync::Arc};

use kreplicator_model::ids::WorkerId;
use kreplicator_proto::{
    status::Refusal,
    v1::{self, workers_server::Workers},
};
use kreplicator_store::{Op, keys};
use prost::Message;
use tonic::{Request, Response, Status};

use super::{
    clusters::count,
    core::Core,
    draft::Step,
    loaded::{Loaded, refusal},
    page::Page,
    repeat::Call,
    writer::Edit,
};
use crate::{
    fleet::{FleetState, WorkerView},
    reports::View,
};

/// Longest reason for a drain, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct WorkersService(pub(crate) Arc<Core>);

impl WorkersService {
    async fn list(&self, request: v1::ListRequest) -> Result<v1::ListWorkersResponse, Refusal> {
        let page = Page::new(request.page_size, &request.page_token)?;
        let fleet = self.0.fleet().await;
        let workers = fleet
            .workers
            .iter()
            .filter(|(id, _)| page.after().is_none_or(|after| id.as_str() > after));
        let (workers, next_page_token) = page.fill(workers, |(id, _)| id.to_string());
        let infos = |reports: &View| {
            let running = running_by_worker(&fleet, reports);
            let workers = workers.into_iter();
            let infos = workers.map(|(id, worker)| {
                let running = running.get(id).copied().unwrap_or_default();
                info(reports, id, worker, running)
            });
            infos.collect()
        };
        Ok(v1::ListWorkersResponse {
            workers: self.0.walk(infos).await,
            next_page_token,
        })
    }

    async fn drain(
        &self,
        mut request: v1::DrainWorkerRequest,
    ) -> Result<v1::DrainWorkerResponse, Refusal> {
        let core = &self.0;
        let call = Call::of(&mut request)?;
        let worker = WorkerId::new(&request.worker)?;
        if request.reason.len() > REASON_BYTES_MAX {
            return Err(Refusal::field(
                "reason",
                format!("is longer than {REASON_BYTES_MAX} bytes; shorten it"),
            ));
        }
        if let Some(answer) = core.writer.answered(&call).await? {
            return Ok(answer);
        }
        let fleet = core.fleet().await;
        let drain_key = keys::worker_drain(&worker);
        let drained = core.parts.store.get(&drain_key).await.map_err(refusal)?;
        let live_key = keys::worker_live(&worker);
        let is_known = drained.is_some()
            || fleet.workers.contains_key(&worker)
            || core
                .parts
                .store
                .get(&live_key)
                .await
                .map_err(refusal)?
                .is_some();
        if !is_known {
            return Err(Refusal::NotFound {
                kind: "worker",
                id: worker.to_string(),
            });
        }
        let tasks = fleet
            .assigned
            .values()
            .filter(|a| a.worker == worker)
            .count();
        let op = match (request.undrain, drained) {
            (false, None) => Some(Op::Put {
                key: drain_key,
                value: v1::WorkerDrain {
                    requested_at_ms: core.now().0,
                    reason: request.reason,
                }
                .encode_to_vec(),
                lease: None,
            }),
            (true, Some(_)) => Some(Op::Delete(drain_key)),
            (false, Some(_)) | (true, None) => None,
        };
        let step = op.map(|op| Step {
            compares: Vec::new(),
            ops: vec![op],
        });
        let answer = v1::DrainWorkerResponse {
            tasks_to_move: if request.undrain { 0 } else { count(tasks) },
        };
        let decide = move |_: &Loaded, _resumed: bool| {
            Ok(Edit {
                steps: step.clone().into_iter().collect(),
                is_desired: false,
                answer,
            })
        };
        core.writer.write(call, decide).await
    }
}

/// Tasks that each worker says it runs.
fn running_by_worker<'a>(fleet: &'a FleetState, reports: &View) -> BTreeMap<&'a WorkerId, usize> {
    let mut running = BTreeMap::new();
    for (task, assigned) in &fleet.assigned {
        let report = reports.task(task, assigned);
        if report.is_some_and(|report| report.state() == v1::TaskState::Running) {
            *running.entry(&assigned.worker).or_default() += 1;
        }
    }
    running
}

fn info(reports: &View, id: &WorkerId, worker: &WorkerView, running: usize) -> v1::WorkerInfo {
    let numbers = reports.worker(id).unwrap_or_default();
    v1::WorkerInfo {
        id: id.to_string(),
        address: worker.address.clone(),
        state: state(worker).into(),
        tasks_assigned: count(worker.tasks_assigned),
        tasks_owned: count(worker.tasks_owned),
        tasks_running: count(running),
        records_per_second: numbers.records_per_second,
        bytes_per_second: numbers.bytes_per_second,
        memory_budget_bytes: numbers.memory_budget_bytes,
        memory_used_bytes: numbers.memory_used_bytes,
        version: worker.version.clone(),
        started_at_ms: worker.started_at.0,
    }
}

/// How a worker stands.
pub(crate) fn state(worker: &WorkerView) -> v1::WorkerState {
    match (worker.live, worker.draining) {
        (false, _) => v1::WorkerState::Lost,
        (true, true) => v1::WorkerState::Draining,
        (true, false) => v1::WorkerState::Active,
    }
}

#[tonic::async_trait]
impl Workers for WorkersService {
    async fn list_workers(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn drain_worker(
        &self,
        request: Request<v1::DrainWorkerRequest>,
    ) -> Result<Response<v1::DrainWorkerResponse>, Status> {
        Ok(Response::new(self.drain(request.into_inner()).await?))
    }
}
