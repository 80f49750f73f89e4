//! What exists of a lane between a start and a stop or fault: the line from the intake to the sender, what is
//! out, and the ways to fetcher and outlet.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use kreplicator_batch::{Producer as WireProducer, aborted::AbortedTransaction, patch};
use kreplicator_model::{
    exact::{self, BatchId, Now, ReadFrom, Sender},
    ids::{Offset, UnixMillis},
};
use kreplicator_wire::{fetch::Fetched, topic::TopicId};

use super::{Next, Opening};
use crate::{
    batches::{
        fetcher::{FetcherHandle, Occupied},
        intake::{self, Doubt, Intake, Path, Ready, UNFOLDS, Unread},
        nearest::Nearest,
        outlet::OutletHandle,
    },
    budget::Share,
    engine::TaskSpec,
    fault::{Fault, Kind},
};

/// Bytes of records asked for a partition at a time, to begin with.
const FETCH_BYTES_MIN: i32 = 1 << 20;
/// The most, reached by doubling while answers are full: a long way needs large answers.
const FETCH_BYTES_MAX: i32 = 8 << 20;
/// The most that a single batch can make it. Brokers give a first batch whole whatever was asked for, so
/// this is for those that do not.
const FETCH_BYTES_ONE: i32 = 100 << 20;
/// Batches in line before tiny ones are joined: below, latency counts more.
const JOIN_FROM: usize = 8;
/// What a fetcher told last counts for so long after its broker's last answer: an answer leaves out what
/// has not changed.
const HEARD_MAX: Duration = Duration::from_secs(3);

/// What exists between a start and a stop or fault.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) sender: Sender,
    pub(super) producer: exact::Producer,
    pub(super) intake: Intake,
    /// Batches that wait for the sender, with the bytes of the share that they hold.
    pub(super) line: VecDeque<(Ready, u64)>,
    /// Batches that may have to be sent again.
    pub(super) held: VecDeque<Held>,
    /// What of an answer is not taken yet, for want of room or since a batch has to be opened.
    pub(super) backlog: Option<Backlog>,
    /// Number of the job that opens the next batch of it.
    pub(super) opening: Option<u64>,
    /// Jobs so far.
    pub(super) jobs: u64,
    /// How far batches are expected to unfold, as a multiple of their size.
    pub(super) unfolds: u64,
    /// So many bytes were not enough for the batch that is next.
    pub(super) tried_bytes: u64,
    /// Bytes of an answer that there was no room for anywhere: it is fetched again once there is.
    pub(super) starved: Option<u64>,
    /// Bytes that there is no room for.
    pub(super) lacking: Option<u64>,
    pub(super) share: Share,
    pub(super) fetcher: Option<FetcherHandle>,
    /// Which replica is read.
    pub(super) nearest: Nearest,
    /// How often in a row a broker gave nothing, or named another one.
    pub(super) turned_away: u32,
    pub(super) outlet: Option<OutletHandle>,
    pub(super) target_topic_id: Option<TopicId>,
    /// Number of the way to the target; what belongs to an earlier one is passed over.
    pub(super) way: u64,
    /// Sends that wait for an outlet.
    pub(super) unsent: VecDeque<(BatchId, u32)>,
    /// Handed to the outlet on this way and not answered: the outlet is not changed while there are any.
    pub(super) at_outlet: usize,
    /// The way is being looked for.
    pub(super) is_finding: bool,
    /// The target could not take a batch just now, or cannot tell yet what it has: nothing is sent or asked until
    /// time has passed.
    pub(super) is_resting: bool,
    pub(super) fetch_bytes: i32,
    pub(super) draining: bool,
    pub(super) failed: bool,
    /// Stops the task once everything before it is delivered.
    pub(super) fault_ahead: Option<Fault>,
    /// The source has lost what lies between the position and this offset.
    pub(super) source_lost: Option<Offset>,
    /// Records that the target had acknowledged and has lost, found out when nothing is read any more.
    pub(super) lost_records: u64,
    /// How often another owner was found to be ahead, as far as it was dealt with.
    pub(super) overtaken: u64,
}

/// What of an answer is not taken yet; its memory belongs to the fetcher.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) unread: Unread,
    _occupied: Occupied,
}

impl Backlog {
    pub(super) fn new(fetched: Fetched, occupied: Occupied) -> Self {
        let aborted = fetched.aborted.iter().map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id,
            first_offset: aborted.first_offset.0,
        });
        Self {
            unread: Unread::new(fetched.records, aborted.collect()),
            _occupied: occupied,
        }
    }
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: BatchId,
    pub(super) from: Offset,
    pub(super) to: Offset,
    pub(super) first: Offset,
    pub(super) parts: [Bytes; 2],
    pub(super) bytes: u64,
    pub(super) records: u32,
    pub(super) timestamp_max: UnixMillis,
    pub(super) path: Path,
}

