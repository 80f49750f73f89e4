//! The batches between the checkpoint and the reader.

use std::collections::VecDeque;

use super::{Assigned, Batch, BatchId, Count, Durability, Offset, Place, PushError, UnixMillis};

/// What is known of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryState {
    /// To be sent.
    Ready,
    /// Sent and not answered.
    InFlight,
    /// Sent, and it may be at the target.
    Unsure,
    /// Sent, and it is not at the target. `is_sequence`: because of its sequence.
    Refused { is_sequence: bool },
    /// Committed; where it ends at the target is not known.
    There,
    /// Committed: the target offset after it.
    Acked { end: Offset },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub id: BatchId,
    pub batch: Batch,
    /// Copyable records of the line below its first offset. It lies before `first` where records were
    /// passed over.
    pub at: Count,
    /// Place of its first record.
    pub first: Count,
    pub state: EntryState,
    /// Place after its last record.
    pub end: Count,
    /// Nothing was or will be sent: another owner's records, which were passed over.
    pub is_skip: bool,
    /// Attempts made.
    pub attempt: u32,
    /// An attempt ended without a word of the target, and nothing has shown since that it is not there.
    pub may_be_there: bool,
    /// Its records are so old that the state it leaves behind may be dropped at once.
    pub is_old: bool,
}

impl Entry {
    /// Nobody knows whether it is at the target.
    pub(super) fn doubt(&mut self) {
        self.state = EntryState::Unsure;
        self.may_be_there = true;
    }

    /// This attempt was not appended. An earlier one may have been: brokers look whether they can take a
    /// batch before they look whether they have it.
    pub(super) fn refuse(&mut self) {
        self.state = if self.may_be_there {
            EntryState::Unsure
        } else {
            EntryState::Refused { is_sequence: false }
        };
    }
}

/// Where the next batch begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    pub offset: Offset,
    /// Copyable records of the line below `offset`.
    pub at: Count,
    /// Place of the first record that is sent from there.
    pub next: Count,
}

/// # Invariants
/// - The source ranges of the batches follow each other from the front's offset to the cursor.
/// - Their counts follow each other up to the cursor; the first begins at the front's count or, after
///   a skip, beyond it.
#[derive(Debug, Clone)]
pub(super) struct Window {
    front: Place,
    entries: VecDeque<Entry>,
    cursor: Cursor,
    /// Places behind the front, oldest first.
    history: VecDeque<Place>,
    history_max: usize,
    next_id: u64,
    /// The newest batch that was acknowledged was old.
    is_old: bool,
    /// The records of the line below this place are committed, and only they of the line lie before this
    /// target offset.
    known: Option<(Count, Offset)>,
}

