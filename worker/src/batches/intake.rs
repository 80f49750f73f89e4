//! What becomes of the batches that a source gives: passed on unopened, written anew, or dropped.
//!
//! Which it is follows from the batch's header alone wherever possible, and always the same way for
//! the same source records: counting (`model::exact`) rests on it. What is dropped (markers, aborted
//! records, offsets without records) is accounted for by the offset range of what comes after it.
//!
//! - [`Intake::pass`]: takes whatever needs no opening. Quick.
//! - [`unread`]: an answer as far as it is not taken yet.
//! - [`open`]: opens one batch and writes it anew. That takes time and memory, so it is for whoever has
//!   both ([`rewriter`](super::rewriter)).
//! - [`join`]: joins tiny batches that wait.

mod join;
mod open;
mod unread;

use kreplicator_batch::{Batch, TimestampType, aborted::Verdict, split::Entry};
use kreplicator_model::{
    ids::{Offset, UnixMillis},
    target_limits::TargetLimits,
};

pub(super) use self::{
    join::join_tiny,
    open::{PLAIN_BYTES_MAX, UNFOLDS, UNFOLDS_FURTHER, Unopened, is_too_large},
    unread::{Closed, Unread},
};
use super::epochs::{Epochs, Mark};
use crate::fault::{Fault, Kind, chain};

/// Why a batch was written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Some of its records were delivered before.
    Resumed,
    /// Compaction removed some of its records.
    Holes,
    /// The source's append times become the records' own.
    AppendTime,
    /// It is larger than the target takes.
    Oversize,
    /// It has message format 0 or 1.
    OldFormat,
    /// Tiny ones waited in line.
    Tiny,
    /// The target refused a record of it, so that record goes alone.
    Isolated,
}

/// The way that a batch took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// As it was, with a new header.
    Passed,
    /// Opened and written anew.
    Rewritten(Why),
}

impl Why {
    /// The stable name, in metrics and in the status.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::Holes => "holes",
            Self::AppendTime => "append_time",
            Self::Oversize => "oversize",
            Self::OldFormat => "old_format",
            Self::Tiny => "tiny",
            Self::Isolated => "isolated",
        }
    }
}

/// A batch that can be sent.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    /// Once it is delivered, every source offset below this is accounted for.
    pub(super) to: Offset,
    /// Source offset of its first record.
    pub(super) first: Offset,
    /// Copyable records in it, at least 1.
    pub(super) records: u32,
    pub(super) timestamp_max: UnixMillis,
    pub(super) batch: Batch,
    pub(super) path: Path,
}

/// What one answer gave.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// In order.
    pub(super) ready: Vec<Ready>,
    /// Batches that were dropped: markers, aborted, empty.
    pub(super) dropped: u64,
    /// The first batch is cut off and needs an answer of so many bytes.
    pub(super) bytes_needed: Option<usize>,
}

/// Source offsets `[from, to)` among which the target refuses a record. The batch that holds them is cut, so
/// that in the end everything before the record is delivered and the record alone is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) from: Offset,
    pub(super) to: Offset,
    /// The record, where the target has told which.
    pub(super) refused: Option<Offset>,
}

impl Doubt {
    /// Where a batch with records at these source offsets is cut. Of the records in doubt the middle one
    /// counts, since offsets without records may make up most of the range.
    fn cuts(self, offsets: &[i64]) -> [i64; 2] {
        if let Some(refused) = self.refused {
            return [refused.0, refused.0.saturating_add(1)];
        }
        let begin = offsets.partition_point(|offset| *offset < self.from.0);
        let end = offsets.partition_point(|offset| *offset < self.to.0);
        let inside = offsets.get(begin..end).unwrap_or_default();
        match inside {
            [] => [self.to.0; 2],
            [alone] => [*alone, alone.saturating_add(1)],
            _ => [inside[inside.len() / 2]; 2],
        }
    }
}

/// Where a task's reader is, and what it passes over.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    /// Next source offset to read.
    position: Offset,
    /// Copyable records from here on that the target has already.
    skip_records: u64,
    limits: TargetLimits,
    doubt: Option<Doubt>,
    epochs: Epochs,
}

impl Intake {
    pub(super) fn new(
        position: Offset,
        skip_records: u64,
        limits: TargetLimits,
        doubt: Option<Doubt>,
    ) -> Self {
        Self {
            position,
            skip_records,
            limits,
            doubt,
            epochs: Epochs::new(position, None),
        }
    }

    /// The same after a record that a leader of this epoch has written.
    pub(super) fn after(self, leader_epoch: Option<i32>) -> Self {
        Self {
            epochs: Epochs::new(self.position, leader_epoch),
            ..self
        }
    }

    pub(super) fn position(&self) -> Offset {
        self.position
    }

    /// Records to pass over that are still to come.
    pub(super) fn skip_left(&self) -> u64 {
        self.skip_records
    }

    /// Epoch of the leader that wrote the record before the position.
    pub(super) fn leader_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// The same of the record before `checkpoint`, which never goes back.
    pub(super) fn settle(&mut self, checkpoint: Offset) -> Mark {
        self.epochs.settle(checkpoint)
    }

