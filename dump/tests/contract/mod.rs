//! What every store of files must do: one suite, run against each.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kreplicator_dump::store::{FileStore, Kind};
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

/// A store under test.
pub(crate) trait Fixture {
    /// It, with an empty root of its own, and ready.
    fn store(&self) -> Arc<dyn FileStore>;
}

/// Runs the suite, each rule on the fixture that the expression makes; None: it cannot be made here, and has said so.
macro_rules! contract_tests {
    ($attribute:meta, $fixture:expr, $($name:ident),* $(,)?) => {
        $(
            #[$attribute]
            async fn $name() {
                if let Some(fixture) = $fixture.await {
                    contract::$name(&fixture).await;
                }
            }
        )*
    };
    ($attribute:meta, $fixture:expr) => {
        contract_tests!(
            $attribute,
            $fixture,
            being_ready_leaves_nothing_behind,
            a_file_holds_what_was_written_and_tells_its_length,
            a_large_file_reads_back_equal,
            an_empty_file_is_a_file,
            nothing_is_created_over_what_is_there,
            a_file_is_created_only_in_a_folder_that_is_there,
            a_folder_is_made_with_those_above_it_and_again,
            a_rename_makes_the_folders_above_its_target,
            c081_a_rename_over_something_is_refused_and_harms_neither,
            c081_a_rename_without_a_source_says_so,
            c081_a_file_above_the_target_is_told,
            of_many_renames_to_one_name_one_wins,
            one_file_is_renamed_once,
            a_confirmed_file_tells_its_length_and_keeps_its_age,
            a_read_ends_with_the_file,
            a_folder_is_deleted_with_everything_in_it,
            only_an_empty_folder_is_deleted_as_one,
            a_listing_is_in_order_and_comes_in_pages,
            names_may_hold_whatever_a_path_may,
            a_file_that_is_dropped_open_is_in_nobodys_way,
        );
    };
}
pub(crate) use contract_tests;

pub(crate) fn path(path: &str) -> StorePath {
    StorePath::new(path).expect("a legal path")
}

pub(crate) async fn write(store: &dyn FileStore, to: &str, content: &[u8]) {
    let to = path(to);
    if let Some(folder) = to.parent() {
        store.make_folder(&folder).await.expect("made");
    }
    let mut file = store.create(&to).await.expect("created");
    file.write(Bytes::copy_from_slice(content))
        .await
        .expect("written");
    let length = file.close().await.expect("closed");
    assert_eq!(usize::try_from(length), Ok(content.len()));
}

pub(crate) async fn content(store: &dyn FileStore, at: &str) -> Option<Bytes> {
    store
        .read(&path(at), 0, 64 << 20)
        .await
        .expect("the store is up")
}

async fn rename(store: &dyn FileStore, source: &str, target: &str) -> RenameOutcome {
    let (source, target) = (path(source), path(target));
    let outcome = store.rename(&source, &target).await;
    outcome.expect("an outcome")
}

async fn names(store: &dyn FileStore, folder: Option<&str>) -> Vec<String> {
    let folder = folder.map(path);
    let entries = store.list(folder.as_ref(), None, 1_000).await;
    let entries = entries.expect("the store is up");
    entries
        .iter()
        .map(|entry| entry.path.name().to_owned())
        .collect()
}

pub(crate) async fn being_ready_leaves_nothing_behind(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "a", b"1").await;
    for _ in 0..2 {
        store.ready().await.expect("ready");
        assert_eq!(names(&*store, None).await, ["a"]);
    }
}

pub(crate) async fn a_file_holds_what_was_written_and_tells_its_length(fixture: &impl Fixture) {
    let store = fixture.store();
    store.make_folder(&path("a")).await.expect("made");
    let file = path("a/file");
    let mut writer = store.create(&file).await.expect("created");
    for piece in ["one ", "", "two ", "three"] {
        writer.write(piece.into()).await.expect("written");
    }
    assert_eq!(writer.close().await.expect("closed"), 13);
    assert_eq!(store.length(&file).await, Ok(Some(13)));
    let text = content(&*store, "a/file").await.expect("is there");
    assert_eq!(&text[..], b"one two three");
    for nothing in ["a", "b", "a/none", "a/file/none", "b/c/d"] {
        assert_eq!(store.length(&path(nothing)).await, Ok(None), "{nothing}");
        assert_eq!(content(&*store, nothing).await, None, "{nothing}");
    }
}

