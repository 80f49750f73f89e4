//! The pure domain of KReplicator: everything that decides, nothing that does.
//!
//! No clock, no async, no IO and no randomness that was not handed in; ordered maps only, since
//! iteration order is part of an answer.
//!
//! - [`ids`]: newtypes for every name and number.
//! - [`spec`]: what operators ask for: clusters, links, subscriptions.
//! - [`target_limits`]: what a target topic refuses.

pub mod ids;
pub mod spec;
pub mod target_limits;
