//! What the target says about a line.
//!
//! A broker's producer state is a cache: it is dropped some time after the timestamp of the last
//! record. The batches in the target's log carry producer id, epoch and sequence for ever, so where
//! the state is gone, or cannot be asked for, reading the log's tail says the same.

use super::{
    line::{Producer, ProducerEpoch},
    sequence::Sequence,
};
use crate::ids::{Offset, UnixMillis};

/// A broker's state of our producer id in one partition (`DescribeProducers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The epoch of the last batch.
    pub epoch: ProducerEpoch,
    /// The sequence of its last record. It may lie above the high watermark and still be lost.
    pub last_sequence: Sequence,
    /// Highest timestamp of the records of that batch. The broker counts from this, and not from when
    /// the batch came, until it drops the state.
    pub last_timestamp: UnixMillis,
}

/// Answer to the question for our state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateAnswer {
    /// The broker has a state.
    Known(ProducerState),
    /// It has none: nothing was ever written, or the state was dropped.
    Absent,
    /// It cannot be asked (before Kafka 2.8), or we may not ask.
    Unsupported,
}

/// The target partition as seen by an owner. Ask in this order: the state, then the end, then
/// the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetView {
    /// Our state.
    pub state: StateAnswer,
    /// Log start offset.
    pub start: Offset,
    /// High watermark: the offset after the last committed record.
    pub end: Offset,
    /// What the log holds of us; None when it was not read.
    pub tail: Option<Tail>,
}

impl TargetView {
    /// The highest epoch of our producer id in the tail, where it was read.
    #[must_use]
    pub fn newest_epoch_in_tail(&self) -> Option<ProducerEpoch> {
        match &self.tail {
            Some(Tail::Read(scan)) => scan.newest_epoch(),
            Some(Tail::Unreadable) | None => None,
        }
    }
}

/// The end of the target's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Batch headers were read.
    Read(TailScan),
    /// We may not read the log.
    Unreadable,
}

/// Folds the batch headers of a target log, read in order up to the high watermark, into what they
/// say about one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailScan {
    producer: Producer,
    from: Offset,
    to: Offset,
    run: Option<Run>,
    newest_epoch: Option<ProducerEpoch>,
    is_disordered: bool,
}

/// Sequences that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: Sequence,
    next: Sequence,
}

impl TailScan {
    /// A scan for `producer` that begins at target offset `from`.
    #[must_use]
    pub fn new(producer: Producer, from: Offset) -> Self {
        Self {
            producer,
            from,
            to: from,
            run: None,
            newest_epoch: None,
            is_disordered: false,
        }
    }

    /// One batch: who wrote it (None for a batch without a producer id), the sequence of its first
    /// record, the number of its records *as sent* (last offset delta + 1), and the target offset
    /// after it.
    pub fn batch(
        &mut self,
        writer: Option<Producer>,
        first: Option<Sequence>,
        records: u64,
        to: Offset,
    ) {
        self.to = self.to.max(to);
        let (Some(writer), Some(first)) = (writer, first) else {
            return;
        };
        if writer.id != self.producer.id {
            return;
        }
        self.newest_epoch = self.newest_epoch.max(Some(writer.epoch));
        if writer.epoch != self.producer.epoch {
            return;
        }
        let next = first.plus(records);
        match &mut self.run {
            None => self.run = Some(Run { first, next }),
            Some(run) => {
                self.is_disordered |= run.next != first;
                run.next = next;
            }
        }
    }

    /// The reader has come to this target offset: what lies before holds no more batches.
    pub fn reached(&mut self, to: Offset) {
        self.to = self.to.max(to);
    }

    /// Where it began.
    #[must_use]
    pub fn from(&self) -> Offset {
        self.from
    }

    /// Target offset after everything that was read.
    #[must_use]
    pub fn to(&self) -> Offset {
        self.to
    }

    /// Sequence of the producer's first record that was seen.
    #[must_use]
    pub fn first(&self) -> Option<Sequence> {
        self.run.map(|run| run.first)
    }

    /// The sequence that follows the producer's last record that was seen.
    #[must_use]
    pub fn next(&self) -> Option<Sequence> {
        self.run.map(|run| run.next)
    }

    /// The highest epoch of the producer's id that was seen.
    #[must_use]
    pub fn newest_epoch(&self) -> Option<ProducerEpoch> {
        self.newest_epoch
    }

    /// Whether a batch of the producer did not follow the one before it. The broker refuses such
    /// batches for as long as it has a state.
    #[must_use]
    pub fn is_disordered(&self) -> bool {
        self.is_disordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::{Count, ProducerId};

    fn producer(id: i64, epoch: i16) -> Producer {
        Producer {
            id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
        }
    }

    fn sequence(count: u64) -> Option<Sequence> {
        Some(Count(count).sequence())
    }

    #[test]
    fn only_batches_of_the_line_are_counted() {
        let mut scan = TailScan::new(producer(7, 2), Offset(100));
        scan.batch(Some(producer(8, 2)), sequence(50), 5, Offset(105));
        scan.batch(None, None, 5, Offset(110));
        assert_eq!((scan.first(), scan.next()), (None, None));
        scan.batch(Some(producer(7, 2)), sequence(10), 5, Offset(115));
        scan.batch(Some(producer(8, 2)), sequence(60), 5, Offset(120));
        scan.batch(Some(producer(7, 2)), sequence(15), 5, Offset(125));
        assert_eq!((scan.first(), scan.next()), (sequence(10), sequence(20)));
        assert_eq!((scan.from(), scan.to()), (Offset(100), Offset(125)));
        assert!(!scan.is_disordered());
    }

    #[test]
    fn a_repeat_or_a_hole_is_seen() {
        for first in [9, 11] {
            let mut scan = TailScan::new(producer(7, 2), Offset(0));
            scan.batch(Some(producer(7, 2)), sequence(5), 5, Offset(5));
            scan.batch(Some(producer(7, 2)), sequence(first), 5, Offset(10));
            assert!(scan.is_disordered(), "{first}");
        }
    }

    #[test]
    fn the_newest_epoch_is_told() {
        let mut scan = TailScan::new(producer(7, 2), Offset(0));
        scan.batch(Some(producer(7, 3)), sequence(0), 5, Offset(5));
        assert_eq!(scan.newest_epoch(), Some(ProducerEpoch(3)));
        assert_eq!(scan.next(), None);
    }
}
