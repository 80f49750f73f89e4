//! What the states of tasks mean for a subscription, a link and the whole. Pure.
//!
//! # Rules
//! - Nothing is OK while something that it needs is not known to run (C113).
//! - A cause names the thing at fault, and `since` tells when it began; 0: not known.
//! - Lag that cannot be told is absent, never 0; sums leave it out (C115, C116).

use kreplicator_model::{
    ids::{ClusterId, LinkTopic},
    resolve::ResolvedTopic,
    spec::{Link, Selector},
};
use kreplicator_proto::v1::{Health, TaskCounts, TaskState};

use super::{
    picture::{Picture, Task},
    promise::{Promise, Promises},
};

/// How a subscription, a link or everything stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Condition {
    pub(crate) health: Health,
    /// Empty when it is well.
    pub(crate) cause: String,
    pub(crate) since_ms: i64,
    pub(crate) tasks: TaskCounts,
    pub(crate) lag_records: Option<i64>,
    /// What its running tasks promise together.
    pub(crate) delivery: Promise,
}

/// Sums over tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) counts: TaskCounts,
    pub(crate) lag_records: Option<i64>,
    /// Of the tasks at fault, the one that has been so for longest.
    fault: Option<Finding>,
    /// Of the tasks that wait, the first.
    waiting: Option<Finding>,
    running_since_ms: i64,
    promises: Promises,
}

/// Something that keeps records from flowing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    cause: String,
    since_ms: i64,
}

impl Tally {
    pub(crate) fn add(&mut self, task: &Task<'_>) {
        self.counts.total += 1;
        let finding = || Finding {
            cause: format!("{}/{}: {}", task.id.topic, task.id.partition, task.cause),
            since_ms: task.since_ms,
        };
        match task.state {
            TaskState::Running => {
                self.counts.running += 1;
                self.running_since_ms = self.running_since_ms.max(task.since_ms);
                self.promises.add(task.report);
            }
            TaskState::Faulted => {
                self.counts.faulted += 1;
                let is_older = self
                    .fault
                    .as_ref()
                    .is_none_or(|fault| age_order(task.since_ms) < age_order(fault.since_ms));
                if is_older {
                    self.fault = Some(finding());
                }
            }
            TaskState::Paused => self.counts.paused += 1,
            TaskState::Unspecified
            | TaskState::Unassigned
            | TaskState::Starting
            | TaskState::Stopping => {
                self.counts.pending += 1;
                if self.waiting.is_none() {
                    self.waiting = Some(finding());
                }
            }
        }
        if let Some(lag) = task.lag_records() {
            self.lag_records = Some(self.lag_records.unwrap_or(0).saturating_add(lag));
        }
    }

    fn judge(self, paused: bool, outage: Option<Finding>, lack: Option<Finding>) -> Condition {
        let Self { counts, fault, .. } = self;
        let all_paused = counts.total > 0 && counts.paused == counts.total;
        let broken = |finding: Finding| {
            let health = if counts.running > 0 {
                Health::Degraded
            } else {
                Health::Down
            };
            (health, finding)
        };
        let found = if paused || all_paused {
            None
        } else if let Some(outage) = outage {
            Some(broken(outage))
        } else if let Some(fault) = fault {
            let finding = Finding {
                cause: format!(
                    "{} of {} tasks at fault; {}",
                    counts.faulted, counts.total, fault.cause
                ),
                ..fault
            };
            Some(broken(finding))
        } else {
            lack.or(self.waiting)
                .map(|finding| (Health::Pending, finding))
        };
        let (health, finding) = found.unwrap_or_else(|| {
            let health = if paused || all_paused {
                Health::Paused
            } else {
                Health::Ok
            };
            let well = Finding {
                cause: String::new(),
                since_ms: self.running_since_ms,
            };
            (health, well)
        });
        Condition {
            health,
            cause: finding.cause,
            since_ms: finding.since_ms,
            tasks: counts,
            lag_records: self.lag_records,
            delivery: self.promises.together(),
        }
    }
}

/// Times that are not known come last.
fn age_order(since_ms: i64) -> i64 {
    if since_ms == 0 { i64::MAX } else { since_ms }
}

