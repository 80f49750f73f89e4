//! Up to where everything is safely at the target.
//!
//! A checkpoint is the highest source offset below which every record is acknowledged by the target.
//! The position of the reader is another number and is never stored, handed over or shown as
//! progress (C040).
//!
//! - [`AckTracker`]: turns acknowledgements, in any order, into a checkpoint.
//! - [`Delta`]: what a range of offsets does to a position.
//! - [`CheckpointMeta`]: the text stored beside a committed checkpoint.

mod delta;
mod meta;
mod tracker;

pub use delta::{Delta, Joined};
pub use meta::{CheckpointMeta, Counted, MetaError};
pub use tracker::{AckTracker, OutOfOrder};
