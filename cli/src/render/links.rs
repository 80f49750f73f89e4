//! Links.

use std::collections::BTreeMap;

use kreplicator_model::spec::Engine;
use kreplicator_proto::v1;
use serde::Serialize;

use super::{
    Listed,
    clusters::some,
    status::{TaskCounts, health},
    units::{self, because},
};

/// A link as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    id: String,
    source: String,
    target: String,
    prefix: Option<String>,
    rename: BTreeMap<String, String>,
    start: String,
    on_gap: &'static str,
    checkpoint_on: &'static str,
    engine: &'static str,
    paused: bool,
    health: &'static str,
    cause: Option<String>,
    since: Option<String>,
    topics: i32,
    tasks: TaskCounts,
    /// None: not known for any task.
    lag_records: Option<i64>,
    delivery: Option<String>,
    delivery_reason: Option<String>,
}

impl From<v1::LinkInfo> for Link {
    fn from(info: v1::LinkInfo) -> Self {
        let link = info.link.unwrap_or_default();
        let status = info.status.unwrap_or_default();
        let (on_gap, checkpoint_on) = (link.on_gap(), link.checkpoint_on());
        let engine = match link.engine() {
            v1::Engine::Unspecified => Engine::DEFAULT,
            v1::Engine::Records => Engine::Records,
            v1::Engine::Batches => Engine::Batches,
        };
        let health = health(status.health());
        let naming = link.naming.unwrap_or_default();
        Self {
            start: start(link.start.as_ref()),
            on_gap: match on_gap {
                v1::GapPolicy::Unspecified | v1::GapPolicy::ContinueAndReport => "continue",
                v1::GapPolicy::Halt => "halt",
            },
            checkpoint_on: match checkpoint_on {
                v1::CheckpointSide::Unspecified | v1::CheckpointSide::Source => "source",
                v1::CheckpointSide::Target => "target",
            },
            engine: engine.as_str(),
            id: link.id,
            source: link.source,
            target: link.target,
            prefix: some(naming.prefix),
            rename: naming.rename.into_iter().collect(),
            paused: link.paused,
            health,
            cause: some(status.cause),
            since: units::time(status.since_ms),
            topics: status.topics,
            tasks: status.tasks.unwrap_or_default().into(),
            lag_records: status.lag_records,
            delivery: some(status.delivery),
            delivery_reason: some(status.delivery_reason),
        }
    }
}

/// A start policy as it is written in files.
pub(super) fn start(start: Option<&v1::StartPolicy>) -> String {
    match start.and_then(|start| start.at) {
        None | Some(v1::start_policy::At::Earliest(_)) => "earliest".to_owned(),
        Some(v1::start_policy::At::Latest(_)) => "latest".to_owned(),
        Some(v1::start_policy::At::TimestampMs(millis)) => {
            units::time(millis).unwrap_or_else(|| format!("{millis} ms"))
        }
    }
}

impl Listed for Link {
    const PLURAL: &'static str = "links";
    const HEADINGS: &'static [&'static str] = &[
        "NAME", "SOURCE", "TARGET", "HEALTH", "TOPICS", "RUNNING", "LAG", "CAUSE",
    ];
    const WIDE: &'static [&'static str] = &[
        "SINCE",
        "PREFIX",
        "START",
        "CHECKPOINT",
        "ON GAP",
        "ENGINE",
        "DELIVERY",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            self.source.clone(),
            self.target.clone(),
            self.health.to_owned(),
            self.topics.to_string(),
            self.tasks.cell(),
            units::lag(self.lag_records),
            self.cause.clone().unwrap_or_default(),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        vec![
            units::time_cell(self.since.as_ref()),
            self.prefix.clone().unwrap_or_default(),
            self.start.clone(),
            self.checkpoint_on.to_owned(),
            self.on_gap.to_owned(),
            self.engine.to_owned(),
            because(self.delivery.as_ref(), self.delivery_reason.as_ref()),
        ]
    }
}