pub(crate) async fn a_large_file_reads_back_equal(fixture: &impl Fixture) {
    let store = fixture.store();
    let pieces: Vec<Bytes> = (0..9_u8)
        .map(|n| (0..700_001_u32).map(|i| n ^ i.to_le_bytes()[0]).collect())
        .collect();
    let file = path("large");
    let mut writer = store.create(&file).await.expect("created");
    for piece in &pieces {
        writer.write(piece.clone()).await.expect("written");
    }
    let whole = pieces.concat();
    let length = writer.close().await.expect("closed");
    assert_eq!(usize::try_from(length), Ok(whole.len()));
    assert!(content(&*store, "large").await.expect("is there") == whole);
    let middle = store.read(&file, 2_000_000, 1_500_000).await;
    let middle = middle.expect("up").expect("is there");
    assert!(middle == whole[2_000_000..3_500_000]);
}

pub(crate) async fn an_empty_file_is_a_file(fixture: &impl Fixture) {
    let store = fixture.store();
    let writer = store.create(&path("empty")).await.expect("created");
    assert_eq!(writer.close().await, Ok(0));
    assert_eq!(store.length(&path("empty")).await, Ok(Some(0)));
    assert_eq!(content(&*store, "empty").await, Some(Bytes::new()));
    assert_eq!(rename(&*store, "empty", "moved").await, RenameOutcome::Done);
}

pub(crate) async fn nothing_is_created_over_what_is_there(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "a/file", b"first").await;
    for taken in ["a/file", "a"] {
        let refused = store.create(&path(taken)).await.expect_err("refused");
        assert_eq!(refused.kind, Kind::Taken, "{refused}");
        assert_eq!(refused.path, Some(path(taken)));
    }
    let first = content(&*store, "a/file").await;
    assert_eq!(first.as_deref(), Some(&b"first"[..]));
}

pub(crate) async fn a_file_is_created_only_in_a_folder_that_is_there(fixture: &impl Fixture) {
    let store = fixture.store();
    let refused = store.create(&path("none/file")).await.expect_err("refused");
    assert_eq!(refused.kind, Kind::Missing, "{refused}");
    assert!(names(&*store, None).await.is_empty(), "and makes none");
    write(&*store, "file", b"").await;
    let refused = store.create(&path("file/file")).await.expect_err("refused");
    assert_eq!(refused.kind, Kind::Taken, "{refused}");
}

pub(crate) async fn a_folder_is_made_with_those_above_it_and_again(fixture: &impl Fixture) {
    let store = fixture.store();
    for _ in 0..2 {
        store.make_folder(&path("a/b/c")).await.expect("made");
    }
    assert_eq!(names(&*store, Some("a/b")).await, ["c"]);
    write(&*store, "a/file", b"").await;
    for blocked in ["a/file", "a/file/b", "a/file/b/c"] {
        let refused = store.make_folder(&path(blocked)).await.expect_err(blocked);
        assert_eq!(refused.kind, Kind::Taken, "{refused}");
    }
}

pub(crate) async fn a_rename_makes_the_folders_above_its_target(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "a/file", b"1").await;
    let outcome = rename(&*store, "a/file", "b/c/d/file").await;
    assert_eq!(outcome, RenameOutcome::Done);
    assert_eq!(content(&*store, "a/file").await, None);
    let moved = content(&*store, "b/c/d/file").await;
    assert_eq!(moved.as_deref(), Some(&b"1"[..]));
    // Into a folder that is there, and to the top.
    write(&*store, "a/other", b"2").await;
    assert_eq!(
        rename(&*store, "a/other", "b/c/d/other").await,
        RenameOutcome::Done
    );
    assert_eq!(
        rename(&*store, "b/c/d/other", "top").await,
        RenameOutcome::Done
    );
    assert_eq!(names(&*store, None).await, ["a", "b", "top"]);
}

pub(crate) async fn c081_a_rename_over_something_is_refused_and_harms_neither(
    fixture: &impl Fixture,
) {
    let store = fixture.store();
    write(&*store, "source", b"new").await;
    write(&*store, "file", b"old").await;
    write(&*store, "folder/in/it", b"").await;
    store.make_folder(&path("empty")).await.expect("made");
    for target in ["file", "folder", "empty"] {
        let outcome = rename(&*store, "source", target).await;
        assert_eq!(outcome, RenameOutcome::Occupied, "{target}");
    }
    let source = content(&*store, "source").await;
    assert_eq!(source.as_deref(), Some(&b"new"[..]));
    let file = content(&*store, "file").await;
    assert_eq!(file.as_deref(), Some(&b"old"[..]));
    assert_eq!(names(&*store, Some("folder")).await, ["in"]);
    assert!(names(&*store, Some("empty")).await.is_empty());
}

