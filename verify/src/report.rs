//! What came out of a comparison.

use std::time::Duration;

use kreplicator_model::{
    compare::{Finding, Tally},
    ids::{Offset, Partition, TopicName},
};

/// The judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything that could be compared is as it should be.
    Equal,
    /// It could not be told.
    NotCompared,
    /// Something differs.
    Different,
}

/// Offsets `[from, to)` of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: Offset,
    /// One above the last.
    pub to: Offset,
}

/// One partition of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// The topic on the source.
    pub source_topic: TopicName,
    /// The topic on the target.
    pub target_topic: TopicName,
    /// The partition, the same on both sides. None: the topics could not be compared at all.
    pub partition: Option<Partition>,
    /// What of the source was compared; None where that is not known.
    pub source: Option<Range>,
    /// What the target held at the start; None where that is not known.
    pub target: Option<Range>,
    /// How many records were what.
    pub tally: Tally,
    /// The first differences, in order of offsets.
    pub findings: Vec<Finding>,
    /// Differing records in none of `findings`.
    pub findings_left_out: u64,
    /// What else is to be known to judge the numbers.
    pub notes: Vec<String>,
    /// Why it could not be compared, or not to its end.
    pub error: Option<String>,
    /// The judgement.
    pub verdict: Verdict,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In order of topics and partitions.
    pub partitions: Vec<PartitionReport>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// The judgement of everything: what differs counts more than what could not be compared. Nothing
    /// to compare is not equal.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.partitions.iter().map(|partition| partition.verdict);
        verdicts.max().unwrap_or(Verdict::NotCompared)
    }
}

/// The judgement of what was compared without an error.
pub(crate) fn verdict(tally: &Tally, tolerate_duplicates: bool) -> Verdict {
    let nothing_in_common = tally.equal + tally.reordered + tally.altered == 0;
    let left_aside = tally.lead_of_source
        + tally.lead_of_target
        + tally.compacted_on_source
        + tally.compacted_on_target;
    if tally.differences(tolerate_duplicates) > 0 {
        Verdict::Different
    } else if nothing_in_common && left_aside > 0 {
        Verdict::NotCompared
    } else {
        Verdict::Equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_common_is_not_equal_but_nothing_at_all_is() {
        let of = |tally: Tally| verdict(&tally, false);
        assert_eq!(of(Tally::default()), Verdict::Equal);
        let lead = Tally {
            lead_of_source: 5,
            ..Tally::default()
        };
        assert_eq!(of(lead), Verdict::NotCompared);
        assert_eq!(of(Tally { equal: 1, ..lead }), Verdict::Equal);
        assert_eq!(of(Tally { missing: 1, ..lead }), Verdict::Different);
    }

    #[test]
    fn duplicates_may_be_tolerated() {
        let tally = Tally {
            equal: 5,
            doubled: 1,
            ..Tally::default()
        };
        assert_eq!(verdict(&tally, false), Verdict::Different);
        assert_eq!(verdict(&tally, true), Verdict::Equal);
    }

    #[test]
    fn a_difference_counts_more_than_what_could_not_be_compared() {
        let report = |verdicts: &[Verdict]| Report {
            partitions: verdicts
                .iter()
                .map(|verdict| PartitionReport {
                    source_topic: TopicName::new("a").expect("legal"),
                    target_topic: TopicName::new("a").expect("legal"),
                    partition: None,
                    source: None,
                    target: None,
                    tally: Tally::default(),
                    findings: Vec::new(),
                    findings_left_out: 0,
                    notes: Vec::new(),
                    error: None,
                    verdict: *verdict,
                })
                .collect(),
            took: Duration::ZERO,
        };
        use Verdict::{Different, Equal, NotCompared};
        assert_eq!(report(&[Equal, Equal]).verdict(), Equal);
        assert_eq!(report(&[Equal, NotCompared]).verdict(), NotCompared);
        assert_eq!(
            report(&[NotCompared, Different, Equal]).verdict(),
            Different
        );
        assert_eq!(report(&[]).verdict(), NotCompared);
    }
}
