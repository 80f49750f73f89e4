//! Last phase: the plan keeps its promises.

use std::collections::BTreeMap;

use super::types::{Input, Plan, WorkerState};

/// # Panics
/// When the plan breaks a promise: a fault of the planner, which must not reach any worker.
pub(super) fn check(input: &Input, plan: &Plan) {
    check_placements(input, plan);
    check_moves(plan);
}

fn check_placements(input: &Input, plan: &Plan) {
    let mut loads: BTreeMap<_, u32> = BTreeMap::new();
    let mut placements = plan.placements.iter().peekable();
    for (task, owner) in &input.tasks {
        let Some((_, worker)) = placements.next_if(|(placed, _)| *placed == task) else {
            assert!(plan.unplaced.contains_key(task), "{task} was lost");
            continue;
        };
        *loads.entry(worker).or_default() += 1;
        let state = input.workers.get(worker).map(|worker| worker.state);
        let may_keep = state.is_some() && owner.as_ref() == Some(worker);
        assert!(
            state == Some(WorkerState::Active) || may_keep,
            "{task} was given to {worker}, which is {state:?}"
        );
    }
    assert_eq!(placements.next(), None, "placed, and not asked for");
    let count = plan.placements.len() + plan.unplaced.len();
    assert_eq!(count, input.tasks.len(), "a task is placed and unplaced");

    for (worker, load) in loads {
        let known = &input.workers[worker];
        if let (WorkerState::Active, Some(limit)) = (known.state, known.capacity_tasks) {
            assert!(load <= limit, "{worker} got {load} of {limit} tasks");
        }
    }
}

fn check_moves(plan: &Plan) {
    let mut placements = plan.placements.iter();
    for step in &plan.moves {
        let from = step.from.as_ref();
        assert_ne!(from, Some(&step.to), "{} moves to where it is", step.task);
        let placed = placements.find(|(task, _)| **task == step.task);
        let to = placed.map(|(_, worker)| worker);
        assert_eq!(to, Some(&step.to), "{} is elsewhere", step.task);
    }
    assert!(
        plan.moves.len() >= plan.moves_lower_bound,
        "{} moves are fewer than the {} that are needed",
        plan.moves.len(),
        plan.moves_lower_bound
    );
}