    /// Whether the target may refuse a record of a batch.
    pub(super) fn doubts(&self, ready: &Ready) -> bool {
        let doubt = self.doubt;
        doubt.is_some_and(|doubt| ready.first < doubt.to && ready.to > doubt.from)
    }

    /// Takes what needs no opening of an answer that begins at the position, up to the first batch that does:
    /// that is [`Unread::closed`] then.
    ///
    /// # Errors
    /// A batch that is damaged. What came before it is in `taken` and counts; the position is at the batch.
    pub(super) fn pass(&mut self, unread: &mut Unread, taken: &mut Taken) -> Result<(), Fault> {
        while unread.closed().is_none()
            && let Some(entry) = unread.next()
        {
            match entry {
                Ok((Entry::Batch(batch), _)) => {
                    let judged = unread.judge(&batch);
                    let verdict = judged.map_err(|error| self.damaged(&error))?;
                    self.pass_batch(batch, verdict, unread, taken);
                }
                Ok((Entry::Message(message), _)) => {
                    if message.next_offset() > self.position.0 {
                        unread.close(Closed::Message(message));
                    } else {
                        unread.taken(message.size_bytes());
                    }
                }
                Ok((Entry::Partial(partial), is_first)) => {
                    if is_first {
                        taken.bytes_needed = partial.bytes_needed;
                    }
                }
                Err(error) => return Err(self.damaged(&error)),
            }
        }
        Ok(())
    }

    fn pass_batch(
        &mut self,
        batch: Batch,
        verdict: Verdict,
        unread: &mut Unread,
        taken: &mut Taken,
    ) {
        let header = *batch.header();
        let next = Offset(header.next_offset());
        let size = batch.size_bytes();
        if next <= self.position {
            return unread.taken(size);
        }
        let shape = batch.shape();
        let is_whole = header.base_offset >= self.position.0;
        if verdict != Verdict::Keep || shape.is_empty() {
            taken.dropped += 1;
        } else if !is_whole || !self.pass_over(shape.record_count.unsigned_abs().into()) {
            let why = self.why_rewritten(&batch);
            if why.is_some() || !self.is_taken_whole(&batch, header.base_offset, next) {
                return unread.close(Closed::Batch(batch, why));
            }
            let first = Offset(header.base_offset);
            taken.ready.push(ready(batch, Path::Passed, first, next));
        }
        self.passed(next, header.leader_epoch);
        unread.taken(size);
    }

    /// Why a batch that is kept cannot go as it is, whatever its size.
    fn why_rewritten(&self, batch: &Batch) -> Option<Why> {
        let header = batch.header();
        let is_whole = header.base_offset >= self.position.0;
        let needs_times = header.attributes.timestamp_type() == TimestampType::LogAppendTime
            && !self.limits.log_append_time;
        if !is_whole || self.skip_records > 0 {
            Some(Why::Resumed)
        } else if !batch.shape().is_dense() {
            Some(Why::Holes)
        } else if needs_times {
            Some(Why::AppendTime)
        } else {
            None
        }
    }

    /// Whether a batch goes as a whole: it is not too large, and no record of it is in doubt. One record that is too
    /// large alone is for the target to refuse, and not worth opening: the limit may have been raised meanwhile.
    fn is_taken_whole(&self, batch: &Batch, first: i64, next: Offset) -> bool {
        let fits = batch.size_bytes() <= self.batch_bytes_max();
        let is_alone = batch.header().record_count <= 1;
        (fits || is_alone) && self.doubt_in(batch, first, next).is_none()
    }

    fn batch_bytes_max(&self) -> usize {
        let limit = self.limits.max_message_bytes;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        limit.unwrap_or(usize::MAX)
    }

    /// The doubt, where it is about records of a batch that can be cut.
    fn doubt_in(&self, batch: &Batch, first: i64, next: Offset) -> Option<Doubt> {
        let doubt = self.doubt?;
        let is_inside = first < doubt.to.0 && next.0 > doubt.from.0;
        (batch.header().record_count > 1 && is_inside).then_some(doubt)
    }

    /// Whether all of `records` are at the target already.
    fn pass_over(&mut self, records: u64) -> bool {
        if self.skip_records < records {
            return false;
        }
        self.skip_records -= records;
        true
    }

    fn passed(&mut self, next: Offset, leader_epoch: i32) {
        let leader_epoch = (leader_epoch >= 0).then_some(leader_epoch);
        self.epochs.read(self.position, leader_epoch);
        self.position = next;
    }

    fn damaged(&self, error: &(dyn std::error::Error + 'static)) -> Fault {
        let text = chain(error);
        let position = self.position;
        Fault::new(
            Kind::Source,
            format!(
                "source offset {position} cannot be read: {text}; delete the records below the next \
                 good one on the source, or repair its log"
            ),
        )
    }
}

fn ready(batch: Batch, path: Path, first: Offset, to: Offset) -> Ready {
    let header = batch.header();
    Ready {
        to,
        first,
        records: header.record_count.unsigned_abs(),
        timestamp_max: UnixMillis(header.max_timestamp),
        batch,
        path,
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