/// What is known of a subscription's topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) link: &'a Link,
    pub(crate) id: &'a str,
    pub(crate) selector: &'a Selector,
    pub(crate) paused: bool,
}

impl<'a> Picture<'a> {
    /// How a subscription stands. `topics` are those that it comes to.
    pub(crate) fn subscription(
        self,
        asked: Asked<'a>,
        topics: &[(&'a LinkTopic, &'a ResolvedTopic)],
    ) -> Condition {
        let mut tally = Tally::default();
        for (topic, resolved) in topics {
            for task in self.tasks_of(topic, resolved) {
                tally.add(&task);
            }
        }
        let place = (asked.link.id.clone(), asked.id.to_owned());
        let missing = self.fleet.resolved.missing.get(&place);
        let lack = match missing {
            Some(topic) => Some(Finding {
                cause: missing_cause(topic.as_str(), &asked.link.source),
                since_ms: 0,
            }),
            // An exact topic that is neither there nor missing was not looked at yet.
            None if topics.is_empty() && matches!(asked.selector, Selector::Topic(_)) => {
                Some(Finding {
                    cause: "was not looked at yet".to_owned(),
                    since_ms: 0,
                })
            }
            None => self.unknown(asked.link),
        };
        tally.judge(
            asked.paused || asked.link.paused,
            self.outage(asked.link),
            lack,
        )
    }

    /// How a link stands.
    pub(crate) fn link(self, link: &'a Link) -> Condition {
        let mut tally = Tally::default();
        for task in self.tasks_of_link(&link.id) {
            tally.add(&task);
        }
        let missing = self
            .fleet
            .resolved
            .missing
            .range((link.id.clone(), String::new())..)
            .next()
            .filter(|((of, _), _)| *of == link.id);
        let lack = match missing {
            Some((_, topic)) => Some(Finding {
                cause: missing_cause(topic.as_str(), &link.source),
                since_ms: 0,
            }),
            None => self.unknown(link),
        };
        tally.judge(link.paused, self.outage(link), lack)
    }

    /// A cluster of the link that does not answer; that of the longest standing.
    fn outage(self, link: &Link) -> Option<Finding> {
        [&link.source, &link.target]
            .into_iter()
            .filter_map(|cluster| {
                let state = self.fleet.clusters.get(cluster)?;
                (state.reachable == Some(false)).then(|| Finding {
                    cause: format!("cluster {cluster} is not reachable: {}", state.cause),
                    since_ms: state.since.0,
                })
            })
            .min_by_key(|finding| age_order(finding.since_ms))
    }

    /// What has not been looked at yet, so that nothing can be said.
    fn unknown(self, link: &Link) -> Option<Finding> {
        let cause = if !self.fleet.ready {
            "the leader has just taken over and is still looking".to_owned()
        } else {
            let seen = |cluster: &ClusterId| {
                let state = self.fleet.clusters.get(cluster);
                state.is_some_and(|state| state.reachable.is_some())
            };
            let cluster = [&link.source, &link.target]
                .into_iter()
                .find(|cluster| !seen(cluster))?;
            format!("cluster {cluster} was not looked at yet")
        };
        Some(Finding { cause, since_ms: 0 })
    }
}

fn missing_cause(topic: &str, cluster: &ClusterId) -> String {
    format!("topic {topic} does not exist on cluster {cluster}; it starts when it is created")
}

/// How everything stands, from how its links do.
pub(crate) fn overall<'a>(links: impl Iterator<Item = &'a Condition>) -> Health {
    let mut seen = [0_usize; 6];
    let mut total = 0;
    for condition in links {
        total += 1;
        seen[condition.health as usize] += 1;
    }
    let count = |health: Health| seen[health as usize];
    let at_work = total - count(Health::Paused);
    if count(Health::Down) > 0 && count(Health::Down) == at_work {
        Health::Down
    } else if count(Health::Down) + count(Health::Degraded) > 0 {
        Health::Degraded
    } else if count(Health::Pending) > 0 {
        Health::Pending
    } else if total > 0 && at_work == 0 {
        Health::Paused
    } else {
        Health::Ok
    }
}

#[cfg(test)]
mod tests;
