//! The gRPC API: what operators ask for, what the fleet does about it, and how it fares.
//!
//! Any controller answers. Reads and writes are served by the leader; [`crate::forward`] passes
//! whole requests on to it, so no service knows about followers.
//!
//! - [`ports`]: what the API needs from the rest of the controller.
//! - `server`: all services in one server, with its limits; `incoming`: the connections to it.
//! - One file a service: `clusters`, `links`, `subscriptions` (with `subscribe`, `surplus`,
//!   `subscription_view`, `subscription_watch`), `workers`, `status`, `apply`, `fleet`. `core` is what they share.
//! - Writing: `loaded` (what was asked for, as read) → `draft` (a change of it, checked as a whole, in
//!   steps) → `writer` (one at a time, under the leader's guard) with `repeat` (kept answers).
//! - Showing: `picture` (the state of every task) → `health` (what it means; `promise`: about
//!   repeats); `page`, `diff`, `fields`.
//! - `leadership`: who leads.

mod apply;
mod clusters;
mod core;
mod diff;
mod draft;
mod fields;
mod fleet;
mod health;
mod incoming;
pub(crate) mod leadership;
mod links;
mod loaded;
mod page;
pub(crate) mod picture;
pub mod ports;
mod promise;
mod repeat;
#[cfg(test)]
mod samples;
mod server;
mod status;
mod subscribe;
mod subscription_view;
mod subscription_watch;
mod subscriptions;
mod surplus;
pub(crate) mod workers;
mod writer;

use std::{sync::Arc, time::Duration};

use kreplicator_model::ids::ControllerId;
use kreplicator_store::{MetaStore, election};
use tokio::sync::watch;

use crate::{fleet::FleetState, heavy::Walks, reports::Reports};

pub use self::incoming::Limits;
pub use self::ports::{Clock, ClusterView, DiscoveryPort, SystemClock};
pub use self::server::{Error, serve};

/// What the API is made of.
#[derive(Debug, Clone)]
pub struct ApiParts {
    /// This process.
    pub controller: ControllerId,
    /// `host:port` at which others reach this process's API.
    pub address: String,
    /// The metadata store.
    pub store: Arc<dyn MetaStore>,
    /// Who leads. The key's value is a `v1::Leader`.
    pub role: watch::Receiver<election::Role>,
    /// What the leader knows of the fleet; the default value while another one leads.
    pub fleet: watch::Receiver<Arc<FleetState>>,
    /// Looks at clusters.
    pub discovery: Arc<dyn DiscoveryPort>,
    /// What workers report.
    pub reports: Arc<Reports>,
    /// Turns of calls that walk over everything, shared with the HTTP port.
    pub walks: Walks,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// How long an answer is kept for repeated request ids.
    pub request_retention: Duration,
    /// What the port allows.
    pub limits: Limits,
}
