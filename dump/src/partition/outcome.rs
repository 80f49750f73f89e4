//! What a task is told.

use kreplicator_model::{
    dump::{
        commit::{Checkpoint, Fault, Removed},
        path::PathError,
        roll::Roll,
    },
    ids::Offset,
};

#[cfg(doc)]
use crate::record::RECORD_BYTES_MAX;

/// Why a call cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The dump cannot go on without a person; every later call says so too.
    #[error(transparent)]
    Stopped(#[from] Fault),
    /// Offsets do not follow each other: those between were neither given nor left out, or came before. Nothing was
    /// taken.
    #[error("offset {found} was given where {expected} is next")]
    OutOfOrder {
        /// The next one.
        expected: Offset,
        /// What was given.
        found: Offset,
    },
    /// The highest number there is was given as an offset: no source has it, and nothing could follow.
    #[error("offset {max} was given, which no record can have", max = i64::MAX)]
    LastOffset,
    /// The pattern makes a path of this topic that is too long.
    #[error("there is no directory for this topic: {0}")]
    Directory(#[from] PathError),
    /// Settings that are not legal, all of them.
    #[error("not legal: {0}")]
    Setting(String),
}

/// What came of records that were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// So many of them are in the group, from the first on.
    pub taken: usize,
    /// What follows.
    pub then: Then,
}

/// What a task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Goes on.
    More,
    /// Closes the group, and then gives the records that were not taken.
    Close(Roll),
    /// Forgets what it has read, and reads from this offset on. Nothing is in the group.
    Reread(Offset),
    /// The next record is larger than any file can hold: [`RECORD_BYTES_MAX`]. Leaves it out, or stops, by the link's policy.
    TooLarge {
        /// What it weighs.
        bytes: u64,
    },
}

/// What came of closing a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// True now: to be kept.
    pub checkpoint: Checkpoint,
    /// What was read beyond the checkpoint is to be forgotten and read again: another owner was first, or the group was given
    /// up.
    pub reread: bool,
    /// Files that had their final names and are gone since.
    pub removed: Vec<Removed>,
}

impl Appended {
    pub(super) fn reread(position: Offset) -> Self {
        Self {
            taken: 0,
            then: Then::Reread(position),
        }
    }
}
