//! The worker's metrics: names, help texts and units. What the data path counts is named in
//! [`crate::flow_metrics`]; gauges of running tasks are rendered at scrape time by [`crate::http`].

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use crate::engine::Stopped;

const REGISTRATIONS: &str = "kreplicator_worker_registrations_total";
const OWNERSHIP_LOST: &str = "kreplicator_worker_ownership_lost_total";
const TASKS_STARTED: &str = "kreplicator_worker_tasks_started_total";
const TASKS_STOPPED: &str = "kreplicator_worker_tasks_stopped_total";
const TASK_STOP_SECONDS: &str = "kreplicator_worker_task_stop_seconds";
const REFUSED: &str = "kreplicator_worker_settings_refused_total";
const OWNED_WRITES: &str = "kreplicator_worker_owned_writes_total";
const OWNED_RESTORED: &str = "kreplicator_worker_owned_restored_total";
const REPORTS: &str = "kreplicator_worker_reports_total";

/// From the record's timestamp to the target's acknowledgement; counted by the data path.
pub const REPLICATION_LATENCY_SECONDS: &str = "kreplicator_worker_replication_latency_seconds";

/// Bounds of latency buckets in seconds: from what a fast local pair needs to what a backlog makes.
pub const LATENCY_BUCKETS: [f64; 17] = [
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0,
    86_400.0,
];

/// Gives the worker's histograms their buckets.
///
/// # Errors
/// [`BuildError`] never in practice: the lists of buckets are not empty.
pub fn with_buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    let latency = Matcher::Full(REPLICATION_LATENCY_SECONDS.to_owned());
    let stops = Matcher::Full(TASK_STOP_SECONDS.to_owned());
    builder
        .set_buckets_for_metric(latency, &LATENCY_BUCKETS)?
        .set_buckets_for_metric(stops, &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0])
}

/// Describes every metric of the worker to the recorder.
pub fn describe() {
    crate::flow_metrics::describe();
    crate::batches::metrics::describe();
    ::metrics::describe_counter!(REGISTRATIONS, "Times this worker was registered");
    ::metrics::describe_counter!(
        OWNERSHIP_LOST,
        "Times this worker lost its registration and stopped every task that does not run without one"
    );
    ::metrics::describe_counter!(TASKS_STARTED, "Tasks started");
    ::metrics::describe_counter!(TASKS_STOPPED, "Tasks stopped, by reason and outcome");
    ::metrics::describe_histogram!(
        TASK_STOP_SECONDS,
        ::metrics::Unit::Seconds,
        "Time from telling a task to stop until it had"
    );
    ::metrics::describe_counter!(
        REFUSED,
        "Stored assignments and settings that were not followed, by reason"
    );
    ::metrics::describe_counter!(
        OWNED_WRITES,
        "Attempts to tell the store what runs here, by outcome"
    );
    ::metrics::describe_counter!(
        OWNED_RESTORED,
        "Times others changed in the store what this worker says it runs"
    );
    ::metrics::describe_counter!(REPORTS, "Reports to the leading controller, by outcome");
}

pub(crate) fn registered() {
    ::metrics::counter!(REGISTRATIONS).increment(1);
}

pub(crate) fn ownership_lost() {
    ::metrics::counter!(OWNERSHIP_LOST).increment(1);
}

pub(crate) fn task_started() {
    ::metrics::counter!(TASKS_STARTED).increment(1);
}

pub(crate) fn task_stopped(reason: &'static str, outcome: Stopped, after: Duration) {
    let outcome = match outcome {
        Stopped::Clean => "clean",
        Stopped::Unsaved => "unsaved",
        Stopped::Forced { .. } => "forced",
    };
    ::metrics::counter!(TASKS_STOPPED, "reason" => reason, "outcome" => outcome).increment(1);
    ::metrics::histogram!(TASK_STOP_SECONDS).record(after);
}

pub(crate) fn refused(reason: &'static str) {
    ::metrics::counter!(REFUSED, "reason" => reason).increment(1);
}

pub(crate) fn owned_written(outcome: &'static str) {
    ::metrics::counter!(OWNED_WRITES, "outcome" => outcome).increment(1);
}

pub(crate) fn restored() {
    ::metrics::counter!(OWNED_RESTORED).increment(1);
}

pub(crate) fn reported(outcome: &'static str) {
    ::metrics::counter!(REPORTS, "outcome" => outcome).increment(1);
}
