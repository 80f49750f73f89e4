//! Up to where everything is safely at the target.
//!
//! A checkpoint is the highest source offset below which every record is acknowledged by the target.
//! The position of the reader is another number and is never stored, handed over or shown as
//! progress (C040).
//!
//! - [`AckTracker`]: turns acknowledgements, in any order, into a checkpoint.
//! - [`CheckpointMeta`]: the text stored beside a committed checkpoint.
//! - [`Gaps`]: what was gone before it was copied.

mod gaps;
mod meta;
mod tracker;

pub use gaps::Gaps;
pub use meta::{CheckpointMeta, Counted, MetaError};
pub use tracker::{AckTracker, OutOfOrder};
