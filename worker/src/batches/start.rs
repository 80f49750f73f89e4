//! Where a task begins: its line, its checkpoint, and what the target says, put together by
//! `model::exact`; everything that has to be read or written on the way is done here.

mod facts;
mod line;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_batch::Batch;
use kreplicator_model::{
    checkpoint::{CheckpointMeta, Gaps},
    exact::{
        self, Checkpoint, CheckpointPlace, Count, DeliveryMode, Line, NewLine, NextProducer, Place,
        Producer, ProducerEpoch, ProducerId, ReadFrom, Restart, Resume, Rewind, Sender, Start,
        Tail, TailScan, TakeOver, TakeOverInput, TargetView, Why, take_over,
    },
    ids::{Offset, WorkerId},
    spec::{GapPolicy, StartPolicy},
};
use kreplicator_wire::{
    cluster::{group::Commit, offsets::Isolation},
    error::Error,
    topic::{TopicId, TopicPartition},
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use self::facts::{Facts, counting, newest};
use super::{
    BatchConfig,
    ends::{self, Group, Kept, Questions},
    lane::{Lane, Opening, Shared},
    scan::{self, Scans, Stretch, Unread},
};
use crate::{
    checkpoint::names::Names,
    engine::TaskSpec,
    fault::{Fault, Kind, chain},
    lines::{self, LineBook, LineTarget, NewEntry, TopicLines, Written},
};

/// What the target has and has not committed yet is asked for again after this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Attempts at a line before whoever else writes it is left to it.
const LINE_ATTEMPTS_MAX: u32 = 8;

/// What starts of one link share.
#[derive(Debug)]
pub(super) struct Starter {
    pub(super) config: BatchConfig,
    pub(super) source: Questions,
    pub(super) target: Questions,
    pub(super) group: Group,
    pub(super) lines: Arc<dyn LineBook>,
    pub(super) on_gap: GapPolicy,
    /// Of the source, and of the target: who waits for a tail may hold what others count with.
    pub(super) counts: Scans,
    pub(super) tails: Scans,
    pub(super) shared: Arc<Shared>,
}

/// A start that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) opening: Opening,
    /// The checkpoint that was found, and the count of gaps that came with it.
    pub(super) told: Option<(Offset, u64)>,
    /// Source offsets that were gone before they were copied.
    pub(super) gap: Option<(Offset, Offset)>,
}

impl Starter {
    /// Finds where a task begins; `restart`: what its sender has ended with.
    ///
    /// # Errors
    /// What stands in the way.
    pub(super) async fn find(&self, lane: &Lane, restart: Option<Restart>) -> Result<Found, Fault> {
        let mut lines_written = 0;
        let mut begun = None;
        let mut uncommitted_since = None;
        while lines_written < LINE_ATTEMPTS_MAX {
            let mut facts = self.facts(lane).await?;
            self.check(&facts)?;
            let decide = |facts: &Facts| {
                take_over(&TakeOverInput {
                    begun,
                    restart,
                    ..facts.input(&self.config, &self.shared)
                })
            };
            let mut decided = decide(&facts);
            if let TakeOver::ReadTail { from } = decided {
                let (producer, end) = (facts.line_producer(), facts.view.end);
                // Held against the facts that it was asked for: a checkpoint committed meanwhile would
                // speak of records that this tail cannot have.
                facts.view.tail = Some(self.read_tail(lane, producer, from, end).await?);
                decided = decide(&facts);
            }
            match decided {
                TakeOver::Resume(resume) => {
                    self.count_first(lane, &facts, &resume).await?;
                    return Ok(self.resume(lane, &facts, resume));
                }
                TakeOver::NewLine(new_line) => {
                    begun = self.write_line(lane, &facts, new_line).await?;
                    lines_written += 1;
                }
                TakeOver::Rewind {
                    rewind,
                    resume,
                    new_line,
                } => match self.rewind(lane, rewind).await? {
                    Some((from, count)) => {
                        if let Some(new_line) = new_line {
                            let new_line = NewLine { from, ..new_line };
                            begun = self.write_line(lane, &facts, new_line).await?;
                            lines_written += 1;
                        } else if let Some(resume) = facts.rewound(resume, from, count) {
                            return Ok(self.resume(lane, &facts, resume));
                        }
                    }
                    None => {
                        let new_line = new_line.unwrap_or(NewLine {
                            producer: resume.producer.next(None),
                            from: ReadFrom {
                                offset: facts.source_start,
                                skip_records: 0,
                            },
                            why: Why::Restart(exact::Reason::SourceDeleted),
                            repeats_max: None,
                        });
                        begun = self.write_line(lane, &facts, new_line).await?;
                        lines_written += 1;
                    }
                },
                TakeOver::ReadTail { .. } | TakeOver::AskAgain => {
                    let since = *uncommitted_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.config.scan_timeout {
                        return Err(uncommitted(lane, since.elapsed()));
                    }
                    sleep(ASK_AGAIN_AFTER).await;
                }
                TakeOver::Denied(denied) => {
                    return Err(Fault::new(Kind::Target, denied.to_string()));
                }
            }
        }
        Err(Fault::new(
            Kind::Checkpoint,
            format!(
                "the line of task {} is written by others again and again; is the link run by another \
                 installation too?",
                lane.spec.id
            ),
        ))
    }

