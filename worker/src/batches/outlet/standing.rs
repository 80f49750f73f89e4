//! Which partitions are sent apart from others, because their replicas do not keep up.
//!
//! A partition is slow from when the broker says that its time was over before all in-sync replicas had a
//! batch ([`Code::REQUEST_TIMED_OUT`]), until enough batches in a row are acknowledged at the first attempt: each time
//! that it is found slow again, twice as many.

use std::{collections::HashMap, time::Duration};

use kreplicator_wire::{code::Code, topic::TopicPartition};
use tokio::time::Instant;

/// What was noticed of a partition is forgotten when nothing was added for so long.
const MEMORY: Duration = Duration::from_secs(600);
/// Most acknowledgements in a row before a partition is sent with others again, as a power of 2.
const PROOF_MAX: u32 = 6;
/// Replicas get so many times the time that the broker usually takes to answer.
const USUAL_TIMES: u32 = 4;
/// The usual time moves by this part of the difference.
const USUAL_PART: u32 = 8;

#[derive(Debug, Clone, Copy)]
struct Record {
    is_slow: bool,
    /// How often it was found slow.
    times: u32,
    /// Acknowledgements that are still missing.
    proof_left: u32,
    noted_at: Instant,
}

/// What was noticed of partitions.
#[derive(Debug, Default)]
pub(super) struct Standing {
    records: HashMap<TopicPartition, Record>,
}

/// What an answer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The partition is slow from now on.
    Slow,
    /// It no longer is.
    Well,
}

impl Standing {
    pub(super) fn is_slow(&self, at: &TopicPartition) -> bool {
        self.records.get(at).is_some_and(|record| record.is_slow)
    }

    /// A batch of a partition was answered, at this attempt to send it.
    pub(super) fn answered(
        &mut self,
        at: &TopicPartition,
        code: Code,
        attempt: u32,
        now: Instant,
    ) -> Option<Change> {
        if code == Code::REQUEST_TIMED_OUT {
            return self.late(at, now);
        }
        let record = self.records.get_mut(at).filter(|record| record.is_slow)?;
        record.noted_at = now;
        // Later attempts tell nothing: the replicas have had the batch since the first.
        if code != Code::NONE || attempt > 1 {
            return None;
        }
        record.proof_left = record.proof_left.saturating_sub(1);
        record.is_slow = record.proof_left > 0;
        (!record.is_slow).then_some(Change::Well)
    }

    fn late(&mut self, at: &TopicPartition, now: Instant) -> Option<Change> {
        self.records
            .retain(|_, record| now - record.noted_at < MEMORY);
        let record = self.records.entry(at.clone()).or_insert(Record {
            is_slow: false,
            times: 0,
            proof_left: 0,
            noted_at: now,
        });
        let was_slow = record.is_slow;
        if !was_slow {
            record.times = record.times.saturating_add(1);
        }
        record.is_slow = true;
        record.proof_left = 1 << record.times.min(PROOF_MAX);
        record.noted_at = now;
        (!was_slow).then_some(Change::Slow)
    }

    /// It cannot be sent apart.
    pub(super) fn excuse(&mut self, at: &TopicPartition) {
        if let Some(record) = self.records.get_mut(at) {
            record.is_slow = false;
        }
    }
}

/// For how long the broker may wait for replicas: so long that it does not happen to those that keep up.
#[derive(Debug)]
pub(super) struct Pace {
    least: Duration,
    most: Duration,
    usual: Duration,
}

impl Pace {
    pub(super) fn new(least: Duration, most: Duration) -> Self {
        Self {
            least: least.min(most),
            most,
            usual: Duration::ZERO,
        }
    }

    pub(super) fn patience(&self) -> Duration {
        (self.usual * USUAL_TIMES).clamp(self.least, self.most)
    }

    /// All of a request were acknowledged; the broker took so long.
    pub(super) fn acknowledged(&mut self, took: Duration) {
        let took = took.min(self.most);
        self.usual = (self.usual * (USUAL_PART - 1) + took) / USUAL_PART;
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
