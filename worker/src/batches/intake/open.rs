//! Opens batches one at a time and writes them anew.

use std::collections::VecDeque;

use kreplicator_batch::{
    Batch, Levels, codec,
    legacy::Message,
    records::{Times, Unpacked},
    rewrite::{self, Options},
    split,
};
use kreplicator_model::ids::Offset;

use super::{Closed, Doubt, Intake, Path, Taken, Why, ready};
use crate::fault::{Fault, Kind};

/// Records of one batch may unfold to this many bytes; a batch that unfolds to more is a fault of its
/// task, not the end of the process.
pub(in crate::batches) const PLAIN_BYTES_MAX: usize = 256 << 20;

/// How far batches are expected to unfold before any has: what text and JSON seldom exceed.
pub(in crate::batches) const UNFOLDS: u64 = 8;
/// When a batch unfolds to more than was expected, so many times as much is tried next.
pub(in crate::batches) const UNFOLDS_FURTHER: u64 = 4;

/// Why a batch was not written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::batches) enum Unopened {
    /// It unfolds to more than was allowed.
    TooLarge,
    /// It is damaged, or cannot be sent whatever is done.
    Damaged(Fault),
}

impl Intake {
    /// Opens the batch at the position, whose records may unfold to `plain_bytes_max`, and takes what becomes of
    /// it.
    ///
    /// # Errors
    /// [`Unopened`]. Neither intake nor `taken` are good for anything then.
    pub(in crate::batches) fn open(
        &mut self,
        closed: &Closed,
        plain_bytes_max: usize,
        taken: &mut Taken,
    ) -> Result<(), Unopened> {
        let mut opening = Opening {
            intake: self,
            plain_bytes_max,
        };
        match closed {
            Closed::Batch(batch, why) => opening.open_batch(batch, *why, taken),
            Closed::Message(message) => opening.open_message(message, taken),
        }
    }

    /// The fault behind a batch at the position that unfolds to more than any may.
    pub(in crate::batches) fn unfolds_too_far(&self) -> Fault {
        Fault::new(
            Kind::Source,
            format!(
                "the batch at source offset {} cannot be read: it unfolds to more than {} MiB; delete the \
                 records below the next good one on the source",
                self.position,
                PLAIN_BYTES_MAX >> 20
            ),
        )
    }
}

/// An intake with a batch in its hands.
struct Opening<'a> {
    intake: &'a mut Intake,
    plain_bytes_max: usize,
}

