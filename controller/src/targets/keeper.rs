//! The task that looks after the target topics of one link.

mod entry;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join3;
use kreplicator_model::{backoff::Backoff, ids::LinkTopic, target_limits::TargetLimits};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::entry::Entry;
use super::{
    LinkWants, Settings, States, TargetProblem, TargetState, Want,
    budget::Share,
    calls::{Calls, Done, Job},
    decide::{Facts, Step, decide},
    settings,
};
use crate::discovery::{ClusterTopics, Discovery};

/// Most topics made, grown or looked at in one round, so that the first ones are not told after the last.
const BATCH_MAX: usize = 64;
/// Shortest time between looks at whether a change shows; the longer it takes the seldomer it is
/// looked for, each time after a further [`LOOKS_PART`]th of the time that has passed.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(100);
const LOOKS_PART: u32 = 4;
/// From how many topics on it is suspicious that all are gone at once; as for sources.
const VANISHED_FROM: usize = 3;
/// Waits between attempts that failed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Looks after the target topics of one link.
#[derive(Debug)]
pub(super) struct Keeper {
    settings: Settings,
    discovery: Discovery,
    wants: watch::Receiver<Arc<LinkWants>>,
    states: Arc<States>,
    share: Share,
    cancel: CancellationToken,
    entries: BTreeMap<LinkTopic, Entry>,
    /// When the target is looked at for changes that do not show yet.
    look_at: Instant,
}

#[derive(Debug, Default)]
struct Work {
    create: Vec<Job>,
    grow: Vec<Job>,
    check: Vec<Job>,
    /// There was more than fits one round.
    more: bool,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.create.is_empty() && self.grow.is_empty() && self.check.is_empty()
    }
}

impl Keeper {
    pub(super) fn new(
        settings: Settings,
        discovery: Discovery,
        wants: watch::Receiver<Arc<LinkWants>>,
        states: Arc<States>,
        share: Share,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            settings,
            discovery,
            wants,
            states,
            share,
            cancel,
            entries: BTreeMap::new(),
            look_at: Instant::now(),
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
                () = self.share.freed() => {}
            }
        }
    }

    /// One round; true when another should follow at once.
    async fn round(&mut self, wants: &LinkWants) -> bool {
        self.entries
            .retain(|topic, _| wants.topics.contains_key(topic));
        self.look(wants).await;
        let work = self.sort(wants);
        if work.is_empty() {
            return false;
        }
        let more = work.more;
        let calls = Calls {
            link: &wants.link,
            discovery: &self.discovery,
            limit: self.settings.timeout,
        };
        let (made, grown, checked) = join3(
            calls.create(work.create),
            calls.grow(work.grow),
            calls.check(work.check),
        )
        .await;
        let mut changed = false;
        let now = Instant::now();
        for (job, done) in made.into_iter().chain(grown).chain(checked) {
            changed |= matches!(done, Done::Changed);
            self.note(job, done, now);
        }
        if changed {
            self.look_at = now;
        }
        changed || more
    }

    /// Looks whether changes show, when it is time: only what the cluster itself shows counts as
    /// there.
    async fn look(&mut self, wants: &LinkWants) {
        let now = Instant::now();
        let Some(since) = self.unseen_since() else {
            return;
        };
        if now < self.look_at {
            return;
        }
        self.discovery
            .refresh(&wants.link.target, self.settings.timeout)
            .await;
        let now = Instant::now();
        let pause = now.saturating_duration_since(since) / LOOKS_PART;
        self.look_at = now + pause.max(LOOK_INTERVAL_MIN);
    }

    /// When the oldest change was made that does not show yet.
    fn unseen_since(&self) -> Option<Instant> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.unseen_since).min()
    }

    /// Decides what to do about each topic.
    fn sort(&mut self, wants: &LinkWants) -> Work {
        let mut work = Work::default();
        let Some(seen) = self.discovery.topics(&wants.link.target) else {
            return work;
        };
        let now = Instant::now();
        let vanished = vanished(wants, &seen);
        let found = |want: &Want| {
            let found = seen.topics.get(&want.target_topic);
            found.map(|found| found.partitions)
        };
        let mut unseen: i32 = 0;
        for (topic, entry) in &mut self.entries {
            let want = wants.topics.get(topic);
            unseen = unseen.saturating_add(entry.unseen_partitions(want, found, now));
        }
        self.share.begin(unseen);
        for (topic, want) in &wants.topics {
            let facts = Facts {
                topic,
                target_topic: &want.target_topic,
                target: &wants.link.target,
                wanted: want.partitions,
                found: found(want),
                confirmed: seen.confirmed && vanished.is_none(),
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
            let unseen = entry.unseen_since.is_some();
            let new_partitions = want.partitions - facts.found.unwrap_or_default();
            let step = decide(&facts, &wants.link.target_topics);
            entry.waits_for_news = matches!(step, Step::Wait);
            let (list, job) = match step {
                Step::Hold {
                    partitions,
                    problem,
                    stops,
                } => {
                    entry.hold(topic, partitions, problem, stops);
                    continue;
                }
                Step::Wait => {
                    if vanished.is_some() {
                        entry.state.problem = vanished.clone();
                        // It goes with the look at what is there then.
                        entry.check_at = None;
                    }
                    continue;
                }
                step @ (Step::Create | Step::Grow) => {
                    // What is there may be used while the rest is made.
                    if let Some(usable) = &mut entry.state.partitions {
                        *usable = facts.found.unwrap_or_default();
                    }
                    if waits || unseen || !self.share.takes(new_partitions) {
                        continue;
                    }
                    let is_new = step == Step::Create;
                    let list = if is_new {
                        &mut work.create
                    } else {
                        &mut work.grow
                    };
                    (list, job(want.partitions, None))
                }
                Step::Check { note } => {
                    entry.tell_surplus(topic, want, note.as_deref());
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

    /// Notes how a job ended.
    fn note(&mut self, job: Job, done: Done, now: Instant) {
        let Some(entry) = self.entries.get_mut(&job.topic) else {
            return;
        };
        match done {
            Done::Changed => {
                entry.failures = 0;
                entry.retry_at = None;
                entry.unseen_since = Some(now);
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
        let look_at = self.unseen_since().map(|_| self.look_at);
        let entries = self.entries.values();
        entries
            .filter_map(Entry::wake_at)
            .chain(look_at)
            .min()
            // A time that has passed belongs to a topic that waits for others.
            .map(|at| at.max(Instant::now() + LOOK_INTERVAL_MIN))
    }
}

/// What is wrong when a target shows none of many topics that were there: it has more likely taken away
/// the right to see them than that all were deleted at once.
fn vanished(wants: &LinkWants, seen: &ClusterTopics) -> Option<TargetProblem> {
    let verified = wants.topics.values().filter(|want| want.verified_before);
    let verified: Vec<_> = verified.map(|want| &want.target_topic).collect();
    let any_left = verified
        .iter()
        .any(|topic| seen.topics.contains_key(*topic));
    if verified.len() < VANISHED_FROM || any_left || !seen.confirmed {
        return None;
    }
    Some(TargetProblem {
        message: format!(
            "cluster {} shows none of the {} topics copied to it any more; check the rights of its user",
            wants.link.target,
            verified.len()
        ),
        stops: false,
    })
}
