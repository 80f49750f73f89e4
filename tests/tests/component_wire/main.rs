//! The client of the data path on real Kafka: metadata, offsets, fetch sessions, produce with sequences,
//! groups, security, restarts.

mod batch;
mod bench;
mod calls;
mod flow;
mod quota;
mod restarts;
mod security;
