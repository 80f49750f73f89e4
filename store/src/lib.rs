//! The metadata store: what the fleet knows, behind one interface.
//!
//! - [`api`]: the interface: revisioned get and list, compare-and-put transactions, leases, watch.
//! - [`keys`]: the layout of keys.
//! - [`view`]: everything under a prefix, kept up to date through whatever happens to the store.
//! - [`session`]: a leased registration that fences itself; [`fence`]: what its holder asks.
//! - [`election`]: leader election with fencing of every write.
//! - [`backoff`]: waiting between attempts.

pub mod api;
pub mod backoff;
pub mod election;
pub mod fence;
pub mod keys;
pub mod session;
pub mod view;

pub use api::{
    Compare, Entry, Error, Key, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot, Txn,
    Watch, WatchEvent,
};
pub use election::{Election, Role, Term};
pub use fence::Fence;
pub use session::{Registration, Session, SessionConfig, SessionState};
pub use view::{Change, Delta, View, ViewOptions};
