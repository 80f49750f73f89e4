//! Deletes what attempts have left behind.
//!
//! `model::dump::sweep` says what may go; this lists the attempts of a partition and does it. Anybody may sweep at any time, also
//! several at once: what is deleted can never be committed. A sweep that fails halfway is begun anew later.

use kreplicator_model::{
    dump::{
        commit::Fault,
        manifest::{Manifest, Source},
        names::{AttemptName, Books},
        path::StorePath,
        sweep::{Verdict, judge},
    },
    ids::Offset,
};

use crate::{
    commit,
    store::{Entry, FileStore, StoreError},
};

/// Entries that are asked for at a time.
const LISTED_MAX: usize = 1_000;
/// Attempts from which on a sweep ends with the offset that it is at; what is left waits for the next.
const ATTEMPTS_MAX: u64 = 10_000;

/// What a sweep has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Attempts that may be alive, or cannot be judged.
    pub kept: u64,
    /// Attempts deleted since another was committed in their place.
    pub overtaken: u64,
    /// Committed attempts, whose folders are gone if they were empty.
    pub committed: u64,
    /// Attempts deleted since nobody would commit them any more.
    pub abandoned: u64,
    /// Names that are none of ours; left alone.
    pub unknown: u64,
    /// There may be more: the next sweep begins after this name. None: the end was reached.
    pub after: Option<String>,
    /// Manifests that cannot be read, by which nothing was judged.
    pub faults: Vec<Fault>,
}

/// Sweeps the attempts of one partition, from its first or [`Swept::after`] on.
///
/// # Errors
/// The store failed; what was deleted until then was right to go.
pub async fn sweep(
    store: &dyn FileStore,
    source: &Source,
    after: Option<String>,
) -> Result<Swept, StoreError> {
    sweep_some(store, source, after, ATTEMPTS_MAX).await
}

async fn sweep_some(
    store: &dyn FileStore,
    source: &Source,
    mut after: Option<String>,
    attempts_max: u64,
) -> Result<Swept, StoreError> {
    let books = Books::of(&source.topic, source.partition);
    let mut sweep = Sweep {
        store,
        source,
        books: &books,
        swept: Swept::default(),
        looked: 0,
    };
    let attempts = books.attempts();
    loop {
        let found = store
            .list(Some(&attempts), after.as_deref(), LISTED_MAX)
            .await?;
        let Some(last) = found.last() else { break };
        after = Some(last.path.name().to_owned());
        let is_last = found.len() < LISTED_MAX;
        for entry in found {
            let name = entry.path.name().to_owned();
            match Books::attempts_offset(entry.path.name()) {
                Some(from) if entry.length.is_none() => sweep.offset(&entry.path, from).await?,
                _ => sweep.swept.unknown += 1,
            }
            if sweep.looked >= attempts_max {
                sweep.swept.after = Some(name);
                return Ok(sweep.swept);
            }
        }
        if is_last {
            break;
        }
    }
    Ok(sweep.swept)
}

struct Sweep<'a> {
    store: &'a dyn FileStore,
    source: &'a Source,
    books: &'a Books,
    swept: Swept,
    looked: u64,
}

