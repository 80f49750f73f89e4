//! HDFS, by the crate `hdfs-native`: no Java, and the native protocol, whose rename can be refused.
//!
//! What the library leaves to us:
//! - No call of it ends for certain. Every one has a deadline here ([`HdfsSettings`]); when a NameNode lets one pass,
//!   the next calls go over new connections ([`link`]).
//! - A change whose answer is lost is an error of its connection, and is told as [`Kind::Unknown`].
//! - A writer that is dropped leaves its file open, and the lease is renewed for as long as *any* file of the same
//!   client is written: such files are closed by recovering their lease ([`abandoned`]).
//! - A broken pipeline is mended by it where a DataNode fails in the middle of a block; where one fails before a block's
//!   first byte, or falls silent for longer than the deadline, the file is given up. The NameNode goes on offering
//!   such a DataNode for 10 minutes unless `dfs.namenode.avoid.write.stale.datanode` is set there: set it.
//! - Errors carry the server's stack trace: what is told is its first line ([`fault`]).
//! - A file that is closed is on no disk yet, only in the memory of its DataNodes: so each block is synced before
//!   ([`writer`]).
//! - A name that is no UTF-8 makes it panic: a panic of the library is an error of that call.
//!
//! Paths follow no symbolic links: HDFS knows none unless they are switched on, and then refuses them here.
//!
//! # Source
//! Hadoop 3.4.2 for what the NameNode answers, by class of exception; `docs/adr/2026-11-30-dump-commit.md` lists the
//! rules that the dump rests on.

mod abandoned;
mod clock;
mod fault;
mod link;
mod settings;
mod writer;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use hdfs_native::{WriteOptions, client::FileStatus};
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

pub use self::settings::{HdfsSettings, Kerberos};
use self::{
    abandoned::Abandoned,
    clock::Clock,
    fault::{Cause, Effect, Fault},
    link::{Link, guarded},
    writer::HdfsWriter,
};
use super::{Entry, FileStore, FileWriter, Kind, Result, StoreError, probe};

/// For folders that are made.
const FOLDER_MODE: u32 = 0o755;
/// Times that the folders above a target are made again because somebody deletes them.
const RENAME_ATTEMPTS: usize = 5;
/// A time that is left as it is: −1 for the NameNode (`FSDirAttrOp.unprotectedSetTimes`).
const TIME_KEPT: u64 = u64::MAX;

/// A folder of an HDFS.
#[derive(Debug)]
pub struct HdfsStore {
    shared: Arc<Shared>,
}

/// What writers need too.
#[derive(Debug)]
struct Shared {
    settings: HdfsSettings,
    /// As people write it, without a slash at its end.
    root: String,
    /// The root's path on the NameNode, without a slash at its end: empty for its top.
    base: String,
    link: Link,
    clock: Clock,
    /// Size of the blocks of new files; 0: not known yet.
    block_bytes: AtomicU64,
    abandoned: Abandoned,
}

impl HdfsStore {
    /// A store there. Reads the configuration, and connects to nothing yet.
    ///
    /// # Errors
    /// [`Kind::Setting`] with everything that is wrong with the settings, or with the configuration they name.
    pub fn new(settings: HdfsSettings) -> Result<Self> {
        let root = settings.url.trim_end_matches('/').to_owned();
        let refused = |text: String| StoreError {
            kind: Kind::Setting,
            root: root.clone(),
            path: None,
            text,
        };
        let place = settings
            .place()
            .map_err(|faults| refused(faults.join("; ")))?;
        let link = Link::new(&settings, &place).map_err(|fault| refused(fault.text))?;
        Ok(Self {
            shared: Arc::new(Shared {
                root,
                base: place.base,
                link,
                clock: Clock::default(),
                block_bytes: AtomicU64::new(settings.block_size.unwrap_or(0)),
                abandoned: Abandoned::default(),
                settings,
            }),
        })
    }
}

impl Shared {
    fn error(&self, path: Option<&StorePath>, fault: Fault) -> StoreError {
        StoreError {
            kind: fault.kind,
            root: self.root.clone(),
            path: path.cloned(),
            text: fault.text,
        }
    }

    /// The path on the NameNode; None: the root's.
    fn at(&self, path: Option<&StorePath>) -> String {
        match path {
            Some(path) => format!("{}/{path}", self.base),
            None if self.base.is_empty() => "/".to_owned(),
            None => self.base.clone(),
        }
    }

