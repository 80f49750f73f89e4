//! A local folder as a store, as plain as can be: for tests that let others read what was written.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_dump::store::{Entry, FileStore, FileWriter, Kind, Result, StoreError};
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

/// One process writes it, and nothing fails.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    fn at(&self, path: &StorePath) -> PathBuf {
        self.0.join(path.as_str())
    }
}

fn fault(path: &Path, fault: &io::Error) -> StoreError {
    let kind = match fault.kind() {
        io::ErrorKind::NotFound => Kind::Missing,
        io::ErrorKind::AlreadyExists => Kind::Taken,
        _ => Kind::Other,
    };
    StoreError {
        kind,
        root: "folder".to_owned(),
        path: None,
        text: format!("{}: {fault}", path.display()),
    }
}

/// None: it is not there.
fn found<T>(path: &Path, done: io::Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault(path, &error)),
    }
}

#[async_trait]
impl FileStore for Folder {
    fn root(&self) -> &str {
        "folder"
    }

    async fn ready(&self) -> Result<()> {
        fs::create_dir_all(&self.0).map_err(|error| fault(&self.0, &error))
    }

    async fn create(&self, path: &StorePath) -> Result<Box<dyn FileWriter>> {
        let path = self.at(path);
        let file = fs::File::create_new(&path).map_err(|error| fault(&path, &error))?;
        Ok(Box::new(Writer { path, file }))
    }

    async fn make_folder(&self, path: &StorePath) -> Result<()> {
        let path = self.at(path);
        fs::create_dir_all(&path).map_err(|error| fault(&path, &error))
    }

    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome> {
        let (source, target) = (self.at(source), self.at(target));
        if !source.exists() {
            return Ok(RenameOutcome::SourceMissing);
        }
        if target.exists() {
            return Ok(RenameOutcome::Occupied);
        }
        let folder = target.parent().expect("below the root");
        let renamed = fs::create_dir_all(folder).and_then(|()| fs::rename(&source, &target));
        renamed.map_err(|error| fault(&source, &error))?;
        Ok(RenameOutcome::Done)
    }

    async fn length(&self, path: &StorePath) -> Result<Option<u64>> {
        let path = self.at(path);
        let metadata = found(&path, fs::metadata(&path))?;
        Ok(metadata
            .filter(fs::Metadata::is_file)
            .map(|metadata| metadata.len()))
    }

    async fn confirm(&self, path: &StorePath) -> Result<Option<u64>> {
        self.length(path).await
    }

    async fn read(&self, path: &StorePath, at: u64, length: usize) -> Result<Option<Bytes>> {
        let path = self.at(path);
        let read = || {
            let mut file = fs::File::open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            let mut bytes = Vec::new();
            file.take(length as u64).read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        };
        found(&path, read())
    }

    async fn delete(&self, path: &StorePath) -> Result<()> {
        let path = self.at(path);
        let deleted = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        found(&path, deleted).map(drop)
    }

    async fn delete_empty(&self, path: &StorePath) -> Result<()> {
        // Refused where something is in it.
        drop(fs::remove_dir(self.at(path)));
        Ok(())
    }

    async fn list(&self, _: Option<&StorePath>, _: Option<&str>, _: usize) -> Result<Vec<Entry>> {
        unreachable!("nothing but sweeping lists")
    }
}

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: fs::File,
}

#[async_trait]
impl FileWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let written = self.file.write_all(&bytes);
        written.map_err(|error| fault(&self.path, &error))
    }

    async fn close(self: Box<Self>) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|error| fault(&self.path, &error))?.len())
    }
}
