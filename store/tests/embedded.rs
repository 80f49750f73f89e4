//! The embedded store keeps the contract, in memory and in a file, and its file survives.

mod contract;

use std::{path::Path, sync::Arc, time::Duration};

use contract::{Fixture, contract_tests, get, put, put_leased, write};
use kreplicator_store::{EmbeddedOptions, EmbeddedStore, Error, MetaStore, Op, Revision};
use tempfile::TempDir;

struct Embedded {
    store: Arc<EmbeddedStore>,
    _folder: Option<TempDir>,
}

impl Embedded {
    async fn in_memory() -> Self {
        Self {
            store: Arc::new(EmbeddedStore::in_memory()),
            _folder: None,
        }
    }

    async fn in_file() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            store: Arc::new(open(folder.path()).await),
            _folder: Some(folder),
        }
    }
}

async fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(folder.join("meta/store.redb"))
        .await
        .expect("the file can be opened")
}

impl Fixture for Embedded {
    fn store(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.store) as Arc<dyn MetaStore>
    }

    async fn compact(&self) {
        // History is limited in bytes: write more than is kept.
        let kept = EmbeddedOptions::default().history_bytes_max;
        let value = "x".repeat(1 << 20);
        for _ in 0..=kept / value.len() {
            write(&*self.store, vec![put("filler", &value)]).await;
        }
        write(&*self.store, vec![Op::Delete("filler".to_owned())]).await;
    }
}

mod in_memory {
    use super::*;

    contract_tests!(tokio::test(start_paused = true), Embedded::in_memory());
}

mod in_file {
    use super::*;

    contract_tests!(tokio::test, Embedded::in_file());
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).await;
    let lease = store.grant(Duration::from_secs(60)).await.expect("granted");
    let made = write(
        &store,
        vec![put("a", "1"), put_leased("b", "2", Some(lease))],
    )
    .await;
    let last = write(&store, vec![put("a", "3"), put("c", "")]).await;
    let before = store.list("").await.expect("up");
    drop(store);

    let store = open(folder.path()).await;
    let after = store.list("").await.expect("up");
    assert_eq!(after, before);
    assert_eq!(after.revision, last);
    assert_eq!(after.entries["a"].create_revision, made);
    assert_eq!(after.entries["b"].lease, Some(lease));
    store.revoke(lease).await.expect("known after the restart");
    assert_eq!(get(&store, "b").await, None);
    assert_eq!(write(&store, vec![put("d", "")]).await.0, last.0 + 2);
    let old = store
        .watch("", last)
        .await
        .expect_err("history begins anew");
    let Error::Compacted { compacted } = old else {
        panic!("{old}");
    };
    assert_eq!(compacted, last.next());
}

#[tokio::test]
async fn leases_have_their_whole_time_again_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let ttl = Duration::from_secs(2);
    let store = open(folder.path()).await;
    let lease = store.grant(ttl).await.expect("granted");
    write(&store, vec![put_leased("a", "", Some(lease))]).await;
    tokio::time::sleep(ttl / 2).await;
    drop(store);

    let store = open(folder.path()).await;
    let reopened = tokio::time::Instant::now();
    let mut watch = store
        .watch("", store.list("").await.expect("up").revision.next())
        .await
        .expect("from now on");
    let gone = watch.next().await.expect("it runs out");
    assert!(reopened.elapsed() >= ttl - Duration::from_millis(50));
    assert!(gone[0].entry.is_none());
    drop((store, watch));
    let store = open(folder.path()).await;
    assert_eq!(get(&store, "a").await, None, "its end was written");
}

#[tokio::test]
async fn a_second_opener_is_told_that_the_file_is_in_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = open(folder.path()).await;
    let refusal = EmbeddedStore::open(folder.path().join("meta/store.redb"))
        .await
        .expect_err("in use");
    assert!(matches!(&refusal, Error::Invalid(_)), "{refusal}");
    assert!(
        refusal.to_string().contains("open in another process"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.txt");
    let text = "these are my notes, not a store\n".repeat(200);
    std::fs::write(&path, &text).expect("written");
    let refusal = EmbeddedStore::open(&path).await.expect_err("no store");
    assert!(matches!(&refusal, Error::Invalid(_)), "{refusal}");
    assert!(refusal.to_string().contains("notes.txt"), "{refusal}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).await;
    for key in 0..200 {
        write(&store, vec![put(&format!("k{key}"), &"x".repeat(1_000))]).await;
    }
    drop(store);
    let path = folder.path().join("meta/store.redb");
    let mut bytes = std::fs::read(&path).expect("there");
    // The first page tells that it is a store, and where its contents are.
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, &bytes).expect("written");
    let refusal = EmbeddedStore::open(&path).await.expect_err("damaged");
    assert!(matches!(&refusal, Error::Invalid(_)), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains("store.redb is damaged"), "{text}");
    assert!(text.contains("backup"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_in_bytes_and_a_slow_watch_learns_that_it_fell_behind() {
    let options = EmbeddedOptions {
        history_bytes_max: 10_000,
    };
    let store = EmbeddedStore::in_memory_with(options);
    let mut watch = store
        .watch("", Revision(1))
        .await
        .expect_err("1 is the empty store's own");
    assert!(matches!(watch, Error::Compacted { .. }), "{watch}");
    let mut slow = store
        .watch("", Revision(2))
        .await
        .expect("from the first change");
    for _ in 0..30 {
        write(&store, vec![put("a", &"x".repeat(1_000))]).await;
    }
    watch = slow.next().await.expect_err("20 changes are gone");
    assert!(matches!(watch, Error::Compacted { .. }), "{watch}");
}
