//! Saving checkpoints: all tasks of the link together, only what moved, and everything now and then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kreplicator_model::ids::{Offset, TaskId};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Done, Driver, LaneNumber, entry::Blocked};
use crate::checkpoint::{CheckpointStore, Error, Save};

/// Saves in a row that fail before it is called trouble.
const FAILURES_TO_TELL: u32 = 2;

/// When to save what.
pub(super) struct Schedule {
    next_at: Instant,
    all_at: Option<Instant>,
    under_way: bool,
    /// Somebody waits.
    urgent: bool,
    failures: u32,
    trouble: Option<String>,
    /// Waits for a save that began after it was asked for.
    waiting: BTreeSet<LaneNumber>,
}

/// What became of a save.
pub(super) struct Saved {
    asked: Vec<(LaneNumber, TaskId, Offset)>,
    result: Result<BTreeMap<TaskId, Error>, Error>,
}

impl Schedule {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next_at: now,
            all_at: None,
            under_way: false,
            urgent: false,
            failures: 0,
            trouble: None,
            waiting: BTreeSet::new(),
        }
    }

    pub(super) fn forget(&mut self, lane: LaneNumber) {
        self.waiting.remove(&lane);
    }

    /// Why checkpoints are not saved.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }
}

impl Driver {
    /// Saves one task's checkpoint before anything else happens to it.
    pub(super) fn save_one(&mut self, lane: LaneNumber) {
        let is_open = self.shared.fence.is_open();
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let Some(checkpoint) = entry.lane.checkpoint() else {
            return;
        };
        if entry.saved == Some(checkpoint) || !is_open || self.clients.is_none() {
            return;
        }
        entry.blocked = Some(Blocked::Saving(checkpoint));
        self.saves.waiting.insert(lane);
        self.saves.urgent = true;
    }

    pub(super) fn begin_saves(&mut self) {
        let now = Instant::now();
        if self.saves.under_way || (!self.saves.urgent && now < self.saves.next_at) {
            return;
        }
        let Some(clients) = &self.clients else { return };
        let all_at = *self
            .saves
            .all_at
            .get_or_insert(now + self.config.recommit_interval);
        let all = now >= all_at;
        self.saves.next_at = now + self.config.checkpoint_interval;
        self.saves.urgent = false;
        if all {
            self.saves.all_at = Some(now + self.config.recommit_interval);
            for entry in self.entries.values_mut() {
                entry.is_stale = true;
            }
        }
        let mut asked = Vec::new();
        let mut saves = Vec::new();
        for (lane, entry) in self.entries.iter().filter(|(_, entry)| !entry.ended) {
            let Some(checkpoint) = entry.lane.checkpoint() else {
                continue;
            };
            if !entry.is_stale && entry.saved == Some(checkpoint) {
                continue;
            }
            let spec = &entry.lane.spec;
            asked.push((*lane, spec.id.clone(), checkpoint));
            saves.push(Save {
                task: spec.id.clone(),
                epoch: spec.epoch,
                offset: checkpoint,
                gaps: entry.lane.gaps_at(checkpoint),
            });
        }
        if saves.is_empty() {
            self.release_waiting(&[]);
            return;
        }
        self.saves.under_way = true;
        let store = Arc::clone(&clients.checkpoints);
        let deadline = self.config.call_timeout;
        self.jobs.spawn(async move {
            let result = store.save(&saves, deadline).await;
            Done::Saves(Saved { asked, result })
        });
    }

    pub(super) fn saved(&mut self, saved: Saved) {
        self.saves.under_way = false;
        let Saved { asked, result } = saved;
        let failure = match &result {
            Ok(failures) => failures.values().next(),
            Err(error) => Some(error),
        };
        self.note_outcome(failure);
        for (lane, task, offset) in &asked {
            let is_saved = matches!(&result, Ok(failures) if !failures.contains_key(task));
            if let Some(entry) = self.entries.get_mut(lane)
                && is_saved
            {
                entry.saved = Some(*offset);
                entry.is_stale = false;
            }
        }
        self.release_waiting(&asked);
    }

    /// Tasks whose save was tried go on, saved or not; those that came later wait for the next one.
    fn release_waiting(&mut self, asked: &[(LaneNumber, TaskId, Offset)]) {
        let tried: BTreeMap<LaneNumber, Offset> = asked
            .iter()
            .map(|(lane, _, offset)| (*lane, *offset))
            .collect();
        let waiting: Vec<LaneNumber> = self.saves.waiting.iter().copied().collect();
        for lane in waiting {
            let Some(entry) = self.entries.get_mut(&lane) else {
                self.saves.waiting.remove(&lane);
                continue;
            };
            let Some(Blocked::Saving(target)) = entry.blocked else {
                self.saves.waiting.remove(&lane);
                continue;
            };
            let was_tried = tried.get(&lane).is_some_and(|offset| *offset >= target);
            let is_saved = entry.saved.is_some_and(|saved| saved >= target);
            if was_tried || is_saved {
                self.saves.waiting.remove(&lane);
                entry.blocked = None;
                self.advance(lane);
            } else {
                self.saves.urgent = true;
            }
        }
    }

    fn note_outcome(&mut self, failure: Option<&Error>) {
        let Some(error) = failure else {
            if self.saves.failures >= FAILURES_TO_TELL {
                info!(link = %self.context.link.id, "checkpoints are saved again");
            }
            self.saves.failures = 0;
            self.saves.trouble = None;
            return;
        };
        if *error == Error::Fenced {
            return;
        }
        self.shared.metrics.commit_failures.increment(1);
        self.saves.failures += 1;
        if self.saves.failures >= FAILURES_TO_TELL {
            let cause = super::starts::checkpoint_fault(error).cause;
            if self.saves.failures == FAILURES_TO_TELL {
                warn!(link = %self.context.link.id, %cause, "checkpoints are not saved");
            }
            self.saves.trouble = Some(cause);
        }
    }
}