    async fn facts(&self, lane: &Lane) -> Result<Facts, Fault> {
        let deadline = Instant::now() + self.config.call_timeout;
        let source = |error: Error| ends::fault(Kind::Source, &self.source.client, &error);
        let target = |error: Error| ends::fault(Kind::Target, &self.target.client, &error);
        let stored = |error: lines::Error| stored_fault(&error);
        let topic = self
            .target
            .client
            .topic(&lane.spec.target_topic, deadline)
            .await
            .map_err(target)?;
        let cluster_id = self
            .target
            .client
            .cluster_id(deadline)
            .await
            .map_err(target)?;
        let line_target = LineTarget {
            cluster: self.target.client.settings().cluster.clone(),
            cluster_id,
            topic: lane.spec.target_topic.clone(),
            topic_id: topic.id.map(|id| id.to_string()),
        };
        let link_topic = lane.spec.id.link_topic();
        // The line first, then the checkpoint, then the target: each is at least as new as what it is
        // held against.
        let lines = self
            .lines
            .load(&link_topic, &line_target)
            .await
            .map_err(stored)?;
        let line = lines.line(lane.spec.id.partition).cloned();
        let producer_id = self.producer_id(lane, &line_target).await?;
        let kept = self.checkpoint(lane).await?;
        let gaps = kept.as_ref().map_or(0, Kept::gaps);
        let checkpoint = newest(kept.as_ref().map(Kept::place), lane.checkpoint());
        let source_epoch = checkpoint.and_then(|checkpoint| {
            // Who puts a checkpoint back by hand says nothing of an epoch, and nothing is asked for then.
            match kept.filter(|kept| kept.offset == checkpoint.offset) {
                Some(kept) => kept.leader_epoch,
                None => lane.epoch_before(checkpoint.offset),
            }
        });
        let asked = self.shared.now();
        let asked_id = counting(line.as_ref(), checkpoint, producer_id).id.0;
        let view = self
            .target
            .view(&lane.target, asked_id)
            .await
            .map_err(target)?;
        let (source_start, source_end) = self
            .source
            .committed_range(&lane.source)
            .await
            .map_err(source)?;
        let is_compacted = self
            .source
            .is_compacted(&lane.source.topic)
            .await
            .map_err(source)?;
        let first_offset = self
            .first_offset(lane, source_start, source_end)
            .await
            .map_err(source)?;
        Ok(Facts {
            lines,
            line,
            line_target,
            producer_id,
            checkpoint,
            source_epoch,
            gaps,
            view,
            source_start,
            source_end,
            is_deterministic: !is_compacted,
            first_offset,
            target_topic_id: topic.id,
            asked,
        })
    }

    /// The producer id of the link: allocated once, by whoever needs it first.
    async fn producer_id(&self, lane: &Lane, target: &LineTarget) -> Result<ProducerId, Fault> {
        let client = self.target.client.clone();
        let limit = self.config.call_timeout;
        let allocate = move || {
            let client = client.clone();
            let given = async move {
                let given = client.init_producer_id(Instant::now() + limit).await?;
                Ok(ProducerId(given.id))
            };
            Box::pin(given) as futures::future::BoxFuture<'_, lines::Allocated>
        };
        let link = &lane.spec.id.link;
        let cluster_id = target.cluster_id.as_deref();
        let id = self
            .lines
            .producer_id(link, &target.cluster, cluster_id, &allocate);
        id.await.map_err(|error| stored_fault(&error))
    }

    async fn fresh_producer(&self) -> Result<ProducerId, Fault> {
        let deadline = Instant::now() + self.config.call_timeout;
        let given = self.target.client.init_producer_id(deadline).await;
        given
            .map(|given| ProducerId(given.id))
            .map_err(|error| ends::fault(Kind::Target, &self.target.client, &error))
    }

    /// What was committed, if a newer owner has not committed since.
    async fn checkpoint(&self, lane: &Lane) -> Result<Option<Kept>, Fault> {
        let kept = self.group.checkpoint(&lane.spec).await?;
        if let Some(Kept {
            meta: Some(meta), ..
        }) = &kept
            && meta.epoch > lane.spec.epoch
        {
            return Err(Fault::taken_over(&lane.spec, meta));
        }
        Ok(kept)
    }

    async fn first_offset(&self, lane: &Lane, start: Offset, end: Offset) -> Result<Offset, Error> {
        Ok(match lane.spec.start {
            StartPolicy::Earliest => start,
            StartPolicy::Latest => end,
            StartPolicy::Timestamp(time) => {
                let found = self.source.at_time(&lane.source, time).await?;
                found.unwrap_or(end).clamp(start, end)
            }
        })
    }

