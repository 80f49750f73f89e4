//! Which worker runs which task.
//!
//! Problem: spread tasks evenly over workers, and move as few as possible when tasks or workers come
//! and go, since every move is a pause.
//!
//! Shape: [`plan`] is total and deterministic: the same input gives the same plan, and a plan that was
//! carried out gives a plan without moves. Its phases are functions, each ending in an assertion of
//! what it promises:
//! 1. `retain`: tasks stay with owners that may keep them; those without one are free.
//! 2. `shed`: workers above their capacity free tasks.
//! 3. `place`: each free task goes to the first worker with room on a consistent-hash ring, so that
//!    the same task tends to the same worker; room is shared out from the least loaded worker up.
//! 4. `balance`: where one worker has clearly more than another, tasks move, and only then.
//! 5. `check`: the plan keeps its promises.
//!
//! # Promises
//! - Every task that can be placed is placed exactly once; no worker takes more than its capacity.
//! - A lost or draining worker moves only its own tasks.
//! - A new worker takes at most `ceil(tasks / workers)`, and nothing moves between the others.
//! - Small imbalances move nothing; see [`is_unfair`](balance::is_unfair).

mod balance;
mod check;
mod draft;
mod place;
mod report;
mod retain;
mod ring;
mod shed;
mod types;

pub use types::{Input, Move, Plan, Reason, Unplaced, Worker, WorkerState};

/// Places every task that can be placed.
#[must_use]
pub fn plan(input: &Input) -> Plan {
    let mut draft = retain::retain(input);
    let ring = ring::Ring::new(draft.takers.iter().map(|taker| taker.id.as_str()));
    shed::shed(&mut draft, &ring);
    place::place(&mut draft, &ring);
    balance::balance(&mut draft, &ring);
    let plan = draft.finish();
    check::check(input, &plan);
    plan
}

#[cfg(test)]
mod fleet;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod property_tests;
