//! A store in memory: it shows changes before they are durable, loses answers, refuses, is late, and crashes.

mod tree;
mod writer;

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kreplicator_model::dump::{commit::RenameOutcome, names::BOOKS, path::StorePath};

use self::writer::Writer;
use super::Random;
use crate::store::{Entry, FileStore, FileWriter, Kind, Result, StoreError};

/// How often calls go wrong, in a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Done, and the answer lost.
    pub(crate) lost: u64,
    /// Not done, and said so.
    pub(crate) unreachable: u64,
    /// Changes that are done later, when nobody waits for them.
    pub(crate) late: u64,
    /// Writes to a file that fail.
    pub(crate) torn: u64,
}

#[derive(Debug, Clone)]
enum Node {
    Folder { changed: Duration },
    File { bytes: Bytes, changed: Duration },
}

type Tree = BTreeMap<Arc<str>, Node>;

#[derive(Debug, Clone)]
enum Change {
    MakeFolder(StorePath),
    Rename(StorePath, StorePath),
    Delete(StorePath),
    DeleteEmpty(StorePath),
}

#[derive(Debug)]
struct State {
    live: Tree,
    /// What is left after a crash.
    durable: Tree,
    late: Vec<Change>,
    faults: Faults,
    /// What every call that changes something is refused with.
    refusal: Option<Kind>,
    random: Random,
    now: Duration,
    crashes: u64,
    changes: u64,
    /// How often each was made.
    calls: BTreeMap<&'static str, u64>,
}

/// The store; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct MemoryStore(Arc<Mutex<State>>);

