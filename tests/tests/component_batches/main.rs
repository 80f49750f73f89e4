//! The batch engine on real Kafka: what every engine has to do, and what only this one does.

#[path = "../component_records/bench.rs"]
mod bench;
mod engine;
mod exact;
mod expiry;
mod lines;
mod nearest;
mod replaced;
mod replicas;
#[path = "../component_records/suite.rs"]
mod suite;
