//! What becomes of the batches that a source gives: passed on unopened, written anew, or dropped.
//!
//! Which it is follows from the batch's header alone wherever possible, and always the same way for
//! the same source records: counting (`model::exact`) rests on it. What is dropped (markers, aborted
//! records, offsets without records) is accounted for by the offset range of what comes after it.

use std::collections::VecDeque;

use bytes::Bytes;
use kreplicator_batch::{
    AbortedFilter, Batch, Levels, TimestampType,
    aborted::{AbortedTransaction, Verdict},
    legacy::Message,
    records::{Times, Unpacked},
    rewrite::{self, Options},
    split::{self, Entry},
};
use kreplicator_model::{
    ids::{Offset, UnixMillis},
    target_limits::TargetLimits,
};

use crate::fault::{Fault, Kind, chain};

/// Records of one batch may unfold to this many bytes; a batch that unfolds to more is a fault of its
/// task, not the end of the process.
pub(super) const PLAIN_BYTES_MAX: usize = 256 << 20;
/// Batches smaller than this are tiny.
const TINY_BYTES: usize = 4 << 10;
/// Tiny batches are joined up to this size.
const JOINED_BYTES_MAX: usize = 256 << 10;

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
    /// Epoch of the leader that wrote the batch before `position`.
    leader_epoch: Option<i32>,
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
            leader_epoch: None,
        }
    }

    pub(super) fn position(&self) -> Offset {
        self.position
    }

    /// Records to pass over that are still to come.
    pub(super) fn skip_left(&self) -> u64 {
        self.skip_records
    }

    pub(super) fn leader_epoch(&self) -> Option<i32> {
        self.leader_epoch
    }

    /// Whether the target may refuse a record of a batch.
    pub(super) fn doubts(&self, ready: &Ready) -> bool {
        let doubt = self.doubt;
        doubt.is_some_and(|doubt| ready.first < doubt.to && ready.to > doubt.from)
    }

    /// Takes the record batches of an answer that begins at the position.
    ///
    /// # Errors
    /// A batch that is damaged, or that cannot be sent whatever is done. What came before it is in
    /// `taken` and counts; the position is at the batch.
    pub(super) fn take(
        &mut self,
        records: Bytes,
        aborted: Vec<AbortedTransaction>,
        taken: &mut Taken,
    ) -> Result<(), Fault> {
        let mut filter = AbortedFilter::new(aborted);
        let mut is_first = true;
        for entry in split::entries(records) {
            match entry {
                Ok(Entry::Batch(batch)) => {
                    let verdict = filter.judge(&batch).map_err(|error| self.damaged(&error))?;
                    self.take_batch(batch, verdict, taken)?;
                }
                Ok(Entry::Message(message)) => self.take_message(&message, taken)?,
                Ok(Entry::Partial(partial)) => {
                    if is_first {
                        taken.bytes_needed = partial.bytes_needed;
                    }
                    return Ok(());
                }
                Err(error) => return Err(self.damaged(&error)),
            }
            is_first = false;
        }
        Ok(())
    }

    fn take_batch(
        &mut self,
        batch: Batch,
        verdict: Verdict,
        taken: &mut Taken,
    ) -> Result<(), Fault> {
        let header = *batch.header();
        let next = Offset(header.next_offset());
        if next <= self.position {
            return Ok(());
        }
        let shape = batch.shape();
        if verdict != Verdict::Keep || shape.is_empty() {
            taken.dropped += 1;
            self.passed(next, header.leader_epoch);
            return Ok(());
        }
        let is_whole = header.base_offset >= self.position.0;
        if is_whole && self.pass_over(shape.record_count.unsigned_abs().into()) {
            self.passed(next, header.leader_epoch);
            return Ok(());
        }
        let needs_times = header.attributes.timestamp_type() == TimestampType::LogAppendTime
            && !self.limits.log_append_time;
        let why = if !is_whole || self.skip_records > 0 {
            Some(Why::Resumed)
        } else if !shape.is_dense() {
            Some(Why::Holes)
        } else if needs_times {
            Some(Why::AppendTime)
        } else {
            None
        };
        match why {
            None => self.push(batch, Path::Passed, &[], next, taken)?,
            Some(why) => {
                batch.verify().map_err(|error| self.damaged(&error))?;
                let (rest, offsets) = self.rest_of(&batch)?;
                if let Some(rest) = rest {
                    self.push(rest, Path::Rewritten(why), &offsets, next, taken)?;
                }
            }
        }
        self.passed(next, header.leader_epoch);
        Ok(())
    }

    /// The records of a batch that were not delivered before, and their source offsets; None: all
    /// were.
    fn rest_of(&mut self, batch: &Batch) -> Result<(Option<Batch>, Vec<i64>), Fault> {
        let (position, mut skip) = (self.position.0, self.skip_records);
        let mut offsets = Vec::new();
        let rest = rewrite::keep(batch, &options(), |record| {
            if record.offset < position {
                return false;
            }
            let is_skipped = skip > 0;
            skip = skip.saturating_sub(1);
            if !is_skipped {
                offsets.push(record.offset);
            }
            !is_skipped
        });
        let rest = rest.map_err(|error| self.damaged(&error))?;
        self.skip_records = skip;
        Ok((rest, offsets))
    }

    fn take_message(&mut self, message: &Message, taken: &mut Taken) -> Result<(), Fault> {
        let next = Offset(message.next_offset());
        if next <= self.position {
            return Ok(());
        }
        message.verify().map_err(|error| self.damaged(&error))?;
        let upgraded = rewrite::upgrade(std::slice::from_ref(message), usize::MAX, &options())
            .map_err(|error| self.damaged(&error))?;
        let Some(batch) = upgraded.batch else {
            self.passed(next, -1);
            return Ok(());
        };
        let (batch, offsets) = self.rest_of_message(message, batch)?;
        if let Some(batch) = batch {
            let path = Path::Rewritten(Why::OldFormat);
            self.push(batch, path, &offsets, next, taken)?;
        }
        self.passed(next, -1);
        Ok(())
    }

    /// The same for a message, whose records have lost their source offsets in `batch`.
    fn rest_of_message(
        &mut self,
        message: &Message,
        batch: Batch,
    ) -> Result<(Option<Batch>, Vec<i64>), Fault> {
        let unpacked = message
            .open(PLAIN_BYTES_MAX)
            .map_err(|error| self.damaged(&error))?;
        let mut offsets = Vec::new();
        for record in unpacked.records(Times::Shown) {
            offsets.push(record.map_err(|error| self.damaged(&error))?.offset);
        }
        let below = offsets.partition_point(|offset| *offset < self.position.0);
        let skipped = u64::try_from(offsets.len() - below)
            .unwrap_or(u64::MAX)
            .min(self.skip_records);
        self.skip_records -= skipped;
        let gone = below + usize::try_from(skipped).unwrap_or(usize::MAX);
        if gone == 0 {
            return Ok((Some(batch), offsets));
        }
        offsets.drain(..gone);
        let rest = rewrite::skip_first(&batch, rewrite::Skip::Records(gone), &options())
            .map_err(|error| self.damaged(&error))?;
        Ok((rest, offsets))
    }

    /// Whether all of `records` are at the target already.
    fn pass_over(&mut self, records: u64) -> bool {
        if self.skip_records < records {
            return false;
        }
        self.skip_records -= records;
        true
    }

    /// `offsets`: those of the records at the source, where the batch does not tell them any more.
    fn push(
        &self,
        batch: Batch,
        path: Path,
        offsets: &[i64],
        next: Offset,
        taken: &mut Taken,
    ) -> Result<(), Fault> {
        let header = *batch.header();
        let whole: Vec<i64>;
        let first = offsets.first().copied().unwrap_or(header.base_offset);
        let limit = self.limits.max_message_bytes;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX);
        let doubt = self
            .doubt
            .filter(|doubt| header.record_count > 1 && first < doubt.to.0 && next.0 > doubt.from.0);
        if batch.size_bytes() <= limit && doubt.is_none() {
            taken.ready.push(ready(batch, path, Offset(first), next));
            return Ok(());
        }
        batch.verify().map_err(|error| self.damaged(&error))?;
        let offsets = if offsets.is_empty() {
            // As many as the bytes hold: a header may claim billions.
            whole = self.offsets_of(&batch)?;
            &whole
        } else {
            offsets
        };
        let parts = match doubt {
            Some(doubt) => self.cut(&batch, offsets, doubt)?,
            None => vec![(batch, path)],
        };
        let mut rest = offsets;
        let mut pieces = Vec::new();
        let mut parts: VecDeque<_> = parts.into();
        while let Some((part, path)) = parts.pop_front() {
            if part.size_bytes() <= limit || part.header().record_count <= 1 {
                // A record that is too large alone is for the target to refuse: the limit may have
                // been raised meanwhile.
                pieces.push((part, path));
                continue;
            }
            let why = Path::Rewritten(Why::Oversize);
            match rewrite::split_to_fit(&part, limit, &options()) {
                Ok(split) => pieces.extend(split.into_iter().map(|piece| (piece.batch, why))),
                Err(rewrite::Error::RecordTooLarge { offset, .. }) => {
                    let at = usize::try_from(offset - part.header().base_offset);
                    let around = self.around(&part, at.unwrap_or(0))?;
                    for piece in around.into_iter().rev() {
                        parts.push_front((piece, why));
                    }
                }
                Err(error) => return Err(self.damaged(&error)),
            }
        }
        let count = pieces.len();
        for (index, (piece, path)) in pieces.into_iter().enumerate() {
            let records = piece.header().record_count.unsigned_abs() as usize;
            let Some((own, after)) = rest.split_at_checked(records) else {
                return Err(self.damaged(&split::Error::Length {
                    offset: first,
                    position: 0,
                    length: 0,
                }));
            };
            rest = after;
            let (Some(first), Some(last)) = (own.first(), own.last()) else {
                continue;
            };
            let to = if index + 1 == count {
                next
            } else {
                Offset(last + 1)
            };
            taken.ready.push(ready(piece, path, Offset(*first), to));
        }
        Ok(())
    }

    fn offsets_of(&self, batch: &Batch) -> Result<Vec<i64>, Fault> {
        let unpacked =
            Unpacked::open(batch, PLAIN_BYTES_MAX).map_err(|error| self.damaged(&error))?;
        let offsets = unpacked
            .records()
            .map(|record| record.map(|record| record.offset));
        let offsets: Result<_, _> = offsets.collect();
        offsets.map_err(|error| self.damaged(&error))
    }

    /// A batch in up to three, around the record that the target refuses.
    fn cut(
        &self,
        batch: &Batch,
        offsets: &[i64],
        doubt: Doubt,
    ) -> Result<Vec<(Batch, Path)>, Fault> {
        let [low, high] = doubt.cuts(offsets);
        let ranges = [i64::MIN..low, low..high, high..i64::MAX];
        let mut parts = Vec::new();
        for range in ranges {
            let mut index = 0;
            let part = rewrite::keep(batch, &options(), |_| {
                let offset = offsets.get(index).copied();
                index += 1;
                offset.is_some_and(|offset| range.contains(&offset))
            });
            let part = part.map_err(|error| self.damaged(&error))?;
            parts.extend(part.map(|part| (part, Path::Rewritten(Why::Isolated))));
        }
        Ok(parts)
    }

    /// What is before the record at an index, the record, and what is after it.
    fn around(&self, batch: &Batch, at: usize) -> Result<Vec<Batch>, Fault> {
        let mut parts = Vec::new();
        for range in [0..at, at..at + 1, at + 1..usize::MAX] {
            let mut index = 0;
            let part = rewrite::keep(batch, &options(), |_| {
                index += 1;
                range.contains(&(index - 1))
            });
            parts.extend(part.map_err(|error| self.damaged(&error))?);
        }
        Ok(parts)
    }

    fn passed(&mut self, next: Offset, leader_epoch: i32) {
        self.position = next;
        self.leader_epoch = (leader_epoch >= 0).then_some(leader_epoch);
    }

    fn damaged(&self, error: &dyn std::error::Error) -> Fault {
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

fn options() -> Options {
    Options {
        plain_bytes_max: PLAIN_BYTES_MAX,
        levels: Levels::default(),
        times: Times::Shown,
    }
}

/// Joins the tiny batches at the front of a line into one, when at least two wait there; how many of
/// them it stands for. A damaged one ends the joining: it goes by itself and is refused by the target, once
/// everything before it is delivered (C024).
pub(super) fn join_tiny<'a>(
    waiting: impl Iterator<Item = &'a Ready>,
    limits: &TargetLimits,
) -> Option<(Ready, usize)> {
    let mut bytes = 0;
    let mut tiny: Vec<&Ready> = Vec::new();
    let limit = limits.max_message_bytes.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .min(JOINED_BYTES_MAX);
    for ready in waiting {
        let size = ready.batch.size_bytes();
        if size > TINY_BYTES || bytes + size > limit || ready.batch.verify().is_err() {
            break;
        }
        bytes += size;
        tiny.push(ready);
    }
    if tiny.len() < 2 {
        return None;
    }
    let batches: Vec<Batch> = tiny.iter().map(|ready| ready.batch.clone()).collect();
    // One that cannot be opened is for the target to refuse as well.
    let joined = rewrite::coalesce(&batches, limit, &options()).ok()?;
    let (batch, last) = (joined.batch?, tiny.get(joined.taken.checked_sub(1)?)?);
    if batch.size_bytes() > limit || joined.taken < 2 {
        return None;
    }
    let first = tiny.first()?.first;
    let joined_ready = ready(batch, Path::Rewritten(Why::Tiny), first, last.to);
    Some((joined_ready, joined.taken))
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
