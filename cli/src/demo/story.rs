//! What happens in the demo, and when.

use std::time::Duration;

/// An event of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// A topic appears on the source; the subscription's pattern finds it.
    AddTopic,
    /// A third worker joins.
    AddWorker,
    /// A worker dies without a word.
    KillWorker,
}

/// Acts with their times since the records began to flow, in order.
const ACTS: [(Act, f64); 3] = [
    (Act::AddTopic, 0.2),
    (Act::AddWorker, 0.4),
    (Act::KillWorker, 0.6),
];
/// The whole story of a demo without an end.
const LENGTH_DEFAULT: Duration = Duration::from_secs(40);

/// The acts of a demo of this length; the last leaves time for what follows from it.
pub(super) fn acts(run_for: Option<Duration>) -> [(Act, Duration); 3] {
    let length = run_for.unwrap_or(LENGTH_DEFAULT).min(LENGTH_DEFAULT);
    ACTS.map(|(act, share)| (act, length.mul_f64(share)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_come_in_order_and_before_the_end() {
        for run_for in [
            None,
            Some(Duration::from_secs(8)),
            Some(Duration::from_secs(3_600)),
        ] {
            let acts = acts(run_for);
            assert!(acts.is_sorted_by_key(|(_, at)| *at), "{acts:?}");
            let end = run_for.unwrap_or(LENGTH_DEFAULT);
            assert!(
                acts.iter().all(|(_, at)| *at < end.mul_f64(0.61)),
                "{acts:?}"
            );
        }
        assert_eq!(acts(Some(Duration::from_secs(3_600))), acts(None));
    }
}
