//! Many partitions, some at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kreplicator_model::{
    compare::{Parts, Tally},
    ids::{Offset, Partition, TopicName},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    fingerprint::Hasher,
    notes::notes,
    partition::{Context, Outcome, Pair, compare},
    report::{PartitionReport, Report, Verdict, verdict},
    side::Cluster,
    survey::{Compaction, Survey},
};

/// How to compare.
#[derive(Debug, Clone)]
pub struct Options {
    /// Source offsets from here on; None: from the beginning.
    pub from: Option<Offset>,
    /// Source offsets below this; None: up to the end as of now.
    pub to: Option<Offset>,
    /// Only this partition.
    pub partition: Option<Partition>,
    /// Parts that are not compared.
    pub ignored: Parts,
    /// Doubled records are as promised.
    pub tolerate_duplicates: bool,
    /// How long a target at its end that lacks records may give nothing new.
    pub wait: Duration,
    /// How long a side may give nothing where it should, and a call may take.
    pub stall_timeout: Duration,
    /// Partitions compared at the same time, at least 1.
    pub partitions_at_once: usize,
    /// Most findings told for each partition.
    pub findings: usize,
    /// Where the hashes begin: a new random number for each run.
    pub seed: u64,
}

/// A topic and its copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topics {
    /// Its name on the source.
    pub source: TopicName,
    /// Its name on the target.
    pub target: TopicName,
    /// The copy need not begin where the source does.
    pub starts_late: bool,
}

/// How far a run is; for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    partitions: AtomicU64,
    partitions_done: AtomicU64,
    records: AtomicU64,
    differences: AtomicU64,
    /// Of partitions under way: how much of them is read, in thousandths.
    under_way: Mutex<BTreeMap<(TopicName, Partition), u64>>,
}

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// All partitions.
    pub partitions: u64,
    /// Partitions compared.
    pub partitions_done: u64,
    /// How much is read, in thousandths of a partition.
    pub thousandths: u64,
    /// Records found equal in partitions that are done.
    pub records: u64,
    /// Differences in partitions that are done.
    pub differences: u64,
}

