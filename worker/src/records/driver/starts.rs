//! Where tasks begin: their checkpoint, or else their start policy, checked against the source.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_kafka::blocking::blocking;
use kreplicator_model::{
    ids::{Offset, TaskId, TopicName},
    spec::{GapPolicy, StartPolicy},
    task::{Input, State as TaskState},
};
use tracing::{info, warn};

use super::{Done, Driver, LaneNumber};
use crate::{
    checkpoint::{CheckpointStore, Save},
    engine::TaskSpec,
    fault::{Fault, Kind},
    records::{
        judge::{Start, check_start},
        reader::Questions,
    },
    sink::Sink,
};

/// A task that wants to begin.
struct Ask {
    lane: LaneNumber,
    spec: TaskSpec,
    /// Where it is by its own books, when it ran here before.
    known: Option<Offset>,
}

/// Where a task begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: Start,
    /// The checkpoint that was found or saved; None where the task's own books tell.
    pub(super) saved: Option<Offset>,
    /// The count of gaps that came with it.
    gaps: u64,
    /// Comes from the start policy: to be saved before anything is copied.
    is_new: bool,
}

type Place = (TopicName, i32);

impl Driver {
    /// Finds the starts of all tasks that wait for it, in one go.
    pub(super) fn begin_starts(&mut self) {
        if self.finding_starts || self.to_start.is_empty() {
            return;
        }
        let Some(clients) = &self.clients else {
            self.make_clients();
            return;
        };
        let asks: Vec<Ask> = std::mem::take(&mut self.to_start)
            .into_iter()
            .filter_map(|lane| {
                let entry = self.entries.get_mut(&lane)?;
                entry.finding_start = true;
                Some(Ask {
                    lane,
                    spec: entry.lane.spec.clone(),
                    known: entry.lane.rewind(),
                })
            })
            .collect();
        self.finding_starts = true;
        let finder = Finder {
            questions: clients.reader.questions(),
            checkpoints: Arc::clone(&clients.checkpoints) as Arc<dyn CheckpointStore>,
            policy: self.context.link.on_gap,
            deadline: self.config.call_timeout,
        };
        let sink = Arc::clone(&self.sink);
        self.jobs.spawn(async move {
            let specs: Vec<&TaskSpec> = asks.iter().map(|ask| &ask.spec).collect();
            let found = match sink.prepare(&specs, finder.deadline).await {
                Ok(()) => finder.find(&asks).await,
                Err(fault) => Err(fault),
            };
            let all = match found {
                Ok(found) => asks
                    .iter()
                    .zip(found)
                    .map(|(ask, found)| (ask.lane, found))
                    .collect(),
                Err(fault) => asks
                    .iter()
                    .map(|ask| (ask.lane, Err(fault.clone())))
                    .collect(),
            };
            Done::Starts(all)
        });
    }

    pub(super) fn starts_found(&mut self, found: Vec<(LaneNumber, Result<Found, Fault>)>) {
        self.finding_starts = false;
        for (lane, found) in found {
            let Some(entry) = self.entries.get_mut(&lane) else {
                continue;
            };
            entry.finding_start = false;
            if !matches!(entry.machine.state(), TaskState::Starting { .. }) {
                // Told to stop meanwhile.
                if entry.lane.watch_settled() {
                    self.settled(lane);
                }
                continue;
            }
            match found {
                Ok(found) => self.begin(lane, found),
                Err(fault) => self.fault(lane, fault),
            }
        }
    }

    fn begin(&mut self, lane: LaneNumber, found: Found) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let spec = &entry.lane.spec;
        let Start { from, at } = found.start;
        let gap_records = found.start.gap_records();
        if gap_records > 0 {
            warn!(
                task = %spec.id,
                %from,
                to = %at,
                gap_records,
                "source offsets were deleted before they were copied"
            );
        }
        if entry.lane.checkpoint().is_some() {
            entry.lane.skip_gap(at);
        } else {
            info!(task = %spec.id, epoch = %spec.epoch, %at, "task begins");
            entry.lane.begin(found.start, found.gaps);
            entry.saved = found.saved;
        }
        self.reopen(lane);
        self.step(lane, Input::Started);
    }
}

/// Finds starts. All questions are asked for all tasks at once.
struct Finder {
    questions: Questions,
    checkpoints: Arc<dyn CheckpointStore>,
    policy: GapPolicy,
    deadline: Duration,
}

impl Finder {
    /// An answer for each task, in order.
    async fn find(&self, asks: &[Ask]) -> Result<Vec<Result<Found, Fault>>, Fault> {
        let new: Vec<TaskId> = asks
            .iter()
            .filter(|ask| ask.known.is_none())
            .map(|ask| ask.spec.id.clone())
            .collect();
        let mut loaded = if new.is_empty() {
            BTreeMap::new()
        } else {
            self.checkpoints
                .load(&new, self.deadline)
                .await
                .map_err(|error| checkpoint_fault(&error))?
        };
        let places: Vec<Place> = asks.iter().map(|ask| place(&ask.spec)).collect();
        let deadline = self.deadline;
        let questions = self.questions.clone();
        let ranges = blocking(move || questions.fresh_ranges(&places, deadline)).await?;
        let mut resolved = self.resolve_times(asks, &loaded).await?;
        let mut found = Vec::with_capacity(asks.len());
        let mut to_save = Vec::new();
        for ask in asks {
            let range = match ranges.get(&place(&ask.spec)) {
                Some(Ok(range)) => Ok(*range),
                Some(Err(fault)) => Err(fault.clone()),
                None => Err(unmeasured(&ask.spec)),
            };
            let start = range.and_then(|range| {
                let committed = loaded.remove(&ask.spec.id);
                self.start(ask, range, committed, resolved.remove(&ask.lane))
            });
            if let Ok(Found {
                start,
                is_new: true,
                ..
            }) = &start
            {
                to_save.push(Save {
                    task: ask.spec.id.clone(),
                    epoch: ask.spec.epoch,
                    offset: start.at,
                    gaps: 0,
                });
            }
            found.push(start);
        }
        self.claim(asks, &mut found, &to_save).await;
        Ok(found)
    }

