//! Small fleets for tests.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Input, Plan, Worker, WorkerState, balance};
use crate::ids::{LinkId, Partition, TaskId, TopicName, WorkerId};

pub(super) fn worker(index: usize) -> WorkerId {
    WorkerId::new(format!("worker-{index}")).expect("legal")
}

pub(super) fn task(index: usize) -> TaskId {
    TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(format!("topic-{}", index / 4)).expect("legal"),
        partition: Partition(i32::try_from(index % 4).expect("small")),
    }
}

pub(super) fn active() -> Worker {
    Worker {
        state: WorkerState::Active,
        capacity_tasks: None,
    }
}

/// A fleet without limits in which task `i` belongs to worker `owners[i]`.
pub(super) fn fleet(workers: usize, owners: &[Option<usize>]) -> Input {
    let owner = |owner: &Option<usize>| owner.map(worker);
    Input {
        tasks: owners
            .iter()
            .enumerate()
            .map(|(i, o)| (task(i), owner(o)))
            .collect(),
        workers: (0..workers)
            .map(|index| (worker(index), active()))
            .collect(),
        moves_max: None,
    }
}

/// The fleet after a plan was carried out.
pub(super) fn carried_out(input: &Input, plan: &Plan) -> Input {
    let mut after = input.clone();
    for (task, owner) in &mut after.tasks {
        *owner = plan.placements.get(task).cloned();
    }
    after
}

pub(super) fn loads(plan: &Plan) -> BTreeMap<WorkerId, usize> {
    let mut loads = BTreeMap::new();
    for worker in plan.placements.values() {
        *loads.entry(worker.clone()).or_default() += 1;
    }
    loads
}

/// Active workers that have room and unfairly little, should there be any.
pub(super) fn unfair_workers(input: &Input, plan: &Plan) -> BTreeSet<WorkerId> {
    let loads = loads(plan);
    let load = |id: &WorkerId| loads.get(id).copied().unwrap_or(0);
    let active = || {
        input
            .workers
            .iter()
            .filter(|(_, w)| w.state == WorkerState::Active)
    };
    let most = active().map(|(id, _)| load(id)).max().unwrap_or(0);
    let short = active().filter(|(id, worker)| {
        let has_room = worker
            .capacity_tasks
            .is_none_or(|limit| load(id) < limit as usize);
        has_room && balance::is_unfair(most, load(id))
    });
    short.map(|(id, _)| id.clone()).collect()
}

/// Any fleet: workers in every state, with and without limits, and tasks owned by anybody.
pub(super) fn fleets(workers: usize, tasks: usize) -> impl Strategy<Value = Input> {
    let state = prop_oneof![
        4 => Just(WorkerState::Active),
        1 => Just(WorkerState::Draining),
        1 => Just(WorkerState::Suspended),
    ];
    let capacity = prop_oneof![2 => Just(None), 1 => (0_u32..12).prop_map(Some)];
    let workers = prop::collection::vec((state, capacity), 0..=workers);
    // Owners beyond the last worker are lost.
    let owner = prop::option::of(any::<prop::sample::Index>());
    let owners = prop::collection::vec(owner, 0..=tasks);
    (workers, owners).prop_map(|(workers, owners)| {
        let count = workers.len() + 1;
        let owners: Vec<Option<usize>> = owners
            .into_iter()
            .map(|owner| owner.map(|index| index.index(count)))
            .collect();
        let mut input = fleet(workers.len(), &owners);
        for (index, (state, capacity_tasks)) in workers.into_iter().enumerate() {
            let known = Worker {
                state,
                capacity_tasks,
            };
            input.workers.insert(worker(index), known);
        }
        input
    })
}

/// Fleets of active workers whose tasks lie as a plan has left them.
pub(super) fn settled_fleets(workers: usize, tasks: usize) -> impl Strategy<Value = Input> {
    let capacity = prop_oneof![4 => Just(None), 1 => (1_u32..30).prop_map(Some)];
    let capacities = prop::collection::vec(capacity, 2..=workers);
    // Squared, so that some workers have much more than others before the plan.
    let owner = (0.0_f64..1.0).prop_map(|at| at * at);
    let owners = prop::collection::vec(owner, 0..=tasks);
    (capacities, owners).prop_map(|(capacities, owners)| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small numbers"
        )]
        let pick = |at: f64| (at * capacities.len() as f64) as usize;
        let owners: Vec<Option<usize>> = owners.into_iter().map(|at| Some(pick(at))).collect();
        let mut input = fleet(capacities.len(), &owners);
        for (index, capacity) in capacities.iter().enumerate() {
            let known = input.workers.get_mut(&worker(index)).expect("made above");
            known.capacity_tasks = *capacity;
        }
        let plan = super::plan(&input);
        carried_out(&input, &plan)
    })
}
