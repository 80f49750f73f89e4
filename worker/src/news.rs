//! Counts what the controller should hear of soon: tasks that begin to copy, or promise something else than
//! before.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A counter that is shared by whoever has news and whoever tells them.
#[derive(Debug, Clone, Default)]
pub struct News(Arc<AtomicU64>);

impl News {
    /// There is something new.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// News so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
