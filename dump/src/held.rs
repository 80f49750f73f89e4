//! How much memory a dump holds, readable while its calls are under way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Bytes of memory of a partition's open files. Clones tell of the same; it may be read at any time.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<AtomicUsize>);

impl Held {
    /// How many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A part of it, nothing at first.
    pub(crate) fn share(&self) -> Share {
        Share {
            all: self.clone(),
            mine: AtomicUsize::new(0),
        }
    }
}

/// A part of what is held; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Held,
    mine: AtomicUsize,
}

impl Share {
    /// It is so much now. One at a time sets it.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.mine.swap(bytes, Ordering::Relaxed);
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(before, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.mine.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
