//! Kafka as KReplicator uses it, apart from the data path: how a cluster's settings become client
//! properties, where secrets come from, how errors are sorted, and administration.
//!
//! - [`secrets`]: passwords from the environment or files, never shown.
//! - [`properties`]: client properties of a cluster; options that users may not set.
//! - [`error`]: errors sorted into retryable, terminal and fenced, with text for people.
//! - [`diagnosis`]: the true cause behind a time-out.
//! - [`admin`]: metadata, topic settings, creating and growing topics, each with a deadline.
//! - [`renewal`]: certificates and passwords that are renewed while clients run.

pub mod admin;
pub mod blocking;
pub mod diagnosis;
pub mod error;
pub mod properties;
pub mod renewal;
pub mod secrets;
