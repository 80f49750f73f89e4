//! What a task can promise about repeats.

use std::{collections::BTreeMap, fmt};

/// What a task promises now. Both never lose and never reorder; they differ in repeats, and in
/// whether a task may run on without the lease of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Every record once, whatever second owners do.
    ExactlyOnce,
    /// A record may come twice. Two owners are kept apart by the worker's lease alone.
    AtLeastOnce(Reason),
}

/// Why no more than at least once can be promised. The names are stable: status, metrics and alerts
/// carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The target cannot tell a producer's state (`DescribeProducers`, Kafka 2.8) and its log may not be
    /// read by us.
    TargetTooOld,
    /// The source topic is compacted: reading it again gives fewer records, so counting tells nothing.
    SourceCompacted,
    /// The source deleted records behind the checkpoint that may or may not have been delivered.
    SourceDeleted,
    /// The target dropped our state and its log cannot show what was delivered.
    ProducerStateExpired,
    /// The target dropped our state between two batches: the later one came in without the earlier.
    ProducerStateLost,
    /// The target log shows our records out of order: somebody wrote while our state was dropped.
    TargetDisordered,
    /// Records are so old by their own timestamps that the target drops our state while we send.
    OldRecords,
    /// The checkpoint is more than 2^30 records behind: sequences cannot tell how far.
    CheckpointTooOld,
    /// The store was put back to an older line.
    StoreRestored,
}

/// The stable name of [`DeliveryMode::ExactlyOnce`], as reports and status show it.
pub const EXACTLY_ONCE: &str = "exactly_once";

/// What was repeated or healed since a task started, for its status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Records that the target had already and that were not sent again.
    pub skipped_records: u64,
    /// Records that the target had lost and that were sent again.
    pub healed_records: u64,
    /// How often delivery went on with possible repeats, by reason.
    pub restarts: BTreeMap<Reason, u64>,
    /// How often the target was asked for our state.
    pub questions: u64,
    /// How often it had records that were not sent here.
    pub overtaken: u64,
}

impl DeliveryMode {
    /// Whether a task in this mode may run on while the control plane is away: a second owner can do
    /// no harm.
    #[must_use]
    pub fn runs_without_lease(self) -> bool {
        self == Self::ExactlyOnce
    }

    /// The weaker of two promises; the first reason stays.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::ExactlyOnce => other,
            Self::AtLeastOnce(_) => self,
        }
    }
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::TargetTooOld,
        Self::SourceCompacted,
        Self::SourceDeleted,
        Self::ProducerStateExpired,
        Self::ProducerStateLost,
        Self::TargetDisordered,
        Self::OldRecords,
        Self::CheckpointTooOld,
        Self::StoreRestored,
    ];

    /// The stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetTooOld => "target_too_old",
            Self::SourceCompacted => "source_compacted",
            Self::SourceDeleted => "source_deleted",
            Self::ProducerStateExpired => "producer_state_expired",
            Self::ProducerStateLost => "producer_state_lost",
            Self::TargetDisordered => "target_disordered",
            Self::OldRecords => "old_records",
            Self::CheckpointTooOld => "checkpoint_too_old",
            Self::StoreRestored => "store_restored",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExactlyOnce => f.pad(EXACTLY_ONCE),
            Self::AtLeastOnce(reason) => write!(f, "at_least_once ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Alerts are written against these names.
    #[test]
    fn names_are_as_recorded() {
        let names: Vec<_> = Reason::ALL.iter().map(ToString::to_string).collect();
        let recorded = [
            "target_too_old",
            "source_compacted",
            "source_deleted",
            "producer_state_expired",
            "producer_state_lost",
            "target_disordered",
            "old_records",
            "checkpoint_too_old",
            "store_restored",
        ];
        assert_eq!(names, recorded);
        assert_eq!(
            Reason::ALL.iter().collect::<BTreeSet<_>>().len(),
            names.len()
        );
        let mode = DeliveryMode::AtLeastOnce(Reason::OldRecords);
        assert_eq!(mode.to_string(), "at_least_once (old_records)");
        assert_eq!(DeliveryMode::ExactlyOnce.to_string(), "exactly_once");
    }

    #[test]
    fn only_exactly_once_runs_without_a_lease() {
        assert!(DeliveryMode::ExactlyOnce.runs_without_lease());
        for reason in Reason::ALL {
            assert!(!DeliveryMode::AtLeastOnce(reason).runs_without_lease());
        }
    }

    #[test]
    fn the_weaker_promise_stays() {
        let (expired, old) = (
            DeliveryMode::AtLeastOnce(Reason::ProducerStateExpired),
            DeliveryMode::AtLeastOnce(Reason::OldRecords),
        );
        assert_eq!(DeliveryMode::ExactlyOnce.and(old), old);
        assert_eq!(expired.and(DeliveryMode::ExactlyOnce), expired);
        assert_eq!(expired.and(old), expired);
    }
}