impl Progress {
    /// How it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let under_way: u64 = self.lock().values().sum();
        let partitions_done = self.partitions_done.load(Ordering::Relaxed);
        Snapshot {
            partitions: self.partitions.load(Ordering::Relaxed),
            partitions_done,
            thousandths: partitions_done * 1000 + under_way,
            records: self.records.load(Ordering::Relaxed),
            differences: self.differences.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn advance(&self, pair: &Pair, read: i64, of: i64) {
        let thousandths = u64::try_from(i128::from(read) * 1000 / i128::from(of.max(1)));
        let key = (pair.source_topic.clone(), pair.partition);
        self.lock().insert(key, thousandths.unwrap_or(0).min(1000));
    }

    fn done(&self, topic: &TopicName, partition: Partition, tally: &Tally) {
        self.lock().remove(&(topic.clone(), partition));
        self.partitions_done.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(tally.equal, Ordering::Relaxed);
        self.differences
            .fetch_add(tally.differences(false), Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(TopicName, Partition), u64>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two clusters, ready to be compared.
#[derive(Debug)]
pub struct Session {
    source: Cluster,
    target: Cluster,
    source_survey: Survey,
    target_survey: Survey,
    source_topics: BTreeMap<TopicName, i32>,
    target_topics: BTreeMap<TopicName, i32>,
}

impl Session {
    /// Asks both clusters for their topics, each within `deadline`.
    ///
    /// # Errors
    /// A cluster does not answer, or is another one than was pinned.
    pub async fn open(source: Cluster, target: Cluster, deadline: Duration) -> Result<Self, Error> {
        let source_survey = Survey::new(&source, deadline)?;
        let target_survey = Survey::new(&target, deadline)?;
        let (source_topics, target_topics) =
            tokio::join!(source_survey.topics(), target_survey.topics());
        match (source_topics, target_topics) {
            (Ok(source_topics), Ok(target_topics)) => Ok(Self {
                source,
                target,
                source_survey,
                target_survey,
                source_topics,
                target_topics,
            }),
            (source_topics, target_topics) => {
                tokio::join!(source_survey.close(), target_survey.close());
                Err(source_topics
                    .and(target_topics)
                    .expect_err("one of them failed"))
            }
        }
    }

    /// The topics of the source.
    pub fn source_topics(&self) -> impl Iterator<Item = &TopicName> {
        self.source_topics.keys()
    }

    /// Compares topics. Where single ones cannot be compared the report says why. `stop` ends it early:
    /// what is under way counts as not compared.
    pub async fn run(
        self,
        topics: &[Topics],
        options: &Options,
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Report {
        let start = Instant::now();
        let mut partitions = Vec::new();
        let pairs = self.pairs(topics, options, stop, &mut partitions).await;
        progress
            .partitions
            .store(pairs.len() as u64, Ordering::Relaxed);
        let context = Arc::new(Context {
            source: self.source,
            target: self.target,
            source_survey: self.source_survey,
            target_survey: self.target_survey,
            hasher: Hasher::new(options.seed, options.ignored),
            options: options.clone(),
            progress: Arc::clone(progress),
            stop: stop.clone(),
        });
        let permits = Arc::new(Semaphore::new(options.partitions_at_once.max(1)));
        let mut tasks = JoinSet::new();
        for pair in pairs {
            let (context, permits) = (Arc::clone(&context), Arc::clone(&permits));
            tasks.spawn(async move {
                let permit = permits.acquire().await;
                let outcome = match permit.is_err() || context.stop.is_cancelled() {
                    true => Outcome {
                        error: Some(Error::Stopped),
                        ..Outcome::default()
                    },
                    false => compare(&context, &pair).await,
                };
                let (topic, partition) = (&pair.source_topic, pair.partition);
                context.progress.done(topic, partition, &outcome.tally);
                report(pair, outcome, &context.options)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(report) => partitions.push(report),
                Err(fault) => std::panic::resume_unwind(fault.into_panic()),
            }
        }
        if let Ok(context) = Arc::try_unwrap(context) {
            tokio::join!(context.source_survey.close(), context.target_survey.close());
        }
        partitions
            .sort_by(|a, b| (&a.source_topic, a.partition).cmp(&(&b.source_topic, b.partition)));
        Report {
            partitions,
            took: start.elapsed(),
        }
    }

    /// The partitions to compare. Those that cannot be are reported.
    async fn pairs(
        &self,
        topics: &[Topics],
        options: &Options,
        stop: &CancellationToken,
        reports: &mut Vec<PartitionReport>,
    ) -> Vec<Pair> {
        let names = |name: fn(&Topics) -> &TopicName| -> Vec<TopicName> {
            topics.iter().map(|topics| name(topics).clone()).collect()
        };
        let (sources, targets) = (
            names(|topics| &topics.source),
            names(|topics| &topics.target),
        );
        let asking = async {
            tokio::join!(
                self.source_survey.compaction(&sources),
                self.target_survey.compaction(&targets)
            )
        };
        // What is stopped is not compared, so it need not be known.
        let (source_compaction, target_compaction) = tokio::select! {
            biased;
            () = stop.cancelled() => Default::default(),
            found = asking => found,
        };
        let compaction = |found: &BTreeMap<TopicName, Compaction>, topic| {
            let found = found.get(topic).copied();
            found.unwrap_or(Compaction::Unknown)
        };
        let mut pairs = Vec::new();
        for topics in topics {
            let no_topic = |cluster: &Cluster, topic: &TopicName| Error::NoTopic {
                cluster: cluster.id().clone(),
                topic: topic.clone(),
            };
            let Some(&on_source) = self.source_topics.get(&topics.source) else {
                reports.push(refused(
                    topics,
                    None,
                    &no_topic(&self.source, &topics.source),
                ));
                continue;
            };
            let Some(&on_target) = self.target_topics.get(&topics.target) else {
                reports.push(refused(
                    topics,
                    None,
                    &no_topic(&self.target, &topics.target),
                ));
                continue;
            };
            let wanted = match options.partition {
                Some(Partition(one)) => one..one + 1,
                None => 0..on_source,
            };
            for partition in wanted.map(Partition) {
                let place = if partition.0 >= on_source {
                    Some(self.source_survey.place(&topics.source, partition))
                } else if partition.0 >= on_target {
                    Some(self.target_survey.place(&topics.target, partition))
                } else {
                    None
                };
                if let Some(place) = place {
                    reports.push(refused(
                        topics,
                        Some(partition),
                        &Error::NoPartition { place },
                    ));
                    continue;
                }
                pairs.push(Pair {
                    source_topic: topics.source.clone(),
                    target_topic: topics.target.clone(),
                    partition,
                    starts_late: topics.starts_late,
                    source_compaction: compaction(&source_compaction, &topics.source),
                    target_compaction: compaction(&target_compaction, &topics.target),
                });
            }
        }
        pairs
    }
}

fn refused(topics: &Topics, partition: Option<Partition>, fault: &Error) -> PartitionReport {
    PartitionReport {
        source_topic: topics.source.clone(),
        target_topic: topics.target.clone(),
        partition,
        source: None,
        target: None,
        tally: Tally::default(),
        findings: Vec::new(),
        findings_left_out: 0,
        notes: Vec::new(),
        error: Some(fault.to_string()),
        verdict: Verdict::NotCompared,
    }
}

fn report(pair: Pair, outcome: Outcome, options: &Options) -> PartitionReport {
    let tally = outcome.tally;
    let verdict = match &outcome.error {
        // What was found by then is true; what was not found says nothing.
        Some(_) if tally.differences(options.tolerate_duplicates) > 0 => Verdict::Different,
        Some(_) => Verdict::NotCompared,
        None => verdict(&tally, options.tolerate_duplicates).max(doubt(&pair, &tally)),
    };
    PartitionReport {
        notes: notes(&pair, &outcome),
        source_topic: pair.source_topic,
        target_topic: pair.target_topic,
        partition: Some(pair.partition),
        source: outcome.source,
        target: outcome.target,
        tally,
        findings: outcome.findings,
        findings_left_out: outcome.findings_left_out,
        error: outcome.error.map(|fault| fault.to_string()),
        verdict,
    }
}

/// The best that can be said while it is not known whether a side is compacted.
fn doubt(pair: &Pair, tally: &Tally) -> Verdict {
    let is_doubtful = |compaction, records| compaction == Compaction::Unknown && records > 0;
    if is_doubtful(pair.source_compaction, tally.compacted_on_source)
        || is_doubtful(pair.target_compaction, tally.compacted_on_target)
    {
        Verdict::NotCompared
    } else {
        Verdict::Equal
    }
}

#[cfg(test)]
mod tests;
