//! What a sender takes and tells.

use std::time::Duration;

use crate::{
    exact::{
        delivered::Place,
        line::Producer,
        mode::{DeliveryMode, Reason},
        sequence::Sequence,
        take_over::{ReadFrom, Resume},
    },
    ids::{Offset, UnixMillis},
};

/// How careful a sender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Batches that may be unanswered at a time, 1 to 5.
    ///
    /// # Source
    /// `ProducerStateEntry.NUM_BATCHES_TO_RETAIN` (storage, 4.0): the broker knows the last five again.
    pub in_flight_max: usize,
    /// After so long without a call of [`Sender::poll`](super::Sender::poll) the process counts as frozen. Call it at least
    /// twice in this time.
    pub quiet_max: Duration,
    /// After so long without a word from the target about this partition it is asked before
    /// the next send. Together with `state_lifetime` it stays below the target's
    /// `producer.id.expiration.ms`.
    pub unheard_max: Duration,
    /// For how long after the timestamp of its last record the target surely keeps a producer's state:
    /// a part of its `producer.id.expiration.ms`.
    pub state_lifetime: Duration,
    /// Places remembered behind the checkpoint, to go back to where the target loses its tail.
    pub history_max: usize,
    /// Whether reading the source again gives the same records: not compacted.
    pub source_is_deterministic: bool,
}

/// Now, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since any fixed start, on a monotonic clock that also runs while the process is frozen.
    pub mono: Duration,
    /// By the wall clock, as brokers count the age of records.
    pub wall: UnixMillis,
}

/// Names a batch of one sender; rises with every push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// Copyable records that are sent as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Source offsets `[from, to)` that it stands for, holes included. `from` is where the one
    /// before it ends.
    pub from: Offset,
    /// End of the range, exclusive.
    pub to: Offset,
    /// Copyable records in it, at least 1.
    pub records: u32,
    /// Highest timestamp of the records.
    pub timestamp_max: UnixMillis,
}

/// What a batch was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// Its name.
    pub id: BatchId,
    /// Sequence of its first record.
    pub sequence: Sequence,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// As many are held as may be.
    #[error("{held} batches are held; wait for an acknowledgement")]
    Full {
        /// Batches held.
        held: usize,
    },
    /// It does not begin where the last one ended.
    #[error("a batch begins at offset {from} and not at {expected}; read from there")]
    NotNext {
        /// Where it begins.
        from: Offset,
        /// Where it should.
        expected: Offset,
    },
    /// It holds no record or no offset.
    #[error(
        "a batch of {records} records in offsets {from} to {to} cannot be; pass over empty ranges"
    )]
    Malformed {
        /// Records.
        records: u32,
        /// Begin.
        from: Offset,
        /// End, exclusive.
        to: Offset,
    },
    /// The sender has come to its end.
    #[error("the sender has ended; take the task over again")]
    Ended,
}

/// What the target said to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Appended and committed, or known as a repeat of such a batch: target offset of its first record.
    Acked {
        /// Target offset of its first record.
        base_offset: Offset,
    },
    /// `DUPLICATE_SEQUENCE_NUMBER` (46): it is there, nobody says where or whether it is committed.
    Duplicate,
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER` (45).
    OutOfOrder,
    /// `INVALID_PRODUCER_EPOCH` (47): there is a newer line.
    OldEpoch,
    /// `UNKNOWN_PRODUCER_ID` (59): before Kafka 2.5, a sequence other than 0 without a state.
    UnknownProducer,
    /// Refused before it was appended; trying again may help (for example `NOT_ENOUGH_REPLICAS`).
    Refused,
    /// It may have been appended (for example `NOT_LEADER_OR_FOLLOWER`, `REQUEST_TIMED_OUT`,
    /// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`); trying again may help.
    Unsure,
    /// It will never be taken as it is.
    Terminal,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send this batch, unchanged, and report with this attempt's number.
    Send {
        /// Which.
        id: BatchId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// Ask the target for our state, then for its end: [`Sender::target_seen`](super::Sender::target_seen).
    AskTarget,
    /// Ask the target again as by [`Action::AskTarget`], then read its batch headers from here to the high
    /// watermark: [`Sender::target_seen`](super::Sender::target_seen) with the tail.
    ReadTail {
        /// First target offset to read.
        from: Offset,
    },
    /// Forget every batch from the window's end back to this place, read the source from here,
    /// pass over so many copyable records, and push what follows with `from.offset` as its begin.
    Reread {
        /// From where.
        from: ReadFrom,
    },
    /// The end of this sender: write a line that begins here (see
    /// [`NewLine`](crate::exact::NewLine)) and make another.
    NewLine {
        /// Where the new line begins.
        from: ReadFrom,
        /// Why.
        why: Reason,
        /// Records that may come a second time; None: not known.
        repeats_max: Option<u64>,
    },
    /// The end of this sender.
    Stop(Stop),
}

/// Why a sender has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There is a newer line: read line and ownership from the store before anything else.
    NewerLine,
    /// The target lost more than is remembered here: take the task over again.
    TakeOver,
    /// This batch will never be taken as it is.
    Terminal(BatchId),
}

/// What may be committed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The producer of the line.
    pub producer: Producer,
    /// Everything of the line below is acknowledged.
    pub place: Place,
}

/// With what a sender begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Who sends.
    pub producer: Producer,
    /// The place that is read from.
    pub place: Place,
    /// Copyable records that are passed over there.
    pub skip_records: u64,
    /// Target offset after them and before any other record of the line, where it is known.
    pub skip_end: Option<Offset>,
    /// The target may have no state: the first batch goes alone.
    pub first_alone: bool,
    /// What was promised at take-over.
    pub mode: DeliveryMode,
}

impl From<Resume> for Start {
    fn from(resume: Resume) -> Self {
        Self {
            producer: resume.producer,
            place: resume.place,
            skip_records: resume.skip_records,
            skip_end: resume.skip_end,
            first_alone: resume.first_alone,
            mode: resume.mode,
        }
    }
}
