//! One HDFS for all tests of this program: those that break something have it alone.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use kreplicator_dump::store::{
    FileStore, Kind, StoreError,
    hdfs::{HdfsSettings, HdfsStore},
};
use kreplicator_model::dump::path::StorePath;
use kreplicator_tests::{
    hdfs::{Hdfs, HdfsOptions, SUPERUSER},
    skip::{Tier, skip},
    wait,
};
use rand::Rng as _;
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::contract::{Fixture, path};

/// Three, with two copies of each block: one may fail.
const DATANODES: usize = 3;
/// Within this everything that is well again has to be noticed.
pub(crate) const RECOVERY: Duration = Duration::from_mins(2);

static HDFS: RwLock<Option<Hdfs>> = RwLock::const_new(None);
/// Whether a test has had it alone since it was last seen to be whole.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Runs a test that has the cluster alone, everything of it running.
pub(crate) async fn alone(run: impl AsyncFnOnce(&mut Hdfs)) {
    if skip(Tier::Component) {
        return;
    }
    let mut cluster = HDFS.write().await;
    let hdfs = whole(&mut cluster).await;
    BROKEN.store(true, Ordering::Relaxed);
    let outcome = AssertUnwindSafe(run(hdfs)).catch_unwind().await;
    if let Err(panic) = outcome {
        hdfs.failed();
        resume_unwind(panic);
    }
}

async fn whole(cluster: &mut Option<Hdfs>) -> &mut Hdfs {
    let hdfs = match cluster.take() {
        None => start().await,
        Some(mut hdfs) => {
            let mended = hdfs.restore().await;
            mended.expect("what a test before has broken is mended");
            hdfs
        }
    };
    BROKEN.store(false, Ordering::Relaxed);
    cluster.insert(hdfs)
}

async fn start() -> Hdfs {
    let hdfs = Hdfs::start(HdfsOptions::new("hdfs", DATANODES)).await;
    hdfs.expect("HDFS starts")
}

/// A store in a folder of its own, beside others that use the cluster.
pub(crate) struct Fresh {
    store: Arc<HdfsStore>,
    _cluster: RwLockReadGuard<'static, Option<Hdfs>>,
}

impl Fresh {
    pub(crate) async fn start() -> Option<Self> {
        if skip(Tier::Component) {
            return None;
        }
        let mut cluster = HDFS.read().await;
        if cluster.is_none() || BROKEN.load(Ordering::Relaxed) {
            drop(cluster);
            let mut broken = HDFS.write().await;
            if broken.is_none() || BROKEN.load(Ordering::Relaxed) {
                whole(&mut broken).await;
            }
            cluster = broken.downgrade();
        }
        let hdfs = cluster.as_ref().expect("it runs");
        let store = store(settings(&hdfs.url(&folder())));
        store.ready().await.expect("ready");
        Some(Self {
            store: Arc::new(store),
            _cluster: cluster,
        })
    }
}

impl Fixture for Fresh {
    fn store(&self) -> Arc<dyn FileStore> {
        Arc::clone(&self.store) as Arc<dyn FileStore>
    }
}

/// A path that nobody else uses.
pub(crate) fn folder() -> String {
    let draw: u64 = rand::rng().random();
    format!("/dumps/{draw:016x}")
}

pub(crate) fn settings(url: &str) -> HdfsSettings {
    HdfsSettings {
        user: Some(SUPERUSER.to_owned()),
        ..HdfsSettings::new(url)
    }
}

/// Those, with deadlines for a test that waits for them.
pub(crate) fn hasty(url: &str) -> HdfsSettings {
    HdfsSettings {
        deadline: Duration::from_secs(4),
        data_deadline: Duration::from_secs(5),
        ..settings(url)
    }
}

pub(crate) fn store(settings: HdfsSettings) -> HdfsStore {
    HdfsStore::new(settings).expect("usable settings")
}

/// A store in a folder of its own, ready.
pub(crate) async fn ready(settings: HdfsSettings) -> HdfsStore {
    let store = store(settings);
    store.ready().await.expect("ready");
    store
}

/// Checks what is told: the kind, one line, and the remedy.
#[track_caller]
pub(crate) fn told(error: &StoreError, kind: Kind, remedy: &str) {
    assert_eq!(error.kind, kind, "{error}");
    let text = error.to_string();
    assert!(text.contains(remedy), "{text}");
    assert!(!text.contains('\n') && !text.contains("\tat "), "{text}");
}

/// Waits until nobody writes any file below a folder but those with these names.
pub(crate) async fn closed(hdfs: &Hdfs, folder: &str, but: &[&str]) {
    let but: Vec<String> = but.iter().map(|name| format!("{folder}/{name}")).collect();
    wait::until_true("files closed", RECOVERY, async || {
        Ok(hdfs.open_files(folder).await? == but)
    })
    .await
    .expect("whoever has left them");
}

/// Writes a file of that many bytes.
pub(crate) async fn write_bytes(
    store: &dyn FileStore,
    to: &StorePath,
    length: usize,
) -> Result<u64, StoreError> {
    let mut file = store.create(to).await?;
    file.write(Bytes::from(vec![b'x'; length])).await?;
    file.close().await
}

/// Writes a small file under one name after the other until it succeeds, as a dump does.
pub(crate) async fn write_anew(store: &dyn FileStore, folder: &str) -> StorePath {
    let end = tokio::time::Instant::now() + RECOVERY;
    for attempt in 0.. {
        let to = path(&format!("{folder}-{attempt}"));
        match write_bytes(store, &to, 1_000).await {
            Ok(length) => {
                assert_eq!(length, 1_000);
                return to;
            }
            Err(error) => assert!(tokio::time::Instant::now() < end, "{error}"),
        }
    }
    unreachable!("the loop has no end")
}