    /// What lies at a path. None also where a file is where a folder of it would be.
    async fn status(&self, path: &StorePath) -> Result<Option<FileStatus>, Fault> {
        let at = self.at(Some(path));
        let asked = self
            .link
            .call(Effect::Question, |client| async move {
                client.get_file_info(&at).await
            })
            .await;
        absent_as_none(asked)
    }

    /// The length of a file; None: no file is there.
    async fn length(&self, path: &StorePath) -> Result<Option<u64>, Fault> {
        let status = self.status(path).await?;
        Ok(status.as_ref().and_then(file_length))
    }

    async fn make_folder(&self, path: Option<&StorePath>) -> Result<(), Fault> {
        let at = self.at(path);
        self.link
            .call(Effect::Change, |client| async move {
                client.mkdirs(&at, FOLDER_MODE, true).await
            })
            .await
    }

    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome, Fault> {
        let (from, to) = &(self.at(Some(source)), self.at(Some(target)));
        for _ in 0..RENAME_ATTEMPTS {
            let renamed = self
                .link
                .call(Effect::Change, |client| async move {
                    client.rename(from, to, false).await
                })
                .await;
            let fault = match renamed {
                Ok(()) => return Ok(RenameOutcome::Done),
                Err(fault) => fault,
            };
            match fault.cause {
                Cause::Exists => return Ok(RenameOutcome::Occupied),
                Cause::AboveIsFile => return Ok(RenameOutcome::SourceMissing),
                // The source is not there, or the folder of the target is not. Neither was renamed.
                Cause::Absent => {
                    if self.status(source).await.map_err(certain)?.is_none() {
                        return Ok(RenameOutcome::SourceMissing);
                    }
                    self.make_folder(target.parent().as_ref())
                        .await
                        .map_err(certain)?;
                }
                _ if fault.kind == Kind::Unknown => {
                    tracing::debug!(%source, %target, text = fault.text, "a rename may have been done");
                    return Ok(RenameOutcome::Unknown);
                }
                _ => return Err(fault),
            }
        }
        Err(Fault {
            kind: Kind::Missing,
            cause: Cause::Other,
            text: "the folders above it are deleted as fast as they are made; find out by whom"
                .to_owned(),
        })
    }
}

/// Of what went wrong beside a rename: it was not done, whatever became of this.
fn certain(fault: Fault) -> Fault {
    match fault.kind {
        Kind::Unknown => Fault {
            kind: Kind::Unreachable,
            ..fault
        },
        _ => fault,
    }
}

fn file_length(status: &FileStatus) -> Option<u64> {
    (!status.isdir).then(|| u64::try_from(status.length).expect("a length is a u64"))
}

fn absent_as_none<T>(asked: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match asked {
        Ok(found) => Ok(Some(found)),
        Err(fault) if matches!(fault.cause, Cause::Absent | Cause::AboveIsFile) => Ok(None),
        Err(fault) => Err(fault),
    }
}

#[async_trait]
impl FileStore for HdfsStore {
    fn root(&self) -> &str {
        &self.shared.root
    }

    async fn ready(&self) -> Result<()> {
        let made = self.shared.make_folder(None).await;
        made.map_err(|fault| self.shared.error(None, fault))?;
        probe::probe(self).await
    }

    async fn create(&self, path: &StorePath) -> Result<Box<dyn FileWriter>> {
        let shared = &self.shared;
        let options = WriteOptions {
            block_size: shared.settings.block_size,
            replication: shared.settings.replication.map(u32::from),
            permission: 0o644,
            overwrite: false,
            create_parent: false,
        };
        let at = shared.at(Some(path));
        let created = shared
            .link
            .call(Effect::Change, |client| async move {
                client.create(&at, &options).await
            })
            .await;
        match created {
            Ok(file) => Ok(Box::new(HdfsWriter::new(
                Arc::clone(shared),
                path.clone(),
                file,
            ))),
            Err(fault) => {
                if fault.kind == Kind::Unknown {
                    shared.abandon(path, None);
                }
                Err(shared.error(Some(path), fault))
            }
        }
    }

    async fn make_folder(&self, path: &StorePath) -> Result<()> {
        let made = self.shared.make_folder(Some(path)).await;
        made.map_err(|fault| self.shared.error(Some(path), fault))
    }

    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome> {
        let renamed = self.shared.rename(source, target).await;
        renamed.map_err(|fault| self.shared.error(Some(target), fault))
    }

    async fn length(&self, path: &StorePath) -> Result<Option<u64>> {
        let asked = self.shared.length(path).await;
        asked.map_err(|fault| self.shared.error(Some(path), fault))
    }

