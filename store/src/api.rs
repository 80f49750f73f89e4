//! The interface of the metadata store, with the semantics of etcd v3: one revision counter for the
//! whole store, multi-key reads at one revision, transactions guarded by comparisons, leases that
//! delete their keys, and watches that replay history from a revision.
//!
//! # Invariants
//! - Every committed transaction that changes something raises the revision by one.
//! - A watch from revision `r` gives every change with a revision `>= r`, in order, or ends in an error.
//! - A key put with a lease is gone once the lease ended. It never ends sooner than its time to live
//!   after the last keep-alive that the store answered.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use async_trait::async_trait;

/// Full key, without the configured root. Parts are joined by `/`; see [`crate::keys`].
pub type Key = String;

/// The store's counter of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub i64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A stored value with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// Revision that made the key; changes when it is deleted and put again.
    pub create_revision: Revision,
    /// Revision that wrote the value.
    pub mod_revision: Revision,
    /// Lease that the key goes with.
    pub lease: Option<LeaseId>,
}

/// All keys under a prefix at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The revision read at. A watch goes on from `revision.next()`.
    pub revision: Revision,
    /// The keys found.
    pub entries: BTreeMap<Key, Entry>,
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(Key),
    /// The key exists and was made by this revision.
    CreatedAt(Key, Revision),
    /// The key exists and was last written by this revision.
    ModifiedAt(Key, Revision),
}

/// A change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value; without a lease the key loses the one it had.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Vec<u8>,
        /// The lease that the key goes with.
        lease: Option<LeaseId>,
    },
    /// Deletes one key; absent is fine.
    Delete(Key),
    /// Deletes every key that starts with the prefix.
    DeletePrefix(Key),
}

/// Changes that happen together when every comparison holds, and not at all otherwise.
/// A key may be changed once at most in one transaction (etcd's rule).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// All must hold.
    pub compares: Vec<Compare>,
    /// Done in order.
    pub ops: Vec<Op>,
}

/// Most changes of one transaction (etcd's default `--max-txn-ops`).
pub const TXN_OPS_MAX: usize = 128;
/// Most bytes of one transaction: under etcd's default request limit of 1.5 MiB, with room for keys.
pub const TXN_BYTES_MAX: usize = 1_200_000;

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done, at this revision.
    Committed(Revision),
    /// A comparison did not hold; nothing was changed.
    Conflict,
}

/// One change seen by a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// The key that changed.
    pub key: Key,
    /// The new value; None: deleted.
    pub entry: Option<Entry>,
    /// When it changed.
    pub revision: Revision,
}

/// What can go wrong. Callers branch on the variant, not on the text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached or did not answer in time: try again with back-off. A write may
    /// or may not have happened.
    #[error("metadata store is not reachable: {0}")]
    Unavailable(String),
    /// The revision asked for is no longer kept: read everything again.
    #[error("history before revision {compacted:?} was compacted")]
    Compacted {
        /// First revision that is still kept.
        compacted: Revision,
    },
    /// The lease ended or never was.
    #[error("lease {0:?} has ended")]
    LeaseGone(LeaseId),
    /// The store refuses writes (no space). Reads go on.
    #[error("metadata store refuses writes: {0}")]
    ReadOnly(String),
    /// User or password refused.
    #[error("metadata store refused the login: {0}; check user and password")]
    Denied(String),
    /// The request can never succeed.
    #[error("metadata store refused the request: {0}")]
    Invalid(String),
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::ReadOnly(_))
    }
}

/// Result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// The store. Every call has a deadline of its own and none retries for ever.
#[async_trait]
pub trait MetaStore: Send + Sync + Debug + 'static {
    /// One key, linearizable.
    async fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// All keys that start with `prefix`, at one revision, linearizable; read in pages where large.
    async fn list(&self, prefix: &str) -> Result<Snapshot>;

    /// Runs a transaction.
    ///
    /// # Errors
    /// [`Error::Unavailable`] leaves open whether it happened; [`Error::LeaseGone`] when an op names a
    /// lease that ended; [`Error::Invalid`] over [`TXN_OPS_MAX`].
    async fn commit(&self, txn: Txn) -> Result<Outcome>;

    /// A new lease; etcd rounds up to whole seconds.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId>;

    /// Renews a lease and gives its time to live.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] when it has ended.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration>;

    /// Ends a lease and deletes its keys; one that has ended already is fine.
    async fn revoke(&self, lease: LeaseId) -> Result<()>;

    /// Changes under `prefix` from revision `from` on.
    ///
    /// # Errors
    /// [`Error::Compacted`] at once or from [`Watch::next`].
    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>>;
}

/// A running watch; owns everything it needs, so it lives as long as this value (C056).
#[async_trait]
pub trait Watch: Send + Debug {
    /// The next changes, at least one, all of whole revisions. Cancel safe.
    ///
    /// # Errors
    /// Any error ends the watch: read the prefix again and watch from there. A peer that went
    /// silent is an error within 10 s, also when nothing changes.
    async fn next(&mut self) -> Result<Vec<WatchEvent>>;
}
