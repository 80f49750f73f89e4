//! Series of the fleet, in Prometheus' text format.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

use kreplicator_model::ids::{LinkId, TopicName};
use kreplicator_proto::v1::{TaskState, WorkerState};

use crate::{
    api::{picture::Picture, workers::state},
    fleet::FleetState,
    reports::View,
};

const TASK_STATES: [(TaskState, &str); 6] = [
    (TaskState::Unassigned, "unassigned"),
    (TaskState::Starting, "starting"),
    (TaskState::Running, "running"),
    (TaskState::Stopping, "stopping"),
    (TaskState::Faulted, "faulted"),
    (TaskState::Paused, "paused"),
];

const WORKER_STATES: [(WorkerState, &str); 3] = [
    (WorkerState::Active, "active"),
    (WorkerState::Draining, "draining"),
    (WorkerState::Lost, "lost"),
];

/// Adds the fleet's series to `text`; none while its state is not known here.
pub(super) fn render(text: &mut String, fleet: Option<&FleetState>, reports: &View) {
    let mut page = Page(text);
    let Some(fleet) = fleet.filter(|fleet| fleet.ready) else {
        return;
    };
    workers(&mut page, fleet);
    clusters(&mut page, fleet);
    tasks(&mut page, fleet, reports);
    page.single(
        "kreplicator_controller_plan_generation",
        "Number of the plan in force.",
        fleet.generation.0,
    );
    page.single(
        "kreplicator_controller_unplaced_tasks",
        "Tasks that should run and are not assigned.",
        fleet.unassigned.len(),
    );
    page.single(
        "kreplicator_controller_task_reports",
        "Task reports kept in memory.",
        reports.tasks_kept(),
    );
    page.single(
        "kreplicator_controller_task_report_bytes",
        "Memory that they take.",
        reports.bytes_kept(),
    );
    page.single(
        "kreplicator_controller_task_reports_left_out",
        "Task reports that found no room; the state of these tasks is unknown.",
        reports.left_out(),
    );
}

fn workers(page: &mut Page<'_>, fleet: &FleetState) {
    let name = "kreplicator_controller_workers";
    page.family(name, "Workers by state.");
    for (wanted, label) in WORKER_STATES {
        let count = fleet
            .workers
            .values()
            .filter(|w| state(w) == wanted)
            .count();
        page.sample(name, &[("state", label)], count);
    }
}

fn clusters(page: &mut Page<'_>, fleet: &FleetState) {
    let name = "kreplicator_controller_cluster_reachable";
    page.family(
        name,
        "Whether the last look at a cluster succeeded; absent: not looked at yet.",
    );
    for (cluster, state) in &fleet.clusters {
        if let Some(reachable) = state.reachable {
            let labels = [("cluster", cluster.as_str())];
            page.sample(name, &labels, u8::from(reachable));
        }
    }
}

fn tasks(page: &mut Page<'_>, fleet: &FleetState, reports: &View) {
    let picture = Picture::new(fleet, reports);
    let mut states: BTreeMap<LinkId, BTreeMap<i32, u64>> = BTreeMap::new();
    let mut lags: BTreeMap<(LinkId, TopicName), i64> = BTreeMap::new();
    for task in picture.tasks_after(None) {
        if let Some(lag) = task.lag_records() {
            let topic = (task.id.link.clone(), task.id.topic.clone());
            let sum = lags.entry(topic).or_default();
            *sum = sum.saturating_add(lag);
        }
        let counts = states.entry(task.id.link).or_default();
        *counts.entry(task.state.into()).or_default() += 1;
    }
    let name = "kreplicator_controller_tasks";
    page.family(name, "Tasks by link and state.");
    for (link, counts) in &states {
        for (state, label) in TASK_STATES {
            let count = counts.get(&state.into()).copied().unwrap_or_default();
            page.sample(name, &[("link", link.as_str()), ("state", label)], count);
        }
    }
    let name = "kreplicator_controller_lag_records";
    page.family(
        name,
        "Records not copied yet, over the partitions whose lag is known; absent: known for none.",
    );
    for ((link, topic), lag) in &lags {
        let labels = [("link", link.as_str()), ("topic", topic.as_str())];
        page.sample(name, &labels, lag);
    }
}

/// A page of metrics. Every label value is a checked name or a word of ours: none needs escaping.
struct Page<'a>(&'a mut String);

impl Page<'_> {
    fn family(&mut self, name: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} gauge"));
    }

    fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}
