//! Topics as files, each source offset in exactly one of them.
//!
//! `kreplicator_model::dump` decides; this crate does it.
//!
//! - [`store`]: where the files lie: the interface, a local folder, HDFS.
//! - [`record`]: a record as it is dumped.
//! - [`digest`]: the hash of one record, of which digests are sums.
//! - [`envelope`]: the lossless format: records as they were, in Parquet.
//! - [`encoders`]: encoding, off the threads that wait for the network.
//! - [`partition`]: the dump of one partition, as a task calls it.
//! - [`sweeping`]: deletes what attempts have left behind.
//! - [`held`]: how much memory a dump holds.
//! - [`clock`]: the two clocks of an owner.
//! - [`trouble`]: what keeps a dump from going on, for people.
//! - [`commit`]: runs the machine that commits groups on a store.

pub mod clock;
pub mod commit;
pub mod digest;
pub mod encoders;
pub mod envelope;
pub mod held;
pub mod partition;
pub mod record;
pub mod store;
pub mod sweeping;
#[cfg(test)]
mod testkit;
pub mod trouble;
