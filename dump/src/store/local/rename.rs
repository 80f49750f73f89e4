//! The commit point.

use std::path::Path;

use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};
use rustix::io::Errno;

use super::{super::Kind, fault::Fault, folder::Folder};

/// Times that the folders above the target are made again because somebody deletes them.
const ATTEMPTS: usize = 5;

/// An error of [`Kind::Unknown`]: it was done, and may be undone by a crash.
pub(super) fn rename(
    root: &Path,
    source: &StorePath,
    target: &StorePath,
) -> Result<RenameOutcome, Fault> {
    for _ in 0..ATTEMPTS {
        let Some(from) = Folder::find(root, source.parent().as_ref())? else {
            return Ok(RenameOutcome::SourceMissing);
        };
        if from.look(source.name())?.is_none() {
            return Ok(RenameOutcome::SourceMissing);
        }
        let to = match Folder::make_all(root, target.parent().as_ref()) {
            Ok(to) => to,
            // Deleted between its making and its opening.
            Err(fault) if fault.kind == Kind::Missing => continue,
            Err(fault) => return Err(certain(fault)),
        };
        match from.rename(source.name(), &to, target.name()) {
            Ok(()) => {
                to.sync()?;
                from.sync()?;
                return Ok(RenameOutcome::Done);
            }
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR) => {
                return Ok(RenameOutcome::Occupied);
            }
            // The source is gone since, or the folder of the target is.
            Err(Errno::NOENT) => {}
            Err(Errno::INVAL | Errno::NOSYS) => {
                return Err(Fault {
                    kind: Kind::Setting,
                    text: "this file system cannot rename without replacing what is there (renameat2 with \
                           RENAME_NOREPLACE), which the dump rests on; use ext4, xfs, btrfs or tmpfs"
                        .to_owned(),
                });
            }
            Err(errno) => return Err(uncertain(errno.into())),
        }
    }
    // The root may be what was deleted.
    Folder::root(root)?;
    Err(Fault {
        kind: Kind::Missing,
        text: "the folders above it are deleted as fast as they are made; find out by whom"
            .to_owned(),
    })
}

/// Of what went wrong in the rename itself: where it is not known what it means, it may have been done.
fn uncertain(fault: Fault) -> Fault {
    match fault.kind {
        Kind::Other => Fault {
            kind: Kind::Unknown,
            ..fault
        },
        _ => fault,
    }
}

/// Of what went wrong before the rename: it was not done.
fn certain(fault: Fault) -> Fault {
    match fault.kind {
        Kind::Unknown => Fault {
            kind: Kind::Other,
            ..fault
        },
        _ => fault,
    }
}
