//! Kafka record batches as bytes: find them, check them, pass them on, open them, write them.
//!
//! A mirror that hands compressed batches on unopened needs to know only their 61-byte header; a mirror that must
//! filter, split or join them needs the records too. This crate does both, without IO, clock or async, over bytes
//! that may come from a hostile peer: nothing here panics on input, and sizes are checked before memory is taken.
//!
//! - [`header`]: the fixed header of a version 2 batch, its attributes and its [`Shape`]
//! - [`batch`]: one whole [`Batch`], a slice of the answer it came in
//! - [`split`]: a Fetch answer into batches, with what was cut off at its end
//! - [`patch`]: a new header for an unopened payload, checksum included
//! - [`codec`]: gzip, snappy, lz4 and zstd, with a limit on what comes out
//! - [`records`]: records of an opened batch, borrowed from it
//! - [`build`](mod@build): records into one batch
//! - [`legacy`]: message formats 0 and 1
//! - [`rewrite`]: keep, split, skip and join, batch in and batch out
//! - [`control`]: markers at the end of transactions
//! - [`aborted`]: which batches a reader of committed records must not see

pub mod aborted;
pub mod batch;
pub mod build;
pub mod codec;
pub mod control;
pub mod header;
pub mod legacy;
pub mod patch;
pub mod records;
pub mod rewrite;
pub mod split;
#[cfg(test)]
mod testkit;
mod varint;
mod wire;

pub use aborted::AbortedFilter;
pub use batch::Batch;
pub use build::BatchBuilder;
pub use codec::{Compression, Levels};
pub use header::{Attributes, BatchHeader, Producer, Shape, TimestampType};
pub use patch::Patched;
pub use records::{Header, Headers, Record};
