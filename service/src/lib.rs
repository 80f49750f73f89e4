//! What controller and worker have in common as processes, and no more.
//!
//! - [`accept`]: taking connections, with a limit.
//! - [`descriptors`]: how many of them there may be.
//! - [`http`]: the HTTP port for probes and metrics, with its limits.
//! - [`human`]: durations and sizes in settings, as people write them.

pub mod accept;
pub mod descriptors;
pub mod http;
pub mod human;