impl Window {
    pub(super) fn new(place: Place, skip_records: u64, history_max: usize) -> Self {
        Self {
            front: place,
            entries: VecDeque::new(),
            cursor: Cursor {
                offset: place.offset,
                at: place.count,
                next: place.count.plus(skip_records),
            },
            history: VecDeque::new(),
            history_max,
            next_id: 0,
            is_old: false,
            known: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Gives back the memory of batches that are gone, when there are none.
    pub(super) fn trim(&mut self) {
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    pub(super) fn front(&self) -> Place {
        self.front
    }

    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The records of the line that were pushed, or passed over before them, as far as the front.
    pub(super) fn pushed(&self) -> Count {
        let last = self.entries.back();
        last.map_or(self.front.count, |entry| entry.end)
    }

    pub(super) fn oldest(&self) -> Option<BatchId> {
        self.entries.front().map(|entry| entry.id)
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Whether the state that the last acknowledged batch left behind may be dropped.
    pub(super) fn is_unguarded(&self) -> bool {
        self.is_old
    }

    /// Whether a batch that is held is old, or the last one acknowledged was.
    pub(super) fn is_old(&self) -> bool {
        self.is_old || self.entries.iter().any(|entry| entry.is_old)
    }

    pub(super) fn push(&mut self, batch: Batch, is_old: bool) -> Result<Assigned, PushError> {
        if batch.records == 0 || batch.to <= batch.from {
            return Err(PushError::Malformed {
                records: batch.records,
                from: batch.from,
                to: batch.to,
            });
        }
        let Cursor { offset, at, next } = self.cursor;
        if batch.from != offset {
            return Err(PushError::NotNext {
                from: batch.from,
                expected: offset,
            });
        }
        let entry = Entry {
            id: BatchId(self.next_id),
            batch,
            at,
            first: next,
            end: next.plus(u64::from(batch.records)),
            is_skip: false,
            state: EntryState::Ready,
            attempt: 0,
            may_be_there: false,
            is_old,
        };
        self.append(entry);
        Ok(Assigned {
            id: entry.id,
            sequence: next.sequence(),
        })
    }

    fn append(&mut self, entry: Entry) {
        self.next_id += 1;
        self.cursor = Cursor {
            offset: entry.batch.to,
            at: entry.end,
            next: entry.end,
        };
        self.entries.push_back(entry);
    }

    /// Batches may grow old while they wait.
    pub(super) fn grow_old(&mut self, durability: Durability) {
        for entry in &mut self.entries {
            entry.is_old |= !durability.covers(entry.batch.timestamp_max);
        }
    }

    pub(super) fn passed(&mut self, to: Offset) {
        let Cursor { offset, at, next } = self.cursor;
        if to <= offset {
            return;
        }
        if at == next {
            self.cursor.offset = to;
            match self.entries.back_mut() {
                Some(last) => last.batch.to = to,
                None => self.front.offset = to,
            }
            return;
        }
        self.append(Entry {
            id: BatchId(self.next_id),
            batch: Batch {
                from: offset,
                to,
                records: 0,
                timestamp_max: UnixMillis(i64::MAX),
            },
            at,
            first: at,
            end: next,
            is_skip: true,
            state: EntryState::There,
            attempt: 0,
            may_be_there: false,
            is_old: false,
        });
        self.confirm_known();
    }

    /// The records of the line below `delivered` are committed, and only they of the line lie before target
    /// offset `end`.
    pub(super) fn know(&mut self, delivered: Count, end: Offset) {
        self.known = Some((delivered, end));
        self.confirm_known();
    }

    fn confirm_known(&mut self) {
        let Some((delivered, end)) = self.known else {
            return;
        };
        let is_there = |entry: &&Entry| entry.state == EntryState::There && entry.end <= delivered;
        let count = self.entries.iter().take_while(is_there).count();
        let Some(last) = count.checked_sub(1).map(|last| self.entries[last]) else {
            return;
        };
        if last.end != delivered {
            return;
        }
        self.remember();
        self.front = Place {
            offset: last.batch.to,
            count: last.end,
            target_end: end,
        };
        self.is_old = last.is_old;
        self.entries.drain(..count);
    }

    pub(super) fn is_any_in_flight(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.state == EntryState::InFlight)
    }

    /// Whether everything that is held is at the target, and so is nothing that is still to be read.
    pub(super) fn is_all_there(&self) -> bool {
        !self.entries.is_empty()
            && self.cursor.at == self.cursor.next
            && self
                .entries
                .iter()
                .all(|entry| entry.state == EntryState::There)
    }

    /// The next batch to send when at most `limit` may be in flight. Nothing follows an old batch that
    /// is unanswered: it leaves a state behind that may be dropped before what follows comes.
    pub(super) fn next_ready(&self, limit: usize) -> Option<usize> {
        let mut in_flight = 0;
        let mut is_behind_old = false;
        for (index, entry) in self.entries.iter().enumerate() {
            match entry.state {
                EntryState::Ready => {
                    let may = in_flight < limit && !is_behind_old;
                    return may.then_some(index);
                }
                EntryState::InFlight => {
                    in_flight += 1;
                    is_behind_old |= entry.is_old;
                }
                EntryState::There | EntryState::Acked { .. } => {}
                EntryState::Unsure | EntryState::Refused { .. } => return None,
            }
        }
        None
    }

    pub(super) fn send(&mut self, index: usize) -> (BatchId, u32) {
        let entry = &mut self.entries[index];
        entry.state = EntryState::InFlight;
        entry.attempt += 1;
        (entry.id, entry.attempt)
    }

    /// A batch and what is known of those before and after it.
    pub(super) fn find(&mut self, id: BatchId) -> Option<&mut Entry> {
        let index = self.entries.binary_search_by_key(&id, |entry| entry.id);
        index.ok().and_then(|index| self.entries.get_mut(index))
    }

    /// The first batch that was refused although a later one was taken.
    pub(super) fn hole(&self) -> Option<Entry> {
        let taken = self
            .entries
            .iter()
            .rposition(|entry| matches!(entry.state, EntryState::Acked { .. }))?;
        let refused = |entry: &&Entry| matches!(entry.state, EntryState::Refused { .. });
        self.entries.iter().take(taken).find(refused).copied()
    }

    /// Everything in flight has an unknown outcome.
    pub(super) fn lose_connection(&mut self) {
        for entry in &mut self.entries {
            if entry.state == EntryState::InFlight {
                entry.doubt();
            }
        }
    }

    /// Whether the first batch that went wrong cannot simply be sent again.
    pub(super) fn needs_question(&self) -> bool {
        let is_old = self.entries.iter().any(|entry| entry.is_old);
        let first = self
            .entries
            .iter()
            .find(|entry| matches!(entry.state, EntryState::Unsure | EntryState::Refused { .. }));
        let by_sequence = first
            .is_some_and(|entry| matches!(entry.state, EntryState::Refused { is_sequence: true }));
        is_old || by_sequence
    }

    /// Batches that are not known to be at the target are sent once more.
    pub(super) fn send_again(&mut self) {
        for entry in &mut self.entries {
            if matches!(entry.state, EntryState::Unsure | EntryState::Refused { .. }) {
                entry.state = EntryState::Ready;
            }
        }
    }

    /// The target has the records below `delivered`. Gives how many of them are newly known to be
    /// there, and from where to read on if the window does not end or begin with them.
    pub(super) fn reconcile(&mut self, delivered: Count) -> (u64, Option<(Offset, u64)>) {
        let first = self.entries.front().map(|entry| entry.first);
        if delivered < first.unwrap_or(self.cursor.next) {
            // Records that were passed over are gone again.
            return (0, Some(self.pass_over(delivered)));
        }
        let mut skipped = 0;
        let mut cut = None;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let is_acked = matches!(entry.state, EntryState::Acked { .. });
            if entry.end <= delivered {
                if !is_acked && entry.state != EntryState::There {
                    entry.state = EntryState::There;
                    skipped += u64::from(entry.batch.records);
                }
                continue;
            }
            let inside = delivered.since(entry.first).unwrap_or(0);
            if inside > 0 || entry.is_skip {
                skipped += if entry.is_skip { 0 } else { inside };
                cut = Some(index);
                break;
            }
            if !is_acked {
                entry.state = EntryState::Ready;
                entry.may_be_there = false;
            }
        }
        if let Some(index) = cut {
            let entry = self.entries[index];
            self.entries.truncate(index);
            self.cursor.offset = entry.batch.from;
            self.cursor.at = entry.at;
        } else {
            let beyond = delivered.since(self.cursor.next).unwrap_or(0);
            if beyond == 0 {
                return (skipped, None);
            }
            skipped += beyond;
        }
        // What was passed over and is not there is read again, behind what is sent again.
        self.cursor.next = delivered.max(self.cursor.at);
        let skip_records = self.cursor.next.since(self.cursor.at).unwrap_or(0);
        (skipped, Some((self.cursor.offset, skip_records)))
    }

    /// Gives up everything that is held; tells from where to read, and how many records to pass over there
    /// instead to come to `delivered`.
    pub(super) fn pass_over(&mut self, delivered: Count) -> (Offset, u64) {
        self.entries.clear();
        let Place { offset, count, .. } = self.front;
        self.cursor = Cursor {
            offset,
            at: count,
            next: delivered,
        };
        (offset, delivered.since(count).unwrap_or(0))
    }

    /// Moves the front over acknowledged batches, and over batches that were there before them.
    /// An error is a batch that came to lie before what was acknowledged earlier.
    pub(super) fn advance(&mut self) -> Result<(), Offset> {
        while let Some(end) = self.first_acked() {
            let entry = self.entries[end];
            let EntryState::Acked { end: target_end } = entry.state else {
                return Ok(());
            };
            let base = target_end.0 - i64::from(entry.batch.records);
            if base < self.front.target_end.0 {
                return Err(Offset(base));
            }
            self.remember();
            self.front = Place {
                offset: entry.batch.to,
                count: entry.end,
                target_end,
            };
            self.is_old = entry.is_old;
            self.entries.drain(..=end);
        }
        Ok(())
    }

    /// Goes back to a remembered place at or before `count`. Everything held is given up.
    pub(super) fn back_to(&mut self, count: Count) -> Option<Place> {
        self.known = None;
        while self.front.count > count {
            self.front = self.history.pop_back()?;
        }
        self.entries.clear();
        self.cursor = Cursor {
            offset: self.front.offset,
            at: self.front.count,
            next: count,
        };
        Some(self.front)
    }

    /// The last place whose records all lie before this target offset.
    pub(super) fn place_before(&self, target_end: Offset) -> Option<Place> {
        let mut places = self.history.iter().rev();
        places.find(|place| place.target_end <= target_end).copied()
    }

    /// Index of the first acknowledged batch if everything before it is at the target.
    fn first_acked(&self) -> Option<usize> {
        for (index, entry) in self.entries.iter().enumerate() {
            match entry.state {
                EntryState::Acked { .. } => return Some(index),
                EntryState::There => {}
                EntryState::Ready
                | EntryState::InFlight
                | EntryState::Unsure
                | EntryState::Refused { .. } => return None,
            }
        }
        None
    }

    fn remember(&mut self) {
        self.history.push_back(self.front);
        if self.history.len() > self.history_max {
            self.history.pop_front();
        }
    }
}
