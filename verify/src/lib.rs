//! Compares source and target of a link, record by record.
//!
//! Problem: whether a copy is right can be told only by something that shares nothing with what made it.
//! So this reads both clusters through librdkafka, whatever engine copied, needs no service of ours, and
//! works on the copy of any other replicator as well.
//!
//! - [`side`]: one of the two clusters and how to reach it.
//! - [`survey`]: what there is to compare: partitions, and offsets as of now.
//! - [`fingerprint`]: a record reduced to hashes of its parts.
//! - [`reader`]: one partition of one side, read by a thread.
//! - [`partition`]: one partition of both sides, compared.
//! - [`run`]: many partitions, some at once.
//! - [`report`]: what came out; `notes`: what else is to be known to judge it.
//! - [`error`]: why something could not be compared.
//!
//! # What is compared
//! Order, key, value (null and empty told apart), headers as an ordered list with repetitions and null
//! values, and the timestamp's milliseconds. Both sides are read committed. A header name that is not
//! UTF-8 cannot be read through the library: such a partition ends as not comparable. A NUL in a header's
//! name ends it for the library.
//!
//! # A link that is in use
//! The end of the target is asked for before that of the source, so each target record below its end is
//! a copy of a source record below the source's end. The source is compared up to that end, the target
//! is read until it has caught up with it. What comes later is not judged.
//!
//! # Memory
//! For each partition compared at once: [`reader::QUEUE_BYTES_MAX`] and one fetch on each side, and what
//! [`kreplicator_model::compare::Limits`] says; nothing grows with the number of records.

pub mod error;
pub mod fingerprint;
mod notes;
pub mod partition;
pub mod reader;
pub mod report;
pub mod run;
pub mod side;
pub mod survey;
