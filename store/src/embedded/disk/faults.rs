//! A store on a disk that fails on request.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use redb::{Database, StorageBackend};
use tokio::time::Instant;

use super::{Disk, Opened};
use crate::{
    api::{Entry, Error, MetaStore, Op, Outcome, Result, Revision, Txn},
    embedded::{EmbeddedStore, state::State},
};

const WELL: u8 = 0;
/// Nothing can be written.
const FULL: u8 = 1;
/// Everything is written, but that it is durable cannot be said.
const NO_SYNC: u8 = 2;

/// Bytes that outlive the database on them.
#[derive(Debug, Clone, Default)]
struct Medium {
    bytes: Arc<Mutex<Vec<u8>>>,
    fault: Arc<AtomicU8>,
}

impl Medium {
    fn set(&self, fault: u8) {
        self.fault.store(fault, Ordering::Relaxed);
    }

    fn check(&self, fault: u8, kind: io::ErrorKind) -> io::Result<()> {
        if self.fault.load(Ordering::Relaxed) == fault {
            return Err(kind.into());
        }
        Ok(())
    }

    fn open(&self) -> EmbeddedStore {
        let medium = self.clone();
        let opener = move || Database::builder().create_with_backend(medium.clone());
        let opened = Disk::open_with("medium".to_owned(), Box::new(opener), Instant::now());
        match opened.expect("a readable medium") {
            Opened::Ready(disk, stored) => EmbeddedStore::start(disk, State::new(stored, 1 << 20)),
            Opened::InUse(error) => panic!("{error}"),
        }
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        let bytes = self.bytes.lock().expect("no panic");
        Ok(u64::try_from(bytes.len()).expect("a length"))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).expect("a small medium");
        let bytes = self.bytes.lock().expect("no panic");
        out.copy_from_slice(&bytes[start..start + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check(FULL, io::ErrorKind::StorageFull)?;
        let length = usize::try_from(length).expect("a small medium");
        self.bytes.lock().expect("no panic").resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check(NO_SYNC, io::ErrorKind::TimedOut)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(FULL, io::ErrorKind::StorageFull)?;
        let start = usize::try_from(offset).expect("a small medium");
        let mut bytes = self.bytes.lock().expect("no panic");
        bytes[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }
}

async fn put(store: &EmbeddedStore, key: &str) -> Result<Outcome> {
    let op = Op::Put {
        key: key.to_owned(),
        value: key.as_bytes().to_vec(),
        lease: None,
    };
    let (compares, ops) = (Vec::new(), vec![op]);
    store.commit(Txn { compares, ops }).await
}

async fn get(store: &EmbeddedStore, key: &str) -> Option<Entry> {
    store.get(key).await.expect("reads never fail")
}

#[tokio::test]
async fn c059_a_full_disk_refuses_writes_and_is_used_again_once_it_has_room() {
    let medium = Medium::default();
    let store = medium.open();
    put(&store, "a").await.expect("it is well");
    medium.set(FULL);
    for _ in 0..3 {
        let refusal = put(&store, "b").await.expect_err("full");
        assert!(matches!(&refusal, Error::ReadOnly(_)), "{refusal}");
        assert!(refusal.to_string().contains("free some space"), "{refusal}");
    }
    assert!(get(&store, "a").await.is_some());
    assert_eq!(get(&store, "b").await, None);
    medium.set(WELL);
    let outcome = put(&store, "c").await.expect("there is room");
    assert_eq!(outcome, Outcome::Committed(Revision(3)));
    let before = store.list("").await.expect("reads never fail");
    drop(store);
    let after = medium.open().list("").await.expect("reads never fail");
    assert_eq!(after, before);
    assert_eq!(after.entries.keys().collect::<Vec<_>>(), ["a", "c"]);
}

#[tokio::test]
async fn a_write_of_unknown_fate_is_undone_before_the_next() {
    let medium = Medium::default();
    let store = medium.open();
    put(&store, "a").await.expect("it is well");
    medium.set(NO_SYNC);
    let doubt = put(&store, "b").await.expect_err("not known to be durable");
    assert!(matches!(doubt, Error::Unavailable(_)), "{doubt}");
    assert_eq!(get(&store, "b").await, None, "memory decides");
    medium.set(WELL);
    let outcome = put(&store, "c").await.expect("opened again");
    assert_eq!(outcome, Outcome::Committed(Revision(3)));
    drop(store);
    let store = medium.open();
    assert_eq!(get(&store, "b").await, None);
    assert!(get(&store, "a").await.is_some() && get(&store, "c").await.is_some());
}
