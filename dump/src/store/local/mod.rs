//! A folder of this machine: for trying things out, for tests, and for file systems that are mounted.
//!
//! It keeps the promises of [`FileStore`] by `renameat2` with `RENAME_NOREPLACE` and by `fsync` of files and of every
//! folder on the way to them. Each call opens folders from the root down, one name at a time, and follows no symbolic
//! link below the root: so no path leaves it, whatever others put there meanwhile. A symbolic link counts as something
//! that is in the way, and as no file; listings leave it out, deleting deletes the link. The root itself may be one.
//!
//! A root that is gone is an error of every call and never an empty store: its disk may only not be mounted.

mod calls;
mod fault;
mod folder;
mod listing;
mod rename;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

use self::{
    calls::{Calls, Effect},
    fault::Fault,
    folder::{Folder, Found},
    writer::LocalWriter,
};
use super::{Entry, FileStore, FileWriter, Kind, Result, StoreError, probe};

/// Longest deadline that makes sense.
const DEADLINE_MAX: Duration = Duration::from_mins(10);

/// Where a local store lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// An absolute path. [`FileStore::ready`] makes it and what is above it.
    pub root: PathBuf,
    /// How long a call may take, waiting for its turn among them; up to 10 minutes. A disk that hangs holds up a few
    /// threads and no caller.
    pub deadline: Duration,
}

impl LocalSettings {
    /// That folder, with a deadline of 20 s: a disk that flushes what others have written needs seconds.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            deadline: Duration::from_secs(20),
        }
    }

    /// All that is wrong with it, each with the name of its setting.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match self.root.to_str() {
            None => faults.push("root: is no UTF-8".to_owned()),
            Some(_) if !self.root.is_absolute() => {
                faults.push("root: is relative; give an absolute path".to_owned());
            }
            Some(root) if root.chars().any(char::is_control) => {
                faults.push("root: holds a control character".to_owned());
            }
            Some(_) => {}
        }
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            faults.push("deadline: must be more than 0 and at most 10 minutes".to_owned());
        }
        faults
    }
}

/// A folder of this machine.
#[derive(Debug)]
pub struct LocalStore {
    place: Arc<Place>,
    calls: Calls,
}

/// What threads that work for it need.
#[derive(Debug)]
struct Place {
    /// As people write it.
    root: String,
    folder: PathBuf,
}

impl LocalStore {
    /// A store in that folder. Touches nothing.
    ///
    /// # Errors
    /// [`Kind::Setting`] with everything that is wrong with the settings.
    pub fn new(settings: &LocalSettings) -> Result<Self> {
        let shown = settings.root.display().to_string();
        let root = format!("file://{}", shown.trim_end_matches('/'));
        let faults = settings.faults();
        if !faults.is_empty() {
            return Err(StoreError {
                kind: Kind::Setting,
                root,
                path: None,
                text: faults.join("; "),
            });
        }
        let place = Place {
            root,
            folder: settings.root.clone(),
        };
        Ok(Self {
            place: Arc::new(place),
            calls: Calls::new(settings.deadline),
        })
    }

    /// Does `work` on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        path: Option<&StorePath>,
        effect: Effect,
        work: impl FnOnce(&Path) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.place);
        let work = move || work(&place.folder);
        let done = self.calls.run(effect, work).await;
        done.map_err(|fault| self.place.error(path, fault))
    }
}

impl Place {
    fn error(&self, path: Option<&StorePath>, fault: Fault) -> StoreError {
        StoreError {
            kind: fault.kind,
            root: self.root.clone(),
            path: path.cloned(),
            text: fault.text,
        }
    }
}

#[async_trait]
impl FileStore for LocalStore {
    fn root(&self) -> &str {
        &self.place.root
    }

    async fn ready(&self) -> Result<()> {
        self.run(None, Effect::Change, folder::make_root).await?;
        probe::probe(self).await
    }

    async fn create(&self, path: &StorePath) -> Result<Box<dyn FileWriter>> {
        let wanted = path.clone();
        let open = self
            .run(Some(path), Effect::Change, move |root| {
                writer::create(root, &wanted)
            })
            .await?;
        Ok(Box::new(LocalWriter::new(
            Arc::clone(&self.place),
            self.calls.clone(),
            path.clone(),
            open,
        )))
    }

    async fn make_folder(&self, path: &StorePath) -> Result<()> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Change, move |root| {
            Folder::make_all(root, Some(&wanted)).map(drop)
        })
        .await
    }

    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome> {
        let (from, to) = (source.clone(), target.clone());
        let done = self.run(Some(target), Effect::Change, move |root| {
            rename::rename(root, &from, &to)
        });
        match done.await {
            Err(error) if error.kind == Kind::Unknown => {
                tracing::debug!(%error, "a rename may have been done");
                Ok(RenameOutcome::Unknown)
            }
            done => done,
        }
    }

    async fn length(&self, path: &StorePath) -> Result<Option<u64>> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Question, move |root| {
            let Some(folder) = Folder::find(root, wanted.parent().as_ref())? else {
                return Ok(None);
            };
            Ok(match folder.look(wanted.name())? {
                Some(Found::File { length, .. }) => Some(length),
                _ => None,
            })
        })
        .await
    }

    async fn confirm(&self, path: &StorePath) -> Result<Option<u64>> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Change, move |root| {
            let parent = wanted.parent();
            let Some(folder) = Folder::find(root, parent.as_ref())? else {
                return Ok(None);
            };
            let Some(file) = folder.open_file(wanted.name())? else {
                return Ok(None);
            };
            file.sync()?;
            // Whoever has put it there, and made the folders above, may not have got so far yet.
            if Folder::sync_all(root, parent.as_ref())? {
                Ok(Some(file.length()?))
            } else {
                Ok(None)
            }
        })
        .await
    }

    async fn read(&self, path: &StorePath, at: u64, length: usize) -> Result<Option<Bytes>> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Question, move |root| {
            let Some(folder) = Folder::find(root, wanted.parent().as_ref())? else {
                return Ok(None);
            };
            match folder.open_file(wanted.name())? {
                Some(file) => file.read(at, length).map(Some),
                None => Ok(None),
            }
        })
        .await
    }

    async fn delete(&self, path: &StorePath) -> Result<()> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Change, move |root| match Folder::find(
            root,
            wanted.parent().as_ref(),
        )? {
            Some(folder) => folder.delete(wanted.name()),
            None => Ok(()),
        })
        .await
    }

    async fn delete_empty(&self, path: &StorePath) -> Result<()> {
        let wanted = path.clone();
        self.run(Some(path), Effect::Change, move |root| match Folder::find(
            root,
            wanted.parent().as_ref(),
        )? {
            Some(folder) => folder.delete_empty(wanted.name()),
            None => Ok(()),
        })
        .await
    }

    async fn list(
        &self,
        folder: Option<&StorePath>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let (wanted, after) = (folder.cloned(), after.map(str::to_owned));
        self.run(folder, Effect::Question, move |root| {
            listing::list(root, wanted.as_ref(), after, limit)
        })
        .await
    }
}

#[cfg(test)]
mod tests;
