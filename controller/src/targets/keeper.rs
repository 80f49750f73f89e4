//! The task that looks after the target topics of one link.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, future::join3, stream};
use kreplicator_kafka::admin::NewTopic;
use kreplicator_model::{
    backoff::Backoff,
    ids::{LinkTopic, TopicName},
    target_limits::TargetLimits,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    LinkWants, Settings, States, TargetProblem, TargetState,
    decide::{Facts, Step, decide},
    settings,
};
use crate::{
    cluster_admin::{AdminError, ClusterAdmin, TopicSettings},
    discovery::Discovery,
};

/// Most topics made, grown or looked at in one round, so that the first ones are not told after the last.
const BATCH_MAX: usize = 64;
/// Calls under way at one cluster for one link.
const PARALLEL_MAX: usize = 16;
/// Time for a change to show in the cluster's metadata before it is tried again.
const SHOWS_AFTER: Duration = Duration::from_millis(250);
/// Attempts to read a target topic's settings before they count as not ours to read.
const NOT_TOLD_MAX: u32 = 4;
/// Waits between attempts that failed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Looks after the target topics of one link.
#[derive(Debug)]
pub(super) struct Keeper {
    settings: Settings,
    discovery: Discovery,
    wants: watch::Receiver<Arc<LinkWants>>,
    states: Arc<States>,
    cancel: CancellationToken,
    entries: BTreeMap<LinkTopic, Entry>,
}

/// What the keeper remembers of one topic.
#[derive(Debug, Default)]
struct Entry {
    state: TargetState,
    failures: u32,
    /// Not acted on before.
    retry_at: Option<Instant>,
    /// Settings are looked at again then; None: at once.
    check_at: Option<Instant>,
    /// Partitions of source and target at the last look.
    checked_with: Option<(i32, i32)>,
}

/// A topic to be acted on.
#[derive(Debug, Clone)]
struct Job {
    topic: LinkTopic,
    target_topic: TopicName,
    /// To be made, or found.
    partitions: i32,
    /// Of the source.
    wanted: i32,
    /// Attempts that failed so far.
    failures: u32,
    note: Option<String>,
}

#[derive(Debug, Default)]
struct Work {
    create: Vec<Job>,
    grow: Vec<Job>,
    check: Vec<Job>,
    /// There was more than fits one round.
    more: bool,
}

#[derive(Debug)]
enum Done {
    /// Made or grown; it shows in the metadata soon.
    Changed,
    /// Looked at; the settings of source and target as far as they could be read.
    Checked {
        source: Option<TopicSettings>,
        target: Result<TopicSettings, String>,
    },
    Failed(String),
}

