//! Subscriptions.

use kreplicator_proto::v1::{self, selector::By};
use serde::Serialize;

use super::{
    Listed,
    clusters::some,
    links::start,
    status::{TaskCounts, health},
    units,
};

/// A subscription as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Subscription {
    link: String,
    id: String,
    topic: Option<String>,
    pattern: Option<String>,
    exclude: Vec<String>,
    /// None: the link's.
    start: Option<String>,
    paused: bool,
    health: &'static str,
    cause: Option<String>,
    since: Option<String>,
    topics_total: i32,
    topics: Vec<Topic>,
    tasks: TaskCounts,
    lag_records: Option<i64>,
}

/// One topic of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Topic {
    topic: String,
    target_topic: String,
    partitions: i32,
    problem: Option<String>,
    note: Option<String>,
}

impl From<v1::SubscriptionInfo> for Subscription {
    fn from(info: v1::SubscriptionInfo) -> Self {
        let subscription = info.subscription.unwrap_or_default();
        let status = info.status.unwrap_or_default();
        let health = health(status.health());
        let (topic, pattern, exclude) = match subscription.selector.and_then(|by| by.by) {
            Some(By::Topic(topic)) => (Some(topic), None, Vec::new()),
            Some(By::Pattern(pattern)) => (None, Some(pattern.include), pattern.exclude),
            None => (None, None, Vec::new()),
        };
        let topics = status.topics.into_iter().map(|topic| Topic {
            topic: topic.topic,
            target_topic: topic.target_topic,
            partitions: topic.partitions,
            problem: some(topic.problem),
            note: some(topic.note),
        });
        Self {
            link: subscription.link,
            id: info.id,
            topic,
            pattern,
            exclude,
            start: subscription.start.as_ref().map(|at| start(Some(at))),
            paused: subscription.paused,
            health,
            cause: some(status.cause),
            since: units::time(status.since_ms),
            topics_total: status.topics_total,
            topics: topics.collect(),
            tasks: status.tasks.unwrap_or_default().into(),
            lag_records: status.lag_records,
        }
    }
}

impl Subscription {
    /// One line for `watch`.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{}  {}  {}  topics {}  running {}  lag {}",
            self.link,
            self.id,
            self.health,
            self.topics_total,
            self.tasks.cell(),
            units::lag(self.lag_records),
        );
        if let Some(cause) = &self.cause {
            line.push_str("  ");
            line.push_str(&cause.replace('\n', "; "));
        }
        line
    }
}

impl Listed for Subscription {
    const PLURAL: &'static str = "subscriptions";
    const HEADINGS: &'static [&'static str] = &[
        "LINK", "TOPICS", "HEALTH", "MATCHED", "RUNNING", "LAG", "CAUSE",
    ];
    const WIDE: &'static [&'static str] = &["SINCE", "START", "EXCLUDED", "FIRST PROBLEM OR NOTE"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.link.clone(),
            self.id.clone(),
            self.health.to_owned(),
            self.topics_total.to_string(),
            self.tasks.cell(),
            units::lag(self.lag_records),
            self.cause.clone().unwrap_or_default(),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let problem = self.topics.iter().find_map(|topic| topic.problem.clone());
        let note = self.topics.iter().find_map(|topic| topic.note.clone());
        vec![
            units::time_cell(self.since.as_ref()),
            self.start.clone().unwrap_or_default(),
            self.exclude.join(" "),
            problem.or(note).unwrap_or_default(),
        ]
    }
}
