//! The way to a fetcher.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use kreplicator_wire::topic::{TopicId, TopicPartition};
use tokio::{sync::mpsc, time::Instant};

use super::room::Room;
use crate::batches::lane::Lane;

/// How a partition is read from a broker.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::batches) struct Place {
    /// The topic's id; None: by name.
    pub(in crate::batches) topic_id: Option<TopicId>,
    /// Epoch of the partition's leader, as it is known.
    pub(in crate::batches) leader_epoch: Option<i32>,
    /// The broker is not the leader: what it refuses the leader may give.
    pub(in crate::batches) is_follower: bool,
}

/// What a fetcher is told.
#[derive(Debug)]
pub(super) enum Order {
    Read(Arc<Lane>, Place),
    Resume(Arc<Lane>),
    Stop(TopicPartition),
}

/// The way to a fetcher.
#[derive(Debug, Clone)]
pub(in crate::batches) struct FetcherHandle {
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// Kept by the fetcher and by answers that lie with lanes: a handle to one that has ended holds
    /// no memory.
    pub(super) room: Weak<Room>,
    /// When the broker answered last.
    pub(super) heard: Arc<Mutex<Option<Instant>>>,
}

impl FetcherHandle {
    /// Reads for a lane from where it says, if it still says anything. False: the fetcher has ended.
    pub(in crate::batches) fn read(&self, lane: &Arc<Lane>, place: Place) -> bool {
        // Before the first answer can come: a lane without room has to know whom to call back, and one
        // that is closed from now on whom to stop.
        if !lane.set_fetcher(self.clone()) {
            return true;
        }
        let order = Order::Read(Arc::clone(lane), place);
        self.orders.send(order).is_ok()
    }

    /// The lane has room again. False: the fetcher has ended.
    pub(in crate::batches) fn resume(&self, lane: &Arc<Lane>) -> bool {
        self.orders.send(Order::Resume(Arc::clone(lane))).is_ok()
    }

    /// Reads the partition no longer.
    pub(in crate::batches) fn stop(&self, partition: &TopicPartition) {
        drop(self.orders.send(Order::Stop(partition.clone())));
    }

    /// Whether answers that nobody can take yet may still wait in memory: they may use half of it.
    pub(in crate::batches) fn has_room(&self) -> bool {
        let room = self.room.upgrade();
        room.is_some_and(|room| room.left() > room.whole() / 2)
    }

    /// Whether both lead to the same fetcher.
    pub(in crate::batches) fn is_same(&self, other: &Self) -> bool {
        self.orders.same_channel(&other.orders)
    }

    /// Whether it runs.
    pub(in crate::batches) fn is_alive(&self) -> bool {
        !self.orders.is_closed()
    }

    /// When the broker answered last.
    pub(in crate::batches) fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
