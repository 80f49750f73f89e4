//! Files that were begun and will never be closed by who began them.
//!
//! A file that is open has a lease. The NameNode closes it when its client has been silent for 20 minutes; but a client
//! that writes other files is not silent, and renews the lease of all. And what the library has running for a writer
//! that is dropped goes on, with a connection to a DataNode that it keeps alive. So a sound writer is closed, at whatever
//! length; where that fails, or a write has failed before, the lease is recovered, which ends both.
//!
//! Not always: a DataNode that is told to recover a block while it syncs it refuses that block until it restarts ("Block
//! length mismatch", seen with Hadoop 3.4.2). Nothing is deleted here, since a file whose creation was not answered may
//! be somebody else's; it is swept with the folder of its attempt, and deleting ends a lease in any case.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hdfs_native::{Client, file::FileWriter};
use kreplicator_model::dump::path::StorePath;
use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{
    Shared,
    fault::{Cause, Effect},
    link::guarded,
};

/// How many are cared for at a time; further ones stay open until they are swept.
const FILES_MAX: usize = 64;
const ATTEMPTS: u32 = 6;
/// Before the second attempt, twice that before the third, and so on.
const PAUSE: Duration = Duration::from_secs(5);

/// Who closes them. Ends with the store.
#[derive(Debug, Default)]
pub(super) struct Abandoned(Mutex<JoinSet<()>>);

impl Shared {
    /// Closes a file that nobody writes any more, some time. `writer`: if it is sound.
    pub(super) fn abandon(&self, path: &StorePath, writer: Option<FileWriter>) {
        // Without a runtime the process is ending, and its client will be silent.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut tasks = self
            .abandoned
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= FILES_MAX {
            tracing::debug!(%path, "a file stays open: too many others are being closed");
            return;
        }
        let (client, path) = (self.link.client(), self.at(Some(path)));
        let (deadline, data_deadline) = (self.settings.deadline, self.settings.data_deadline);
        let closing = async move {
            if let Some(mut writer) = writer {
                let closed = Box::pin(writer.close());
                if guarded(data_deadline, Effect::Change, closed).await.is_ok() {
                    return;
                }
            }
            recover(client, path, deadline).await;
        };
        tasks.spawn_on(closing, &runtime);
    }
}

async fn recover(client: Client, path: String, deadline: Duration) {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
        }
        let asked = guarded(deadline, Effect::Change, client.recover_lease(&path)).await;
        match asked {
            Ok(true) => return,
            // It has begun. Asked again, since a DataNode that was told to do it may die.
            Ok(false) => {}
            // Deleted; or made by a call that is under way yet.
            Err(fault) if fault.cause == Cause::Absent && attempt > 0 => return,
            Err(fault) => {
                tracing::debug!(path, text = fault.text, "an abandoned file may be open yet")
            }
        }
    }
    tracing::warn!(path, "an abandoned file stays open until it is swept");
}
