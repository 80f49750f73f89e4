//! What the batch engine counts beside what every engine does.

use kreplicator_model::ids::LinkId;
use metrics::{Counter, Unit, counter, describe_counter};

use super::intake::{Path, Why};

const BATCHES: &str = "kreplicator_worker_batches_total";
const DROPPED: &str = "kreplicator_worker_dropped_batches_total";

/// Help texts and units, told to the recorder once at the start.
pub fn describe() {
    describe_counter!(
        BATCHES,
        Unit::Count,
        "batches acknowledged by the target, by the way they took: passed unopened, or rewritten and why"
    );
    describe_counter!(
        DROPPED,
        Unit::Count,
        "source batches without a record to copy: transaction markers, aborted transactions, compacted"
    );
}

/// Handles of one link.
#[derive(Clone)]
pub(super) struct BatchMetrics {
    passed: Counter,
    rewritten: [Counter; 7],
    dropped: Counter,
}

const WHYS: [Why; 7] = [
    Why::Resumed,
    Why::Holes,
    Why::AppendTime,
    Why::Oversize,
    Why::OldFormat,
    Why::Tiny,
    Why::Isolated,
];

impl BatchMetrics {
    pub(super) fn new(link: &LinkId) -> Self {
        let link = link.to_string();
        let of = |path: &'static str, why: &'static str| counter!(BATCHES, "link" => link.clone(), "path" => path, "reason" => why);
        Self {
            passed: of("passed", ""),
            rewritten: WHYS.map(|why| of("rewritten", why.label())),
            dropped: counter!(DROPPED, "link" => link.clone()),
        }
    }

    pub(super) fn sent(&self, path: Path) {
        match path {
            Path::Passed => self.passed.increment(1),
            Path::Rewritten(why) => self.rewritten[why as usize].increment(1),
        }
    }

    pub(super) fn dropped(&self, batches: u64) {
        self.dropped.increment(batches);
    }
}

impl std::fmt::Debug for BatchMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchMetrics")
    }
}
