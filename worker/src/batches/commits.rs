//! Saves the checkpoints of a link: all tasks together, what moved, and everything now and then, since
//! brokers forget old commits (C007).
//!
//! What is saved is true whoever saves it and however late: it says how far *this* line was delivered, and
//! a stale save costs some reading. Still, once the worker's lease may be over, only what has just moved is
//! saved, and only of tasks that go on without it: so the lag that tools show does not go back, as it would
//! by what a worker saves that was frozen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use kreplicator_model::exact::Checkpoint;
use kreplicator_wire::{cluster::group::Commit, topic::TopicPartition};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{BatchConfig, ends::Group, lane::Lane, start};
use crate::{fence::OwnershipFence, spawner::Spawner};

/// Failures in a row before it is called trouble.
const FAILURES_TO_TELL: u32 = 2;
/// Partitions in one commit.
const COMMIT_MAX: usize = 5_000;

/// Saves checkpoints. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Commits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: BatchConfig,
    group: Group,
    fence: Arc<dyn OwnershipFence>,
    /// By the lane's number.
    watched: Mutex<BTreeMap<u64, Watched>>,
    /// Held while a commit is under way: an older one never overtakes a newer one of this worker
    /// (C048).
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Watched {
    lane: Weak<Lane>,
    saved: Option<Checkpoint>,
}

impl Commits {
    /// Saves until `end` fires.
    pub(super) fn new(
        config: BatchConfig,
        group: Group,
        fence: Arc<dyn OwnershipFence>,
        end: CancellationToken,
        spawner: &Spawner,
    ) -> Self {
        let commits = Self(Arc::new(Inner {
            config,
            group,
            fence,
            watched: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }));
        let saving = commits.clone();
        spawner.spawn("the saving of checkpoints", async move {
            end.run_until_cancelled(saving.keep_saving()).await;
        });
        commits
    }

    /// Saves a lane's checkpoint whenever it moves.
    pub(super) fn watch(&self, lane: &Arc<Lane>) {
        let mut watched = self.lock();
        watched.entry(lane.number).or_insert_with(|| Watched {
            lane: Arc::downgrade(lane),
            saved: None,
        });
    }

    /// Saves the last checkpoint of a lane that has stopped, and watches it no longer. True: it is
    /// saved, or there is none.
    pub(super) async fn save_last(&self, lane: &Arc<Lane>) -> bool {
        let watched = self.lock().remove(&lane.number);
        let saved = watched.and_then(|watched| watched.saved);
        let Some(checkpoint) = lane.checkpoint() else {
            return true;
        };
        if saved == Some(checkpoint) {
            return true;
        }
        if !self.may_save(lane) {
            return false;
        }
        let _turn = self.0.turn.lock().await;
        let commits = BTreeMap::from([self.commit(lane, checkpoint)]);
        self.save(&commits).await.is_empty()
    }

    async fn keep_saving(&self) {
        let config = &self.0.config;
        let mut tick = interval(config.checkpoint_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut all_at = Instant::now() + config.recommit_interval;
        let mut failures = 0;
        loop {
            tick.tick().await;
            let all = Instant::now() >= all_at;
            if all {
                all_at = Instant::now() + config.recommit_interval;
            }
            let _turn = self.0.turn.lock().await;
            let due = self.due(all);
            if due.is_empty() {
                continue;
            }
            let mut lost = Vec::new();
            for chunk in due.chunks(COMMIT_MAX) {
                let commits = chunk.iter();
                let commits = commits.map(|(lane, checkpoint)| self.commit(lane, *checkpoint));
                lost.extend(self.save(&commits.collect()).await);
            }
            self.note(&due, &lost);
            if lost.is_empty() {
                if failures >= FAILURES_TO_TELL {
                    info!(group = %self.0.group.name, "checkpoints are saved again");
                }
                failures = 0;
                continue;
            }
            failures += 1;
            if let Some(lane) = due.first().map(|(lane, _)| lane) {
                lane.shared.metrics.commit_failures.increment(1);
            }
            if failures == FAILURES_TO_TELL {
                let cause = &lost[0].1;
                warn!(group = %self.0.group.name, tasks = lost.len(), cause,
                    "checkpoints are not saved; it is tried again");
            }
        }
    }

    fn due(&self, all: bool) -> Vec<(Arc<Lane>, Checkpoint)> {
        let watched = self.lock();
        let due = watched.values().filter_map(|one| {
            let lane = one.lane.upgrade()?;
            let checkpoint = lane.checkpoint()?;
            let moved = one.saved != Some(checkpoint);
            ((all || moved) && self.may_save(&lane)).then_some((lane, checkpoint))
        });
        due.collect()
    }

    fn may_save(&self, lane: &Lane) -> bool {
        let interval = self.0.config.checkpoint_interval;
        self.0.fence.is_open() || lane.has_moved_within(2 * interval)
    }

    fn note(&self, due: &[(Arc<Lane>, Checkpoint)], lost: &[(TopicPartition, String)]) {
        let lost: BTreeSet<&TopicPartition> = lost.iter().map(|(at, _)| at).collect();
        let mut watched = self.lock();
        watched.retain(|_, one| one.lane.strong_count() > 0);
        for (lane, checkpoint) in due {
            if let Some(one) = watched.get_mut(&lane.number)
                && !lost.contains(&self.place(lane))
            {
                one.saved = Some(*checkpoint);
            }
        }
    }

    /// Where a lane's checkpoint goes, and what.
    fn commit(&self, lane: &Lane, checkpoint: Checkpoint) -> (TopicPartition, Commit) {
        let worker = &self.0.config.worker;
        let names = self.0.group.names(&lane.spec);
        let Checkpoint {
            producer, place, ..
        } = checkpoint;
        let commit = start::commit(&lane.spec, &names, worker, producer, place);
        (self.place(lane), commit)
    }

    fn place(&self, lane: &Lane) -> TopicPartition {
        let names = self.0.group.names(&lane.spec);
        TopicPartition::new(names.kept().clone(), lane.spec.id.partition)
    }

    /// What was not saved, and why.
    async fn save(
        &self,
        commits: &BTreeMap<TopicPartition, Commit>,
    ) -> Vec<(TopicPartition, String)> {
        let group = &self.0.group;
        let deadline = Instant::now() + self.0.config.call_timeout;
        let outcomes = group.client.commit_offsets(&group.name, commits, deadline);
        let outcomes = outcomes.await.into_iter();
        outcomes
            .filter_map(|(at, outcome)| Some((at, outcome.err()?.to_string())))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Watched>> {
        self.0
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
