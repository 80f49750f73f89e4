//! KReplicator's own Kafka client, for the data path alone: record batches are fetched and produced as
//! they lie in the log, without being opened.
//!
//! From below:
//! - [`code`], [`error`]: what can go wrong, sorted once into what to do about it.
//! - [`settings`]: what a client needs to be told. [`topic`]: partitions, brokers, leaders.
//! - `frame`, `schema`, [`parts`], [`call`], [`versions`]: bytes, and the messages in them.
//! - [`connection`]: one connection with many requests on the way.
//! - `open`, `tls`, `sasl`: how a connection comes to be, and stays allowed. [`tasks`]: who runs it.
//! - `silence`: whether the machine at the other end is still there.
//! - [`cluster`]: the brokers of a cluster, who leads what, and small calls.
//! - [`gather`]: many who ask at once, in one call.
//! - [`fetch`], [`produce`]: record batches in and out.

pub mod call;
pub mod cluster;
pub mod code;
pub mod connection;
pub mod error;
pub mod fetch;
mod frame;
pub mod gather;
mod open;
pub mod parts;
pub mod produce;
mod sasl;
mod schema;
pub mod settings;
mod silence;
pub mod tasks;
mod tls;
pub mod topic;
pub mod versions;

pub use kafka_protocol::messages::ApiKey;
