//! The records engine on real Kafka.

mod bench;
mod engine;
mod suite;
