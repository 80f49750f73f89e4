//! Batches that the library found damaged (C024).
//!
//! It tells the offset of such a batch, but not of which partition. Most often it then asks for the batch
//! again and again; but it means to go on behind it, and then hands on what follows as if the batch had never
//! been. So each open partition keeps in mind where damage was found that may be its own. One that stands
//! still there is told so to the driver, and what would pass over such a place is not believed. A partition
//! that reads a record there is cleared of it.
//!
//! # Source
//! librdkafka 2.12 `rd_kafka_msgset_reader_v2` and `rd_kafka_msgset_reader_msg_v0_1`: the texts of failed
//! checks, and that parsing goes on after them.

use std::{collections::BTreeSet, sync::PoisonError};

use kreplicator_model::ids::{Offset, TaskId};

use crate::fault::Fault;

/// Most places that one opening keeps in mind. With more nothing is believed that passes over anything.
const PLACES_MAX: usize = 1_000;

/// The first offset of a batch whose checksum does not fit, from what the library says of it; None: it
/// speaks of something else.
fn damaged_offset(reason: &str) -> Option<Offset> {
    if !reason.contains("CRC32") {
        return None;
    }
    let (_, rest) = reason.split_once(" at offset ")?;
    rest.split(' ').next()?.parse().ok().map(Offset)
}

/// What the callbacks of a consumer have heard and its pump has not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Heard(std::sync::Mutex<Vec<Offset>>);

impl Heard {
    /// The library complains about something.
    pub(super) fn hear(&self, reason: &str) {
        if let Some(at) = damaged_offset(reason) {
            self.lock().push(at);
        }
    }

    /// Where damage was found since the last call.
    pub(super) fn take(&self) -> Vec<Offset> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Offset>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one opening of a partition has read, and where it may have met damage.
#[derive(Debug)]
pub(super) struct Damage {
    /// Next offset that the library may hand out.
    next: Offset,
    /// Nothing was read yet: the batch that `next` is in may begin before it.
    is_fresh: bool,
    places: BTreeSet<Offset>,
    /// There were too many of them.
    is_everywhere: bool,
}

impl Damage {
    /// A partition that is read from `at` on.
    pub(super) fn new(at: Offset) -> Self {
        Self {
            next: at,
            is_fresh: true,
            places: BTreeSet::new(),
            is_everywhere: false,
        }
    }

    /// Whether this partition is to read just this offset next.
    pub(super) fn is_at(&self, at: Offset) -> bool {
        at == self.next
    }

    /// Some open partition has a damaged batch at this offset; `is_placed`: one of them is to read just that next, so
    /// that it is not a batch which another is in the middle of. Some: it may be this one, and what it is to
    /// read next, from this offset on.
    pub(super) fn found(&mut self, at: Offset, is_placed: bool) -> Option<Offset> {
        if at < self.next && (is_placed || !self.is_fresh) {
            return None;
        }
        self.is_everywhere |= self.places.len() >= PLACES_MAX;
        if !self.is_everywhere {
            self.places.insert(at.max(self.next));
        }
        (at <= self.next).then_some(self.next)
    }

    /// A record came at this offset; Some: the first offset of a damaged batch that lies before it and was
    /// not read.
    pub(super) fn record(&mut self, offset: Offset) -> Option<Offset> {
        let passed_over = self.first_below(offset);
        if passed_over.is_none() {
            self.next = self.next.max(Offset(offset.0.saturating_add(1)));
            self.places = self.places.split_off(&self.next);
            self.is_fresh = false;
        }
        passed_over
    }

    /// The fetcher says that everything below `end` was read and handed out; how far that is believed.
    pub(super) fn passed(&mut self, end: Offset) -> Offset {
        let believed = self.first_below(end).unwrap_or(end);
        if believed > self.next {
            self.next = believed;
            self.is_fresh = false;
        }
        believed
    }

