//! The store of a single process: everything in memory, every change in one redb file before it is
//! acknowledged. Semantics are those of etcd, down to what is refused.
//!
//! - One writer at a time computes a [`state::Delta`], makes it durable, and applies it; reads never
//!   wait for the disk.
//! - Leases end by the Tokio clock. After a restart every lease has its whole time to live again.
//! - Watches replay a history kept in memory, limited in bytes; it is empty after a restart.

mod disk;
mod history;
mod state;
mod watch;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard, watch as channel},
    task::{JoinError, spawn_blocking},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::{
    api::{Entry, Error, LeaseId, MetaStore, Outcome, Result, Revision, Snapshot, Txn, Watch},
    check::check,
};
use disk::{Disk, Opened};
use state::{Delta, Effect, State};
use watch::EmbeddedWatch;

/// Longest time a write may take; a disk that is slower than this is as good as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Wait before lease ends that could not be written are tried again.
const EXPIRY_RETRY: Duration = Duration::from_secs(5);

/// How long a file in use is waited for: a process that is just ending may still hold it.
const HANDOVER_MAX: Duration = Duration::from_secs(1);
const HANDOVER_RETRY: Duration = Duration::from_millis(50);

/// Limits of an embedded store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Bytes of changes kept for watches that start in the past or fall behind.
    pub history_bytes_max: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            history_bytes_max: 16 << 20,
        }
    }
}

/// A metadata store in this process. Dropping it, and every watch on it, closes the file once writes
/// under way are done.
#[derive(Debug)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    _expiry: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Inner {
    /// Held over the whole of a change, so that changes are made one after another.
    disk: Arc<Mutex<Disk>>,
    durable: bool,
    state: RwLock<State>,
    revision: channel::Sender<Revision>,
    /// A lease was granted or renewed: the next end may have moved.
    leases_changed: Arc<Notify>,
}

impl EmbeddedStore {
    /// Opens or makes the file at `path`; missing folders are made.
    ///
    /// # Errors
    /// [`Error::Invalid`] when another process has it open or it is not a file of ours;
    /// [`Error::Unavailable`] and [`Error::ReadOnly`] when the disk refuses.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_with(path, EmbeddedOptions::default()).await
    }

    /// As [`EmbeddedStore::open`], with other limits.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub async fn open_with(path: impl Into<PathBuf>, options: EmbeddedOptions) -> Result<Self> {
        let path = path.into();
        let give_up = Instant::now() + HANDOVER_MAX;
        loop {
            let opening = {
                let path = path.clone();
                spawn_blocking(move || Disk::open(path, Instant::now()))
            };
            let opened = opening.await.map_err(|error| not_opened(&path, &error))??;
            match opened {
                Opened::Ready(disk, stored) => {
                    let state = State::new(stored, options.history_bytes_max);
                    return Ok(Self::start(disk, state));
                }
                Opened::InUse(error) if Instant::now() >= give_up => return Err(error),
                Opened::InUse(_) => sleep(HANDOVER_RETRY).await,
            }
        }
    }

    /// A store that is gone with this value. For tests and trials.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::in_memory_with(EmbeddedOptions::default())
    }

    /// As [`EmbeddedStore::in_memory`], with other limits.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn in_memory_with(options: EmbeddedOptions) -> Self {
        let state = State::new(state::Stored::default(), options.history_bytes_max);
        Self::start(Disk::none(), state)
    }

    fn start(disk: Disk, state: State) -> Self {
        let inner = Arc::new(Inner {
            durable: disk.is_durable(),
            disk: Arc::new(Mutex::new(disk)),
            revision: channel::Sender::new(state.revision()),
            state: RwLock::new(state),
            leases_changed: Arc::default(),
        });
        let expiry = tokio::spawn(expire(Arc::downgrade(&inner)));
        Self {
            inner,
            _expiry: AbortOnDropHandle::new(expiry),
        }
    }
}

