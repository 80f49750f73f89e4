//! The metadata store: what the fleet knows, behind one interface.
//!
//! - [`api`]: the interface: revisioned get and list, compare-and-put transactions, leases, watch.
//! - [`keys`]: the layout of keys.
//! - [`etcd`]: the store of a fleet. [`embedded`]: the store of a single process, in one file.
//!   [`open`]: which of them.
//! - [`view`]: everything under a prefix, kept up to date through whatever happens to the store.
//! - [`session`]: a leased registration that fences itself; [`fence`]: what its holder asks.
//! - [`election`]: leader election with fencing of every write.
//! - [`backoff`]: waiting between attempts.

pub mod api;
pub mod backoff;
mod check;
pub mod election;
pub mod embedded;
pub mod etcd;
pub mod fence;
pub mod keys;
pub mod open;
pub mod session;
pub mod view;

pub use api::{
    Compare, Entry, Error, Key, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot, Txn,
    Watch, WatchEvent,
};
pub use election::{Election, Role, Term};
pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use etcd::{EtcdConfig, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser};
pub use fence::Fence;
pub use open::StoreConfig;
pub use session::{Registration, Session, SessionConfig, SessionState};
pub use view::{Change, Delta, View, ViewOptions};
