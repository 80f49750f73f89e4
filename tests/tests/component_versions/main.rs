//! Releases of Kafka beside each other: 2.1.1, 3.9.1 and the current one as source and target of a link, in
//! all pairs, by both engines.
//!
//! The oldest cannot say what it remembers of producers (`DescribeProducers` came with 2.8), so there the
//! batch engine finds out what it has delivered from the log itself.

#[path = "../component_batches/engine.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of one engine on one release"
)]
mod batches;
#[path = "../component_records/bench.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of one engine on one release"
)]
mod bench;
mod clusters;
mod denied;
mod load;
mod owner;
mod pairs;
#[path = "../component_records/engine.rs"]
mod records;
