//! The controller: keeps what runs equal to what was asked for.
//!
//! - [`api`]: the gRPC API.
//! - [`fleet`]: what the leader knows, published for the API after every pass.
//! - [`reports`]: what workers said last of their tasks.

pub mod api;
pub mod fleet;
pub mod reports;
