//! The dump of one partition, as a task calls it.
//!
//! ```text
//!  take_over ─► position                 read the source from here
//!      │
//!      ▼                    ┌── append, left_out ◄── records, and offsets without one
//!   a group is open ────────┤
//!      ▲                    └── is it due? ─► close_and_commit ─► checkpoint: keep it
//!      └──────────────────────────────────────────────┘   or: read again from there
//! ```
//! A group is the records since the last commit, a file for each bucket that they fall into. `model::dump` decides where each goes,
//! when a group is closed, and what is true of a position; this holds the files and says what came of it.
//!
//! # What can happen to a group
//! - It is committed, and reading goes on.
//! - Another owner has committed at its position: what was read is forgotten, and read again from where that one ended.
//! - A file of it cannot be written, or does not read back: it is given up, after a wait that grows, and read again.
//! - A call was dropped halfway: the next one gives it up.
//!
//! # Memory
//! [`PartitionDump::held`] tells the bytes of all its open files: rows that are not encoded, at most 1 MiB a file or one
//! record; row groups under way; bytes that the store has not taken. [`PartitionDump::relieve`] frees most of it and leaves
//! the group open, closing the group frees all.

mod file;
mod outcome;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use kreplicator_model::{
    dump::{
        bucket::Bucket,
        commit::{Checkpoint, Draft, Open, Removed},
        ledger::{Ledger, Reason},
        manifest::{DataFile, Source},
        names::{AttemptNames, DataName},
        path::PathError,
        roll::{Group, Roll},
    },
    ids::{Offset, UnixMillis},
};

pub use self::{
    outcome::{Appended, Closed, Error, Then},
    settings::Settings,
};

use self::{
    file::{ClosedFile, OpenFile, Workshop},
    settings::RENEWED_AFTER,
};
use crate::{
    commit::{Committer, Ground},
    encoders::Encoders,
    held::Held,
    record::{RECORD_BYTES_MAX, Record},
    trouble::{Trouble, Until},
};

/// Files of a group that are closed at a time.
const CLOSED_AT_ONCE: usize = 8;
/// Least share of the age that is set for a group.
const AGE_SHARE_MIN: f64 = 0.8;

/// The dump of one partition by one owner.
#[derive(Debug)]
pub struct PartitionDump {
    shop: Workshop,
    committer: Committer,
    settings: Settings,
    open: Open,
    /// By our clock, when the attempt was there.
    opened_at: Duration,
    group: Group,
    /// In the order of their names in the attempt's folder.
    files: Vec<OpenFile>,
    /// Which of them is whose.
    buckets: BTreeMap<Bucket, usize>,
    ledger: Ledger,
    /// The next offset.
    next: Offset,
    /// Groups given up in a row.
    given_up: u32,
    /// Late records of committed groups before those that `group` tells of.
    late_records: u64,
    /// What `group` had told of them when it was last committed.
    late_committed: u64,
    /// A call is under way, or was dropped.
    is_torn: bool,
}

