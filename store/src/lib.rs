//! The metadata store: what the fleet knows, behind one interface.
//!
//! - [`api`]: the interface: revisioned get and list, compare-and-put transactions, leases, watch.
//! - [`keys`]: the layout of keys.

pub mod api;
pub mod keys;

pub use api::{
    Compare, Entry, Error, Key, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot, Txn,
    Watch, WatchEvent,
};
