//! The controller's own metrics: every name, unit and help text. Gauges that can be told from the
//! fleet's state are rendered from it when they are asked for; they are not here.

use kreplicator_model::ids::ClusterId;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

const LEADING: &str = "kreplicator_controller_leading";
const DISCOVERY_ERRORS: &str = "kreplicator_controller_discovery_errors_total";
const MOVES: &str = "kreplicator_controller_plan_moves_total";
const STUCK: &str = "kreplicator_controller_stuck_tasks";
const DOUBLE_CLAIMS: &str = "kreplicator_controller_double_claimed_tasks";
const PASS: &str = "kreplicator_controller_pass_duration_seconds";
const PUBLICATIONS: &str = "kreplicator_controller_plan_publications_total";
const CHUNKS: &str = "kreplicator_controller_assignment_writes_total";
const WRITES: &str = "kreplicator_controller_store_transactions_total";
const CONFLICTS: &str = "kreplicator_controller_store_conflicts_total";
const API_CONNECTIONS: &str = "kreplicator_controller_api_connections";
const API_REFUSED: &str = "kreplicator_controller_api_refused_connections_total";
const DRIFT: &str = "kreplicator_controller_view_drift_total";

/// Handles of the metrics that are counted often.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) leading: Gauge,
    pub(crate) stuck: Gauge,
    pub(crate) double_claims: Gauge,
    pub(crate) pass: Histogram,
    pub(crate) publications: Counter,
    pub(crate) chunk_writes: Counter,
    pub(crate) transactions: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) drift: Counter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Describes every metric to the installed recorder and takes its handles.
    #[must_use]
    pub fn register() -> Self {
        describe_gauge!(LEADING, Unit::Count, "1 while this controller leads.");
        describe_counter!(
            DISCOVERY_ERRORS,
            Unit::Count,
            "Looks at a cluster's topics that failed."
        );
        describe_counter!(
            MOVES,
            Unit::Count,
            "Tasks given to a worker, by the reason of the move."
        );
        describe_gauge!(
            STUCK,
            Unit::Count,
            "Tasks assigned to a live worker that has not taken them on in time."
        );
        describe_gauge!(
            DOUBLE_CLAIMS,
            Unit::Count,
            "Tasks that more than one worker says it runs."
        );
        describe_histogram!(
            PASS,
            Unit::Seconds,
            "Time of one pass of the reconcile loop."
        );
        describe_counter!(
            PUBLICATIONS,
            Unit::Count,
            "Plans published; each raises the generation."
        );
        describe_counter!(CHUNKS, Unit::Count, "Assignment chunks written or deleted.");
        describe_counter!(
            WRITES,
            Unit::Count,
            "Transactions of the leader that changed the store."
        );
        describe_counter!(
            CONFLICTS,
            Unit::Count,
            "Transactions refused because the store had changed meanwhile."
        );
        describe_counter!(
            DRIFT,
            Unit::Count,
            "Keys that a full read found to differ though the watch ran."
        );
        describe_gauge!(
            API_CONNECTIONS,
            Unit::Count,
            "Connections to the gRPC port."
        );
        describe_counter!(
            API_REFUSED,
            Unit::Count,
            "Connections refused because the gRPC port was full."
        );
        Self {
            leading: gauge!(LEADING),
            stuck: gauge!(STUCK),
            double_claims: gauge!(DOUBLE_CLAIMS),
            pass: histogram!(PASS),
            publications: counter!(PUBLICATIONS),
            chunk_writes: counter!(CHUNKS),
            transactions: counter!(WRITES),
            conflicts: counter!(CONFLICTS),
            drift: counter!(DRIFT),
        }
    }

    pub(crate) fn discovery_error(&self, cluster: &ClusterId) {
        counter!(DISCOVERY_ERRORS, "cluster" => cluster.to_string()).increment(1);
    }

    pub(crate) fn moved(&self, reason: &'static str, tasks: u64) {
        counter!(MOVES, "reason" => reason).increment(tasks);
    }
}

/// Connections to the gRPC port.
pub(crate) fn api_connections() -> Gauge {
    gauge!(API_CONNECTIONS)
}

/// One more was refused.
pub(crate) fn api_connection_refused() {
    counter!(API_REFUSED).increment(1);
}
