//! The pure domain of KReplicator: everything that decides, nothing that does.
//!
//! No clock, no async, no IO and no randomness that was not handed in; ordered maps only, since
//! iteration order is part of an answer.
//!
//! - [`ids`]: newtypes for every name and number.
//! - [`spec`]: what operators ask for: clusters, links, subscriptions.
//! - [`target_limits`]: what a target topic refuses.
//! - [`selector`]: which topics a subscription means.
//! - [`overlap`]: whether selectors can mean the same topic.
//! - [`naming`]: what a topic is called on the target.
//! - [`desired`]: checks over everything that was asked for.
//! - [`resolve`]: which topics run on which link, and where they start.
//! - [`planner`]: which worker runs which task.
//! - [`ownership`]: which workers may still be running a task.
//! - [`handover`]: the steps from what is assigned to what is planned.
//! - [`liveness`]: which workers count as lost.
//! - [`suspicion`]: which workers are too silent to be waited for.
//! - [`task`]: the machine of one running task.
//! - [`backoff`]: how long to wait before trying again.
//! - [`checkpoint`]: up to where everything is safely at the target.
//! - [`dump`]: topics as files, each source offset in exactly one of them.
//! - [`exact`]: every record once at the target, without transactions.
//! - [`fence`]: until when a worker may act on its lease.
//! - [`lag`]: how far a task is behind.
//! - [`compare`]: whether a target holds the records of a source.

pub mod backoff;
pub mod checkpoint;
pub mod compare;
pub mod desired;
pub mod dump;
pub mod exact;
pub mod fence;
pub mod handover;
pub mod ids;
pub mod lag;
pub mod liveness;
pub mod naming;
pub mod overlap;
pub mod ownership;
pub mod planner;
pub mod resolve;
pub mod selector;
pub mod spec;
pub mod suspicion;
pub mod target_limits;
pub mod task;
