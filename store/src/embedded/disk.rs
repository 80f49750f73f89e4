//! The redb file: the same content as the state in memory, one redb transaction for each change.
//!
//! After a write failed, redb refuses everything until the file is opened anew, and whether the write
//! is in the file is open. Memory then decides: the next write opens the file again and first brings
//! it to what memory holds.

#[cfg(test)]
mod faults;

use std::{collections::BTreeMap, fmt, fs, io::ErrorKind, path::PathBuf, time::Duration};

use redb::{Database, DatabaseError, ReadableTable, TableDefinition, WriteTransaction};
use tokio::time::Instant;
use tracing::warn;

use super::state::{Delta, Lease, Stored};
use crate::api::{Entry, Error, LeaseId, Result, Revision};

const META: TableDefinition<'_, &str, i64> = TableDefinition::new("meta");
/// Create revision, mod revision, lease (0: none), value.
const ENTRIES: TableDefinition<'_, &str, (i64, i64, i64, &[u8])> = TableDefinition::new("entries");
/// Time to live in milliseconds.
const LEASES: TableDefinition<'_, i64, u64> = TableDefinition::new("leases");

const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// The layout above. Part of the stored format.
const FORMAT_VERSION: i64 = 1;

/// Makes the database, at first and again after a failure.
type Opener = Box<dyn Fn() -> std::result::Result<Database, DatabaseError> + Send>;

/// What became of opening.
pub(super) enum Opened {
    /// Opened and read.
    Ready(Disk, Stored),
    /// Somebody else has it open.
    InUse(Error),
}

/// Where changes are made durable.
pub(super) struct Disk {
    name: String,
    /// None: nothing is kept.
    opener: Option<Opener>,
    database: Option<Database>,
}

impl Disk {
    /// No file at all.
    pub(super) fn none() -> Self {
        Self {
            name: "memory".to_owned(),
            opener: None,
            database: None,
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.opener.is_some()
    }

    /// Opens or makes the file and reads it; leases count from `now`.
    pub(super) fn open(path: PathBuf, now: Instant) -> Result<Opened> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| {
                Error::Unavailable(format!(
                    "folder {} cannot be made: {error}",
                    folder.display()
                ))
            })?;
        }
        let name = path.display().to_string();
        Self::open_with(name, Box::new(move || Database::create(&path)), now)
    }

    fn open_with(name: String, opener: Opener, now: Instant) -> Result<Opened> {
        let database = match opener() {
            Ok(database) => database,
            Err(error @ DatabaseError::DatabaseAlreadyOpen) => {
                return Ok(Opened::InUse(sort(&name, error.into())));
            }
            Err(error) => return Err(sort(&name, error.into())),
        };
        let stored = read(&database, now).map_err(|error| sort(&name, error))??;
        let disk = Self {
            name,
            opener: Some(opener),
            database: Some(database),
        };
        Ok(Opened::Ready(disk, stored))
    }

    /// Writes a change; it is on the disk when this returns. `memory` is the state before it.
    pub(super) fn write(&mut self, delta: &Delta, memory: impl FnOnce() -> Stored) -> Result<()> {
        let Some(opener) = &self.opener else {
            return Ok(());
        };
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let database = opener().map_err(|error| sort(&self.name, error.into()))?;
                rewrite(&database, &memory()).map_err(|error| sort(&self.name, error))?;
                warn!(file = %self.name, "metadata store file opened again after a failure");
                database
            }
        };
        append(&database, delta).map_err(|error| sort(&self.name, error))?;
        self.database = Some(database);
        Ok(())
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.name)
            .field("open", &self.database.is_some())
            .finish_non_exhaustive()
    }
}

