//! What tests stand on: a store in memory that can fail, a clock that is set, random numbers that repeat.

mod clock;
mod memory;
mod poll;
mod random;
mod watcher;

use kreplicator_model::{
    dump::manifest::Source,
    ids::{ClusterId, LinkId, Partition, TopicName},
};

pub(crate) use clock::{NINE, SetClock};
pub(crate) use memory::{Faults, MemoryStore};
pub(crate) use poll::{finish, poll_once};
pub(crate) use random::Random;
pub(crate) use watcher::Noted;

/// A partition to dump.
pub(crate) fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: None,
        partition: Partition(0),
    }
}
