//! Records that were fetched and whose lane cannot take them yet.
//!
//! A lane that is full for a moment need not stop its partition: pausing makes the library throw away
//! what it has fetched ahead. So some records are held here first; only when they become many is the
//! partition paused, until half of them are gone.

use std::collections::VecDeque;

use rdkafka::message::{Message as _, OwnedMessage};

/// What a record costs here besides its key and value.
const RECORD_OVERHEAD_BYTES: u64 = 256;
/// Most bytes held for one partition before it is paused.
const PARTITION_BYTES_MAX: u64 = 256 << 10;

/// Memory for the backlogs of all partitions of a reader. The last record before a pause may go over.
#[derive(Debug)]
pub(super) struct Room {
    used: u64,
    limit: u64,
}

impl Room {
    pub(super) fn new(limit: u64) -> Self {
        Self { used: 0, limit }
    }
}

/// Records of one partition, in order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: VecDeque<OwnedMessage>,
    bytes: u64,
    paused: bool,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn first(&self) -> Option<&OwnedMessage> {
        self.records.front()
    }

    /// Adds a record; true: the partition is to be paused now.
    pub(super) fn push(&mut self, message: OwnedMessage, room: &mut Room) -> bool {
        let bytes = cost(&message);
        self.records.push_back(message);
        self.bytes += bytes;
        room.used += bytes;
        let is_much = self.bytes > PARTITION_BYTES_MAX || room.used > room.limit;
        let pause = is_much && !self.paused;
        self.paused |= pause;
        pause
    }

    /// Takes the first record off.
    pub(super) fn pop(&mut self, room: &mut Room) {
        if let Some(message) = self.records.pop_front() {
            let bytes = cost(&message);
            self.bytes -= bytes;
            room.used -= bytes;
        }
    }

    /// Whether a paused partition is to read on; then it counts as reading.
    pub(super) fn resume(&mut self) -> bool {
        let resume = self.paused && self.bytes <= PARTITION_BYTES_MAX / 2;
        self.paused &= !resume;
        resume
    }

    /// Gives up everything.
    pub(super) fn clear(&mut self, room: &mut Room) {
        room.used -= self.bytes;
        self.bytes = 0;
        self.records.clear();
    }
}

fn cost(message: &OwnedMessage) -> u64 {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) as u64;
    RECORD_OVERHEAD_BYTES + length(message.key()) + length(message.payload())
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;

    use super::*;

    fn message(bytes: usize) -> OwnedMessage {
        OwnedMessage::new(
            Some(vec![0; bytes]),
            None,
            "orders".to_owned(),
            Timestamp::NotAvailable,
            0,
            0,
            None,
        )
    }

    #[test]
    fn a_short_wait_does_not_pause_and_a_long_one_does_once() {
        let mut room = Room::new(10 << 20);
        let mut backlog = Backlog::default();
        for _ in 0..3 {
            assert!(!backlog.push(message(50_000), &mut room));
        }
        assert!(!backlog.resume(), "was never paused");
        assert!(!backlog.push(message(50_000), &mut room));
        assert!(!backlog.push(message(50_000), &mut room));
        assert!(backlog.push(message(50_000), &mut room));
        assert!(
            !backlog.push(message(50_000), &mut room),
            "is paused already"
        );
        let mut taken = 0;
        while !backlog.resume() {
            backlog.pop(&mut room);
            taken += 1;
        }
        assert_eq!(taken, 5, "down to half");
        assert!(!backlog.is_paused() && !backlog.is_empty());
    }

    #[test]
    fn c107_all_partitions_together_stay_within_the_readers_room() {
        let mut room = Room::new(100_000);
        let mut backlogs: Vec<_> = (0..10).map(|_| Backlog::default()).collect();
        let paused = backlogs
            .iter_mut()
            .filter_map(|backlog| backlog.push(message(30_000), &mut room).then_some(()));
        assert_eq!(
            paused.count(),
            7,
            "each after the limit pauses at its first record"
        );
        for backlog in &mut backlogs {
            backlog.clear(&mut room);
        }
        assert_eq!(room.used, 0);
    }
}