/// Lets others go first.
async fn pause() {
    let mut was_polled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn error(kind: Kind, path: &StorePath) -> StoreError {
    StoreError {
        kind,
        root: "memory:".to_owned(),
        path: Some(path.clone()),
        text: format!("{kind:?}, says the test"),
    }
}

impl MemoryStore {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            live: Tree::new(),
            durable: Tree::new(),
            late: Vec::new(),
            faults: Faults::default(),
            refusal: None,
            random: Random::new(seed),
            now: Duration::ZERO,
            crashes: 0,
            changes: 0,
            calls: BTreeMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panics while it is held")
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// All changes are refused from now on; None: no longer.
    pub(crate) fn refuse(&self, kind: Option<Kind>) {
        self.state().refusal = kind;
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.state().now += time;
    }

    /// It forgets what it had only shown.
    pub(crate) fn crash(&self) {
        let mut state = self.state();
        state.live = state.durable.clone();
        state.crashes += 1;
        state.changes += 1;
    }

    /// One of the late changes is done; false: there is none.
    pub(crate) fn arrive(&self) -> bool {
        let mut state = self.state();
        let count = state.late.len();
        if count == 0 {
            return false;
        }
        let index = state.random.index(count);
        let change = state.late.swap_remove(index);
        state.change(&change);
        true
    }

    /// Counts whatever may have changed something.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// How often a call was made.
    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.state().calls.get(name).copied().unwrap_or(0)
    }

    /// All files below a prefix, by path.
    pub(crate) fn files(&self, prefix: &str) -> Vec<(String, Bytes)> {
        let state = self.state();
        let files = state.live.iter().filter_map(|(path, node)| match node {
            Node::File { bytes, .. } if path.starts_with(prefix) => {
                Some((path.to_string(), bytes.clone()))
            }
            _ => None,
        });
        files.collect()
    }

    /// Files under final names.
    pub(crate) fn finals(&self) -> Vec<(String, Bytes)> {
        let mut files = self.files("");
        files.retain(|(path, _)| !path.starts_with(BOOKS));
        files
    }

    /// Puts a file in place, with its folders.
    pub(crate) fn put(&self, path: &StorePath, bytes: impl Into<Bytes>) {
        self.show(path, bytes);
        let mut state = self.state();
        state.durable = state.live.clone();
    }

    /// Shows a file that a crash would take away.
    pub(crate) fn show(&self, path: &StorePath, bytes: impl Into<Bytes>) {
        let mut state = self.state();
        let changed = state.now;
        if let Some(folder) = path.parent() {
            state.make_folder(&folder);
        }
        let bytes = bytes.into();
        let file = Node::File { bytes, changed };
        state.live.insert(path.as_str().into(), file);
        state.changes += 1;
    }

    /// What becomes of a call that changes something: whether it is done, and whether its caller is told.
    async fn changing<T>(
        &self,
        name: &'static str,
        path: &StorePath,
        change: Option<Change>,
        apply: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> Result<T> {
        pause().await;
        let (done, is_change, crashes) = {
            let mut state = self.state();
            *state.calls.entry(name).or_default() += 1;
            if let Some(kind) = state.refusal {
                return Err(error(kind, path));
            }
            let faults = state.faults;
            match state.random.below(1000) {
                dice if dice < faults.unreachable => return Err(error(Kind::Unreachable, path)),
                dice if dice < faults.unreachable + faults.late => {
                    state.late.extend(change);
                    return Err(error(Kind::Unknown, path));
                }
                dice if dice < faults.unreachable + faults.late + faults.lost => {
                    let done = apply(&mut state);
                    drop(done);
                    return Err(error(Kind::Unknown, path));
                }
                _ => {
                    let before = state.changes;
                    let done = apply(&mut state)?;
                    (done, state.changes != before, state.crashes)
                }
            }
        };
        pause().await;
        // A refusal changes nothing, so nothing is put on the disks for it.
        if is_change {
            let mut state = self.state();
            if state.crashes != crashes {
                return Err(error(Kind::Unknown, path));
            }
            state.durable = state.live.clone();
        }
        Ok(done)
    }

    /// A call that only looks.
    async fn looking<T>(
        &self,
        path: &StorePath,
        look: impl FnOnce(&State) -> T + Send,
    ) -> Result<T> {
        pause().await;
        let mut state = self.state();
        let faults = state.faults;
        if state.random.below(1000) < faults.unreachable {
            return Err(error(Kind::Unreachable, path));
        }
        Ok(look(&state))
    }
}

#[async_trait]
impl FileStore for MemoryStore {
    fn root(&self) -> &str {
        "memory:"
    }

    async fn ready(&self) -> Result<()> {
        Ok(())
    }

    async fn create(&self, path: &StorePath) -> Result<Box<dyn FileWriter>> {
        let crashes = self
            .changing("create", path, None, |state| {
                let folder = path.parent();
                if !folder.is_none_or(|folder| state.has_folder(&folder)) {
                    return Err(error(Kind::Missing, path));
                }
                if state.live.contains_key(path.as_str()) {
                    return Err(error(Kind::Taken, path));
                }
                state.changes += 1;
                let changed = state.now;
                let bytes = Bytes::new();
                let file = Node::File { bytes, changed };
                state.live.insert(path.as_str().into(), file);
                Ok(state.crashes)
            })
            .await?;
        Ok(Box::new(Writer {
            store: self.clone(),
            path: path.clone(),
            bytes: Vec::new(),
            crashes,
        }))
    }

    async fn make_folder(&self, path: &StorePath) -> Result<()> {
        let change = Change::MakeFolder(path.clone());
        self.changing("make_folder", path, Some(change), |state| {
            state.changes += 1;
            if state.make_folder(path) {
                Ok(())
            } else {
                Err(error(Kind::Taken, path))
            }
        })
        .await
    }

    async fn rename(&self, source: &StorePath, target: &StorePath) -> Result<RenameOutcome> {
        let change = Change::Rename(source.clone(), target.clone());
        let done = self.changing("rename", source, Some(change), |state| {
            Ok(state.rename(source, target))
        });
        match done.await {
            Err(error) if error.kind == Kind::Unknown => Ok(RenameOutcome::Unknown),
            done => done,
        }
    }

    async fn length(&self, path: &StorePath) -> Result<Option<u64>> {
        self.looking(path, |state| state.length(path)).await
    }

    async fn confirm(&self, path: &StorePath) -> Result<Option<u64>> {
        self.changing("confirm", path, None, |state| {
            let length = state.length(path);
            state.changes += u64::from(length.is_some());
            Ok(length)
        })
        .await
    }

    async fn read(&self, path: &StorePath, at: u64, length: usize) -> Result<Option<Bytes>> {
        self.looking(path, |state| match state.live.get(path.as_str()) {
            Some(Node::File { bytes, .. }) => {
                let at = bytes.len().min(usize::try_from(at).expect("small"));
                let end = bytes.len().min(at.saturating_add(length));
                Some(bytes.slice(at..end))
            }
            _ => None,
        })
        .await
    }

    async fn delete(&self, path: &StorePath) -> Result<()> {
        let change = Change::Delete(path.clone());
        self.changing("delete", path, Some(change), |state| {
            state.changes += 1;
            state.delete(path);
            Ok(())
        })
        .await
    }

    async fn delete_empty(&self, path: &StorePath) -> Result<()> {
        let change = Change::DeleteEmpty(path.clone());
        self.changing("delete_empty", path, Some(change), |state| {
            state.changes += 1;
            state.delete_empty(path);
            Ok(())
        })
        .await
    }

    async fn list(
        &self,
        folder: Option<&StorePath>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let prefix = folder.map_or(String::new(), |folder| format!("{folder}/"));
        let about = folder.cloned();
        let about = about.unwrap_or_else(|| StorePath::new("root").expect("legal"));
        self.looking(&about, |state| {
            let nodes = state.live.iter().filter_map(|(path, node)| {
                let name = path.strip_prefix(&prefix)?;
                let is_direct = !name.contains('/') && after.is_none_or(|after| after < name);
                let (length, changed) = match node {
                    Node::Folder { changed } => (None, *changed),
                    Node::File { bytes, changed } => (Some(bytes.len() as u64), *changed),
                };
                is_direct.then(|| Entry {
                    path: StorePath::new(path).expect("all are"),
                    length,
                    age: state.now.saturating_sub(changed),
                })
            });
            nodes.take(limit).collect()
        })
        .await
    }
}
