//! What operations come to on a store.

use std::sync::Arc;

use super::*;
use crate::testkit::{Faults, MemoryStore, Noted, SetClock};

fn path(name: &str) -> StorePath {
    StorePath::new(name).expect("legal")
}

fn ground(store: &MemoryStore) -> Ground {
    Ground {
        store: Arc::new(store.clone()),
        clock: SetClock::default().clock(),
        jitter: Jitter::from_fn(|| 0.5),
        watcher: Arc::new(Noted::default()),
    }
}

async fn perform(store: &MemoryStore, op: Op) -> Option<Answer> {
    ground(store).perform(&op).await.ok()
}

#[tokio::test]
async fn what_was_read_or_confirmed_survives_a_crash_of_the_store() {
    let store = MemoryStore::new(1);
    let file = path("a");
    for op in [Op::Read(file.clone()), Op::Confirm(file.clone())] {
        store.show(&file, "seen");
        let answer = perform(&store, op.clone()).await.expect("an answer");
        store.crash();
        assert_eq!(
            store.files("a").len(),
            1,
            "{op:?} gave {answer:?}, and it is gone"
        );
        store.delete(&file).await.expect("deleted");
    }
    store.show(&file, "seen");
    perform(&store, Op::Length(file)).await.expect("an answer");
    store.crash();
    assert!(
        store.files("a").is_empty(),
        "the test would see the difference"
    );
}

#[tokio::test]
async fn no_more_of_a_document_is_read_than_tells_that_it_is_too_long() {
    let store = MemoryStore::new(1);
    store.put(&path("a"), vec![b' '; BYTES_MAX + 100]);
    let Some(Answer::Read(Some(bytes))) = perform(&store, Op::Read(path("a"))).await else {
        panic!("it is there")
    };
    assert_eq!(bytes.len(), BYTES_MAX + 1);
    let missing = perform(&store, Op::Read(path("b"))).await;
    assert_eq!(missing, Some(Answer::Read(None)));
}

#[tokio::test]
async fn files_are_compared_byte_by_byte_to_their_end() {
    let store = MemoryStore::new(1);
    let long = vec![7; COMPARED_BYTES + 5];
    let mut other = long.clone();
    *other.last_mut().expect("some") = 8;
    store.put(&path("long"), long.clone());
    store.put(&path("twin"), long);
    store.put(&path("other"), other);
    store.put(&path("short"), "7");
    for (name, expected) in [
        ("twin", Some(true)),
        ("other", Some(false)),
        ("short", Some(false)),
        ("missing", None),
    ] {
        let same = perform(&store, Op::Same(path("long"), path(name))).await;
        assert_eq!(same, Some(Answer::Same(expected)), "{name}");
    }
}

#[tokio::test]
async fn a_document_whose_folder_is_gone_is_told_apart_from_one_that_failed() {
    let store = MemoryStore::new(1);
    let worker = kreplicator_model::ids::WorkerId::new("w").expect("legal");
    let names = AttemptNames::new(&worker, kreplicator_model::ids::OwnerEpoch(1), 1);
    let mut committer = Committer::new(
        ground(&store),
        crate::testkit::source(),
        names,
        None,
        Offset(0),
    );
    let write = |name| Op::Write {
        path: path(name),
        bytes: b"{}".to_vec(),
    };
    let gone = committer.answer(&write("gone/0.json")).await;
    assert_eq!(gone, Some(Answer::Written(WriteOutcome::FolderMissing)));
    store.put(&path("there/0.json"), "");
    let taken = committer.answer(&write("there/0.json")).await;
    assert_eq!(taken, Some(Answer::Written(WriteOutcome::Failed)));
    let done = committer.answer(&write("there/1.json")).await;
    assert_eq!(done, Some(Answer::Written(WriteOutcome::Done)));
    // A rename whose answer is lost is no failure, one that was not done is tried again.
    let rename = Op::Rename {
        source: path("there/1.json"),
        target: path("final.json"),
    };
    store.set_faults(Faults {
        unreachable: 1_000,
        ..Faults::default()
    });
    assert_eq!(committer.answer(&rename).await, None);
    store.set_faults(Faults {
        lost: 1_000,
        ..Faults::default()
    });
    let lost = Some(Answer::Renamed(RenameOutcome::Unknown));
    assert_eq!(committer.answer(&rename).await, lost);
}

fn committer(store: &MemoryStore, noted: &Arc<Noted>) -> Committer {
    let worker = kreplicator_model::ids::WorkerId::new("w").expect("legal");
    let names = AttemptNames::new(&worker, kreplicator_model::ids::OwnerEpoch(1), 1);
    let ground = Ground {
        watcher: Arc::clone(noted) as _,
        ..ground(store)
    };
    Committer::new(ground, crate::testkit::source(), names, None, Offset(0))
}

#[tokio::test]
async fn a_document_that_could_not_be_written_leaves_nothing() {
    let store = MemoryStore::new(1);
    let noted = Arc::default();
    let mut committer = committer(&store, &noted);
    store.put(&path("there/first.json"), "");
    store.set_faults(Faults {
        torn: 1_000,
        ..Faults::default()
    });
    for count in 0..20 {
        let write = Op::Write {
            path: path(&format!("there/{count}.json")),
            bytes: b"{}".to_vec(),
        };
        let failed = committer.answer(&write).await;
        assert_eq!(failed, Some(Answer::Written(WriteOutcome::Failed)));
    }
    assert_eq!(store.files("there").len(), 1);
    assert_eq!(noted.all().len(), 20, "each is told");
}

#[tokio::test]
async fn a_rename_whose_answer_is_lost_again_and_again_is_told() {
    let store = MemoryStore::new(1);
    let noted = Arc::default();
    let mut committer = committer(&store, &noted);
    store.put(&path("a"), "");
    store.set_faults(Faults {
        lost: 1_000,
        ..Faults::default()
    });
    for count in 1..=5 {
        let rename = Op::Rename {
            source: path("a"),
            target: path("b"),
        };
        let lost = Some(Answer::Renamed(RenameOutcome::Unknown));
        assert_eq!(committer.answer(&rename).await, lost);
        let noted = noted.all();
        assert_eq!(noted.len(), count);
        assert!(
            matches!(&noted[count - 1], Some(Trouble::Store(error)) if error.kind == Kind::Unknown),
            "{noted:?}"
        );
    }
}
