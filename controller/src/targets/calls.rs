//! The calls that a keeper makes, many at a time and each within its limit.

use std::time::Duration;

use futures::{StreamExt, stream};
use kreplicator_kafka::admin::NewTopic;
use kreplicator_model::{
    ids::{LinkTopic, TopicName},
    spec::Link,
};
use tokio::time::timeout;
use tracing::info;

use super::settings;
use crate::{
    cluster_admin::{AdminError, ClusterAdmin, TopicSettings},
    discovery::Discovery,
};

/// Calls under way at one cluster for one link.
const PARALLEL_MAX: usize = 16;
/// Topics made by one request: enough that 500 take seconds, few enough that the first ones need not
/// wait for the last.
const REQUEST_TOPICS_MAX: usize = 32;
/// Partitions made by one request, unless one topic alone has more.
const REQUEST_PARTITIONS_MAX: i32 = 1_000;
/// Such requests under way at one cluster for one link.
const REQUESTS_MAX: usize = 2;
/// Attempts to read a target topic's settings before they count as not ours to read.
const NOT_TOLD_MAX: u32 = 4;

/// Calls for one link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calls<'a> {
    pub(super) link: &'a Link,
    pub(super) discovery: &'a Discovery,
    /// Longest wait for one answer.
    pub(super) limit: Duration,
}

/// A topic to be acted on.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) topic: LinkTopic,
    pub(super) target_topic: TopicName,
    /// To be made, or found.
    pub(super) partitions: i32,
    /// Of the source.
    pub(super) wanted: i32,
    /// Attempts that failed so far.
    pub(super) failures: u32,
    /// What is known to deserve a warning.
    pub(super) note: Option<String>,
}

/// How a job ended.
#[derive(Debug)]
pub(super) enum Done {
    /// Made or grown; it shows in the metadata soon.
    Changed,
    /// Looked at; the settings of source and target as far as they could be read.
    Checked {
        source: Option<TopicSettings>,
        target: Result<TopicSettings, String>,
    },
    /// Why it has to be tried again.
    Failed(String),
}

impl Calls<'_> {
    /// Makes topics with the settings of their sources.
    pub(super) async fn create(&self, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let Self { link, limit, .. } = *self;
        let names: Vec<_> = jobs.iter().map(|job| job.topic.topic.clone()).collect();
        let admins = (
            self.discovery.admin(&link.source),
            self.discovery.admin(&link.target),
        );
        let (Some(source), Some(target)) = admins else {
            return all_failed(jobs, "waits for its clusters to be reached");
        };
        let mut found = match bounded(limit, source.topic_settings(&names, limit)).await {
            Ok(found) => found,
            // Nothing to carry over from a cluster that knows no settings.
            Err(AdminError::Unsupported(_)) => names
                .into_iter()
                .map(|name| (name, TopicSettings::new()))
                .collect(),
            Err(error) => {
                let cause = format!("settings of the source topic cannot be read: {error}");
                return all_failed(jobs, &cause);
            }
        };
        let mut done = Vec::with_capacity(jobs.len());
        let mut to_make = Vec::with_capacity(jobs.len());
        for job in jobs {
            // Made without them, it would drop or compact records by the wrong rule (C064).
            let Some(source) = found.remove(&job.topic.topic) else {
                let cause = format!(
                    "settings of the source topic cannot be read: grant DESCRIBE_CONFIGS on it, or \
                     make target topic {} yourself",
                    job.target_topic
                );
                done.push((job, Done::Failed(cause)));
                continue;
            };
            let topic = NewTopic {
                name: job.target_topic.clone(),
                partitions: job.partitions,
                replication_factor: link.target_topics.replication_factor,
                config: settings::for_creation(&source, &link.target_topics),
            };
            to_make.push((job, topic));
        }
        let requests = stream::iter(requests(to_make))
            .map(|request| create_some(target.as_ref(), request, limit))
            .buffer_unordered(REQUESTS_MAX);
        done.extend(requests.concat().await);
        done
    }

    /// Raises the partitions of topics.
    pub(super) async fn grow(&self, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let limit = self.limit;
        let Some(target) = self.discovery.admin(&self.link.target) else {
            return all_failed(jobs, "waits for its target to be reached");
        };
        let calls = jobs.into_iter().map(|job| {
            let target = &target;
            async move {
                let call = target.grow_topic(&job.target_topic, job.partitions, limit);
                let done = match bounded(limit, call).await {
                    Ok(()) => {
                        info!(topic = %job.topic, target_topic = %job.target_topic,
                            partitions = job.partitions, "target topic grown");
                        Done::Changed
                    }
                    Err(error) => Done::Failed(format!(
                        "target topic {} cannot be raised to {} partitions: {error}",
                        job.target_topic, job.partitions
                    )),
                };
                (job, done)
            }
        });
        stream::iter(calls)
            .buffer_unordered(PARALLEL_MAX)
            .collect()
            .await
    }

    /// Reads the settings of topics that are there.
    pub(super) async fn check(&self, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let limit = self.limit;
        let Some(target) = self.discovery.admin(&self.link.target) else {
            return all_failed(jobs, "waits for its target to be reached");
        };
        let names: Vec<_> = jobs.iter().map(|job| job.target_topic.clone()).collect();
        let sources: Vec<_> = jobs.iter().map(|job| job.topic.topic.clone()).collect();
        let of_target = bounded(limit, target.topic_settings(&names, limit));
        // The source's are for warnings alone: never waited for longer than the target's.
        let of_source = async {
            let source = self.discovery.admin(&self.link.source)?;
            let half = limit / 2;
            bounded(half, source.topic_settings(&sources, half))
                .await
                .ok()
        };
        let (of_target, of_source) = futures::join!(of_target, of_source);
        let mut of_source = of_source.unwrap_or_default();
        let mut of_target = match of_target {
            Ok(found) => found,
            Err(AdminError::Unavailable(cause) | AdminError::WrongCluster(cause)) => {
                return all_failed(jobs, &format!("target topics cannot be looked at: {cause}"));
            }
            // A cluster without settings limits nothing that we could know.
            Err(AdminError::Unsupported(_)) => names
                .into_iter()
                .map(|name| (name, TopicSettings::new()))
                .collect(),
            Err(AdminError::Refused(cause) | AdminError::AlreadyExists(cause)) => {
                let unknown = |job| {
                    let target = Err(cause.clone());
                    (
                        job,
                        Done::Checked {
                            source: None,
                            target,
                        },
                    )
                };
                return jobs.into_iter().map(unknown).collect();
            }
        };
        let done = jobs.into_iter().map(|job| {
            let target = match of_target.remove(&job.target_topic) {
                Some(settings) => Ok(settings),
                // Just made, or not ours to read: only time tells.
                None if job.failures < NOT_TOLD_MAX => {
                    let cause =
                        format!("target topic {} cannot be looked at yet", job.target_topic);
                    return (job, Done::Failed(cause));
                }
                None => Err("grant DESCRIBE_CONFIGS on it".to_owned()),
            };
            let source = of_source.remove(&job.topic.topic);
            (job, Done::Checked { source, target })
        });
        done.collect()
    }
}