pub(crate) async fn c081_a_rename_without_a_source_says_so(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "file", b"old").await;
    for source in ["none", "no/folder/at/all", "file/below"] {
        for target in ["free", "deep/and/free", "file"] {
            let outcome = rename(&*store, source, target).await;
            assert_eq!(
                outcome,
                RenameOutcome::SourceMissing,
                "{source} to {target}"
            );
        }
    }
}

pub(crate) async fn c081_a_file_above_the_target_is_told(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "source", b"1").await;
    write(&*store, "file", b"2").await;
    for target in ["file/target", "file/deep/target"] {
        let refused = store.rename(&path("source"), &path(target)).await;
        let refused = refused.expect_err("no outcome names it");
        assert_eq!(refused.kind, Kind::Taken, "{refused}");
    }
    assert_eq!(store.length(&path("source")).await, Ok(Some(1)));
}

pub(crate) async fn of_many_renames_to_one_name_one_wins(fixture: &impl Fixture) {
    let store = fixture.store();
    for n in 0..8 {
        write(&*store, &format!("attempt/{n}"), format!("{n}").as_bytes()).await;
    }
    let target = path("new/folder/manifest");
    let renames = (0..8).map(|n| {
        let (store, target) = (Arc::clone(&store), target.clone());
        tokio::spawn(async move { store.rename(&path(&format!("attempt/{n}")), &target).await })
    });
    let mut winner = None;
    for (n, done) in renames.collect::<Vec<_>>().into_iter().enumerate() {
        match done.await.expect("no panic").expect("an outcome") {
            RenameOutcome::Done => assert_eq!(winner.replace(n), None, "two have won"),
            outcome => assert_eq!(outcome, RenameOutcome::Occupied),
        }
    }
    let winner = winner.expect("one wins").to_string();
    let manifest = content(&*store, "new/folder/manifest").await;
    assert_eq!(manifest.as_deref(), Some(winner.as_bytes()));
    assert_eq!(names(&*store, Some("attempt")).await.len(), 7);
}

pub(crate) async fn one_file_is_renamed_once(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "source", b"1").await;
    let renames = (0..8).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let target = path(&format!("targets/{n}"));
            store.rename(&path("source"), &target).await
        })
    });
    let mut done = 0;
    for outcome in renames.collect::<Vec<_>>() {
        match outcome.await.expect("no panic").expect("an outcome") {
            RenameOutcome::Done => done += 1,
            outcome => assert_eq!(outcome, RenameOutcome::SourceMissing),
        }
    }
    assert_eq!(done, 1);
    assert_eq!(names(&*store, Some("targets")).await.len(), 1);
}

pub(crate) async fn a_confirmed_file_tells_its_length_and_keeps_its_age(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "a/file", b"12345").await;
    let age = || async {
        let entries = store.list(Some(&path("a")), None, 10).await.expect("up");
        entries[0].age
    };
    let before = age().await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(store.confirm(&path("a/file")).await, Ok(Some(5)));
    assert!(
        age().await > before + Duration::from_millis(900),
        "it was not changed"
    );
    assert!(age().await < Duration::from_mins(1));
    for nothing in ["none", "a", "a/none", "none/none", "a/file/none"] {
        assert_eq!(store.confirm(&path(nothing)).await, Ok(None), "{nothing}");
    }
}

pub(crate) async fn a_read_ends_with_the_file(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "file", b"0123456789").await;
    for (at, length, expected) in [
        (0, 4, "0123"),
        (4, 6, "456789"),
        (8, 100, "89"),
        (10, 1, ""),
        (1_000, 5, ""),
        (3, 0, ""),
        (u64::MAX, 9, ""),
        (0, usize::MAX, "0123456789"),
    ] {
        let read = store.read(&path("file"), at, length).await;
        let read = read.expect("up").expect("is there");
        assert_eq!(read, expected, "{length} from {at}");
    }
}