impl Held {
    /// Bytes of the batch as it is sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl Flow {
    /// A flow that begins; nothing is read or sent yet.
    pub(super) fn new(
        opening: Opening,
        share: Share,
        spec: &TaskSpec,
        doubt: Option<Doubt>,
    ) -> Self {
        let Opening {
            sender,
            producer,
            read_from,
            skip_records,
            source_epoch,
            target_topic_id,
            is_reset: _,
        } = opening;
        Self {
            sender,
            producer,
            intake: Intake::new(read_from, skip_records, spec.limits, doubt).after(source_epoch),
            line: VecDeque::new(),
            held: VecDeque::new(),
            backlog: None,
            opening: None,
            jobs: 0,
            unfolds: UNFOLDS,
            tried_bytes: 0,
            starved: None,
            lacking: None,
            share,
            fetcher: None,
            nearest: Nearest::Asking,
            turned_away: 0,
            outlet: None,
            target_topic_id,
            way: 0,
            unsent: VecDeque::new(),
            at_outlet: 0,
            is_finding: false,
            is_resting: false,
            fetch_bytes: FETCH_BYTES_MIN,
            draining: false,
            failed: false,
            fault_ahead: None,
            source_lost: None,
            lost_records: 0,
            overtaken: 0,
        }
    }

    /// Gives back the memory of queues in which nothing waits: most tasks are quiet most of the time.
    pub(super) fn trim(&mut self) {
        fn trim<T>(queue: &mut VecDeque<T>) {
            if queue.is_empty() {
                *queue = VecDeque::new();
            }
        }
        trim(&mut self.line);
        trim(&mut self.held);
        trim(&mut self.unsent);
        self.sender.trim();
    }

    /// Whether nothing is read for it any more.
    pub(super) fn is_over(&self) -> bool {
        self.draining || self.failed
    }

    pub(super) fn next(&self) -> Next {
        if self.is_over() {
            return Next::Gone;
        }
        let ends_ahead = self.fault_ahead.is_some() || self.source_lost.is_some();
        if ends_ahead || self.backlog.is_some() || self.starved.is_some() {
            return Next::Pause;
        }
        Next::Read {
            offset: self.intake.position(),
            leader_epoch: self.intake.leader_epoch(),
            bytes_max: self.fetch_bytes,
        }
    }

    /// Bytes that it waits for though it holds none.
    pub(super) fn hunger(&self) -> Option<u64> {
        let is_free = !self.is_over() && self.share.held_bytes() == 0;
        self.lacking.filter(|_| is_free)
    }

    /// Whether the way to the target is to be looked for.
    pub(super) fn wants_way(&self) -> bool {
        let is_free = self.outlet.is_none() && self.at_outlet == 0;
        is_free && !self.is_finding && !self.unsent.is_empty()
    }

    /// The way to the target is gone with all that was on it.
    pub(super) fn lose_way(&mut self) {
        self.outlet = None;
        self.is_finding = false;
        self.at_outlet = 0;
        self.unsent.clear();
        self.sender.connection_lost();
    }

    /// Whether the broker that it is read from has answered lately.
    pub(super) fn is_heard(&self) -> bool {
        let heard = self.fetcher.as_ref().and_then(FetcherHandle::heard);
        heard.is_some_and(|heard| heard.elapsed() < HEARD_MAX)
    }

    /// Asks for more when answers are full, and for less when they are far from it.
    pub(super) fn adapt(&mut self, bytes: usize) {
        let asked = usize::try_from(self.fetch_bytes).unwrap_or(0);
        if bytes + bytes / 8 >= asked {
            self.fetch_bytes = self.fetch_bytes.saturating_mul(2).min(FETCH_BYTES_MAX);
        } else if bytes < asked / 8 {
            self.fetch_bytes = (self.fetch_bytes / 2).max(FETCH_BYTES_MIN);
        }
    }

    /// The next batch alone has so many bytes.
    pub(super) fn needs(&mut self, bytes: usize) {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.fetch_bytes = self.fetch_bytes.max(bytes.min(FETCH_BYTES_ONE));
    }

    /// Puts batches in line. `bytes` of the share are theirs, in proportion to their sizes.
    pub(super) fn enqueue(&mut self, ready: Vec<Ready>, bytes: u64) {
        let mut left = bytes;
        let count = ready.len();
        for (index, ready) in ready.into_iter().enumerate() {
            let size = ready.batch.size_bytes() as u64;
            let part = if index + 1 == count {
                left
            } else {
                size.min(left)
            };
            left -= part;
            self.line.push_back((ready, part));
        }
        if count == 0 {
            self.share.give(left);
        }
    }

