//! Every record once at the target, without transactions.
//!
//! A Kafka broker keeps, for every producer id and partition, the last sequence that it appended, and
//! refuses what does not follow. KReplicator uses one producer id for a link and lets the sequence of
//! a record be its place in the source partition, so that *any* owner of a task gives the same
//! record the same sequence. The target then refuses repeats and holes, whoever sends them; nothing
//! has to be waited for and a checkpoint may be stale.
//!
//! - [`Line`]: one counting of one task, agreed in the store: which record has sequence 0.
//! - [`Count`], [`Sequence`]: places in a line, and what the broker sees of them.
//! - [`TargetView`], [`TailScan`]: what the target says about a line.
//! - [`delivered`]: how much of a line is at the target.
//! - [`take_over`]: where a new owner goes on.
//! - [`Rewind`]: going back by a number of records.
//! - [`Sender`]: the machine of one task's batches in flight.
//! - [`DeliveryMode`]: what a task can promise, and why not more.
//!
//! # Source
//! `docs/adr/2026-11-29-exactly-once-by-sequences.md` argues the correctness and names the broker's
//! rules with their source files.

mod delivered;
mod evidence;
mod line;
mod mode;
mod rewind;
mod sender;
mod sequence;
mod take_over;

pub use delivered::{Delivered, Place, delivered};
pub use evidence::{ProducerState, StateAnswer, Tail, TailScan, TargetView};
pub use line::{Line, NextProducer, Producer, ProducerEpoch, ProducerId};
pub use mode::{DeliveryCounts, DeliveryMode, EXACTLY_ONCE, Reason};
pub use rewind::Rewind;
pub use sender::{
    Action, Answer, Assigned, Batch, BatchId, Checkpoint, Now, PushError, Sender, Settings, Start,
    Stop,
};
pub use sequence::{Count, Sequence};
pub use take_over::{
    CheckpointPlace, Denied, NewLine, ReadFrom, Restart, Resume, TakeOver, TakeOverInput, Why,
    take_over,
};

#[cfg(test)]
mod simulation;