    async fn confirm(&self, path: &StorePath) -> Result<Option<u64>> {
        let shared = &self.shared;
        let confirmed = async {
            let (at, accessed) = (shared.at(Some(path)), shared.clock.now());
            // Answered once it and everything before it is in the log.
            let set = shared
                .link
                .call(Effect::Change, |client| async move {
                    client.set_times(&at, TIME_KEPT, accessed).await
                })
                .await;
            match absent_as_none(set)? {
                Some(()) => shared.length(path).await,
                None => Ok(None),
            }
        };
        let confirmed = confirmed.await;
        confirmed.map_err(|fault| shared.error(Some(path), fault))
    }

    async fn read(&self, path: &StorePath, at: u64, length: usize) -> Result<Option<Bytes>> {
        let shared = &self.shared;
        let read = async {
            let from = shared.at(Some(path));
            let opened = shared
                .link
                .call(Effect::Question, |client| async move {
                    client.read(&from).await
                })
                .await;
            let Some(file) = absent_as_none(opened)? else {
                return Ok(None);
            };
            let end = file.file_length();
            let at = usize::try_from(at).unwrap_or(end).min(end);
            let range = file.read_range(at, length.min(end - at));
            let read = guarded(shared.settings.data_deadline, Effect::Question, range);
            read.await.map(Some)
        };
        let read = read.await;
        read.map_err(|fault| shared.error(Some(path), fault))
    }

    async fn delete(&self, path: &StorePath) -> Result<()> {
        let shared = &self.shared;
        let at = shared.at(Some(path));
        let deleted = shared
            .link
            .call(Effect::Change, |client| async move {
                client.delete(&at, true).await
            })
            .await;
        match absent_as_none(deleted) {
            // False where nothing was there.
            Ok(_) => Ok(()),
            Err(fault) => Err(shared.error(Some(path), fault)),
        }
    }

    async fn delete_empty(&self, path: &StorePath) -> Result<()> {
        let shared = &self.shared;
        let deleted = async {
            // Asked first, since the same call would delete a file.
            if !shared
                .status(path)
                .await?
                .is_some_and(|status| status.isdir)
            {
                return Ok(());
            }
            let at = shared.at(Some(path));
            let deleted = shared
                .link
                .call(Effect::Change, |client| async move {
                    client.delete(&at, false).await
                })
                .await;
            match absent_as_none(deleted) {
                Ok(_) => Ok(()),
                Err(fault) if fault.cause == Cause::NotEmpty => Ok(()),
                Err(fault) => Err(fault),
            }
        };
        let deleted = deleted.await;
        deleted.map_err(|fault| shared.error(Some(path), fault))
    }

    /// Of a large folder every name before `after` is read again for each page: the library cannot begin in the
    /// middle. So are all others if there are names beyond ASCII.
    async fn list(
        &self,
        folder: Option<&StorePath>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let shared = &self.shared;
        let top = shared.at(folder);
        let pages = shared.link.client().list_status_iter(&top, false);
        let mut first = BTreeMap::new();
        if limit == 0 {
            return Ok(Vec::new());
        }
        loop {
            let next = async { pages.next().await.transpose() };
            let next = shared.link.call(Effect::Question, |_| next).await;
            let next = absent_as_none(next).map_err(|fault| shared.error(folder, fault))?;
            let Some(status) = next.flatten() else {
                break;
            };
            // A file lists itself, without a name.
            if status.path.len() <= top.len() {
                break;
            }
            let name = status.path.rsplit('/').next().unwrap_or_default();
            if is_past(&first, limit, name) {
                break;
            }
            let path = match folder {
                Some(folder) => folder.join(name),
                None => StorePath::new(name),
            };
            if after.is_none_or(|after| name > after)
                && let Ok(path) = path
            {
                let entry = Entry {
                    path,
                    length: file_length(&status),
                    age: shared.clock.age(status.modification_time),
                };
                first.insert(name.to_owned(), entry);
                if first.len() > limit {
                    first.pop_last();
                }
            }
        }
        Ok(first.into_values().collect())
    }
}

/// Whether neither this name nor any that the NameNode tells later is one of the first `limit`. It tells them in the
/// order of their bytes as Java has them, with a sign: what is beyond ASCII comes before everything else there, and
/// behind everything else here (`DFSUtilClient.compareBytes`).
fn is_past<T>(first: &BTreeMap<String, T>, limit: usize, name: &str) -> bool {
    let last = first.last_key_value();
    first.len() >= limit && name.is_ascii() && last.is_some_and(|(last, _)| name > last.as_str())
}

/// Now, in milliseconds since 1970, by the clock of this machine.
fn wall_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