impl Sweep<'_> {
    /// The attempts at one offset.
    async fn offset(&mut self, folder: &StorePath, from: Offset) -> Result<(), StoreError> {
        // One that is committed later is met again: without a manifest nothing is deleted that was not asked for anew.
        let committed = self.committed(from).await?;
        let mut after: Option<String> = None;
        loop {
            let found = self
                .store
                .list(Some(folder), after.as_deref(), LISTED_MAX)
                .await?;
            let Some(last) = found.last() else { break };
            after = Some(last.path.name().to_owned());
            let is_last = found.len() < LISTED_MAX;
            for entry in found {
                let name = AttemptName::parse(entry.path.name());
                match name.filter(|_| entry.length.is_none()) {
                    Some(name) => self.attempt(&entry, from, &name, &committed).await?,
                    None => self.swept.unknown += 1,
                }
                self.looked += 1;
            }
            if is_last {
                break;
            }
        }
        self.store.delete_empty(folder).await
    }

    async fn attempt(
        &mut self,
        entry: &Entry,
        from: Offset,
        name: &AttemptName,
        committed: &Result<Option<AttemptName>, Fault>,
    ) -> Result<(), StoreError> {
        let folder = &entry.path;
        let committed = match committed {
            Ok(committed) => committed,
            Err(fault) => {
                if !self.swept.faults.contains(fault) {
                    self.swept.faults.push(fault.clone());
                }
                self.swept.kept += 1;
                return Ok(());
            }
        };
        let files = self.files(folder).await?;
        let ages = files.iter().map(|file| file.age).chain([entry.age]);
        let age = ages.min().unwrap_or_default();
        match judge(name, committed.as_ref(), age) {
            Verdict::Keep => self.swept.kept += 1,
            Verdict::Overtaken => {
                self.store.delete(folder).await?;
                self.swept.overtaken += 1;
            }
            // Documents of writes that had failed; their rename is refused for ever.
            Verdict::Committed => {
                self.delete_documents(&files).await?;
                self.store.delete_empty(folder).await?;
                self.swept.committed += 1;
            }
            Verdict::Abandoned => self.abandoned(folder, from, name, &files).await?,
        }
        Ok(())
    }

    /// Without its documents it cannot be committed; if it was until then, it stays.
    async fn abandoned(
        &mut self,
        folder: &StorePath,
        from: Offset,
        name: &AttemptName,
        files: &[Entry],
    ) -> Result<(), StoreError> {
        self.delete_documents(files).await?;
        match self.committed(from).await? {
            Ok(committed) if committed.as_ref() != Some(name) => {
                self.store.delete(folder).await?;
                self.swept.abandoned += 1;
            }
            Ok(_) | Err(_) => self.swept.kept += 1,
        }
        Ok(())
    }

    async fn delete_documents(&self, files: &[Entry]) -> Result<(), StoreError> {
        for file in files {
            if file.path.name().ends_with(".json") {
                self.store.delete(&file.path).await?;
            }
        }
        Ok(())
    }

    /// All that lies in an attempt's folder.
    async fn files(&self, folder: &StorePath) -> Result<Vec<Entry>, StoreError> {
        let mut files: Vec<Entry> = Vec::new();
        loop {
            let after = files.last().map(|file| file.path.name().to_owned());
            let found = self
                .store
                .list(Some(folder), after.as_deref(), LISTED_MAX)
                .await?;
            let is_last = found.len() < LISTED_MAX;
            files.extend(found);
            if is_last {
                return Ok(files);
            }
        }
    }

    /// The attempt that the manifest at an offset names, made durable; a manifest that is not of this dump is a fault.
    async fn committed(
        &self,
        from: Offset,
    ) -> Result<Result<Option<AttemptName>, Fault>, StoreError> {
        let path = self.books.manifest(from);
        let Some(bytes) = commit::read_durable(self.store, &path).await? else {
            return Ok(Ok(None));
        };
        let manifest = match Manifest::from_json(&bytes) {
            Ok(manifest) => manifest,
            Err(fault) => return Ok(Err(Fault::Document { path, fault })),
        };
        if let Some(difference) = self.source.difference(&manifest.source) {
            return Ok(Err(Fault::Foreign { path, difference }));
        }
        if manifest.from != from {
            let from = manifest.from;
            return Ok(Err(Fault::Misplaced { path, from }));
        }
        Ok(Ok(Some(manifest.attempt)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kreplicator_model::{
        dump::{
            ledger::{LeftOut, Reason},
            sweep::ABANDONED_AFTER,
        },
        ids::{ClusterId, Partition, UnixMillis},
    };

    use super::*;
    use crate::{
        store::Kind,
        testkit::{Faults, MemoryStore, source},
    };

    fn books() -> Books {
        Books::of(&source().topic, Partition(0))
    }

    fn name(count: u32) -> AttemptName {
        AttemptName::parse(&format!("w+1+1+{count}")).expect("legal")
    }

    /// An attempt with a data file and a document.
    fn attempt(store: &MemoryStore, from: i64, count: u32) {
        let (books, name) = (books(), name(count));
        store.put(&books.attempt_file(Offset(from), &name, 0), "data");
        store.put(&books.attempt_document(Offset(from), &name, 0), "{}");
    }

    fn commit(store: &MemoryStore, from: i64, count: u32, source: Source) {
        let (from, to) = (Offset(from), Offset(from + 10));
        let manifest = Manifest {
            source,
            attempt: name(count),
            from,
            to,
            previous: None,
            watermark: None,
            written_at: UnixMillis(0),
            files: Vec::new(),
            left_out: vec![LeftOut {
                why: Reason::Hole,
                from,
                to,
                count: 10,
            }],
        };
        store.put(
            &books().manifest(from),
            manifest.to_json().expect("it adds up"),
        );
    }

    fn left(store: &MemoryStore) -> Vec<String> {
        let files = store.files(books().attempts().as_str());
        files.into_iter().map(|(path, _)| path).collect()
    }

    #[tokio::test]
    async fn c087_what_was_overtaken_goes_and_what_may_be_alive_stays() {
        let store = MemoryStore::new(1);
        attempt(&store, 0, 1);
        attempt(&store, 0, 2);
        commit(&store, 0, 2, source());
        attempt(&store, 10, 3);
        store.put(
            &books().attempts().join("notes.txt").expect("legal"),
            "mine",
        );
        let swept = sweep(&store, &source(), None).await.expect("swept");
        let expected = Swept {
            kept: 1,
            overtaken: 1,
            committed: 1,
            unknown: 1,
            ..Swept::default()
        };
        assert_eq!(swept, expected);
        let left = left(&store);
        // Of the committed one the data, which may be about to get its final name.
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(
            !left.iter().any(|path| path.contains("w+1+1+1")),
            "{left:?}"
        );
    }

    #[tokio::test]
    async fn abandoned_ones_go_after_seven_days_and_no_folder_stays() {
        let store = MemoryStore::new(1);
        attempt(&store, 10, 3);
        store.pass(ABANDONED_AFTER - Duration::from_secs(1));
        assert_eq!(sweep(&store, &source(), None).await.expect("swept").kept, 1);
        store.pass(Duration::from_secs(1));
        let swept = sweep(&store, &source(), None).await.expect("swept");
        assert_eq!((swept.abandoned, swept.kept), (1, 0));
        assert_eq!(left(&store), Vec::<String>::new());
        assert_eq!(
            store.list(Some(&books().attempts()), None, 10).await,
            Ok(Vec::new())
        );
    }

    #[tokio::test]
    async fn one_young_file_keeps_an_old_attempt() {
        let store = MemoryStore::new(1);
        attempt(&store, 10, 3);
        store.pass(2 * ABANDONED_AFTER);
        store.put(&books().attempt_file(Offset(10), &name(3), 1), "more");
        assert_eq!(sweep(&store, &source(), None).await.expect("swept").kept, 1);
    }

    #[tokio::test]
    async fn by_a_manifest_of_another_dump_nothing_is_judged() {
        let store = MemoryStore::new(1);
        attempt(&store, 0, 1);
        let other = Source {
            cluster: ClusterId::new("dc2").expect("legal"),
            ..source()
        };
        commit(&store, 0, 2, other);
        store.put(&books().manifest(Offset(10)), "torn");
        attempt(&store, 10, 1);
        store.pass(2 * ABANDONED_AFTER);
        let swept = sweep(&store, &source(), None).await.expect("swept");
        assert_eq!((swept.kept, swept.faults.len()), (2, 2));
        assert_eq!(left(&store).len(), 4);
    }

    #[tokio::test]
    async fn a_store_that_fails_ends_the_sweep_with_its_error() {
        let store = MemoryStore::new(1);
        attempt(&store, 0, 1);
        store.set_faults(Faults {
            unreachable: 1_000,
            ..Faults::default()
        });
        let error = sweep(&store, &source(), None).await.expect_err("it fails");
        assert_eq!(error.kind, Kind::Unreachable);
    }

    #[tokio::test]
    async fn a_sweep_that_is_cut_goes_on_where_it_ended() {
        let store = MemoryStore::new(1);
        for from in 0..5 {
            attempt(&store, from, 1);
        }
        let (mut kept, mut sweeps, mut after) = (0, 0, None);
        loop {
            let swept = sweep_some(&store, &source(), after, 2).await;
            let swept = swept.expect("swept");
            assert!(swept.kept <= 2, "{swept:?}");
            (kept, sweeps) = (kept + swept.kept, sweeps + 1);
            after = swept.after;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((kept, sweeps), (5, 3));
    }

    #[tokio::test]
    async fn who_has_committed_is_asked_once_for_each_offset() {
        let store = MemoryStore::new(1);
        for count in 1..=9 {
            attempt(&store, 0, count);
        }
        commit(&store, 0, 9, source());
        let swept = sweep(&store, &source(), None).await.expect("swept");
        assert_eq!((swept.overtaken, swept.committed), (8, 1));
        assert_eq!(store.calls("confirm"), 1);
    }
}
