//! Topics as files, each source offset in exactly one of them.
//!
//! `kreplicator_model::dump` decides; this crate does it.
//!
//! - [`store`]: where the files lie: the interface, a local folder, HDFS.

pub mod store;
