//! The dump: topics as files, each source offset in exactly one of them.
//!
//! Problem: several workers may write the same partition at once (an old owner that was frozen, its successor),
//! any of them may die at any point, and an answer of the store may be lost though the call succeeded. Still
//! every record must end up in one file under its final name, and what is left out must be accounted for.
//!
//! Shape: a partition is dumped in *groups*. A group is everything between two source offsets: a file for each
//! time bucket its records fall into, and one [`manifest`] that lists them. Renaming the manifest to the name of its
//! first offset, which the store refuses where that name is taken, is the one commit point; everything else
//! can be done again by whoever finds it undone.
//!
//! - [`path`]: paths below the root of a store.
//! - [`bucket`]: which directory a record belongs to.
//! - [`names`]: the names of files and attempts, and where they lie.
//! - [`roll`]: when a group is closed.
//! - [`ledger`]: which offsets are in no file, and why.
//! - [`digest`]: what a file's content comes to in one number.
//! - [`manifest`]: the group of files for source offsets `[from, to)`, as it is stored.
//! - [`chain`]: manifests joined: gaps, overlaps, complete up to where.
//! - [`commit`]: the machine that commits groups, and takes over where another owner stopped.
//! - [`sweep`]: what may be deleted.
//! - [`complete`]: up to when a topic is complete.

pub mod bucket;
pub mod chain;
pub mod commit;
pub mod complete;
pub mod digest;
pub mod ledger;
pub mod manifest;
pub mod names;
pub mod path;
pub mod roll;
#[cfg(test)]
mod simulation;
pub mod sweep;
