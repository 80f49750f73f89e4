//! Runs the machine that commits groups on a store.
//!
//! `model::dump::commit` says one operation at a time; this does it, tells what came of it, and waits longer and longer
//! where nothing did. It never gives up: an owner that is no longer wanted drops the future. A call that was dropped
//! halfway may have been done, and counts as one whose answer was lost.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use kreplicator_model::{
    backoff::Backoff,
    dump::{
        commit::{
            Answer, Checkpoint, Draft, Fault, Machine, Next, Op, Open, Removed, RenameOutcome,
            WriteOutcome,
        },
        manifest::{BYTES_MAX, Source},
        names::{AttemptNames, Books},
        path::StorePath,
    },
    ids::Offset,
};

use crate::{
    clock::Clock,
    store::{FileStore, Kind, StoreError},
    trouble::{Trouble, Troubles, Until, Watcher},
};

/// Waits between attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// Bytes of two files that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// Random numbers from 0 to 1, which spread the waits of those who failed together. Clones draw from the same.
#[derive(Clone)]
pub struct Jitter(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Jitter {
    /// Whatever `draw` says.
    pub fn from_fn(draw: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    pub(crate) fn draw(&self) -> f64 {
        (self.0)()
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter")
    }
}

/// What an owner of a partition stands on.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Where the files go.
    pub store: Arc<dyn FileStore>,
    /// Our clocks.
    pub clock: Clock,
    /// Spreads waits.
    pub jitter: Jitter,
    /// Who learns of troubles.
    pub watcher: Arc<dyn Watcher>,
}

/// Commits the groups of one partition.
#[derive(Debug)]
pub struct Committer {
    ground: Ground,
    machine: Machine,
    troubles: Troubles,
    /// A call is under way, or its future was dropped.
    under_way: Option<Op>,
}

impl Committer {
    /// A new owner; [`Committer::open`] takes over. The arguments are those of [`Machine::take_over`].
    #[must_use]
    pub fn new(
        ground: Ground,
        source: Source,
        names: AttemptNames,
        checkpoint: Option<Checkpoint>,
        start: Offset,
    ) -> Self {
        let about = format!("{}:{}-{}", source.link, source.topic, source.partition);
        let troubles = Troubles::new(Arc::clone(&ground.watcher), about);
        let wall = ground.clock.wall();
        Self {
            machine: Machine::take_over(source, names, checkpoint, start, wall),
            ground,
            troubles,
            under_way: None,
        }
    }

    /// Where the partition's books lie.
    #[must_use]
    pub fn books(&self) -> &Books {
        self.machine.books()
    }

    /// Goes on until a group can be written. Takes as long as the store is away. May be dropped and called again.
    ///
    /// # Errors
    /// It cannot go on without a person, and says so from now on.
    pub async fn open(&mut self) -> Result<Open, Fault> {
        if let Some(op) = self.under_way.take() {
            match lost(&op) {
                Some(answer) => self.machine.answer(answer),
                None => self.machine.failed(),
            }
        }
        loop {
            let (op, again) = match self.machine.next(self.ground.clock.mono()) {
                Next::Open(open) => {
                    let open = open.clone();
                    self.troubles.over(Until::Done);
                    return Ok(open);
                }
                Next::Stopped(fault) => return Err(fault.clone()),
                Next::Do { op, again } => (op, again),
            };
            self.ground.wait(again).await;
            self.under_way = Some(op.clone());
            let answer = self.answer(&op).await;
            self.under_way = None;
            match answer {
                Some(answer) => self.machine.answer(answer),
                None => self.machine.failed(),
            }
        }
    }

    /// Commits the open group; [`Committer::open`] does it.
    ///
    /// # Panics
    /// When no group is open.
    pub fn commit(&mut self, draft: Draft) {
        self.machine.commit(draft, self.ground.clock.wall());
    }

    /// Gives up the open group; [`Committer::open`] makes another.
    ///
    /// # Panics
    /// When no group is open.
    pub fn give_up(&mut self) {
        self.machine.give_up();
    }

    /// As [`Machine::take_removed`].
    pub fn take_removed(&mut self) -> Vec<Removed> {
        self.machine.take_removed()
    }

    /// The operation at which the last call was dropped.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> Option<&Op> {
        self.under_way.as_ref()
    }

    /// Where all that fails in the partition is told.
    pub(crate) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// What came of an operation; None: nothing, or nothing is known.
    async fn answer(&mut self, op: &Op) -> Option<Answer> {
        let done = self.ground.perform(op).await;
        let error = match done {
            Ok(answer) => {
                if let (Op::Rename { source, .. }, true) = (op, Some(&answer) == lost(op).as_ref())
                {
                    let error = self
                        .ground
                        .unknown(source, "the answer to its rename was lost");
                    self.troubles.note(Trouble::Store(error), Until::Done);
                }
                return Some(answer);
            }
            Err(error) => error,
        };
        let kind = error.kind;
        // A folder that is gone under an attempt was swept, and the machine knows what that means.
        let is_swept = kind == Kind::Missing && matches!(op, Op::Write { .. });
        if !is_swept {
            self.troubles.note(Trouble::Store(error), Until::Done);
        }
        match op {
            Op::Write { .. } if is_swept => Some(Answer::Written(WriteOutcome::FolderMissing)),
            Op::Rename { .. } if kind != Kind::Unknown => None,
            _ => lost(op),
        }
    }
}

