//! Kafka as KReplicator uses it, apart from the data path: how a cluster's settings become client
//! properties, where secrets come from, how errors are sorted, and administration.
//!
//! - [`admin`]: metadata, topic settings, creating and growing topics, each with a deadline.

pub mod admin;
