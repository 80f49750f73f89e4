//! Folders that are open, and what is done in them.

use std::{
    ffi::CStr,
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::Path,
    time::SystemTime,
};

use bytes::Bytes;
use kreplicator_model::dump::path::StorePath;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
    path::Arg,
};

use super::fault::Fault;

/// For what is made; the process's mask takes from it.
const FOLDER_MODE: u32 = 0o755;
const FOLDER_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// A folder that is open.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// A regular file that is open for reading.
#[derive(Debug)]
pub(super) struct OpenFile(File);

/// What lies under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    File {
        /// In bytes.
        length: u64,
        changed: SystemTime,
    },
    Folder {
        changed: SystemTime,
    },
    /// A symbolic link, a pipe, …
    Other,
}

/// Makes the root and what is above it, durably.
pub(super) fn make_root(root: &Path) -> Result<(), Fault> {
    for above in root.ancestors().collect::<Vec<_>>().into_iter().rev() {
        match rustix::fs::mkdir(above, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) => {}
            // Of folders that are there some file systems say that they are read-only.
            Err(_) if above.is_dir() => continue,
            Err(Errno::EXIST) => return Err(Errno::NOTDIR.into()),
            Err(errno) => return Err(errno.into()),
        }
        if let Some(parent) = above.parent() {
            let parent = Folder(rustix::fs::open(parent, FOLDER_FLAGS, Mode::empty())?);
            parent.sync()?;
        }
    }
    Ok(())
}

impl Folder {
    pub(super) fn root(root: &Path) -> Result<Self, Fault> {
        match rustix::fs::open(root, FOLDER_FLAGS, Mode::empty()) {
            Ok(folder) => Ok(Self(folder)),
            Err(Errno::NOENT) => Err(Fault::root_gone()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A folder below the root, None: the root; an answer of None: it is not there.
    pub(super) fn find(root: &Path, path: Option<&StorePath>) -> Result<Option<Self>, Fault> {
        let mut folder = Self::root(root)?;
        for name in path.iter().flat_map(|path| path.components()) {
            match folder.enter(name) {
                Ok(next) => folder = next,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(folder))
    }

    /// The same, but for a file in the way, which is an error.
    pub(super) fn need(root: &Path, path: Option<&StorePath>) -> Result<Self, Fault> {
        let mut folder = Self::root(root)?;
        for name in path.iter().flat_map(|path| path.components()) {
            folder = folder.enter(name)?;
        }
        Ok(folder)
    }

    /// Makes what is not there of a folder and those above it. Every one is made durable, whoever has made it.
    pub(super) fn make_all(root: &Path, path: Option<&StorePath>) -> Result<Self, Fault> {
        let mut folder = Self::root(root)?;
        for name in path.iter().flat_map(|path| path.components()) {
            let made = rustix::fs::mkdirat(&folder.0, name, Mode::from_raw_mode(FOLDER_MODE));
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            let next = folder.enter(name)?;
            folder.sync()?;
            folder = next;
        }
        Ok(folder)
    }

    /// Makes the names of a folder and of those above it durable; false: it is not there.
    pub(super) fn sync_all(root: &Path, path: Option<&StorePath>) -> Result<bool, Fault> {
        let mut folder = Self::root(root)?;
        for name in path.iter().flat_map(|path| path.components()) {
            folder.sync()?;
            match folder.enter(name) {
                Ok(next) => folder = next,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
        folder.sync()?;
        Ok(true)
    }

    fn enter(&self, name: impl Arg) -> Result<Self, Errno> {
        let flags = FOLDER_FLAGS | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Makes what was made, renamed and deleted in it durable.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        rustix::fs::fsync(&self.0).map_err(Fault::not_durable)
    }

    pub(super) fn look(&self, name: &str) -> Result<Option<Found>, Fault> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A new file, open for writing.
    pub(super) fn create(&self, name: &str) -> Result<File, Fault> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(File::from(file))
    }

    /// A regular file; None: no such is there.
    pub(super) fn open_file(&self, name: &str) -> Result<Option<OpenFile>, Fault> {
        // A pipe without a writer would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let is_file = matches!(Found::of(&rustix::fs::fstat(&file)?), Found::File { .. });
        Ok(is_file.then(|| OpenFile(File::from(file))))
    }

    /// One step; refused where something is at the target.
    pub(super) fn rename(&self, name: &str, to: &Self, target: &str) -> Result<(), Errno> {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&self.0, name, &to.0, target, flags)
    }

    /// Deletes a file, or a folder with everything in it.
    pub(super) fn delete(&self, name: &str) -> Result<(), Fault> {
        self.delete_tree(name)?;
        self.sync()
    }

    fn delete_tree(&self, name: impl Arg + Copy) -> Result<(), Fault> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // What POSIX and what Linux say of a folder.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        let folder = match self.enter(name) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(()),
            // No folder, so it was the file that may not be deleted.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::PERM.into()),
            Err(errno) => return Err(errno.into()),
        };
        folder.each(|name, _| folder.delete_tree(name))?;
        match rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Deletes a folder if it is one, and empty.
    pub(super) fn delete_empty(&self, name: &str) -> Result<(), Fault> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Every name in it but `.` and `..`, in no order.
    pub(super) fn each(
        &self,
        mut visit: impl FnMut(&CStr, FileType) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                visit(entry.file_name(), entry.file_type())?;
            }
        }
        Ok(())
    }
}

impl OpenFile {
    pub(super) fn sync(&self) -> Result<(), Fault> {
        rustix::fs::fsync(&self.0).map_err(Fault::not_durable)
    }

    pub(super) fn length(&self) -> Result<u64, Fault> {
        Ok(rustix::fs::fstat(&self.0)?.st_size.cast_unsigned())
    }

    /// Fewer bytes only at the end of the file.
    pub(super) fn read(&self, at: u64, length: usize) -> Result<Bytes, Fault> {
        let left = self.length()?.saturating_sub(at);
        let mut bytes = vec![0; usize::try_from(left).map_or(length, |left| left.min(length))];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = at + u64::try_from(filled).expect("a length in memory fits");
            match self.0.read_at(&mut bytes[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(fault) if fault.kind() == std::io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(Errno::from_io_error(&fault).unwrap_or(Errno::IO).into()),
            }
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

impl Found {
    fn of(stat: &Stat) -> Self {
        let changed = seconds(stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File {
                length: stat.st_size.cast_unsigned(),
                changed,
            },
            FileType::Directory => Self::Folder { changed },
            _ => Self::Other,
        }
    }
}

/// When it was changed, to the second.
fn seconds(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)
}
