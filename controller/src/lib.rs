//! The controller: keeps what runs equal to what was asked for.
//!
//! - [`api`]: the gRPC API.
//! - [`cluster_admin`]: what the leader asks of a Kafka cluster.
//! - [`config`]: the settings of a controller.
//! - `config_entry`: the one reader of what operators asked for.
//! - [`discovery`]: which topics exist on which cluster, and which clusters answer.
//! - [`fleet`]: what the leader knows, published for the API after every pass.
//! - [`forward`]: passes requests on to the leader.
//! - `heavy`: work that takes long, on a thread of its own.
//! - [`http`]: metrics, health and readiness over HTTP.
//! - `leader`: what runs while this controller leads.
//! - [`metrics`]: the controller's own metrics.
//! - [`reconcile`]: the loop that keeps what runs equal to what was asked for.
//! - [`reports`]: what workers said last of their tasks.
//! - [`targets`]: target topics, made and grown before the first record.
//! - [`wiring`]: builds the parts and joins them.

pub mod api;
pub mod cluster_admin;
pub mod config;
mod config_entry;
pub mod discovery;
pub mod fleet;
mod forward;
pub mod heavy;
pub mod http;
mod leader;
pub mod metrics;
pub mod reconcile;
pub mod reports;
mod suspects;
pub mod targets;
pub mod wiring;
