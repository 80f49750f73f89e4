//! Plans as people read them.

use super::{
    WorkerState,
    fleet::{fleet, worker},
    plan,
};

#[test]
fn a_plan_explains_itself() {
    // Worker 3 is lost, worker 2 drains, worker 1 may run three tasks at most.
    let owners = [
        Some(0),
        Some(0),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
        Some(2),
        Some(3),
        None,
        None,
    ];
    let mut input = fleet(3, &owners);
    input
        .workers
        .get_mut(&worker(1))
        .expect("known")
        .capacity_tasks = Some(3);
    input
        .workers
        .get_mut(&worker(0))
        .expect("known")
        .capacity_tasks = Some(5);
    input.workers.get_mut(&worker(2)).expect("known").state = WorkerState::Draining;
    let expected = "\
9 tasks placed, 1 unplaced, 3 moves (at least 3)
worker-0: 5 tasks, +3 -0
worker-1: 3 tasks, +0 -1
worker-2: 1 tasks, +0 -0
worker-3: 0 tasks, +0 -1
move a-b/topic-0/3: worker-1 -> worker-0 (over-capacity)
move a-b/topic-1/3: worker-3 -> worker-0 (worker-lost)
move a-b/topic-2/0: -> worker-0 (new)
unplaced a-b/topic-2/1: every worker is full; start another or raise capacity_tasks
";
    assert_eq!(plan(&input).to_string(), expected);
}

#[test]
fn a_joining_worker_is_filled_from_those_that_have_most() {
    let owners = [
        Some(0),
        Some(0),
        Some(0),
        Some(0),
        Some(0),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
    ];
    let expected = "\
9 tasks placed, 0 unplaced, 3 moves (at least 3)
worker-0: 3 tasks, +0 -2
worker-1: 3 tasks, +0 -1
worker-2: 3 tasks, +3 -0
move a-b/topic-0/0: worker-0 -> worker-2 (rebalance)
move a-b/topic-1/0: worker-0 -> worker-2 (rebalance)
move a-b/topic-2/0: worker-1 -> worker-2 (rebalance)
";
    assert_eq!(plan(&fleet(3, &owners)).to_string(), expected);
}
