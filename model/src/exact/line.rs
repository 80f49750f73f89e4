//! One counting of one task.

use std::fmt;

use crate::ids::Offset;

/// A producer id that the target cluster gave out (`InitProducerId` without a transactional id). One
/// serves all tasks of a link: brokers keep its state for each partition apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerId(pub i64);

/// Version of a producer id in one partition. The broker refuses lower ones than it has seen, and
/// lets a higher one begin at sequence 0 only. Nothing to do with the epoch of an ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerEpoch(pub i16);

/// What a broker tells writers apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Producer {
    /// The producer id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

/// One counting of one task: within it a record's sequence is the number of copyable records in
/// `[base, its offset)`.
///
/// A record is copyable when it lies below the last stable offset and is neither a control record
/// nor part of an aborted transaction nor dropped by a rule that always says the same.
///
/// # Invariants
/// - Agreed by compare-and-put in the metadata store and written before the first send of the line:
///   two owners that counted one epoch from different bases would make the broker take a batch
///   of one for a repeat of the other's, which loses it.
/// - For one task and producer id, a line that replaces another has a higher epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Producer id of every batch of the line.
    pub producer_id: ProducerId,
    /// Producer epoch of every batch of the line.
    pub producer_epoch: ProducerEpoch,
    /// The record at sequence 0 is the first copyable one at or after this source offset.
    pub base: Offset,
    /// High watermark of the target partition before the line was written: all batches of
    /// the line lie at or after it.
    pub target_from: Offset,
}

/// Who sends the next line of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextProducer {
    /// The same producer id with its next epoch.
    Bumped(Producer),
    /// Epochs are used up: have the target give out another producer id, and begin it at epoch 0.
    Fresh,
}

impl Producer {
    /// The highest epoch that is used. One below the largest that the wire can carry, where
    /// clients stop as well.
    ///
    /// # Source
    /// `TransactionManager.bumpIdempotentProducerEpoch` (clients, 2.8.2 and 3.9.0).
    pub const EPOCH_MAX: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

    /// The producer of a line that follows one of this producer where the target was seen at
    /// `seen`, if that is higher.
    #[must_use]
    pub fn next(self, seen: Option<ProducerEpoch>) -> NextProducer {
        let highest = seen.map_or(self.epoch, |seen| seen.max(self.epoch));
        if highest >= Self::EPOCH_MAX {
            return NextProducer::Fresh;
        }
        NextProducer::Bumped(Self {
            id: self.id,
            epoch: ProducerEpoch(highest.0 + 1),
        })
    }
}

impl Line {
    /// Who sends it.
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer {
            id: self.producer_id,
            epoch: self.producer_epoch,
        }
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ProducerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(epoch: i16) -> Producer {
        Producer {
            id: ProducerId(7),
            epoch: ProducerEpoch(epoch),
        }
    }

    #[test]
    fn the_next_epoch_is_above_all_that_were_seen() {
        assert_eq!(producer(3).next(None), NextProducer::Bumped(producer(4)));
        let seen = Some(ProducerEpoch(9));
        assert_eq!(producer(3).next(seen), NextProducer::Bumped(producer(10)));
    }

    #[test]
    fn used_up_epochs_take_a_fresh_producer_id() {
        assert_eq!(producer(i16::MAX - 1).next(None), NextProducer::Fresh);
        assert_eq!(producer(i16::MAX).next(None), NextProducer::Fresh);
        let last = NextProducer::Bumped(producer(i16::MAX - 1));
        assert_eq!(producer(i16::MAX - 2).next(None), last);
    }
}
