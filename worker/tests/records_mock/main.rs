//! The records engine against librdkafka's mock clusters: real connections and real clients, no
//! broker. What mock clusters do not have (transactions, limits of topics, expiry) is tested on real
//! Kafka in `tests/component_records.rs`.

mod checkpoints;
mod ending;
mod faults;
mod fidelity;
mod first_batch;
mod flow;
mod positions;
mod producers;
mod rig;
mod wire;
