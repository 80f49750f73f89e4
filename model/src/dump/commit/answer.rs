//! Operations on a store, and what comes of them.

use super::super::path::StorePath;

/// One operation. Each may be done again when nothing is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Read a document whole, at most [`BYTES_MAX`](crate::dump::manifest::BYTES_MAX) bytes. What is given is
    /// durable: the file is [confirmed](Op::Confirm) before it is read.
    Read(StorePath),
    /// Make a folder and those above it. There is none yet at the path.
    MakeFolder(StorePath),
    /// Write a new document: create, write, close, look at its length. Its folder must be there and is not made.
    Write {
        /// Where; nobody else ever writes there.
        path: StorePath,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// Rename a file, after making the folders above `target`; refused where something is at `target`.
    Rename {
        /// The file.
        source: StorePath,
        /// Its new path.
        target: StorePath,
    },
    /// The length of a file.
    Length(StorePath),
    /// Make what is seen of a file durable, and give its length. A store may show a change before it is on its
    /// disks; then this changes something of the file itself (its times) and waits until that is acknowledged.
    Confirm(StorePath),
    /// Whether two files have the same bytes.
    Same(StorePath, StorePath),
    /// Delete a file, or a folder with everything in it. Well done also when there is nothing.
    Delete(StorePath),
    /// Delete a folder if it is empty. Well done also when it is not, or is not there.
    DeleteEmpty(StorePath),
}

/// What came of an operation. Where an operation failed, or nothing is known of it, and it is neither a rename nor a
/// write, there is no answer: it is done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Op::Read`]; None: there is nothing at the path.
    Read(Option<Vec<u8>>),
    /// Of [`Op::MakeFolder`].
    Made,
    /// Of [`Op::Write`].
    Written(WriteOutcome),
    /// Of [`Op::Rename`].
    Renamed(RenameOutcome),
    /// Of [`Op::Length`] and [`Op::Confirm`]; None: there is no file at the path.
    Length(Option<u64>),
    /// Of [`Op::Same`]; None: one of them is not there.
    Same(Option<bool>),
    /// Of [`Op::Delete`] and [`Op::DeleteEmpty`].
    Deleted,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file is there, closed and as long as it should be.
    Done,
    /// The folder is not there.
    FolderMissing,
    /// Anything else: a file may be there, or may appear yet. The path is not used again.
    Failed,
}

/// What came of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameOutcome {
    /// It was done by this call.
    Done,
    /// Refused: something is at the target. The source was there.
    Occupied,
    /// Refused: the source is not there.
    SourceMissing,
    /// The answer was lost: it was done, or it was not, or it will be done later.
    Unknown,
}
