//! A file being written.

use std::{fs::File, io::Write as _, path::Path, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_model::dump::path::StorePath;
use rustix::io::Errno;

use super::{
    super::{FileWriter, Kind, Result},
    Place,
    calls::{Calls, Effect},
    fault::Fault,
    folder::Folder,
};

/// A file and the folder that it is in.
#[derive(Debug)]
pub(super) struct Open {
    file: File,
    folder: Folder,
}

/// Its name is durable once it is closed: until then nobody relies on it.
pub(super) fn create(root: &Path, path: &StorePath) -> Result<Open, Fault> {
    let folder = Folder::need(root, path.parent().as_ref())?;
    let file = folder.create(path.name())?;
    Ok(Open { file, folder })
}

/// A file of a local folder.
#[derive(Debug)]
pub(super) struct LocalWriter {
    place: Arc<Place>,
    calls: Calls,
    path: StorePath,
    /// None: a write has failed, or is under way on a thread that nobody waits for any more.
    open: Option<Open>,
}

impl LocalWriter {
    pub(super) fn new(place: Arc<Place>, calls: Calls, path: StorePath, open: Open) -> Self {
        Self {
            place,
            calls,
            path,
            open: Some(open),
        }
    }

    fn take(&mut self) -> Result<Open> {
        self.open.take().ok_or_else(|| {
            self.place.error(
                Some(&self.path),
                Fault {
                    kind: Kind::Other,
                    text: "an earlier write has failed; another file has to be written".to_owned(),
                },
            )
        })
    }
}

fn errno(fault: &std::io::Error) -> Errno {
    Errno::from_io_error(fault).unwrap_or(Errno::IO)
}

#[async_trait]
impl FileWriter for LocalWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let mut open = self.take()?;
        let work = move || match open.file.write_all(&bytes) {
            Ok(()) => Ok(open),
            Err(fault) => Err(errno(&fault).into()),
        };
        match self.calls.run(Effect::Change, work).await {
            Ok(open) => {
                self.open = Some(open);
                Ok(())
            }
            Err(fault) => Err(self.place.error(Some(&self.path), fault)),
        }
    }

    async fn close(mut self: Box<Self>) -> Result<u64> {
        let Open { file, folder } = self.take()?;
        let work = move || {
            // Where space is given out late, a full disk shows here.
            file.sync_all().map_err(|fault| errno(&fault))?;
            folder.sync()?;
            Ok(rustix::fs::fstat(&file)?.st_size.cast_unsigned())
        };
        let length = self.calls.run(Effect::Change, work).await;
        length.map_err(|fault| self.place.error(Some(&self.path), fault))
    }
}
