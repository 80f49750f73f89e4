//! The worker: runs the tasks that the controller assigns, and nothing else.
//!
//! - [`engine`]: the interface between the supervisor and the data path.

pub mod engine;
