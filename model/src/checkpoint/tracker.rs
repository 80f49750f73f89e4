//! Turns acknowledgements, in any order, into a checkpoint.

use std::{collections::VecDeque, ops::Range};

use crate::ids::Offset;

/// Keeps the records of one partition that were sent and not yet acknowledged.
///
/// Source offsets may have holes (compaction, aborted transactions, markers): offsets between two
/// records that were read one after the other hold nothing to copy.
///
/// # Invariants
/// - The checkpoint is the lowest offset that is not known to be done; it never moves back.
/// - A failed delivery is simply never acknowledged, so it can only hold the checkpoint (C025).
/// - Memory is proportional to the records between the checkpoint and the reader's position.
#[derive(Debug, Clone)]
pub struct AckTracker {
    /// Sent records from the first that is not acknowledged on, by offset.
    window: VecDeque<Sent>,
    /// The offset after everything that was sent or skipped.
    position: Offset,
    outstanding_records: usize,
    outstanding_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    offset: Offset,
    bytes: u64,
    acked: bool,
}

/// Offsets were given out of order: the reader is not where the tracker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} does not fit to position {position}; open the reader at the checkpoint")]
pub struct OutOfOrder {
    /// The offset given.
    pub offset: Offset,
    /// The position of the tracker.
    pub position: Offset,
}

impl AckTracker {
    /// Everything below `checkpoint` is done.
    #[must_use]
    pub fn new(checkpoint: Offset) -> Self {
        Self {
            window: VecDeque::new(),
            position: checkpoint,
            outstanding_records: 0,
            outstanding_bytes: 0,
        }
    }

    /// Notes that a record was handed to the sink.
    ///
    /// # Errors
    /// [`OutOfOrder`] when the offset lies below the position; nothing is changed then.
    pub fn sent(&mut self, offset: Offset, bytes: u64) -> Result<(), OutOfOrder> {
        if offset < self.position {
            return Err(self.out_of_order(offset));
        }
        self.window.push_back(Sent {
            offset,
            bytes,
            acked: false,
        });
        self.position = offset.next();
        self.outstanding_records += 1;
        self.outstanding_bytes += bytes;
        Ok(())
    }

    /// Notes that the target has a record safely. False when no such record is outstanding: it was
    /// acknowledged before or given up by [`AckTracker::rewind`].
    pub fn acked(&mut self, offset: Offset) -> bool {
        let found = self
            .window
            .binary_search_by_key(&offset, |sent| sent.offset);
        let Some(sent) = found.ok().and_then(|index| self.window.get_mut(index)) else {
            return false;
        };
        if sent.acked {
            return false;
        }
        sent.acked = true;
        self.outstanding_records -= 1;
        self.outstanding_bytes -= sent.bytes;
        while self.window.front().is_some_and(|first| first.acked) {
            self.window.pop_front();
        }
        true
    }

    /// Notes that source offsets `[start, end)` hold nothing to copy: read past, or lost and
    /// reported. What lies below the position is passed over.
    ///
    /// # Errors
    /// [`OutOfOrder`] when the range starts after the position: the offsets between are not accounted
    /// for. Nothing is changed then.
    pub fn skipped(&mut self, range: Range<Offset>) -> Result<(), OutOfOrder> {
        if range.start > self.position {
            return Err(self.out_of_order(range.start));
        }
        self.position = self.position.max(range.end);
        Ok(())
    }

    /// Gives up every record that is not acknowledged and goes back to the checkpoint, from where the
    /// reader must read again. Late acknowledgements of what was given up are passed over until the
    /// record is sent again; after that they count, for the target does have the record.
    pub fn rewind(&mut self) -> Offset {
        let checkpoint = self.checkpoint();
        *self = Self::new(checkpoint);
        checkpoint
    }

    /// The lowest source offset that is not known to be done: the next one to copy.
    #[must_use]
    pub fn checkpoint(&self) -> Offset {
        self.window
            .front()
            .map_or(self.position, |first| first.offset)
    }

    /// The offset after everything that was sent or skipped. Not progress.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.position
    }

    /// Records sent and not acknowledged.
    #[must_use]
    pub fn outstanding_records(&self) -> usize {
        self.outstanding_records
    }

    /// Their bytes, as given to [`AckTracker::sent`].
    #[must_use]
    pub fn outstanding_bytes(&self) -> u64 {
        self.outstanding_bytes
    }

    /// Whether everything that was sent is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.window.is_empty()
    }

    fn out_of_order(&self, offset: Offset) -> OutOfOrder {
        OutOfOrder {
            offset,
            position: self.position,
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
