//! One partition of both sides, compared: reads what the aligner asks for, and knows when it is enough.
//!
//! ```text
//! source:  start ────────────────── end │ later records: read only to find the place
//! target:  start ───────── end │ read on until the source's end is matched, or nothing new for `wait`
//! ```

use std::{sync::Arc, time::Duration};

use kreplicator_model::{
    compare::{Aligner, Finding, Limits, Settings, Side, Tally},
    ids::{Offset, Partition, TopicName, UnixMillis},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    fingerprint::Hasher,
    reader::{News, Reader},
    report::Range,
    run::{Options, Progress},
    side::Cluster,
    survey::{Compaction, Extent, Survey},
};

/// What the partitions of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) source: Cluster,
    pub(crate) target: Cluster,
    pub(crate) source_survey: Survey,
    pub(crate) target_survey: Survey,
    pub(crate) hasher: Hasher,
    pub(crate) options: Options,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stop: CancellationToken,
}

/// A partition to be compared.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) source_topic: TopicName,
    pub(crate) target_topic: TopicName,
    pub(crate) partition: Partition,
    /// The link does not begin at the beginning of the source.
    pub(crate) starts_late: bool,
    pub(crate) source_compaction: Compaction,
    pub(crate) target_compaction: Compaction,
}

/// What is known of a partition, also where it ended with an error.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) source: Option<Range>,
    pub(crate) target: Option<Range>,
    /// Source offsets that are gone.
    pub(crate) gone: i64,
    pub(crate) tally: Tally,
    pub(crate) findings: Vec<Finding>,
    pub(crate) findings_left_out: u64,
    pub(crate) error: Option<Error>,
}

/// Compares one partition.
pub(crate) async fn compare(context: &Context, pair: &Pair) -> Outcome {
    let mut outcome = Outcome::default();
    let surveyed = unless_stopped(&context.stop, survey(context, pair, &mut outcome)).await;
    match surveyed {
        Ok((source, target)) => run(context, pair, source, target, &mut outcome).await,
        Err(fault) => outcome.error = Some(fault),
    }
    outcome
}

/// What came of `work`, or that the run was stopped before.
async fn unless_stopped<T>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Error::Stopped),
        done = work => done,
    }
}

/// The extents of both sides: the target's first, see the crate's documentation.
async fn survey(
    context: &Context,
    pair: &Pair,
    outcome: &mut Outcome,
) -> Result<(Extent, Extent), Error> {
    let target = context
        .target_survey
        .extent(&pair.target_topic, pair.partition);
    let target = target.await?;
    let source = context
        .source_survey
        .extent(&pair.source_topic, pair.partition);
    let source = source.await?;
    let from = context
        .options
        .from
        .map_or(source.start, |from| from.max(source.start));
    let to = context
        .options
        .to
        .map_or(source.end, |to| to.min(source.end));
    outcome.source = Some(Range {
        from,
        to: to.max(from),
    });
    outcome.target = Some(Range {
        from: target.start,
        to: target.end,
    });
    let asked_from = context.options.from.unwrap_or(Offset(0));
    outcome.gone = (source.start.0 - asked_from.0).max(0);
    Ok((source, target))
}

async fn run(
    context: &Context,
    pair: &Pair,
    source: Extent,
    target: Extent,
    outcome: &mut Outcome,
) {
    let range = outcome.source.expect("set by the survey");
    let is_whole = context.options.to.is_none();
    let settings = Settings {
        source_end: range.to,
        // Behind the end of a range come copies of what is behind it.
        target_end: if is_whole {
            target.end
        } else {
            Offset(i64::MIN)
        },
        target_lead_allowed: range.from > Offset(0),
        source_lead_allowed: target.start > Offset(0) || pair.starts_late,
        source_compacted: pair.source_compaction.is_possible(),
        target_compacted: pair.target_compaction.is_possible(),
        limits: Limits {
            findings: context.options.findings,
            ..Limits::default()
        },
    };
    let mut comparison = Comparison {
        context,
        pair,
        range,
        target_end: settings.target_end,
        aligner: Aligner::new(settings),
        source: Course::new(range.from >= range.to),
        target: Course::new(!is_whole || target.start >= target.end),
    };
    let ended = comparison.from(source, target).await;
    outcome.error = ended.err();
    // What follows an error is not known, so nothing is told of it.
    if outcome.error.is_some() {
        outcome.tally = *comparison.aligner.tally();
        return;
    }
    let (tally, findings, left_out) = comparison.aligner.finish();
    outcome.tally = tally;
    outcome.findings = findings;
    outcome.findings_left_out = left_out;
}

/// A comparison under way.
struct Comparison<'a> {
    context: &'a Context,
    pair: &'a Pair,
    range: Range,
    target_end: Offset,
    aligner: Aligner,
    source: Course,
    target: Course,
}

/// How far a side has come.
#[derive(Debug)]
struct Course {
    /// The end as of the start was reached.
    has_reached_end: bool,
    /// Its reader said that there is no more, and nothing came since.
    is_quiet: bool,
    /// No more is read of it.
    is_finished: bool,
    /// When something came last, or reading was resumed.
    since: Instant,
    is_wanted: bool,
}

impl Course {
    fn new(has_reached_end: bool) -> Self {
        Self {
            has_reached_end,
            is_quiet: false,
            is_finished: false,
            since: Instant::now(),
            is_wanted: false,
        }
    }

    /// Only a side that is read can be late.
    fn want(&mut self, is_wanted: bool) {
        if is_wanted && !self.is_wanted {
            self.since = Instant::now();
        }
        self.is_wanted = is_wanted;
    }

    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        (self.is_wanted && !self.is_quiet).then(|| self.since + timeout)
    }
}