impl Inner {
    // A panic while the state is locked for writing would be in `State::apply`, which asserts before
    // it changes anything; so the state behind a poisoned lock is whole.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change: `plan` says what, from the state that no other change can alter meanwhile.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        plan: impl FnOnce(&mut State) -> Result<Effect<T>> + Send + 'static,
    ) -> Result<T> {
        let writing = async {
            let disk = Arc::clone(&self.disk).lock_owned().await;
            if !self.durable {
                return self.carry_out(disk, plan);
            }
            let inner = Arc::clone(self);
            // Once begun it runs to its end, also when the caller stops waiting.
            spawn_blocking(move || inner.carry_out(disk, plan))
                .await
                .unwrap_or_else(|error| {
                    Err(Error::Unavailable(format!(
                        "write was interrupted: {error}"
                    )))
                })
        };
        timeout(WRITE_DEADLINE, writing).await.unwrap_or_else(|_| {
            Err(Error::Unavailable(format!(
                "the disk did not answer within {WRITE_DEADLINE:?}"
            )))
        })
    }

    fn carry_out<T>(
        &self,
        mut disk: OwnedMutexGuard<Disk>,
        plan: impl FnOnce(&mut State) -> Result<Effect<T>>,
    ) -> Result<T> {
        let Effect { answer, delta } = plan(&mut self.write())?;
        let Some(delta) = delta else {
            return Ok(answer);
        };
        disk.write(&delta, || self.read().stored())?;
        self.publish(delta);
        Ok(answer)
    }

    fn publish(&self, delta: Delta) {
        let revision = {
            let mut state = self.write();
            state.apply(delta);
            state.revision()
        };
        self.revision.send_if_modified(|current| {
            let moved = *current != revision;
            *current = revision;
            moved
        });
        self.leases_changed.notify_one();
    }
}

/// Ends leases when their time is over. Holds the store only while it writes, so that dropping the
/// store closes its file.
async fn expire(store: Weak<Inner>) {
    while let Some(inner) = store.upgrade() {
        let leases_changed = Arc::clone(&inner.leases_changed);
        let next = inner.read().next_lease_end();
        drop(inner);
        tokio::select! {
            () = leases_changed.notified() => continue,
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        let Some(inner) = store.upgrade() else {
            return;
        };
        let ended = inner.change(|state| Ok(state.plan_expiry(Instant::now())));
        if let Err(error) = ended.await {
            warn!(%error, "ended leases not written, trying again");
            drop(inner);
            sleep(EXPIRY_RETRY).await;
        }
    }
}

#[async_trait]
impl MetaStore for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        Ok(self.inner.read().get(key))
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot> {
        Ok(self.inner.read().list(prefix))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        check(&txn)?;
        let planned = self
            .inner
            .change(move |state| state.plan_txn(&txn, Instant::now()));
        planned.await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId> {
        if ttl.is_zero() {
            return Err(Error::Invalid("time to live is zero".to_owned()));
        }
        let id = rand::random_range(1..=i64::MAX);
        let granted = self
            .inner
            .change(move |state| Ok(state.plan_grant(LeaseId(id), ttl, Instant::now())));
        granted.await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration> {
        let ttl = self.inner.write().renew(lease, Instant::now())?;
        self.inner.leases_changed.notify_one();
        Ok(ttl)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.inner
            .change(move |state| Ok(state.plan_revoke(lease)))
            .await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        let watch = EmbeddedWatch::open(Arc::clone(&self.inner), prefix, from)?;
        Ok(Box::new(watch))
    }
}

/// Why an attempt to open a file ended without an answer. The file's library takes some damage for
/// impossible and panics.
fn not_opened(path: &Path, error: &JoinError) -> Error {
    let name = path.display();
    if error.is_panic() {
        Error::Invalid(format!("{name} is damaged; restore it from a backup"))
    } else {
        Error::Unavailable(format!("opening {name} was interrupted: {error}"))
    }
}
