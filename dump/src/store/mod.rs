//! Where the dump's files lie.
//!
//! # What a store promises
//! - [`FileStore::create`] makes a new file where nothing is, and never replaces or extends one.
//! - [`FileStore::rename`] is one step for all who look, and is refused where something is at the target: the commit
//!   point of the dump rests on it.
//! - What an answer says is done stays done through a crash of the store. What is merely *seen* does not, until
//!   [`FileStore::confirm`] was answered.
//! - A listing is for people and for sweeping; nothing about progress is taken from it (C082).
//!
//! Every call has a deadline of the store's own; where it passes, or the connection is lost, the call may have been
//! done, or may be done yet: [`Kind::Unknown`].

mod error;
pub mod hdfs;
pub mod local;
mod probe;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

pub use error::{Kind, StoreError};

/// What a store answers.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: StorePath,
    /// Length in bytes; None: it is a folder.
    pub length: Option<u64>,
    /// Since it was last changed, by the clock of the store; zero where that lies in the future.
    pub age: Duration,
}

/// A place for files. All paths are below one root, which is there from [`FileStore::ready`] on.
#[async_trait]
pub trait FileStore: fmt::Debug + Send + Sync {
    /// The root as people write it: `hdfs://nameservice/warehouse`, `file:///data`. Holds no secrets.
    fn root(&self) -> &str;

    /// Makes the root if it is not there, and finds out whether a file can be made, renamed and deleted below it.
    ///
    /// # Errors
    /// What keeps it from that, with the remedy.
    async fn ready(&self) -> Result<()>;

    /// A new, empty file. Its folder must be there.
    ///
    /// # Errors
    /// [`Kind::Missing`] where the folder is not there, [`Kind::Taken`] where something is at the path.
    async fn create(&self, path: &StorePath) -> Result<Box<dyn FileWriter>>;

    /// Makes a folder and those above it. Well done also where it is there already.
    ///
    /// # Errors
    /// [`Kind::Taken`] where a file is in the way.
    async fn make_folder(&self, path: &StorePath) -> Result<()>;

    /// Renames a file, after making the folders above `target`. A lost answer is [`RenameOutcome::Unknown`], not an
    /// error.
    ///
    /// # Errors
    /// It was certainly not done, for a reason that no outcome names: no permission, no space for names, safe mode,
    /// the store was not reached.
    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome>;

    /// The length of a file in bytes; None: no file is there.
    async fn length(&self, path: &StorePath) -> Result<Option<u64>>;

    /// Makes what is seen of a file durable, and gives its length; None: no file is there.
    async fn confirm(&self, path: &StorePath) -> Result<Option<u64>>;

    /// At most `length` bytes from `at` on, fewer only at the end of the file; None: no file is there.
    async fn read(&self, path: &StorePath, at: u64, length: usize) -> Result<Option<Bytes>>;

    /// Deletes a file, or a folder with everything in it, beyond any trash. Well done also where there is nothing.
    async fn delete(&self, path: &StorePath) -> Result<()>;

    /// Deletes a folder if it is empty. Well done also where it is not, or is not there.
    async fn delete_empty(&self, path: &StorePath) -> Result<()>;

    /// What lies directly in a folder, in the order of names; at most `limit`, after the name `after`. Empty where
    /// the folder is not there. Names that are no [`StorePath`] are left out.
    async fn list(
        &self,
        folder: Option<&StorePath>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Entry>>;
}

/// A file being written. Dropped before it is closed, it may stay behind, of whatever length.
#[async_trait]
pub trait FileWriter: fmt::Debug + Send {
    /// Appends.
    ///
    /// # Errors
    /// The file is lost; another has to be written in its place.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Makes everything durable and closes; the file's length as the *store* tells it, after having been asked.
    ///
    /// # Errors
    /// The file is lost; another has to be written in its place.
    async fn close(self: Box<Self>) -> Result<u64>;
}