    /// What is not taken yet is not wanted any more. A job under way is passed over when it is done.
    pub(super) fn forget_unread(&mut self) {
        self.backlog = None;
        self.opening = None;
        self.tried_bytes = 0;
        self.starved = None;
        self.lacking = None;
    }

    /// The next batch was opened within so many bytes.
    pub(super) fn note_opened(&mut self, plain_bytes: u64) {
        let was_enough = std::mem::take(&mut self.tried_bytes) == 0;
        let Some(backlog) = &mut self.backlog else {
            return;
        };
        if let Some(closed) = backlog.unread.closed()
            && !was_enough
        {
            // What follows is likely to be alike.
            self.unfolds = (plain_bytes / closed.bytes().max(1)).max(UNFOLDS);
        } else {
            // Nor is it for ever.
            self.unfolds = (self.unfolds / 2).max(UNFOLDS);
        }
        backlog.unread.opened();
        if backlog.unread.is_over() {
            self.backlog = None;
        }
    }

    /// Accounts for what the intake has passed without a record to send.
    pub(super) fn pass(&mut self) {
        let position = self.intake.position();
        match self.line.back_mut() {
            Some((last, _)) => last.to = last.to.max(position),
            None => self.sender.passed(position, self.intake.skip_left()),
        }
    }

    pub(super) fn push_ready(&mut self, spec: &TaskSpec, now: Now) -> Result<(), Fault> {
        while self.sender.has_room() && !self.line.is_empty() {
            if self.line.len() >= JOIN_FROM {
                self.join_tiny(spec);
            }
            let Some((ready, bytes)) = self.line.pop_front() else {
                return Ok(());
            };
            let from = self.sender.position();
            let batch = exact::Batch {
                from,
                to: ready.to,
                records: ready.records,
                timestamp_max: ready.timestamp_max,
            };
            let assigned = self.sender.push(batch, now).map_err(|error| {
                Fault::new(
                    Kind::Source,
                    format!("batches do not follow each other: {error}"),
                )
            })?;
            let producer = WireProducer {
                id: self.producer.id.0,
                epoch: self.producer.epoch.0,
                base_sequence: assigned.sequence.number(),
            };
            let patched = patch::patch(&ready.batch, 0, producer)
                .map_err(|error| Fault::new(Kind::Source, error.to_string()))?;
            self.held.push_back(Held {
                id: assigned.id,
                from,
                to: ready.to,
                first: ready.first,
                parts: [Bytes::copy_from_slice(&patched.header), patched.payload],
                bytes,
                records: ready.records,
                timestamp_max: ready.timestamp_max,
                path: ready.path,
            });
        }
        // What a drain has cleared away was not passed.
        if self.line.is_empty() && self.backlog.is_none() && !self.draining {
            self.pass();
        }
        Ok(())
    }

    /// Ends the counting once everything before what the source has lost is delivered.
    pub(super) fn end_at_loss(&mut self) {
        if let Some(to) = self.source_lost
            && self.line.is_empty()
            && self.backlog.is_none()
            && !self.draining
        {
            self.sender.source_lost(to);
        }
    }

    pub(super) fn join_tiny(&mut self, spec: &TaskSpec) {
        // What the target has refused once is not hidden among others again.
        let intake = &self.intake;
        let waiting = self.line.iter().map(|(ready, _)| ready);
        let waiting = waiting.take_while(|ready| !intake.doubts(ready));
        let Some((joined, count)) = intake::join_tiny(waiting, &spec.limits) else {
            return;
        };
        let bytes = self.line.drain(..count).map(|(_, bytes)| bytes).sum();
        self.line.push_front((joined, bytes));
    }

    pub(super) fn clear_line(&mut self) {
        let bytes = self.line.drain(..).map(|(_, bytes)| bytes).sum();
        self.share.give(bytes);
    }

    /// Goes back, or forward, to another place of the source. What the sender still holds stays.
    pub(super) fn reread(&mut self, from: ReadFrom, spec: &TaskSpec, doubt: Option<Doubt>) {
        self.clear_line();
        self.forget_unread();
        self.fault_ahead = None;
        self.source_lost = None;
        while self
            .held
            .back()
            .is_some_and(|held| held.from >= from.offset)
            && let Some(held) = self.held.pop_back()
        {
            self.share.give(held.bytes);
        }
        self.intake = Intake::new(from.offset, from.skip_records, spec.limits, doubt);
    }
}