    fn start(
        &self,
        ask: &Ask,
        (log_start, log_end): (Offset, Offset),
        committed: Option<Result<Option<crate::checkpoint::Committed>, crate::checkpoint::Error>>,
        at_time: Option<Result<Option<Offset>, Fault>>,
    ) -> Result<Found, Fault> {
        let check = |checkpoint| check_start(checkpoint, log_start, log_end, self.policy);
        if let Some(known) = ask.known {
            return Ok(Found {
                start: check(known)?,
                saved: None,
                gaps: 0,
                is_new: false,
            });
        }
        match committed {
            Some(Err(error)) => return Err(checkpoint_fault(&error)),
            Some(Ok(Some(committed))) => {
                if let Some(meta) = &committed.meta
                    && meta.epoch > ask.spec.epoch
                {
                    return Err(Fault::taken_over(&ask.spec, meta));
                }
                return Ok(Found {
                    start: check(committed.offset)?,
                    saved: Some(committed.offset),
                    gaps: committed.meta.map_or(0, |meta| meta.gaps),
                    is_new: false,
                });
            }
            Some(Ok(None)) | None => {}
        }
        let at = match ask.spec.start {
            StartPolicy::Earliest => log_start,
            StartPolicy::Latest => log_end,
            StartPolicy::Timestamp(_) => match at_time {
                Some(Ok(at)) => at.unwrap_or(log_end).clamp(log_start, log_end),
                Some(Err(fault)) => return Err(fault),
                None => return Err(unmeasured(&ask.spec)),
            },
        };
        Ok(Found {
            start: Start::at(at),
            saved: None,
            gaps: 0,
            is_new: true,
        })
    }

    /// First offsets at or after the times that tasks without a checkpoint start at.
    async fn resolve_times(
        &self,
        asks: &[Ask],
        loaded: &crate::checkpoint::Loaded,
    ) -> Result<BTreeMap<LaneNumber, Result<Option<Offset>, Fault>>, Fault> {
        let timed: Vec<(LaneNumber, Place, i64)> = asks
            .iter()
            .filter(|ask| ask.known.is_none() && matches!(loaded.get(&ask.spec.id), Some(Ok(None))))
            .filter_map(|ask| match ask.spec.start {
                StartPolicy::Timestamp(time) => Some((ask.lane, place(&ask.spec), time.0)),
                StartPolicy::Earliest | StartPolicy::Latest => None,
            })
            .collect();
        if timed.is_empty() {
            return Ok(BTreeMap::new());
        }
        let times: Vec<(Place, i64)> = timed
            .iter()
            .map(|(_, place, time)| (place.clone(), *time))
            .collect();
        let questions = self.questions.clone();
        let deadline = self.deadline;
        let mut answers = blocking(move || questions.at_times(&times, deadline)).await?;
        let resolved = timed.into_iter().filter_map(|(lane, place, _)| {
            let answer = answers.remove(&place)?;
            Some((lane, answer))
        });
        Ok(resolved.collect())
    }

    /// Saves starts that came from a policy before anything is copied, so that a restart finds them
    /// and does not decide again.
    async fn claim(&self, asks: &[Ask], found: &mut [Result<Found, Fault>], saves: &[Save]) {
        if saves.is_empty() {
            return;
        }
        let saved = self.checkpoints.save(saves, self.deadline).await;
        let to_save: BTreeMap<&TaskId, Offset> =
            saves.iter().map(|save| (&save.task, save.offset)).collect();
        for (ask, found) in asks.iter().zip(found) {
            let Some(offset) = to_save.get(&ask.spec.id) else {
                continue;
            };
            let error = match &saved {
                Ok(failures) => failures.get(&ask.spec.id),
                Err(error) => Some(error),
            };
            match (error, &mut *found) {
                (None, Ok(start)) => start.saved = Some(*offset),
                (Some(error), found) => *found = Err(checkpoint_fault(error)),
                (None, Err(_)) => {}
            }
        }
    }
}

pub(super) fn checkpoint_fault(error: &crate::checkpoint::Error) -> Fault {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    Fault::new(
        Kind::Checkpoint,
        format!("{error}{}", source.unwrap_or_default()),
    )
}

fn place(spec: &TaskSpec) -> Place {
    (spec.id.topic.clone(), spec.id.partition.0)
}

fn unmeasured(spec: &TaskSpec) -> Fault {
    Fault::new(
        Kind::Source,
        format!(
            "the leader of source topic {} partition {} does not answer",
            spec.id.topic, spec.id.partition
        ),
    )
}
