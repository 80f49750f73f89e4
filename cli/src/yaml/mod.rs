//! YAML that remembers where each value was written, so that *all* faults of a file can be told
//! at once, each with its line, its path and what to do. (A plain serde pass stops at the first
//! one and forgets the line.)
//!
//! - [`node`]: a value and its place: a line of a file, an environment variable or a flag.
//! - [`parse`]: text to nodes.
//! - [`fault`]: what is wrong, where, and the remedy.
//! - [`fields`]: reads a mapping field by field; what was not asked for is an unknown key.
//! - [`scalars`]: text, numbers, durations, times, lists.
//! - [`secret`]: where a secret is found; the secret itself is refused.
//! - [`section`]: reads a whole `serde` struct and still finds every fault.
//! - [`suggest`]: "did you mean".

pub(crate) mod fault;
pub(crate) mod fields;
pub(crate) mod node;
pub(crate) mod parse;
pub(crate) mod scalars;
pub(crate) mod secret;
pub(crate) mod section;
pub(crate) mod suggest;

pub(crate) use fault::{Fault, Faults};
pub(crate) use fields::Fields;
pub(crate) use node::{Content, Field, Node, Path, Place};