/// Reads a file that is ours or empty.
fn read(database: &Database, now: Instant) -> std::result::Result<Result<Stored>, redb::Error> {
    let write = database.begin_write()?;
    let stored = {
        let mut meta = write.open_table(META)?;
        let format = meta.get(FORMAT)?.map(|value| value.value());
        match format {
            None => drop(meta.insert(FORMAT, FORMAT_VERSION)?),
            Some(FORMAT_VERSION) => {}
            Some(other) => {
                return Ok(Err(Error::Invalid(format!(
                    "file has format {other}, this program reads format {FORMAT_VERSION}; \
                     use the program that wrote it"
                ))));
            }
        }
        let revision = meta.get(REVISION)?.map(|value| Revision(value.value()));
        let mut entries = BTreeMap::new();
        for row in write.open_table(ENTRIES)?.iter()? {
            let (key, value) = row?;
            let (create_revision, mod_revision, lease, bytes) = value.value();
            let entry = Entry {
                value: bytes.to_vec(),
                create_revision: Revision(create_revision),
                mod_revision: Revision(mod_revision),
                lease: (lease != 0).then_some(LeaseId(lease)),
            };
            entries.insert(key.value().to_owned(), entry);
        }
        let mut leases = BTreeMap::new();
        for row in write.open_table(LEASES)?.iter()? {
            let (id, ttl) = row?;
            let ttl = Duration::from_millis(ttl.value());
            let ends_at = now + ttl;
            leases.insert(LeaseId(id.value()), Lease { ttl, ends_at });
        }
        Stored {
            revision: revision.unwrap_or(Stored::default().revision),
            entries,
            leases,
        }
    };
    write.commit()?;
    Ok(Ok(stored))
}

fn append(database: &Database, delta: &Delta) -> std::result::Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut entries = write.open_table(ENTRIES)?;
        for event in &delta.events {
            match &event.entry {
                Some(entry) => drop(entries.insert(event.key.as_str(), row(entry))?),
                None => drop(entries.remove(event.key.as_str())?),
            }
        }
        let mut leases = write.open_table(LEASES)?;
        if let Some((id, lease)) = &delta.granted {
            leases.insert(id.0, millis(lease))?;
        }
        for id in &delta.ended {
            leases.remove(id.0)?;
        }
    }
    if let Some(event) = delta.events.first() {
        set_revision(&write, event.revision)?;
    }
    write.commit()?;
    Ok(())
}

/// Replaces the content by what memory holds.
fn rewrite(database: &Database, stored: &Stored) -> std::result::Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.delete_table(ENTRIES)?;
    write.delete_table(LEASES)?;
    {
        let mut entries = write.open_table(ENTRIES)?;
        for (key, entry) in &stored.entries {
            entries.insert(key.as_str(), row(entry))?;
        }
        let mut leases = write.open_table(LEASES)?;
        for (id, lease) in &stored.leases {
            leases.insert(id.0, millis(lease))?;
        }
    }
    set_revision(&write, stored.revision)?;
    write.commit()?;
    Ok(())
}

fn set_revision(
    write: &WriteTransaction,
    revision: Revision,
) -> std::result::Result<(), redb::Error> {
    write.open_table(META)?.insert(REVISION, revision.0)?;
    Ok(())
}

fn row(entry: &Entry) -> (i64, i64, i64, &[u8]) {
    let lease = entry.lease.map_or(0, |lease| lease.0);
    let (created, modified) = (entry.create_revision.0, entry.mod_revision.0);
    (created, modified, lease, entry.value.as_slice())
}

fn millis(lease: &Lease) -> u64 {
    u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX)
}

/// Sorts what redb says into what callers branch on.
fn sort(name: &str, error: redb::Error) -> Error {
    match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Error::Invalid(
            format!("{name} is open in another process; stop that one or name another file"),
        ),
        redb::Error::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::StorageFull
                    | ErrorKind::QuotaExceeded
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::FileTooLarge
            ) =>
        {
            Error::ReadOnly(format!("{name}: {error}; free some space"))
        }
        redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => Error::Invalid(
            format!("{name} is not a metadata store file ({error}); name another file"),
        ),
        redb::Error::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            Error::Invalid(format!("{name}: {error}; let this user read and write it"))
        }
        redb::Error::Corrupted(what) => Error::Invalid(format!(
            "{name} is damaged ({what}); restore it from a backup"
        )),
        redb::Error::UpgradeRequired(format) => Error::Invalid(format!(
            "{name} has redb file format {format}, which this program cannot read"
        )),
        other => Error::Unavailable(format!("{name}: {other}")),
    }
}
