//! What the store, views and sessions do when etcd or the way to it fails.

mod connections;
mod leases;
mod logins;
mod rig;
mod views;