    /// The first place in `[next, end)` that may be damaged.
    fn first_below(&self, end: Offset) -> Option<Offset> {
        if end <= self.next {
            return None;
        }
        let first = self.places.range(..end).next().copied();
        first.or(self.is_everywhere.then_some(self.next))
    }
}

/// The fault of a task whose source has a damaged batch.
pub(in crate::records) fn fault(task: &TaskId, at: Offset) -> Fault {
    Fault::damaged(&task.topic, task.partition, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c024_the_place_is_taken_from_what_the_library_says() {
        let new = "MessageSet at offset 10 (733 bytes) failed CRC32C check (original 0xa != calculated 0xb)";
        assert_eq!(damaged_offset(new), Some(Offset(10)));
        let old =
            "Message at offset 7 (70 bytes) failed CRC32 check (original 0xa != calculated 0xb)";
        assert_eq!(damaged_offset(old), Some(Offset(7)));
        for other in [
            "",
            "Message at offset 7 might be too large to fetch",
            "failed CRC32C check",
            "Message at offset x failed CRC32 check",
        ] {
            assert_eq!(damaged_offset(other), None, "{other}");
        }
        let heard = Heard::default();
        heard.hear(new);
        heard.hear("something else");
        heard.hear(old);
        assert_eq!(heard.take(), [Offset(10), Offset(7)]);
        assert!(heard.take().is_empty(), "told once");
    }

    fn reads(damage: &mut Damage, offsets: std::ops::Range<i64>) {
        for offset in offsets {
            assert_eq!(damage.record(Offset(offset)), None, "{offset}");
        }
    }

    #[test]
    fn c024_a_record_behind_a_damaged_batch_is_not_taken() {
        let mut damage = Damage::new(Offset(0));
        reads(&mut damage, 0..10);
        damage.found(Offset(10), false);
        assert_eq!(damage.record(Offset(20)), Some(Offset(10)));
        assert_eq!(
            damage.record(Offset(21)),
            Some(Offset(10)),
            "nor what follows"
        );
    }

    #[test]
    fn c024_a_damaged_batch_with_nothing_to_copy_behind_it_is_not_passed_over() {
        let mut damage = Damage::new(Offset(0));
        assert_eq!(damage.passed(Offset(4)), Offset(4), "markers");
        damage.found(Offset(2), false);
        damage.found(Offset(10), false);
        assert_eq!(damage.passed(Offset(9)), Offset(9));
        assert_eq!(damage.passed(Offset(30)), Offset(10));
        assert_eq!(damage.record(Offset(31)), Some(Offset(10)));
    }

    #[test]
    fn a_partition_that_reads_on_is_cleared_and_its_holes_are_none() {
        let mut damage = Damage::new(Offset(0));
        reads(&mut damage, 0..5);
        damage.found(Offset(3), false);
        damage.found(Offset(7), false);
        reads(&mut damage, 5..8);
        assert_eq!(damage.record(Offset(12)), None, "compaction took 8 to 11");
        damage.found(Offset(12), false);
        damage.found(Offset(20), false);
        assert_eq!(damage.record(Offset(19)), None);
        assert_eq!(damage.record(Offset(21)), Some(Offset(20)));
    }

    #[test]
    fn c024_a_batch_that_begins_before_the_first_read_may_be_the_damaged_one() {
        let mut damage = Damage::new(Offset(15));
        damage.found(Offset(10), false);
        assert_eq!(damage.passed(Offset(20)), Offset(15));
        assert_eq!(damage.record(Offset(20)), Some(Offset(15)));
        let mut sound = Damage::new(Offset(15));
        sound.found(Offset(10), false);
        reads(&mut sound, 15..30);
        assert_eq!(sound.passed(Offset(40)), Offset(40));
    }

    #[test]
    fn c024_damage_where_another_partition_stands_is_not_of_one_that_was_just_opened_beyond() {
        let mut standing = Damage::new(Offset(10));
        let mut beyond = Damage::new(Offset(1_000));
        assert!(standing.is_at(Offset(10)) && !beyond.is_at(Offset(10)));
        assert_eq!(standing.found(Offset(10), true), Some(Offset(10)));
        assert_eq!(beyond.found(Offset(10), true), None);
        // It begins at a hole and is well.
        assert_eq!(beyond.record(Offset(1_005)), None);
    }

    #[test]
    fn c024_damage_where_a_partition_is_to_read_next_is_told_with_the_place() {
        let mut damage = Damage::new(Offset(15));
        assert_eq!(
            damage.found(Offset(10), false),
            Some(Offset(15)),
            "inside of it"
        );
        reads(&mut damage, 15..20);
        assert_eq!(damage.found(Offset(10), false), None);
        assert_eq!(damage.found(Offset(30), false), None, "not yet");
        assert_eq!(damage.found(Offset(20), false), Some(Offset(20)));
    }

    #[test]
    fn more_places_than_are_kept_make_every_hole_one() {
        let mut damage = Damage::new(Offset(0));
        for at in 0..=1_000 {
            damage.found(Offset(at * 10), false);
        }
        assert_eq!(damage.places.len(), PLACES_MAX);
        reads(&mut damage, 0..20_001);
        assert_eq!(damage.record(Offset(20_002)), Some(Offset(20_001)));
    }

    #[test]
    fn c024_the_fault_names_topic_partition_and_offset() {
        let task = TaskId {
            link: kreplicator_model::ids::LinkId::new("a-b").expect("legal"),
            topic: kreplicator_model::ids::TopicName::new("orders").expect("legal"),
            partition: kreplicator_model::ids::Partition(3),
        };
        let fault = fault(&task, Offset(10));
        for part in ["orders", "partition 3", "source offset 10", "damaged"] {
            assert!(fault.cause.contains(part), "{fault}");
        }
    }
}
