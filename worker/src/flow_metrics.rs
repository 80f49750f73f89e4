//! What the engines count. Labels are links and clusters, never topics or partitions.

use std::time::Duration;

use kreplicator_model::ids::{ClusterId, LinkId, UnixMillis};
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use tokio::time::Instant;

use crate::{fault::Kind, metrics::REPLICATION_LATENCY_SECONDS as LATENCY};

const RECORDS: &str = "kreplicator_worker_replicated_records_total";
const BYTES: &str = "kreplicator_worker_replicated_bytes_total";
const GAPS: &str = "kreplicator_worker_gap_records_total";
const FAULTS: &str = "kreplicator_worker_task_faults_total";
const GIVEN_UP: &str = "kreplicator_worker_given_up_in_flight_records_total";
const POKES: &str = "kreplicator_worker_reader_pokes_total";
const READERS: &str = "kreplicator_worker_reader_rebuilds_total";
const PRODUCERS: &str = "kreplicator_worker_producer_rebuilds_total";
const RENEWALS: &str = "kreplicator_worker_client_renewals_total";
const RENEWAL_FAILURES: &str = "kreplicator_worker_client_renewal_failures_total";
const COMMIT_FAILURES: &str = "kreplicator_worker_checkpoint_failures_total";
const BUDGET_USED: &str = "kreplicator_worker_memory_budget_used_bytes";
const BUDGET: &str = "kreplicator_worker_memory_budget_bytes";

/// Help texts and units, told to the recorder once at the start.
pub fn describe() {
    describe_counter!(RECORDS, Unit::Count, "records acknowledged by the target");
    describe_counter!(
        BYTES,
        Unit::Bytes,
        "bytes acknowledged by the target: keys, values and headers of records (engine records), or whole \
         batches as they were sent, most often compressed (engine batches)"
    );
    describe_histogram!(
        LATENCY,
        Unit::Seconds,
        "from a record's timestamp to its acknowledgement, sampled at most 10 times a second for each task"
    );
    describe_counter!(
        GAPS,
        Unit::Count,
        "source offsets that were gone before they could be copied"
    );
    describe_counter!(FAULTS, Unit::Count, "faults of tasks, by kind");
    describe_counter!(
        GIVEN_UP,
        Unit::Count,
        "records given up while they were with the client: they may or may not have arrived"
    );
    describe_counter!(
        POKES,
        Unit::Count,
        "partitions reopened because their reader did not move"
    );
    describe_counter!(READERS, Unit::Count, "readers replaced");
    describe_counter!(PRODUCERS, Unit::Count, "producers replaced");
    describe_counter!(
        RENEWALS,
        Unit::Count,
        "clients made anew because certificates or passwords were renewed (engine records)"
    );
    describe_counter!(
        RENEWAL_FAILURES,
        Unit::Count,
        "looks that found renewed certificates or passwords which cannot be used (engine records)"
    );
    describe_counter!(
        COMMIT_FAILURES,
        Unit::Count,
        "saves of checkpoints that failed"
    );
    describe_gauge!(
        BUDGET_USED,
        Unit::Bytes,
        "memory held for records: reserved by readers and handed to sinks"
    );
    describe_gauge!(
        BUDGET,
        Unit::Bytes,
        "most memory that may be held for records"
    );
}

/// Latency is sampled at most so often for each task.
const LATENCY_INTERVAL: Duration = Duration::from_millis(100);

/// When a task's latency was sampled last.
#[derive(Debug, Default)]
pub(crate) struct LatencySamples(Option<Instant>);

impl LatencySamples {
    /// Notes how long ago the `timestamp` of a record is that the target has acknowledged just `now`, if it
    /// is time for that. Records without a timestamp have one below 0.
    pub(crate) fn sample(&mut self, metrics: &LinkMetrics, timestamp: UnixMillis, now: UnixMillis) {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= LATENCY_INTERVAL);
        if is_due && timestamp.0 > 0 {
            self.0 = Some(Instant::now());
            let millis = now.0.saturating_sub(timestamp.0).max(0);
            let latency = Duration::from_millis(millis.unsigned_abs());
            metrics.latency.record(latency.as_secs_f64());
        }
    }
}

/// Handles of one link, so that no label is looked up for a record.
#[derive(Clone)]
pub(crate) struct LinkMetrics {
    link: LinkId,
    pub(crate) records: Counter,
    pub(crate) bytes: Counter,
    pub(crate) latency: Histogram,
    pub(crate) gap_records: Counter,
    pub(crate) given_up: Counter,
    pub(crate) pokes: Counter,
    pub(crate) reader_rebuilds: Counter,
    pub(crate) commit_failures: Counter,
}

impl LinkMetrics {
    pub(crate) fn new(link: &LinkId) -> Self {
        let link = link.clone();
        let label = link.to_string();
        Self {
            records: counter!(RECORDS, "link" => label.clone()),
            bytes: counter!(BYTES, "link" => label.clone()),
            latency: histogram!(LATENCY, "link" => label.clone()),
            gap_records: counter!(GAPS, "link" => label.clone()),
            given_up: counter!(GIVEN_UP, "link" => label.clone()),
            pokes: counter!(POKES, "link" => label.clone()),
            reader_rebuilds: counter!(READERS, "link" => label.clone()),
            commit_failures: counter!(COMMIT_FAILURES, "link" => label),
            link,
        }
    }

    pub(crate) fn fault(&self, kind: Kind) {
        counter!(FAULTS, "link" => self.link.to_string(), "kind" => kind.label()).increment(1);
    }
}

impl std::fmt::Debug for LinkMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkMetrics")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

pub(crate) fn producer_rebuilt(cluster: &ClusterId) {
    counter!(PRODUCERS, "target" => cluster.to_string()).increment(1);
}

/// A client of the cluster was made from renewed certificates or passwords.
pub(crate) fn client_renewed(cluster: &ClusterId) {
    counter!(RENEWALS, "cluster" => cluster.to_string()).increment(1);
}

/// Renewed certificates or passwords of the cluster cannot be used.
pub(crate) fn renewal_failed(cluster: &ClusterId) {
    counter!(RENEWAL_FAILURES, "cluster" => cluster.to_string()).increment(1);
}

/// Gauges of the byte budget.
pub(crate) fn budget() -> (Gauge, Gauge) {
    (gauge!(BUDGET_USED), gauge!(BUDGET))
}
