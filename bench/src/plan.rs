//! How long a plan takes and how many moves it makes, beside the least number possible.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kreplicator_model::{
    ids::{LinkId, Partition, TaskId, TopicName, WorkerId},
    planner::{self, Input, Plan, Worker, WorkerState},
};

/// Size of the fleet.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Partitions to place, spread over topics of twenty.
    #[arg(long, default_value_t = 200_000)]
    tasks: usize,
    /// Workers to place them on.
    #[arg(long, default_value_t = 1_000)]
    workers: usize,
    /// Workers that join in the last step.
    #[arg(long, default_value_t = 10)]
    joining: usize,
}

const PARTITIONS_PER_TOPIC: usize = 20;
const LINKS: usize = 30;

/// Prints a line a step: `{"bench":"plan","step":…,"ms":…,"moves":…,"moves_lower_bound":…,"max_over_mean":…}`.
pub(crate) fn run(options: &Options) {
    let mut input = Input {
        tasks: tasks(options.tasks),
        workers: (0..options.workers).map(worker).collect(),
        moves_max: None,
    };
    step("first", &mut input);
    step("again", &mut input);
    input.workers.remove(&worker(options.workers / 2).0);
    step("worker_lost", &mut input);
    input
        .workers
        .extend((0..options.joining).map(|n| worker(options.workers + n)));
    step("workers_joined", &mut input);
}

/// Plans, prints, and takes the plan over as the owners of now.
fn step(name: &str, input: &mut Input) {
    let (plan, took) = timed(input);
    println!(
        "{{\"bench\":\"plan\",\"step\":\"{name}\",\"tasks\":{},\"workers\":{},\"ms\":{:.1},\"moves\":{},\"moves_lower_bound\":{},\"max_over_mean\":{:.3}}}",
        input.tasks.len(),
        input.workers.len(),
        took.as_secs_f64() * 1e3,
        plan.moves.len(),
        plan.moves_lower_bound,
        max_over_mean(&plan, input.workers.len()),
    );
    for (task, owner) in &mut input.tasks {
        *owner = plan.placements.get(task).cloned();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "measuring real time is what a benchmark is for"
)]
fn timed(input: &Input) -> (Plan, Duration) {
    let began = Instant::now();
    let plan = planner::plan(input);
    (plan, began.elapsed())
}

fn max_over_mean(plan: &Plan, workers: usize) -> f64 {
    let mut loads: BTreeMap<&WorkerId, u32> = BTreeMap::new();
    for worker in plan.placements.values() {
        *loads.entry(worker).or_default() += 1;
    }
    let heaviest = loads.values().copied().max().unwrap_or(0);
    let mean = plan.placements.len() as f64 / workers.max(1) as f64;
    f64::from(heaviest) / mean
}

fn tasks(count: usize) -> BTreeMap<TaskId, Option<WorkerId>> {
    let task = |n: usize| {
        let topic = n / PARTITIONS_PER_TOPIC;
        let partition = i32::try_from(n % PARTITIONS_PER_TOPIC).expect("below twenty");
        TaskId {
            link: LinkId::new(format!("link-{}", topic % LINKS)).expect("a legal id"),
            topic: TopicName::new(format!("topic-{topic}")).expect("a legal name"),
            partition: Partition(partition),
        }
    };
    (0..count).map(|n| (task(n), None)).collect()
}

fn worker(number: usize) -> (WorkerId, Worker) {
    let id = WorkerId::new(format!("worker-{number}")).expect("a legal id");
    (
        id,
        Worker {
            state: WorkerState::Active,
            capacity_tasks: None,
        },
    )
}
