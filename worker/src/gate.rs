//! The fence that the data path asks before it sends or saves anything.
//!
//! Every registration has a fence of its own, and the data path lives longer than a registration. So
//! it asks a gate, and the supervisor lets a new fence through only after every task of the
//! registration before that needs a lease has stopped: such a task, frozen through the loss of its
//! ownership, never sees the gate open again (C038). Tasks that deliver exactly once, whoever else runs
//! them, go on behind the shut gate
//! ([`Delivery::runs_without_lease`](crate::engine::Delivery::runs_without_lease)), and may see it open
//! again.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use kreplicator_store::Fence;

/// Whether tasks of this worker may act now. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<RwLock<Fence>>);

impl Gate {
    /// A gate that is shut.
    #[must_use]
    pub fn shut() -> Self {
        Self(Arc::new(RwLock::new(Fence::shut())))
    }

    /// Whether tasks may act now. Compares clocks, so the first answer after a freeze is right.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_open()
    }

    /// Follows `fence` from now on. Of tasks of registrations before, those that need a lease have stopped.
    pub(crate) fn admit(&self, fence: Fence) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fence;
    }

    /// Shuts the gate, whatever the fence says.
    pub(crate) fn close(&self) {
        self.admit(Fence::shut());
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("open", &self.is_open())
            .finish()
    }
}