pub(crate) async fn a_folder_is_deleted_with_everything_in_it(fixture: &impl Fixture) {
    let store = fixture.store();
    for file in ["a/1", "a/b/2", "a/b/c/3", "ab/4", "file"] {
        write(&*store, file, b"x").await;
    }
    for _ in 0..2 {
        store.delete(&path("a")).await.expect("deleted");
        store.delete(&path("file")).await.expect("deleted");
        store.delete(&path("ab/4/below")).await.expect("nothing");
        store.delete(&path("never/was")).await.expect("nothing");
    }
    assert_eq!(names(&*store, None).await, ["ab"]);
    assert_eq!(names(&*store, Some("ab")).await, ["4"]);
    // Its name is free.
    write(&*store, "a/1", b"y").await;
}

pub(crate) async fn only_an_empty_folder_is_deleted_as_one(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, "full/file", b"x").await;
    store.make_folder(&path("empty")).await.expect("made");
    for any in [
        "full",
        "full/file",
        "empty",
        "empty",
        "none",
        "full/file/below",
    ] {
        store.delete_empty(&path(any)).await.expect("well done");
    }
    assert_eq!(names(&*store, None).await, ["full"]);
    assert_eq!(names(&*store, Some("full")).await, ["file"]);
}

pub(crate) async fn a_listing_is_in_order_and_comes_in_pages(fixture: &impl Fixture) {
    let store = fixture.store();
    for name in ["b", "a", "B", "é", "_x", "a-b", "a.b", "10", "9"] {
        write(&*store, &format!("in/{name}"), name.as_bytes()).await;
    }
    write(&*store, "in/ab/below", b"").await;
    let all = ["10", "9", "B", "_x", "a", "a-b", "a.b", "ab", "b", "é"];
    assert_eq!(names(&*store, Some("in")).await, all);
    for limit in [1, 3, 10, 11] {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().cloned();
            let page = store.list(Some(&path("in")), after.as_deref(), limit).await;
            let page = page.expect("up");
            assert!(page.len() <= limit);
            seen.extend(page.iter().map(|entry| entry.path.name().to_owned()));
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(seen, all, "{limit} at a time");
    }
    let entries = store.list(Some(&path("in")), Some("a.b"), 2).await;
    let entries = entries.expect("up");
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry.length))
        .collect();
    assert_eq!(found, [("in/ab", None), ("in/b", Some(1))]);
    assert!(
        entries
            .iter()
            .all(|entry| entry.age < Duration::from_mins(2))
    );
    let after_all = store.list(Some(&path("in")), Some("zzz"), 5).await;
    assert_eq!(
        after_all.expect("up").len(),
        1,
        "é comes after all of ASCII"
    );
    assert_eq!(store.list(Some(&path("in")), None, 0).await, Ok(Vec::new()));
    for nothing in ["none", "in/a", "in/a/below", "none/none"] {
        let nothing = store.list(Some(&path(nothing)), None, 5).await;
        assert_eq!(nothing, Ok(Vec::new()));
    }
    let top = store.list(None, None, 5).await.expect("up");
    assert_eq!(top[0].path, path("in"));
}

pub(crate) async fn names_may_hold_whatever_a_path_may(fixture: &impl Fixture) {
    let store = fixture.store();
    let longest = "n".repeat(255);
    for name in [
        "dt=2026-11-30",
        "a b",
        "a%20b",
        "100%",
        "a+b",
        "#",
        "?",
        "*",
        "[x]",
        "{y}",
        "~",
        "'\"",
        "日本",
        "&amp;",
        "-rf",
        ".hidden",
        &longest,
    ] {
        let source = format!("attempt/{name}");
        let target = format!("final/{name}/{name}");
        write(&*store, &source, name.as_bytes()).await;
        assert_eq!(
            rename(&*store, &source, &target).await,
            RenameOutcome::Done,
            "{name}"
        );
        let found = content(&*store, &target).await;
        assert_eq!(found.as_deref(), Some(name.as_bytes()), "{name}");
    }
    assert_eq!(names(&*store, Some("final")).await.len(), 17);
    assert!(names(&*store, Some("attempt")).await.is_empty());
}

pub(crate) async fn a_file_that_is_dropped_open_is_in_nobodys_way(fixture: &impl Fixture) {
    let store = fixture.store();
    store.make_folder(&path("attempt")).await.expect("made");
    let mut writer = store.create(&path("attempt/1")).await.expect("created");
    writer
        .write(Bytes::from_static(b"half"))
        .await
        .expect("written");
    drop(writer);
    write(&*store, "attempt/2", b"whole").await;
    assert_eq!(
        rename(&*store, "attempt/2", "manifest").await,
        RenameOutcome::Done
    );
    store.delete(&path("attempt")).await.expect("deleted");
    assert_eq!(names(&*store, None).await, ["manifest"]);
}
