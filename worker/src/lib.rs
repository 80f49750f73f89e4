//! The worker: runs the tasks that the controller assigns, and nothing else.
//!
//! - [`wiring`]: builds and joins the parts.
//! - [`config`]: what an operator may set.
//! - [`membership`]: this worker among the others.
//! - [`assignment`]: what shall run here.
//! - [`batches`]: the engine that passes batches on unopened.
//! - [`records`]: the engine that copies record by record.
//! - [`lines`]: how records are counted, agreed between owners.
//! - [`sink`]: where records go.
//! - [`checkpoint`]: where checkpoints are kept between owners.
//! - [`budget`]: memory for records.
//! - [`supervisor`]: starts and stops tasks until what runs is what shall run.
//! - [`gate`]: whether tasks may act now.
//! - [`engine`]: the interface between the supervisor and the data path.
//! - [`engines`]: each task on the engine that its link names.
//! - [`tasks`]: what runs now, for whoever wants to look.
//! - [`report`]: tells the leading controller about it.
//! - [`http`], [`health`]: metrics and probes.
//! - [`metrics`]: the names of all metrics.
//! - [`fault`], [`fence`], `board`, [`flow_metrics`]: what the engines share: why a task cannot go on,
//!   whether it may act, what is told of it.
//! - [`clock`]: wall-clock time.

pub mod assignment;
pub mod batches;
mod board;
pub mod budget;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod engine;
pub mod engines;
pub mod fault;
pub mod fence;
pub mod flow_metrics;
pub mod gate;
pub mod health;
pub mod http;
pub mod lines;
pub mod membership;
pub mod metrics;
pub mod news;
pub mod records;
pub mod report;
pub mod sink;
mod spawner;
pub mod supervisor;
pub mod tasks;
pub mod wiring;

#[cfg(test)]
mod testkit;
