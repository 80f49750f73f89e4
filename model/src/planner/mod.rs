//! Which worker runs which task.

mod types;

pub use types::{Input, Move, Plan, Reason, Unplaced, Worker, WorkerState};

/// Places every task that can be placed.
#[must_use]
pub fn plan(input: &Input) -> Plan {
    let _ = input;
    todo!()
}
