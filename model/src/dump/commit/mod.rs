//! The machine that commits groups of one partition, and takes over where another owner stopped.
//!
//! It says one operation on the store at a time ([`Next::Do`]) and is told what came of it ([`Machine::answer`]). It
//! knows no clock and no store; whoever runs it may die between any two steps, and a new machine goes on from what the
//! store holds.
//!
//! ```text
//!   take over                            commit
//!   ─────────                            ──────
//!   the last manifest, by the            write the manifest into our attempt's folder
//!   checkpoint; else begin.json          rename it to <from>.json, not over another ◄── the commit point
//!        │                                   │ren.       │taken, gone or unknown
//!        ▼                                   │           ▼
//!   read <position>.json ◄───────────┐       │       read <from>.json
//!        │absent         │there      │       │        │ours    │another's    │absent
//!        ▼               ▼           │       ▼        ▼        ▼             ▼
//!   make our       finish its files ─┘      finish our       finish its     rename again;
//!   attempt's      (rename each to its      files; make      files; delete  if our folder is
//!   folder         final name)              the next         what is ours;  gone: begin anew
//!        │                                  folder           then by way
//!        ▼                                   │               of the position
//!      OPEN ◄────────────────────────────────┘
//! ```
//!
//! # Why it is right
//! 1. *One chain.* A manifest's path is its first offset, and the store refuses to rename over a file. So there is one
//!    manifest for each position, for ever, and the chain from `begin.json` on has no branches.
//! 2. *A position is proven.* An owner stands at `begin.json`'s offset or at the end of a manifest that it has read or
//!    renamed. A checkpoint that names no manifest which ends there (set by hand, lost, of another
//!    software) is not believed: the chain is walked from its beginning.
//! 3. *A lost answer decides nothing.* After it the manifest at the position is read: it names the attempt that has won.
//!    Where there is none, the same rename is sent again. The files of an attempt whose manifest may have been
//!    sent are deleted only once the manifest at its position names another.
//! 4. *Finishing is the same for everybody.* A file is in its attempt's folder or under its final name, never in both,
//!    since a rename is one step. Gone from the folder means renamed: by us, by another, in whatever order.
//! 5. *Nothing rests on what was only seen.* A store may show a change before it is on its disks, and lose it in a
//!    crash. What the store has told us is done is durable. A document that is found, and a file that another has
//!    renamed, is confirmed first: a change of that very file is acknowledged, and with it all before it.
//! 6. *The checkpoint moves last*, once every file of the group is seen under its final name, or confirmed there.
//!
//! # Source
//! `docs/adr/2026-11-30-dump-commit.md`, with what this rests on in HDFS.

mod answer;
mod finish;
mod machine;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Op, RenameOutcome, WriteOutcome};
pub use machine::Machine;

use super::{
    ledger::LeftOut,
    manifest::{self, DataFile},
    names::AttemptName,
    path::StorePath,
};
use crate::ids::{Offset, UnixMillis};

/// How far a partition has come, as it is kept outside of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything below is in files under their final names, or was left out for a reason that is written down.
    pub position: Offset,
    /// First offset of the group that ends at `position`; None: no group yet, `position` is the beginning.
    pub last: Option<Offset>,
}

/// What is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// End of the group, exclusive.
    pub to: Offset,
    /// As in the manifest; file `n` is the attempt's `n`-th, closed and of the length it says.
    pub files: Vec<DataFile>,
    /// As in the manifest.
    pub left_out: Vec<LeftOut>,
    /// As in the manifest.
    pub watermark: Option<UnixMillis>,
}

/// A group can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Where to go on. True as it stands, so it may be kept now.
    pub checkpoint: Checkpoint,
    /// Where the group's files go until it is committed.
    pub attempt: AttemptName,
    /// As the last group's manifest tells it; None: unknown, or none yet.
    pub watermark: Option<UnixMillis>,
    /// Whether everything that was read beyond the position is to be forgotten and read again. Also at first.
    pub reread: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<'a> {
    /// This operation; the same again until it was answered. `again` counts how often nothing came of it in a
    /// row: wait before it, longer each time.
    Do {
        /// The operation.
        op: Op,
        /// Attempts before this one.
        again: u32,
    },
    /// A group is open: write it, then [`Machine::commit`] or [`Machine::give_up`].
    Open(&'a Open),
    /// It cannot go on without a person.
    Stopped(&'a Fault),
}

/// A file that had its final name and is gone since: deleted or moved by somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The final path where it was.
    pub path: StorePath,
    /// Number of its records.
    pub records: u64,
}

/// Why it cannot go on without a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A document is damaged, or newer than this software.
    #[error("{path}: {fault}")]
    Document {
        /// Where it lies.
        path: StorePath,
        /// What is wrong with it.
        fault: manifest::Fault,
    },
    /// A document is of another dump.
    #[error(
        "{path} is of {difference}; give each link a folder of its own, or move the old dump away"
    )]
    Foreign {
        /// Where it lies.
        path: StorePath,
        /// In what it differs.
        difference: &'static str,
    },
    /// Something was kept of an earlier owner, and the store has no books of the partition.
    #[error(
        "{path} is missing, though this partition was dumped before; put the folder back, or reset the link's progress to dump it anew"
    )]
    BooksMissing {
        /// The document that should be there.
        path: StorePath,
    },
    /// A manifest does not lie where its first offset says.
    #[error("{path} is of a group that begins at {from}; somebody has renamed it")]
    Misplaced {
        /// Where it lies.
        path: StorePath,
        /// Where its group begins.
        from: Offset,
    },
    /// The final path of a file is taken by something else.
    #[error("{path} exists and is not the file of this dump; move it away")]
    Occupied {
        /// The path.
        path: StorePath,
    },
    /// A file under its final name has another length than its manifest says.
    #[error(
        "{path} has {found} bytes, its manifest says {expected}; move it away and dump its range again"
    )]
    Altered {
        /// The path.
        path: StorePath,
        /// By the manifest.
        expected: u64,
        /// By the store.
        found: u64,
    },
    /// What was to be committed does not add up: a defect of this software.
    #[error("a group of [{from}, {to}) cannot be committed: {fault}")]
    Draft {
        /// First offset.
        from: Offset,
        /// End.
        to: Offset,
        /// What is wrong with it.
        fault: manifest::Fault,
    },
}
