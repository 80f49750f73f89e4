//! Memory of a fetcher, and what of it lies with lanes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::budget::FetcherPart;

/// An answer is not asked for with less room than this, or half of all where that is less.
pub(super) const ROOM_MIN: usize = 64 << 10;

/// Memory of a fetcher: its part of the budget, and what of it lies with lanes that have no room.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) part: FetcherPart,
    pub(super) backlog: AtomicUsize,
    pub(super) freed: Notify,
}

/// Room that an answer takes while it lies with its lane; free again when dropped.
#[derive(Debug)]
pub(in crate::batches) struct Occupied {
    room: Arc<Room>,
    bytes: usize,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.room.backlog.fetch_sub(self.bytes, Ordering::AcqRel);
        self.room.freed.notify_one();
    }
}

impl Room {
    pub(super) fn new(part: FetcherPart) -> Arc<Self> {
        Arc::new(Self {
            part,
            backlog: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    pub(super) fn occupy(self: &Arc<Self>, bytes: usize) -> Occupied {
        self.backlog.fetch_add(bytes, Ordering::AcqRel);
        Occupied {
            room: Arc::clone(self),
            bytes,
        }
    }

    pub(super) fn whole(&self) -> usize {
        usize::try_from(self.part.bytes()).unwrap_or(usize::MAX)
    }

    pub(super) fn left(&self) -> usize {
        let backlog = self.backlog.load(Ordering::Acquire);
        self.whole().saturating_sub(backlog)
    }

    /// Room for an answer; None: what lies with lanes has to go first.
    pub(super) fn for_an_answer(&self) -> Option<usize> {
        let left = self.left();
        let is_enough = left >= ROOM_MIN.min(self.whole() / 2);
        is_enough.then_some(left)
    }
}
