//! The controller: keeps what runs equal to what was asked for.
//!
//! - [`fleet`]: what the leader knows, published for the API after every pass.

pub mod fleet;