    fn check(&self, facts: &Facts) -> Result<(), Fault> {
        if let Some(checkpoint) = facts.checkpoint
            && checkpoint.offset > facts.source_end
        {
            return Err(Fault::truncated(checkpoint.offset, facts.source_end));
        }
        match (facts.gap(), self.on_gap) {
            (None, _) | (Some(_), GapPolicy::ContinueAndReport) => Ok(()),
            (Some((from, to)), GapPolicy::Halt) => Err(Fault::halted_by_gap(from, to)),
        }
    }

    fn resume(&self, lane: &Lane, facts: &Facts, resume: Resume) -> Found {
        let spec = &lane.spec;
        info!(
            task = %spec.id, epoch = %spec.epoch, at = %resume.place.offset,
            skip_records = resume.skip_records, producer = %resume.producer, mode = %resume.mode,
            "task begins"
        );
        let settings = exact::Settings {
            source_is_deterministic: facts.is_deterministic,
            ..self.config.sender
        };
        let mode = self.mode_after(lane, resume.mode);
        let start = Start {
            mode,
            ..Start::from(resume)
        };
        Found {
            opening: Opening {
                sender: Sender::new(settings, start, facts.asked),
                producer: resume.producer,
                read_from: resume.place.offset,
                skip_records: resume.skip_records,
                source_epoch: facts.source_epoch_before(resume.place.offset),
                target_topic_id: facts.target_topic_id,
                is_reset: facts.checkpoint.is_none_or(|place| place.counted.is_none()),
            },
            told: facts.checkpoint.map(|place| (place.offset, facts.gaps)),
            gap: facts.gap(),
        }
    }

    /// What an earlier restart of this task could not promise any more stays said.
    fn mode_after(&self, lane: &Lane, mode: DeliveryMode) -> DeliveryMode {
        match lane.broken_promise() {
            Some(reason) => mode.and(DeliveryMode::AtLeastOnce(reason)),
            None => mode,
        }
    }

    /// Where the checkpoint was not counted, one that is has to be there before the first send: from then
    /// on an uncounted one has come later.
    async fn count_first(&self, lane: &Lane, facts: &Facts, resume: &Resume) -> Result<(), Fault> {
        let is_uncounted = facts
            .checkpoint
            .is_some_and(|checkpoint| checkpoint.counted.is_none());
        if !is_uncounted {
            return Ok(());
        }
        let names = self.group.names(&lane.spec);
        let first = commit(
            &lane.spec,
            &names,
            &self.config.worker,
            resume.producer,
            resume.place,
            facts.gaps_below(resume.place.offset),
        );
        let first = Commit {
            leader_epoch: facts.source_epoch_before(resume.place.offset),
            ..first
        };
        let at = TopicPartition::new(names.kept().clone(), lane.spec.id.partition);
        let deadline = Instant::now() + self.config.call_timeout;
        let Group { client, name, .. } = &self.group;
        let commits = BTreeMap::from([(at, first)]);
        let saved = client.commit_offsets(name, &commits, deadline).await;
        let saved = saved.into_values().collect::<Result<(), _>>();
        saved.map_err(|error| {
            let text = format!("checkpoints in group {name} cannot be saved: {error}");
            Fault::new(Kind::Checkpoint, text)
        })
    }

    /// What the target says now of a line.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn view(&self, lane: &Lane, producer: Producer) -> Result<TargetView, Unread> {
        let view = self.target.view(&lane.target, producer.id.0).await;
        view.map_err(|error| {
            let fault = ends::fault(Kind::Target, &self.target.client, &error);
            if error.is_retryable() {
                Unread::Late(fault)
            } else {
                Unread::Failed(fault)
            }
        })
    }
}

/// A checkpoint as it is committed, but for what leader wrote the record before it.
pub(super) fn commit(
    spec: &TaskSpec,
    names: &Names,
    worker: &WorkerId,
    producer: Producer,
    place: Place,
    gaps: u64,
) -> Commit {
    let meta = CheckpointMeta::new(spec.epoch, worker.clone(), None)
        .with_counted(producer, place)
        .with_gaps(gaps);
    Commit {
        offset: place.offset,
        leader_epoch: None,
        metadata: names.mark(meta).to_string(),
    }
}

/// What was sent is not replicated.
fn uncommitted(lane: &Lane, time: Duration) -> Fault {
    Fault::new(
        Kind::Target,
        format!(
            "what was sent to target partition {} is not committed after {} s; are enough of its replicas \
             in sync?",
            lane.target,
            time.as_secs()
        ),
    )
}

/// Names the store's key, and what it or the target said.
fn stored_fault(error: &lines::Error) -> Fault {
    Fault::new(Kind::Checkpoint, chain(error))
}