impl PartitionDump {
    /// Takes over a partition: finishes what was committed and opens a group. Waits for as long as the store is away. The
    /// last four arguments are those of [`Machine::take_over`](kreplicator_model::dump::commit::Machine::take_over); what was
    /// read before is forgotten, reading begins at [`PartitionDump::position`].
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::Setting`], [`Error::Directory`].
    pub async fn take_over(
        ground: Ground,
        encoders: Encoders,
        settings: Settings,
        source: Source,
        names: AttemptNames,
        checkpoint: Option<Checkpoint>,
        start: Offset,
    ) -> Result<Self, Error> {
        if let Some(fault) = settings.fault() {
            return Err(Error::Setting(fault));
        }
        Self::open(ground, encoders, settings, source, names, checkpoint, start).await
    }

    /// With whatever settings; tests have smaller ones than are legal.
    async fn open(
        ground: Ground,
        encoders: Encoders,
        settings: Settings,
        source: Source,
        names: AttemptNames,
        checkpoint: Option<Checkpoint>,
        start: Offset,
    ) -> Result<Self, Error> {
        // All others are as long as one of these.
        let pattern = &settings.pattern;
        pattern.directory(&source.topic, Bucket::Undated)?;
        pattern.directory(&source.topic, pattern.unit().bucket(UnixMillis(0)))?;
        let shared = Arc::new(source.clone());
        let mut committer = Committer::new(ground.clone(), source, names, checkpoint, start);
        let shop = Workshop {
            ground,
            encoders,
            settings: settings.files.clone(),
            source: shared,
            held: Held::default(),
            troubles: committer.troubles().clone(),
        };
        let open = committer.open().await?;
        Ok(Self {
            opened_at: shop.ground.clock.mono(),
            group: group(&shop.ground, &settings, open.watermark),
            next: open.checkpoint.position,
            shop,
            committer,
            settings,
            open,
            files: Vec::new(),
            buckets: BTreeMap::new(),
            ledger: Ledger::default(),
            given_up: 0,
            late_records: 0,
            late_committed: 0,
            is_torn: false,
        })
    }

    /// True now, so it may be kept.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        self.open.checkpoint
    }

    /// The next offset to be given.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.next
    }

    /// Highest timestamp of what is committed that counts for lateness.
    #[must_use]
    pub fn watermark(&self) -> Option<UnixMillis> {
        self.open.watermark
    }

    /// Records so far that came after their bucket was over: of groups that were committed, and of the open one, whose
    /// are forgotten when it is given up.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.late_records + self.group.late_records()
    }

    /// Files that had their final names and are gone since; told once.
    pub fn take_removed(&mut self) -> Vec<Removed> {
        self.committer.take_removed()
    }

    /// Bytes of memory of its open files; can be kept, and read while a call is under way.
    #[must_use]
    pub fn held(&self) -> &Held {
        &self.shop.held
    }

    /// Whether nothing is in the group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group.is_empty()
    }

    /// Whether the group is to be closed now.
    #[must_use]
    pub fn due(&self) -> Option<Roll> {
        self.group.due(self.shop.ground.clock.mono())
    }

    /// After how long the group is old enough, if nothing else comes; None while it is empty.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        let at = self.group.due_at()?;
        Some(at.saturating_sub(self.shop.ground.clock.mono()))
    }

    /// Takes records in, in the order of their offsets, beginning at the [position](PartitionDump::position) and without a hole:
    /// what is between goes to [`PartitionDump::left_out`]. Waits for encoders and the store, so that no more is
    /// held than a row group and some rows for each file.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::LastOffset`], [`Error::Stopped`].
    pub async fn append(&mut self, records: &[Record<'_>]) -> Result<Appended, Error> {
        if let Some(position) = self.mend().await? {
            return Ok(Appended::reread(position));
        }
        let mut expected = self.next;
        for record in records {
            let found = record.offset;
            if found != expected {
                return Err(Error::OutOfOrder { expected, found });
            }
            expected = after(found)?;
        }
        if let Err(trouble) = self.settle_ready().await {
            let position = self.lose(trouble).await?;
            return Ok(Appended::reread(position));
        }
        if self.group.is_empty() && !records.is_empty() {
            self.renew().await?;
        }
        let mut taken = 0;
        for record in records {
            let bytes = record.weight();
            if bytes > RECORD_BYTES_MAX {
                let then = Then::TooLarge { bytes };
                return Ok(Appended { taken, then });
            }
            let bucket = self.settings.pattern.unit().bucket(record.timestamp);
            if let Some(roll) = self.group.before(bucket) {
                let then = Then::Close(roll);
                return Ok(Appended { taken, then });
            }
            if let Err(trouble) = self.take(bucket, record).await {
                let position = self.lose(trouble).await?;
                return Ok(Appended::reread(position));
            }
            taken += 1;
            if let Some(roll) = self.due() {
                let then = Then::Close(roll);
                return Ok(Appended { taken, then });
            }
        }
        let then = Then::More;
        Ok(Appended { taken, then })
    }

    /// Takes in that the offsets `[from, to)` hold nothing to dump.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] where `from` is not the position or the range is empty, [`Error::Stopped`].
    pub async fn left_out(&mut self, from: Offset, to: Offset, why: Reason) -> Result<Then, Error> {
        if let Some(position) = self.mend().await? {
            return Ok(Then::Reread(position));
        }
        if from != self.next || to <= from {
            return Err(Error::OutOfOrder {
                expected: self.next,
                found: if from == self.next { to } else { from },
            });
        }
        if self.group.is_empty() {
            self.renew().await?;
        }
        self.ledger.add(why, from, to);
        self.group.left_out(self.shop.ground.clock.mono());
        self.next = to;
        Ok(self.due().map_or(Then::More, Then::Close))
    }

    /// Writes what encoders have finished meanwhile. [`PartitionDump::append`] does it too; to be called now and then where no
    /// records come, or a finished row group is held until the group is closed.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn hand_on(&mut self) -> Result<Then, Error> {
        if let Some(position) = self.mend().await? {
            return Ok(Then::Reread(position));
        }
        match self.settle_ready().await {
            Ok(()) => Ok(Then::More),
            Err(trouble) => Ok(Then::Reread(self.lose(trouble).await?)),
        }
    }

    async fn settle_ready(&mut self) -> Result<(), Trouble> {
        if !self.files.iter().any(OpenFile::is_ready) {
            return Ok(());
        }
        self.is_torn = true;
        for file in &mut self.files {
            if file.is_ready() {
                file.settle(&self.shop).await?;
            }
        }
        self.is_torn = false;
        Ok(())
    }

    /// Frees memory under pressure, and leaves the group open: what is held of each file is encoded, ended as a row group, and
    /// written. Many small row groups make files that are slow to read, so a process asks this of whoever holds most;
    /// where little is held, [`PartitionDump::close_and_commit`] is what is left.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn relieve(&mut self) -> Result<Then, Error> {
        if let Some(position) = self.mend().await? {
            return Ok(Then::Reread(position));
        }
        self.is_torn = true;
        let shop = &self.shop;
        let least = self.settings.relieved_bytes_min;
        let worth = |file: &&mut OpenFile| file.held() >= least;
        let relieved = async {
            let mut files: Vec<&mut OpenFile> = self.files.iter_mut().filter(worth).collect();
            for file in &mut files {
                file.end_row_group(shop).await?;
            }
            for file in files {
                file.settle(shop).await?;
            }
            Ok::<(), Trouble>(())
        };
        if let Err(trouble) = relieved.await {
            return Ok(Then::Reread(self.lose(trouble).await?));
        }
        self.is_torn = false;
        Ok(Then::More)
    }

    /// Closes and verifies the files, commits the group, and opens the next. Of no effect while the group is empty. Waits for as
    /// long as the store is away.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::Directory`].
    pub async fn close_and_commit(&mut self) -> Result<Closed, Error> {
        if self.mend().await?.is_some() {
            return Ok(self.closed(true));
        }
        if self.group.is_empty() {
            return Ok(self.closed(false));
        }
        self.is_torn = true;
        let shop = &self.shop;
        let files = std::mem::take(&mut self.files);
        let closing = stream::iter(files.into_iter().map(|file| file.close(shop)));
        let closed: Result<Vec<ClosedFile>, Trouble> =
            closing.buffered(CLOSED_AT_ONCE).try_collect().await;
        let closed = match closed {
            Ok(closed) => closed,
            Err(trouble) => {
                self.lose(trouble).await?;
                return Ok(self.closed(true));
            }
        };
        let files = closed.into_iter().map(|file| self.data_file(file));
        let draft = Draft {
            to: self.next,
            files: files.collect::<Result<_, PathError>>()?,
            left_out: self.ledger.entries().to_vec(),
            watermark: self.group.watermark(),
        };
        self.committer.commit(draft);
        let open = self.committer.open().await?;
        self.given_up = 0;
        self.shop.troubles.over(Until::Committed);
        let reread = open.reread;
        if !reread {
            assert_eq!(
                open.checkpoint.position, self.next,
                "a group of ours ends elsewhere than it was to"
            );
        }
        self.begin(open, reread);
        Ok(self.closed(reread))
    }

    fn closed(&mut self, reread: bool) -> Closed {
        Closed {
            checkpoint: self.open.checkpoint,
            reread,
            removed: self.committer.take_removed(),
        }
    }

    fn data_file(&self, file: ClosedFile) -> Result<DataFile, PathError> {
        let source = &self.shop.source;
        let facts = file.facts;
        let name = DataName::new(&source.topic, source.partition, facts.first, facts.last);
        let directory = self
            .settings
            .pattern
            .directory(&source.topic, file.bucket)?;
        Ok(DataFile {
            path: directory.join(name.to_string())?,
            bucket: file.bucket,
            records: facts.records,
            first: facts.first,
            last: facts.last,
            bytes: file.bytes,
            timestamps: facts.timestamps,
            digest: facts.digest,
        })
    }

    /// Takes one record into its file.
    async fn take(&mut self, bucket: Bucket, record: &Record<'_>) -> Result<(), Trouble> {
        let index = match self.buckets.get(&bucket) {
            Some(index) => {
                let file = &mut self.files[*index];
                if file.is_full_for(&self.shop, record) {
                    self.is_torn = true;
                    file.encode(&self.shop).await?;
                    self.is_torn = false;
                }
                file.push(record);
                *index
            }
            None => {
                let index = self.files.len();
                let (from, attempt) = (self.open.checkpoint.position, &self.open.attempt);
                let path = self.committer.books().attempt_file(from, attempt, index);
                let file = OpenFile::new(bucket, path, &self.shop, record);
                self.files.push(file);
                self.buckets.insert(bucket, index);
                index
            }
        };
        let clock = &self.shop.ground.clock;
        let (wall, mono) = (clock.wall(), clock.mono());
        self.group.record(bucket, record.timestamp, wall, mono);
        self.group.measured(bucket, self.files[index].bytes());
        self.next = Offset(record.offset.0 + 1);
        Ok(())
    }

    /// Where nothing was written for long, the attempt is made anew before it is used.
    async fn renew(&mut self) -> Result<(), Error> {
        let age = self.shop.ground.clock.mono().saturating_sub(self.opened_at);
        if age < RENEWED_AFTER {
            return Ok(());
        }
        self.is_torn = true;
        self.committer.give_up();
        let open = self.committer.open().await?;
        self.begin(open, true);
        Ok(())
    }

    /// Gives the group up because of a file. Gives where to read again.
    async fn lose(&mut self, trouble: Trouble) -> Result<Offset, Error> {
        self.is_torn = true;
        self.files.clear();
        self.shop.troubles.note(trouble, Until::Committed);
        self.given_up = self.given_up.saturating_add(1);
        self.shop.ground.wait(self.given_up).await;
        self.recover().await
    }

    /// If the last call was dropped halfway: gives the group up, and where to read again.
    async fn mend(&mut self) -> Result<Option<Offset>, Error> {
        if !self.is_torn {
            return Ok(None);
        }
        self.recover().await.map(Some)
    }

    /// Opens a new group, whatever the state; nothing of the old one is kept that was not committed.
    async fn recover(&mut self) -> Result<Offset, Error> {
        self.files.clear();
        let mut open = self.committer.open().await?;
        if open.attempt == self.open.attempt {
            self.committer.give_up();
            open = self.committer.open().await?;
        }
        self.begin(open, true);
        Ok(self.next)
    }

    /// A group is open, and empty. `is_anew`: what was seen of timestamps is forgotten too, since it is read again.
    fn begin(&mut self, open: Open, is_anew: bool) {
        if is_anew {
            self.late_records += std::mem::take(&mut self.late_committed);
            self.group = group(&self.shop.ground, &self.settings, open.watermark);
        } else {
            self.late_committed = self.group.late_records();
            self.group.closed();
        }
        self.files.clear();
        self.buckets.clear();
        self.ledger = Ledger::default();
        self.next = open.checkpoint.position;
        self.opened_at = self.shop.ground.clock.mono();
        self.open = open;
        self.is_torn = false;
    }
}

/// An empty group. Its age is up to a fifth less than set, since owners begin together, and would commit together ever after.
fn group(ground: &Ground, settings: &Settings, watermark: Option<UnixMillis>) -> Group {
    let mut limits = settings.limits.clone();
    let share = AGE_SHARE_MIN + (1.0 - AGE_SHARE_MIN) * ground.jitter.draw();
    limits.age_max = limits.age_max.mul_f64(share.clamp(AGE_SHARE_MIN, 1.0));
    Group::new(limits, settings.pattern.unit(), watermark)
}

/// The offset after this one.
fn after(offset: Offset) -> Result<Offset, Error> {
    let next = offset.0.checked_add(1);
    next.map(Offset).ok_or(Error::LastOffset)
}