impl Keeper {
    pub(super) fn new(
        settings: Settings,
        discovery: Discovery,
        wants: watch::Receiver<Arc<LinkWants>>,
        states: Arc<States>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            settings,
            discovery,
            wants,
            states,
            cancel,
            entries: BTreeMap::new(),
        }
    }

    /// Looks after the link until cancelled.
    pub(super) async fn run(mut self) {
        let cancel = self.cancel.clone();
        cancel.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&mut self) {
        loop {
            let wants = self.wants.borrow_and_update().clone();
            let again = self.round(&wants).await;
            self.publish(&wants);
            if again {
                continue;
            }
            let wake = self.next_wake();
            tokio::select! {
                changed = self.wants.changed() => if changed.is_err() { return },
                () = async {
                    match wake {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// One round; true when another should follow at once.
    async fn round(&mut self, wants: &LinkWants) -> bool {
        self.entries
            .retain(|topic, _| wants.topics.contains_key(topic));
        let work = self.sort(wants);
        let changes = !work.create.is_empty() || !work.grow.is_empty();
        if !changes && work.check.is_empty() {
            return false;
        }
        let more = work.more;
        let (made, grown, checked) = join3(
            self.create(wants, work.create),
            self.grow(wants, work.grow),
            self.check(wants, work.check),
        )
        .await;
        let mut changed = false;
        let now = Instant::now();
        for (job, done) in made.into_iter().chain(grown).chain(checked) {
            changed |= matches!(done, Done::Changed);
            self.note(job, done, now);
        }
        if changed {
            // Only what the cluster itself shows counts as there.
            self.discovery
                .refresh(&wants.link.target, self.settings.timeout)
                .await;
        }
        changed || more
    }

    /// Decides what to do about each topic.
    fn sort(&mut self, wants: &LinkWants) -> Work {
        let mut work = Work::default();
        let Some(seen) = self.discovery.topics(&wants.link.target) else {
            return work;
        };
        let now = Instant::now();
        for (topic, want) in &wants.topics {
            let facts = Facts {
                topic,
                target_topic: &want.target_topic,
                target: &wants.link.target,
                wanted: want.partitions,
                found: seen
                    .topics
                    .get(&want.target_topic)
                    .map(|found| found.partitions),
                verified_before: want.verified_before,
            };
            let entry = self.entries.entry(topic.clone()).or_default();
            let failures = entry.failures;
            let job = |partitions, note| Job {
                topic: topic.clone(),
                target_topic: want.target_topic.clone(),
                partitions,
                wanted: want.partitions,
                failures,
                note,
            };
            let waits = entry.retry_at.is_some_and(|at| at > now);
            let (list, job) = match decide(&facts, &wants.link.target_topics) {
                Step::Hold {
                    partitions,
                    problem,
                    stops,
                } => {
                    entry.hold(topic, partitions, problem, stops);
                    continue;
                }
                Step::Create | Step::Grow if waits => continue,
                Step::Create => (&mut work.create, job(want.partitions, None)),
                Step::Grow => {
                    // What is there may be used while the rest is made.
                    if let Some(usable) = &mut entry.state.partitions {
                        *usable = facts.found.unwrap_or_default();
                    }
                    (&mut work.grow, job(want.partitions, None))
                }
                Step::Check { note } => {
                    let found = facts.found.unwrap_or_default();
                    if entry.check_at.is_some() {
                        // Its settings are known: more partitions change nothing about them.
                        entry.state.partitions = Some(found);
                    }
                    let due = entry.check_at.is_none_or(|at| at <= now)
                        || entry.checked_with != Some((want.partitions, found));
                    if !due || (waits && entry.failures > 0) {
                        continue;
                    }
                    (&mut work.check, job(found, note))
                }
            };
            if list.len() < BATCH_MAX {
                list.push(job);
            } else {
                work.more = true;
            }
        }
        work
    }

    async fn create(&self, wants: &LinkWants, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let limit = self.settings.timeout;
        let link = &wants.link;
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
        let calls = jobs.into_iter().map(|job| {
            let source = found.remove(&job.topic.topic);
            let target = &target;
            async move {
                // Made without them, it would drop or compact records by the wrong rule (C064).
                let Some(source) = source else {
                    let cause = format!(
                        "settings of the source topic cannot be read: grant DESCRIBE_CONFIGS on it, or \
                         make target topic {} yourself",
                        job.target_topic
                    );
                    return (job, Done::Failed(cause));
                };
                let topic = NewTopic {
                    name: job.target_topic.clone(),
                    partitions: job.partitions,
                    replication_factor: link.target_topics.replication_factor,
                    config: settings::for_creation(&source, &link.target_topics),
                };
                let done = create_one(target.as_ref(), &topic, limit).await;
                (job, done)
            }
        });
        stream::iter(calls)
            .buffer_unordered(PARALLEL_MAX)
            .collect()
            .await
    }

    async fn grow(&self, wants: &LinkWants, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let limit = self.settings.timeout;
        let Some(target) = self.discovery.admin(&wants.link.target) else {
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

    async fn check(&self, wants: &LinkWants, jobs: Vec<Job>) -> Vec<(Job, Done)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let limit = self.settings.timeout;
        let Some(target) = self.discovery.admin(&wants.link.target) else {
            return all_failed(jobs, "waits for its target to be reached");
        };
        let names: Vec<_> = jobs.iter().map(|job| job.target_topic.clone()).collect();
        let sources: Vec<_> = jobs.iter().map(|job| job.topic.topic.clone()).collect();
        let of_target = bounded(limit, target.topic_settings(&names, limit));
        // The source's are for warnings alone: never waited for longer than the target's.
        let of_source = async {
            let source = self.discovery.admin(&wants.link.source)?;
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

    /// Notes how a job ended.
    fn note(&mut self, job: Job, done: Done, now: Instant) {
        let Some(entry) = self.entries.get_mut(&job.topic) else {
            return;
        };
        match done {
            Done::Changed => {
                entry.failures = 0;
                entry.retry_at = Some(now + SHOWS_AFTER);
            }
            Done::Failed(cause) => {
                entry.retry_at = Some(now + BACKOFF.delay(entry.failures, rand::random()));
                entry.failures += 1;
                let known = entry.state.problem.as_ref().map(|problem| &problem.message);
                if known != Some(&cause) {
                    warn!(topic = %job.topic, target_topic = %job.target_topic, cause,
                        "target topic is not ready");
                }
                entry.state.problem = Some(TargetProblem {
                    message: cause,
                    stops: false,
                });
            }
            Done::Checked { source, target } => {
                let jitter = rand::random_range(0.9..=1.1);
                entry.failures = 0;
                entry.retry_at = None;
                entry.check_at = Some(now + self.settings.check_interval.mul_f64(jitter));
                entry.checked_with = Some((job.wanted, job.partitions));
                let mut notes: Vec<String> = job.note.into_iter().collect();
                let limits = match &target {
                    Ok(target) => {
                        let warning = source.and_then(|source| settings::warning(&source, target));
                        notes.extend(warning);
                        settings::limits(target)
                    }
                    Err(cause) => {
                        notes.push(format!(
                            "has settings that cannot be read, so what it refuses is not known: {cause}"
                        ));
                        TargetLimits::default()
                    }
                };
                entry.state = TargetState {
                    partitions: Some(job.partitions),
                    limits: Some(limits),
                    problem: None,
                    note: (!notes.is_empty()).then(|| notes.join("; ")),
                };
            }
        }
    }

    fn publish(&self, wants: &LinkWants) {
        let states = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.state != TargetState::default())
            .map(|(topic, entry)| (topic.clone(), entry.state.clone()))
            .collect();
        self.states.replace(&wants.link.id, states, &self.cancel);
    }

    /// When something is to be done without any news.
    fn next_wake(&self) -> Option<Instant> {
        let entries = self.entries.values();
        entries
            .filter_map(|entry| entry.retry_at.or(entry.check_at))
            .min()
            // A time that has passed belongs to a topic that waits for news, not for time.
            .map(|at| at.max(Instant::now() + SHOWS_AFTER))
    }
}

impl Entry {
    fn hold(&mut self, topic: &LinkTopic, partitions: i32, message: String, stops: bool) {
        let problem = TargetProblem { message, stops };
        if self.state.problem.as_ref() != Some(&problem) {
            warn!(%topic, cause = problem.message, "target topic needs somebody to act");
        }
        self.state.partitions = Some(partitions);
        self.state.problem = Some(problem);
        self.state.note = None;
        self.failures = 0;
        self.retry_at = None;
        // Whatever is there when it goes on is looked at anew.
        self.check_at = None;
    }
}

/// Makes one topic, by asking for it where the cluster knows no other way and its spec allows it.
async fn create_one(target: &dyn ClusterAdmin, topic: &NewTopic, limit: Duration) -> Done {
    let mut result = bounded(limit, target.create_topic(topic, limit)).await;
    if matches!(result, Err(AdminError::Unsupported(_))) && target.may_create_by_asking() {
        result = bounded(limit, target.ask_for_topic(&topic.name, limit)).await;
    }
    match result {
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
    }
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
