//! Gauges of the running tasks, made anew at each scrape: a task that was released is gone at once
//! (C119), and nothing is touched while records flow (C117).

use std::{collections::BTreeMap, fmt::Write};

use kreplicator_model::{
    ids::{LinkId, LinkTopic, Partition, UnixMillis},
    lag::lag,
};

use crate::{engine, tasks::Tasks};

const TASKS: &str = "kreplicator_worker_tasks";
const LAG: &str = "kreplicator_worker_lag_records";
const LAG_UNKNOWN: &str = "kreplicator_worker_lag_unknown_tasks";
const PROGRESS_AGE: &str = "kreplicator_worker_progress_age_seconds_max";
const IN_FLIGHT: &str = "kreplicator_worker_in_flight_records";

/// The name of a state in labels.
pub(crate) const fn state_name(state: engine::State) -> &'static str {
    match state {
        engine::State::Starting => "starting",
        engine::State::Running => "running",
        engine::State::Faulted => "faulted",
        engine::State::Stopping => "stopping",
        engine::State::Stopped => "stopped",
    }
}

/// Lag by topic, or by partition where that is asked for.
type LagKey = (LinkTopic, Option<Partition>);

#[derive(Debug, Default)]
struct Gauges {
    tasks: BTreeMap<(LinkId, &'static str), usize>,
    lag: BTreeMap<LagKey, u64>,
    lag_unknown: BTreeMap<LinkId, usize>,
    progress_age_ms: BTreeMap<LinkId, i64>,
    in_flight: BTreeMap<LinkId, u64>,
}

/// Appends the gauges to `text` in Prometheus' text format.
pub(super) fn render(text: &mut String, tasks: &Tasks, now: UnixMillis, per_partition: bool) {
    let gauges = collect(tasks, now, per_partition);
    write(text, &gauges).expect("writing to a string never fails");
}

fn collect(tasks: &Tasks, now: UnixMillis, per_partition: bool) -> Gauges {
    let mut gauges = Gauges::default();
    for (link, waiting) in tasks.waiting() {
        gauges.tasks.insert((link, "waiting"), waiting);
    }
    for (id, live) in tasks.live() {
        let status = live.task.status();
        let link = id.link.clone();
        let state = (link.clone(), state_name(status.state));
        *gauges.tasks.entry(state).or_default() += 1;
        match lag(status.log_end, status.log_start, status.checkpoint) {
            Some(records) => {
                let partition = per_partition.then_some(id.partition);
                let key = (id.link_topic(), partition);
                *gauges.lag.entry(key).or_default() += records;
            }
            None => *gauges.lag_unknown.entry(link.clone()).or_default() += 1,
        }
        let progress_at = status.progress_at.unwrap_or(live.started_at);
        let age = now.0.saturating_sub(progress_at.0).max(0);
        let oldest = gauges.progress_age_ms.entry(link.clone()).or_default();
        *oldest = age.max(*oldest);
        *gauges.in_flight.entry(link).or_default() += status.in_flight_records;
    }
    gauges
}

// Names of links and topics hold nothing that would have to be escaped.
fn write(text: &mut String, gauges: &Gauges) -> std::fmt::Result {
    head(
        text,
        TASKS,
        "Tasks by state; waiting: assigned, not started yet",
    )?;
    for ((link, state), count) in &gauges.tasks {
        writeln!(text, "{TASKS}{{link=\"{link}\",state=\"{state}\"}} {count}")?;
    }
    head(
        text,
        LAG,
        "Records between checkpoint and end; absent where unknown",
    )?;
    for ((LinkTopic { link, topic }, partition), records) in &gauges.lag {
        write!(text, "{LAG}{{link=\"{link}\",topic=\"{topic}\"")?;
        if let Some(partition) = partition {
            write!(text, ",partition=\"{partition}\"")?;
        }
        writeln!(text, "}} {records}")?;
    }
    head(text, LAG_UNKNOWN, "Tasks whose lag cannot be measured now")?;
    for (link, count) in &gauges.lag_unknown {
        writeln!(text, "{LAG_UNKNOWN}{{link=\"{link}\"}} {count}")?;
    }
    head(
        text,
        PROGRESS_AGE,
        "Time since the task that is furthest behind moved or was at the end",
    )?;
    for (link, age_ms) in &gauges.progress_age_ms {
        let seconds = age_ms / 1_000;
        let rest = age_ms % 1_000;
        writeln!(
            text,
            "{PROGRESS_AGE}{{link=\"{link}\"}} {seconds}.{rest:03}"
        )?;
    }
    head(
        text,
        IN_FLIGHT,
        "Records sent to the target and not acknowledged yet",
    )?;
    for (link, records) in &gauges.in_flight {
        writeln!(text, "{IN_FLIGHT}{{link=\"{link}\"}} {records}")?;
    }
    Ok(())
}

fn head(text: &mut String, name: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge")
}