/// Splits topics to be made into requests that a cluster answers within moments.
fn requests(mut topics: Vec<(Job, NewTopic)>) -> Vec<Vec<(Job, NewTopic)>> {
    let mut requests = Vec::new();
    while !topics.is_empty() {
        let mut partitions = 0;
        let fitting = topics
            .iter()
            .take(REQUEST_TOPICS_MAX)
            .take_while(|(_, topic)| {
                partitions += topic.partitions;
                partitions <= REQUEST_PARTITIONS_MAX
            });
        let count = fitting.count().max(1);
        let rest = topics.split_off(count);
        requests.push(std::mem::replace(&mut topics, rest));
    }
    requests
}

/// Makes topics, by asking for them where the cluster knows no other way and its spec allows it.
async fn create_some(
    target: &dyn ClusterAdmin,
    topics: Vec<(Job, NewTopic)>,
    limit: Duration,
) -> Vec<(Job, Done)> {
    let (jobs, topics): (Vec<Job>, Vec<NewTopic>) = topics.into_iter().unzip();
    let made = async { Ok(target.create_topics(&topics, limit).await) };
    let results = match bounded(limit, made).await {
        Ok(results) => results,
        Err(error) => topics.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut done = Vec::with_capacity(jobs.len());
    for ((job, topic), mut result) in jobs.into_iter().zip(topics).zip(results) {
        if matches!(result, Err(AdminError::Unsupported(_))) && target.may_create_by_asking() {
            result = bounded(limit, target.ask_for_topic(&topic.name, limit)).await;
        }
        let outcome = match result {
            Ok(()) => {
                info!(target_topic = %topic.name, partitions = topic.partitions, "target topic made");
                Done::Changed
            }
            // Somebody was faster; what it is like shows in the metadata.
            Err(AdminError::AlreadyExists(_)) => Done::Changed,
            Err(error) => Done::Failed(format!(
                "target topic {} cannot be made: {error}",
                topic.name
            )),
        };
        done.push((job, outcome));
    }
    done
}

/// The call, or the error of one that did not end in time whatever its own deadline says.
async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, AdminError>>,
) -> Result<T, AdminError> {
    match timeout(limit + limit / 10, call).await {
        Ok(result) => result,
        Err(_) => Err(AdminError::Unavailable(format!(
            "no answer within {}",
            humantime::format_duration(limit)
        ))),
    }
}

fn all_failed(jobs: Vec<Job>, cause: &str) -> Vec<(Job, Done)> {
    jobs.into_iter()
        .map(|job| (job, Done::Failed(cause.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kreplicator_model::ids::LinkId;

    use super::*;

    fn topic(number: usize, partitions: i32) -> (Job, NewTopic) {
        let name = TopicName::new(format!("topic-{number}")).expect("legal");
        let job = Job {
            topic: LinkTopic {
                link: LinkId::new("a-b").expect("legal"),
                topic: name.clone(),
            },
            target_topic: name.clone(),
            partitions,
            wanted: partitions,
            failures: 0,
            note: None,
        };
        let topic = NewTopic {
            name,
            partitions,
            replication_factor: None,
            config: BTreeMap::new(),
        };
        (job, topic)
    }

    #[test]
    fn requests_hold_every_topic_once_and_keep_their_limits() {
        let sizes = [6, 6, 990, 20, 5_000, 1, 1];
        let topics: Vec<_> = sizes
            .iter()
            .copied()
            .chain([1; 70])
            .enumerate()
            .map(|(number, partitions)| topic(number, partitions))
            .collect();
        let names: Vec<_> = topics.iter().map(|(_, topic)| topic.name.clone()).collect();
        let requests = requests(topics);
        let kept: Vec<_> = requests
            .iter()
            .flatten()
            .map(|(_, topic)| topic.name.clone())
            .collect();
        assert_eq!(kept, names, "each once, in order");
        let counts: Vec<usize> = requests.iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 1, 1, 1, 32, 32, 8]);
    }
}
