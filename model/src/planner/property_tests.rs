//! What the planner promises, on many small fleets, and against brute force on the smallest.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    Input, Plan, Reason, Unplaced, WorkerState,
    fleet::{
        active, carried_out, fleet, fleets, loads, settled_fleets, task, unfair_workers, worker,
    },
    plan,
};
use crate::ids::{TaskId, WorkerId};

fn fits(input: &Input, worker: &WorkerId, load: usize) -> bool {
    let limit = input.workers[worker].capacity_tasks;
    limit.is_none_or(|limit| load < limit as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_task_that_can_be_placed_is_placed_once(input in fleets(6, 40)) {
        let plan = plan(&input);
        for task in input.tasks.keys() {
            let is_placed = plan.placements.contains_key(task);
            prop_assert!(is_placed != plan.unplaced.contains_key(task), "{task}\n{plan}");
        }
        let loads = loads(&plan);
        let has_takers = input.workers.values().any(|w| w.state == WorkerState::Active);
        for why in plan.unplaced.values() {
            match why {
                Unplaced::NoWorkers => prop_assert!(!has_takers),
                Unplaced::NoCapacity => {
                    let active = input.workers.iter();
                    for (id, _) in active.filter(|(_, w)| w.state == WorkerState::Active) {
                        let load = loads.get(id).copied().unwrap_or(0);
                        prop_assert!(!fits(&input, id, load), "{id} has room\n{plan}");
                    }
                }
            }
        }
    }

    #[test]
    fn planning_again_moves_nothing(input in fleets(6, 40)) {
        let first = plan(&input);
        let again = plan(&carried_out(&input, &first));
        prop_assert!(again.moves.is_empty(), "first {first}then {again}");
        prop_assert_eq!(again.placements, first.placements);
    }

    #[test]
    fn the_outcome_is_fair_and_within_a_task_for_new_fleets(workers in 1_usize..8, tasks in 0_usize..60) {
        let fresh = fleet(workers, &vec![None; tasks]);
        let loads = loads(&plan(&fresh));
        let most = loads.values().max().copied().unwrap_or(0);
        let least = if loads.len() < workers { 0 } else { loads.values().min().copied().unwrap_or(0) };
        prop_assert!(most - least <= 1, "{loads:?}");
    }

    #[test]
    fn no_worker_is_left_unfairly_short(input in fleets(6, 60)) {
        let plan = plan(&input);
        prop_assert_eq!(unfair_workers(&input, &plan), Default::default(), "{}", plan);
    }

    #[test]
    fn a_lost_worker_moves_only_its_tasks(input in settled_fleets(9, 120), pick: prop::sample::Index) {
        let mut input = input;
        let lost = worker(pick.index(input.workers.len()));
        input.workers.remove(&lost);
        let plan = plan(&input);
        for step in &plan.moves {
            prop_assert_eq!(step.from.as_ref(), Some(&lost), "{}", plan);
            prop_assert_eq!(step.reason, Reason::WorkerLost);
        }
    }

    #[test]
    fn a_draining_worker_moves_only_its_tasks(input in settled_fleets(9, 120), pick: prop::sample::Index) {
        let mut input = input;
        let draining = worker(pick.index(input.workers.len()));
        input.workers.get_mut(&draining).expect("known").state = WorkerState::Draining;
        let plan = plan(&input);
        for step in &plan.moves {
            prop_assert_eq!(step.from.as_ref(), Some(&draining), "{}", plan);
            prop_assert_eq!(step.reason, Reason::WorkerDraining);
        }
        let loads = loads(&plan);
        if loads.contains_key(&draining) {
            for id in input.workers.keys().filter(|id| **id != draining) {
                let load = loads.get(id).copied().unwrap_or(0);
                prop_assert!(!fits(&input, id, load), "{id} could take more\n{plan}");
            }
        }
    }

    #[test]
    fn a_new_worker_takes_its_share_and_nothing_moves_between_others(
        input in settled_fleets(12, 200),
        capacity in prop::option::of(0_u32..20),
    ) {
        let mut input = input;
        let new = worker(99);
        let mut known = active();
        known.capacity_tasks = capacity;
        input.workers.insert(new.clone(), known);
        let running = input.tasks.values().flatten().count();
        let had_unplaced = running < input.tasks.len();
        let plan = plan(&input);
        for step in &plan.moves {
            prop_assert_eq!(&step.to, &new, "{}", plan);
        }
        // Where others are full, the new worker takes what nobody else can.
        let is_limited = input.workers.values().any(|worker| worker.capacity_tasks.is_some());
        if !is_limited && !had_unplaced {
            let share = input.tasks.len().div_ceil(input.workers.len());
            prop_assert!(plan.moves.len() <= share, "{plan}");
        }
    }

    #[test]
    fn a_suspended_worker_keeps_its_tasks_and_gets_none(input in fleets(6, 40)) {
        let plan = plan(&input);
        let is_suspended = |id: &WorkerId| {
            input.workers.get(id).is_some_and(|worker| worker.state == WorkerState::Suspended)
        };
        for (task, owner) in &input.tasks {
            if let Some(owner) = owner.as_ref().filter(|owner| is_suspended(owner)) {
                prop_assert_eq!(plan.placements.get(task), Some(owner));
            }
        }
        prop_assert!(plan.moves.iter().all(|step| !is_suspended(&step.to)));
    }

    #[test]
    fn a_budget_limits_what_is_taken_from_those_that_could_keep_it(
        input in fleets(6, 40),
        moves_max in 0_usize..6,
    ) {
        let unlimited = plan(&input);
        let mut limited = input;
        limited.moves_max = Some(moves_max);
        for _ in 0..40 {
            let plan = plan(&limited);
            let planned = plan.moves.iter().filter(|step| {
                matches!(step.reason, Reason::WorkerDraining | Reason::Rebalance)
            });
            prop_assert!(planned.count() <= moves_max, "{plan}");
            prop_assert_eq!(plan.unplaced.len(), unlimited.unplaced.len());
            limited = carried_out(&limited, &plan);
            if moves_max > 0 && plan.moves.is_empty() {
                prop_assert_eq!(unfair_workers(&limited, &plan), Default::default());
                break;
            }
        }
    }

    #[test]
    fn nothing_else_moves_when_topics_come_and_go(
        input in settled_fleets(6, 60),
        added in 0_usize..10,
        removed in prop::collection::vec(0_usize..60, 0..10),
    ) {
        let mut input = input;
        for index in removed {
            input.tasks.remove(&task(index));
        }
        input.tasks.extend((0..added).map(|index| (task(100 + index), None)));
        let fair_before = unfair_workers(&input, &still(&input)).is_empty();
        let plan = plan(&input);
        if fair_before {
            prop_assert!(plan.moves.iter().all(|step| step.reason == Reason::New), "{plan}");
        }
    }
}

/// The plan that leaves everything as it is.
fn still(input: &Input) -> Plan {
    let placed = input
        .tasks
        .iter()
        .filter_map(|(task, owner)| Some((task.clone(), owner.clone()?)));
    Plan {
        placements: placed.collect(),
        ..Plan::default()
    }
}

/// All ways to place the tasks on workers or nowhere.
fn all_placements(input: &Input) -> Vec<BTreeMap<TaskId, WorkerId>> {
    let mut all = vec![BTreeMap::new()];
    for task in input.tasks.keys() {
        let mut longer = Vec::new();
        for placements in all {
            for worker in input.workers.keys() {
                let mut with = placements.clone();
                with.insert(task.clone(), worker.clone());
                longer.push(with);
            }
            longer.push(placements);
        }
        all = longer;
    }
    all
}

fn is_allowed(input: &Input, placements: &BTreeMap<TaskId, WorkerId>) -> bool {
    let mut loads: BTreeMap<&WorkerId, u32> = BTreeMap::new();
    for (task, worker) in placements {
        *loads.entry(worker).or_default() += 1;
        let is_active = input.workers[worker].state == WorkerState::Active;
        if !is_active && input.tasks[task].as_ref() != Some(worker) {
            return false;
        }
    }
    let stays = input.tasks.iter().all(|(task, owner)| {
        let owner = owner
            .as_ref()
            .and_then(|id| Some((id, input.workers.get(id)?)));
        let suspended = owner.filter(|(_, worker)| worker.state == WorkerState::Suspended);
        suspended.is_none_or(|(id, _)| placements.get(task) == Some(id))
    });
    stays
        && loads.iter().all(|(id, load)| {
            let worker = &input.workers[*id];
            let is_limited = worker.state == WorkerState::Active;
            worker
                .capacity_tasks
                .filter(|_| is_limited)
                .is_none_or(|limit| *load <= limit)
        })
}

fn count_moves(input: &Input, placements: &BTreeMap<TaskId, WorkerId>) -> usize {
    placements
        .iter()
        .filter(|(task, worker)| input.tasks[*task].as_ref() != Some(worker))
        .count()
}

fn count_loads(placements: &BTreeMap<TaskId, WorkerId>) -> BTreeMap<&WorkerId, usize> {
    let mut loads = BTreeMap::new();
    for worker in placements.values() {
        *loads.entry(worker).or_default() += 1;
    }
    loads
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn brute_force_places_no_more_and_moves_no_fewer(input in fleets(3, 5)) {
        let plan = plan(&input);
        let mut all = all_placements(&input);
        all.retain(|placements| is_allowed(&input, placements));
        prop_assert!(all.contains(&plan.placements), "not allowed\n{plan}");

        let most = all.iter().map(BTreeMap::len).max().unwrap_or(0);
        prop_assert_eq!(plan.placements.len(), most, "{}", plan);

        let wanted = count_loads(&plan.placements);
        all.retain(|placements| count_loads(placements) == wanted);
        let fewest = all.iter().map(|placements| count_moves(&input, placements)).min();
        prop_assert_eq!(Some(plan.moves.len()), fewest, "{}", plan);
        prop_assert_eq!(plan.moves.len(), plan.moves_lower_bound, "{}", plan);
    }
}

#[test]
fn the_same_task_tends_to_the_same_worker() {
    let tasks = 400;
    let placed = |workers| plan(&fleet(workers, &vec![None; tasks])).placements;
    let (ten, eleven) = (placed(10), placed(11));
    let same = ten
        .iter()
        .filter(|(task, worker)| eleven.get(*task) == Some(worker))
        .count();
    assert!(same > tasks / 2, "only {same} of {tasks} stayed");
}