/// What an operation comes to of which nothing is known; None: it is done again.
fn lost(op: &Op) -> Option<Answer> {
    match op {
        Op::Rename { .. } => Some(Answer::Renamed(RenameOutcome::Unknown)),
        Op::Write { .. } => Some(Answer::Written(WriteOutcome::Failed)),
        Op::Read(_)
        | Op::MakeFolder(_)
        | Op::Length(_)
        | Op::Confirm(_)
        | Op::Same(..)
        | Op::Delete(_)
        | Op::DeleteEmpty(_) => None,
    }
}

impl Ground {
    /// The wait before attempt number `again`, where the first is 0 and waits for nothing.
    pub(crate) async fn wait(&self, again: u32) {
        if let Some(retry) = again.checked_sub(1) {
            tokio::time::sleep(BACKOFF.delay(retry, self.jitter.draw())).await;
        }
    }

    /// Of something that is known neither to be done nor not.
    fn unknown(&self, path: &StorePath, text: &str) -> StoreError {
        unknown(&*self.store, path, text)
    }

    async fn perform(&self, op: &Op) -> Result<Answer, StoreError> {
        Ok(match op {
            Op::Read(path) => Answer::Read(read_durable(&*self.store, path).await?),
            Op::MakeFolder(path) => {
                self.store.make_folder(path).await?;
                Answer::Made
            }
            Op::Write { path, bytes } => Answer::Written(self.write(path, bytes).await?),
            Op::Rename { source, target } => {
                Answer::Renamed(self.store.rename(source, target).await?)
            }
            Op::Length(path) => Answer::Length(self.store.length(path).await?),
            Op::Confirm(path) => Answer::Length(self.store.confirm(path).await?),
            Op::Same(one, other) => Answer::Same(same(&*self.store, one, other).await?),
            Op::Delete(path) => {
                self.store.delete(path).await?;
                Answer::Deleted
            }
            Op::DeleteEmpty(path) => {
                self.store.delete_empty(path).await?;
                Answer::Deleted
            }
        })
    }

    async fn write(&self, path: &StorePath, bytes: &[u8]) -> Result<WriteOutcome, StoreError> {
        let mut file = self.store.create(path).await?;
        let written = async {
            file.write(bytes.to_vec().into()).await?;
            file.close().await
        };
        let error = match written.await {
            Ok(length) if length == bytes.len() as u64 => return Ok(WriteOutcome::Done),
            Ok(length) => {
                let text = format!("{} bytes were written, and it has {length}", bytes.len());
                self.unknown(path, &text)
            }
            // The folder was there when the file was made. Asking again will tell.
            Err(error) if error.kind == Kind::Missing => {
                self.unknown(path, "it was gone before it was closed")
            }
            Err(error) => error,
        };
        // The next one has another name, so without this they would pile up where space is short. Of what cannot be deleted
        // either the sweeper takes care.
        drop(self.store.delete(path).await);
        Err(error)
    }
}

fn unknown(store: &dyn FileStore, path: &StorePath, text: &str) -> StoreError {
    StoreError {
        kind: Kind::Unknown,
        root: store.root().to_owned(),
        path: Some(path.clone()),
        text: text.to_owned(),
    }
}

/// Reads a document that was made durable first; None: nothing is there. At most one byte more than any document has.
pub(crate) async fn read_durable(
    store: &dyn FileStore,
    path: &StorePath,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(length) = store.confirm(path).await? else {
        return Ok(None);
    };
    let most = BYTES_MAX + 1;
    let wanted = usize::try_from(length).unwrap_or(most).min(most);
    match store.read(path, 0, wanted).await? {
        Some(bytes) if bytes.len() == wanted => Ok(Some(bytes.to_vec())),
        // Documents neither change nor go.
        Some(_) | None => Err(unknown(store, path, "it has changed while it was read")),
    }
}

/// Whether two files have the same bytes; None: one is not there.
async fn same(
    store: &dyn FileStore,
    one: &StorePath,
    other: &StorePath,
) -> Result<Option<bool>, StoreError> {
    let (Some(length), Some(other_length)) = (store.length(one).await?, store.length(other).await?)
    else {
        return Ok(None);
    };
    if length != other_length {
        return Ok(Some(false));
    }
    let mut at = 0;
    while at < length {
        let (Some(bytes), Some(other_bytes)) = (
            store.read(one, at, COMPARED_BYTES).await?,
            store.read(other, at, COMPARED_BYTES).await?,
        ) else {
            return Ok(None);
        };
        let common = bytes.len().min(other_bytes.len());
        if bytes[..common] != other_bytes[..common] {
            return Ok(Some(false));
        }
        if common == 0 {
            return Err(unknown(store, one, "it is shorter than its length"));
        }
        at += common as u64;
    }
    Ok(Some(true))
}
