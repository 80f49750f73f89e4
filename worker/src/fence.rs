//! Whether this worker may still act in its own name.

use std::fmt::Debug;

use crate::gate::Gate;

/// Asked before every record and every save of a task that needs a lease. Once closed it stays so until
/// every such task that ran under it has stopped: whoever opens it again sees to that ([`Gate`] does). Tasks
/// that deliver exactly once go on meanwhile
/// ([`Delivery::runs_without_lease`](crate::engine::Delivery::runs_without_lease)).
pub trait OwnershipFence: Send + Sync + Debug {
    /// Whether tasks that need a lease may send and save now. Cheap, and right at once after a freeze.
    fn is_open(&self) -> bool;
}

impl OwnershipFence for Gate {
    fn is_open(&self) -> bool {
        Gate::is_open(self)
    }
}