impl Opening<'_> {
    fn open_batch(
        &mut self,
        batch: &Batch,
        why: Option<Why>,
        taken: &mut Taken,
    ) -> Result<(), Unopened> {
        let header = *batch.header();
        let next = Offset(header.next_offset());
        match why {
            None => self.push(batch.clone(), Path::Passed, &[], next, taken)?,
            Some(why) => {
                batch.verify().map_err(|error| self.unopened(&error))?;
                let (rest, offsets) = self.rest_of(batch)?;
                if let Some(rest) = rest {
                    self.push(rest, Path::Rewritten(why), &offsets, next, taken)?;
                }
            }
        }
        self.intake.passed(next, header.leader_epoch);
        Ok(())
    }

    /// The records of a batch that were not delivered before, and their source offsets; None: all
    /// were.
    fn rest_of(&mut self, batch: &Batch) -> Result<(Option<Batch>, Vec<i64>), Unopened> {
        let (position, mut skip) = (self.intake.position.0, self.intake.skip_records);
        let mut offsets = Vec::new();
        let rest = rewrite::keep(batch, &self.options(), |record| {
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
        let rest = rest.map_err(|error| self.unopened(&error))?;
        self.intake.skip_records = skip;
        Ok((rest, offsets))
    }

    fn open_message(&mut self, message: &Message, taken: &mut Taken) -> Result<(), Unopened> {
        let next = Offset(message.next_offset());
        message.verify().map_err(|error| self.unopened(&error))?;
        let upgraded = rewrite::upgrade(std::slice::from_ref(message), usize::MAX, &self.options())
            .map_err(|error| self.unopened(&error))?;
        let Some(batch) = upgraded.batch else {
            self.intake.passed(next, -1);
            return Ok(());
        };
        let (batch, offsets) = self.rest_of_message(message, batch)?;
        if let Some(batch) = batch {
            let path = Path::Rewritten(Why::OldFormat);
            self.push(batch, path, &offsets, next, taken)?;
        }
        self.intake.passed(next, -1);
        Ok(())
    }

    /// The same for a message, whose records have lost their source offsets in `batch`.
    fn rest_of_message(
        &mut self,
        message: &Message,
        batch: Batch,
    ) -> Result<(Option<Batch>, Vec<i64>), Unopened> {
        let unpacked = message
            .open(self.plain_bytes_max)
            .map_err(|error| self.unopened(&error))?;
        let mut offsets = Vec::new();
        for record in unpacked.records(Times::Shown) {
            offsets.push(record.map_err(|error| self.unopened(&error))?.offset);
        }
        let below = offsets.partition_point(|offset| *offset < self.intake.position.0);
        let skipped = u64::try_from(offsets.len() - below)
            .unwrap_or(u64::MAX)
            .min(self.intake.skip_records);
        self.intake.skip_records -= skipped;
        let gone = below + usize::try_from(skipped).unwrap_or(usize::MAX);
        if gone == 0 {
            return Ok((Some(batch), offsets));
        }
        offsets.drain(..gone);
        let rest = rewrite::skip_first(&batch, rewrite::Skip::Records(gone), &self.options())
            .map_err(|error| self.unopened(&error))?;
        Ok((rest, offsets))
    }

    /// `offsets`: those of the records at the source, where the batch does not tell them any more.
    fn push(
        &self,
        batch: Batch,
        path: Path,
        offsets: &[i64],
        next: Offset,
        taken: &mut Taken,
    ) -> Result<(), Unopened> {
        let whole: Vec<i64>;
        let first = offsets.first().copied();
        let first = first.unwrap_or(batch.header().base_offset);
        let limit = self.intake.batch_bytes_max();
        if self.intake.is_taken_whole(&batch, first, next) {
            taken.ready.push(ready(batch, path, Offset(first), next));
            return Ok(());
        }
        let doubt = self.intake.doubt_in(&batch, first, next);
        batch.verify().map_err(|error| self.unopened(&error))?;
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
            match rewrite::split_to_fit(&part, limit, &self.options()) {
                Ok(split) => pieces.extend(split.into_iter().map(|piece| (piece.batch, why))),
                Err(rewrite::Error::RecordTooLarge { offset, .. }) => {
                    let at = usize::try_from(offset - part.header().base_offset);
                    let around = self.around(&part, at.unwrap_or(0))?;
                    for piece in around.into_iter().rev() {
                        parts.push_front((piece, why));
                    }
                }
                Err(error) => return Err(self.unopened(&error)),
            }
        }
        let count = pieces.len();
        for (index, (piece, path)) in pieces.into_iter().enumerate() {
            let records = piece.header().record_count.unsigned_abs() as usize;
            let Some((own, after)) = rest.split_at_checked(records) else {
                return Err(self.unopened(&split::Error::Length {
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

    fn offsets_of(&self, batch: &Batch) -> Result<Vec<i64>, Unopened> {
        let unpacked =
            Unpacked::open(batch, self.plain_bytes_max).map_err(|error| self.unopened(&error))?;
        let offsets = unpacked
            .records()
            .map(|record| record.map(|record| record.offset));
        let offsets: Result<_, _> = offsets.collect();
        offsets.map_err(|error| self.unopened(&error))
    }

    /// A batch in up to three, around the record that the target refuses.
    fn cut(
        &self,
        batch: &Batch,
        offsets: &[i64],
        doubt: Doubt,
    ) -> Result<Vec<(Batch, Path)>, Unopened> {
        let [low, high] = doubt.cuts(offsets);
        let ranges = [i64::MIN..low, low..high, high..i64::MAX];
        let mut parts = Vec::new();
        for range in ranges {
            let mut index = 0;
            let part = rewrite::keep(batch, &self.options(), |_| {
                let offset = offsets.get(index).copied();
                index += 1;
                offset.is_some_and(|offset| range.contains(&offset))
            });
            let part = part.map_err(|error| self.unopened(&error))?;
            parts.extend(part.map(|part| (part, Path::Rewritten(Why::Isolated))));
        }
        Ok(parts)
    }

    /// What is before the record at an index, the record, and what is after it.
    fn around(&self, batch: &Batch, at: usize) -> Result<Vec<Batch>, Unopened> {
        let mut parts = Vec::new();
        for range in [0..at, at..at + 1, at + 1..usize::MAX] {
            let mut index = 0;
            let part = rewrite::keep(batch, &self.options(), |_| {
                index += 1;
                range.contains(&(index - 1))
            });
            parts.extend(part.map_err(|error| self.unopened(&error))?);
        }
        Ok(parts)
    }

    fn options(&self) -> Options {
        options(self.plain_bytes_max)
    }

    fn unopened(&self, error: &(dyn std::error::Error + 'static)) -> Unopened {
        if is_too_large(error) {
            Unopened::TooLarge
        } else {
            Unopened::Damaged(self.intake.damaged(error))
        }
    }
}

/// Whether somewhere behind an error is that the records unfold to more than was allowed.
pub(in crate::batches) fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(codec::Error::TooLarge { .. }) = this.downcast_ref() {
            return true;
        }
        error = this.source();
    }
    false
}

pub(super) fn options(plain_bytes_max: usize) -> Options {
    Options {
        plain_bytes_max,
        levels: Levels::default(),
        times: Times::Shown,
    }
}