impl Comparison<'_> {
    async fn from(&mut self, source: Extent, target: Extent) -> Result<(), Error> {
        let hasher = self.context.hasher;
        let (partition, topic) = (self.pair.partition, &self.pair.source_topic);
        let cluster = &self.context.source;
        let mut source_reader =
            Reader::start(cluster, topic, partition, self.range.from, hasher).await?;
        let stop = &self.context.stop;
        let beginning = self.target_start(&mut source_reader, source, target);
        let begun = unless_stopped(stop, beginning).await;
        let ended = match begun {
            Ok(start) => {
                let (cluster, topic) = (&self.context.target, &self.pair.target_topic);
                match Reader::start(cluster, topic, partition, start, hasher).await {
                    Ok(mut target_reader) => {
                        let reading = self.read(&mut source_reader, &mut target_reader);
                        let ended = unless_stopped(stop, reading).await;
                        target_reader.close().await;
                        ended
                    }
                    Err(fault) => Err(fault),
                }
            }
            Err(fault) => Err(fault),
        };
        source_reader.close().await;
        ended
    }

    /// Where the target is read from. For a range that begins later than the source, the copy of its first
    /// records cannot lie before the first target record with a time like the earliest of them.
    async fn target_start(
        &mut self,
        reader: &mut Reader,
        source: Extent,
        target: Extent,
    ) -> Result<Offset, Error> {
        if self.range.from <= source.start || self.range.from >= self.range.to {
            return Ok(target.start);
        }
        let deadline = Instant::now() + self.context.options.stall_timeout;
        let news = tokio::time::timeout_at(deadline, reader.next()).await;
        let news = news.map_err(|_| reader.silent(self.context.options.stall_timeout))??;
        let first = match &news {
            News::Records(entries) => entries.iter().map(|entry| entry.print.timestamp).min(),
            News::AtEnd => None,
        };
        self.take(Side::Source, news);
        // Without times, or where they are not compared, the target is read from its beginning.
        let Some(time) = first.filter(|&time| time > 0) else {
            return Ok(target.start);
        };
        let (topic, partition) = (&self.pair.target_topic, self.pair.partition);
        let survey = &self.context.target_survey;
        let found = survey.offset_at(topic, partition, UnixMillis(time)).await?;
        Ok(found.unwrap_or(target.end).max(target.start))
    }

    async fn read(&mut self, source: &mut Reader, target: &mut Reader) -> Result<(), Error> {
        let Options {
            stall_timeout,
            wait,
            ..
        } = self.context.options;
        loop {
            self.settle();
            if self.is_done() {
                return Ok(());
            }
            let wants = |side, course: &Course| self.aligner.wants(side) && !course.is_finished;
            let wants_source = wants(Side::Source, &self.source);
            let wants_target = wants(Side::Target, &self.target);
            self.source.want(wants_source);
            self.target.want(wants_target);
            let waits = self.waits_for_target();
            let stalls = [
                self.source.deadline(stall_timeout),
                self.target.deadline(stall_timeout),
                waits.then(|| self.target.since + wait),
            ];
            let deadline = stalls.into_iter().flatten().min();
            tokio::select! {
                news = source.next(), if wants_source => self.take(Side::Source, news?),
                news = target.next(), if wants_target => self.take(Side::Target, news?),
                () = passed(deadline) => {
                    let is_over = |deadline: Option<Instant>| {
                        deadline.is_some_and(|deadline| deadline <= Instant::now())
                    };
                    if is_over(self.source.deadline(stall_timeout)) {
                        return Err(source.silent(stall_timeout));
                    }
                    if is_over(self.target.deadline(stall_timeout)) {
                        return Err(target.silent(stall_timeout));
                    }
                    // What did not arrive until now is missing.
                    self.finish_side(Side::Target);
                }
            }
        }
    }

    /// Nothing that the target lacks can be waited for but by waiting.
    fn waits_for_target(&self) -> bool {
        self.target.is_quiet
            && self.target.has_reached_end
            && !self.target.is_finished
            && !self.aligner.is_settled(Side::Source)
    }

    fn is_done(&self) -> bool {
        let source_is_done = self.source.has_reached_end
            && (self.aligner.is_settled(Side::Source) || self.target.is_finished);
        source_is_done && self.target.has_reached_end
    }

    /// Everything up to the source's end is found: the rest of the target has no partner.
    fn settle(&mut self) {
        if self.source.has_reached_end
            && !self.source.is_finished
            && !self.target.has_reached_end
            && self.aligner.is_settled(Side::Source)
        {
            self.finish_side(Side::Source);
        }
    }

    fn finish_side(&mut self, side: Side) {
        self.course(side).is_finished = true;
        self.aligner.finish_side(side);
    }

    fn take(&mut self, side: Side, news: News) {
        let end = match side {
            Side::Source => self.range.to,
            Side::Target => self.target_end,
        };
        let course = self.course(side);
        course.since = Instant::now();
        match news {
            News::Records(entries) => {
                course.is_quiet = false;
                let last = entries.last().map(|entry| entry.offset);
                course.has_reached_end |= last.is_some_and(|last| last.next() >= end);
                self.aligner.push(side, &entries);
                if let (Side::Source, Some(last)) = (side, last) {
                    let from = self.range.from.0;
                    let read = (last.next().0.min(end.0) - from).max(0);
                    self.context.progress.advance(self.pair, read, end.0 - from);
                }
            }
            News::AtEnd => {
                course.is_quiet = true;
                course.has_reached_end = true;
                self.aligner.at_end(side);
            }
        }
    }

    fn course(&mut self, side: Side) -> &mut Course {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }
}

/// Returns at a moment; never where there is none.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
