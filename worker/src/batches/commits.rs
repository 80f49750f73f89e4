//! Saves the checkpoints of a link: all tasks together, what moved, and everything now and then, since
//! brokers forget old commits (C007).
//!
//! What is saved is true whoever saves it and however late: it says how far *this* line was delivered, and
//! a stale save costs some reading. Still, what another owner has saved is not taken back ([`covered`]), and
//! once the worker's lease may be over, only what has just moved is saved, and only of tasks that go on
//! without it: so the lag that tools show does not go back, as it would by what a worker saves that was frozen.

mod covered;
mod last;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use kreplicator_model::exact::Checkpoint;
use kreplicator_wire::{cluster::group::Commit, topic::TopicPartition};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::last::{LastSaves, Turn};
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
    turn: Arc<Turn>,
    last: LastSaves,
}

#[derive(Debug)]
struct Watched {
    lane: Weak<Lane>,
    saved: Option<Checkpoint>,
    /// Since when.
    since: Instant,
    /// To be saved though it may not have moved: brokers forget old commits.
    is_stale: bool,
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
        let turn = Arc::new(Turn::default());
        let commits = Self(Arc::new(Inner {
            config,
            group,
            fence,
            watched: Mutex::default(),
            last: LastSaves::new(Arc::clone(&turn)),
            turn,
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
            since: Instant::now(),
            is_stale: false,
        });
    }

    /// Saves the last checkpoint of a lane that has stopped, by `deadline`, and watches it no longer. True:
    /// it is saved, or there is none. When this returns, nothing of the lane is being saved any more.
    pub(super) async fn save_last(&self, lane: &Arc<Lane>, deadline: Instant) -> bool {
        let Some(watched) = self.lock().remove(&lane.number) else {
            // It never had one.
            return true;
        };
        let checkpoint = lane.checkpoint();
        let mut is_saved = checkpoint.is_none_or(|checkpoint| watched.saved == Some(checkpoint));
        if let Some(checkpoint) = checkpoint
            && !is_saved
        {
            // The other half is for saving.
            let now = Instant::now();
            let half = now + deadline.saturating_duration_since(now) / 2;
            is_saved = self.is_covered(lane, checkpoint, half).await;
        }
        let unsaved = checkpoint.filter(|_| !is_saved && self.may_save(lane));
        let commit = unsaved.map(|checkpoint| self.commit(lane, checkpoint));
        let saves = &self.0.last;
        let has_saved = commit.is_some();
        let save = |commits, deadline| async move { self.save(&commits, deadline).await };
        let done = saves.save(commit, deadline, save).await;
        is_saved || (has_saved && done)
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
            let turn = self.0.turn.take().await;
            if all {
                all_at = Instant::now() + config.recommit_interval;
                self.make_stale();
            }
            let due = turn.unless_cut(self.uncovered(self.due())).await;
            let due = due.unwrap_or_default();
            if due.is_empty() {
                continue;
            }
            let (mut lost, mut tried) = (Vec::new(), 0);
            for chunk in due.chunks(COMMIT_MAX) {
                let commits = chunk.iter();
                let commits = commits.map(|(lane, checkpoint)| self.commit(lane, *checkpoint));
                let commits = commits.collect();
                let deadline = Instant::now() + config.call_timeout;
                let saved = turn.unless_cut(self.save(&commits, deadline)).await;
                let Some(not_saved) = saved else { break };
                lost.extend(not_saved);
                tried += chunk.len();
            }
            drop(turn);
            self.note(&due[..tried], &lost);
            if lost.is_empty() && tried < due.len() {
                debug!(group = %self.0.group.name, "saving gave way to tasks that stop");
                continue;
            }
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

    fn make_stale(&self) {
        for one in self.lock().values_mut() {
            one.is_stale = true;
        }
    }

    fn due(&self) -> Vec<(Arc<Lane>, Checkpoint)> {
        let watched = self.lock();
        let due = watched.values().filter_map(|one| {
            let lane = one.lane.upgrade()?;
            let checkpoint = lane.checkpoint()?;
            let moved = one.saved != Some(checkpoint);
            ((moved || one.is_stale) && self.may_save(&lane)).then_some((lane, checkpoint))
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
                one.is_stale = false;
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
        let gaps = lane.gaps_at(place.offset);
        let commit = Commit {
            leader_epoch: lane.epoch_before(place.offset),
            ..start::commit(&lane.spec, &names, worker, producer, place, gaps)
        };
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
        deadline: Instant,
    ) -> Vec<(TopicPartition, String)> {
        let group = &self.0.group;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kreplicator_model::{
        ids::{Offset, WorkerId},
        spec::CheckpointSide,
    };

    use super::*;
    use crate::batches::testkit::{FakeBroker, Rig, RigMade};

    /// What saves the checkpoint of a lane, by hand, to a broker that has no groups.
    fn unsaved(rig: &Rig, broker: &FakeBroker) -> Commits {
        let name = "kreplicator.a-b".to_owned();
        let second = Duration::from_secs(1);
        let group = Group::new(broker.client(), name, CheckpointSide::Source, second);
        let config = BatchConfig::new(WorkerId::new("w").expect("legal"));
        let fence = Arc::clone(&rig.fence) as Arc<dyn OwnershipFence>;
        let end = CancellationToken::new();
        end.cancel();
        let commits = Commits::new(config, group, fence, end, &Spawner::default());
        commits.watch(&rig.lane);
        commits
    }

    #[tokio::test]
    async fn c007_a_refresh_that_failed_is_due_again_at_the_next_save() {
        let rig = Rig::running(RigMade::default());
        let commits = unsaved(&rig, &FakeBroker::start().await);
        let due = commits.due();
        assert_eq!(due.len(), 1, "it was never saved");
        commits.note(&due, &[]);
        assert!(commits.due().is_empty(), "nothing has moved");
        commits.make_stale();
        let lost = [(
            commits.place(&rig.lane),
            "the coordinator is away".to_owned(),
        )];
        commits.note(&commits.due(), &lost);
        let due = commits.due();
        assert_eq!(
            due.len(),
            1,
            "brokers may forget it before the next refresh"
        );
        commits.note(&due, &[]);
        assert!(commits.due().is_empty());
    }

    #[tokio::test]
    async fn a_commit_tells_how_many_offsets_below_it_are_gone() {
        let rig = Rig::running(RigMade::default());
        let commits = unsaved(&rig, &FakeBroker::start().await);
        let at = |offset: i64| {
            let mut checkpoint = rig.lane.checkpoint().expect("it runs");
            checkpoint.place.offset = Offset(offset);
            commits.commit(&rig.lane, checkpoint).1.metadata
        };
        rig.lane.resume_gaps(Offset(0), 3);
        rig.lane.count_gap(Offset(10), Offset(15));
        assert!(at(14).ends_with(" g=3"), "{}", at(14));
        assert!(at(15).ends_with(" g=8"), "{}", at(15));
    }

    #[tokio::test]
    async fn a_last_save_that_the_group_does_not_take_is_not_called_saved() {
        let rig = Rig::running(RigMade::default());
        let broker = FakeBroker::start().await;
        let soon = || Instant::now() + Duration::from_secs(2);
        let commits = unsaved(&rig, &broker);
        assert!(!commits.save_last(&rig.lane, soon()).await);
        // Nobody may save in the name of a worker that others may have replaced.
        let rig = Rig::running(RigMade {
            mode: kreplicator_model::exact::DeliveryMode::AtLeastOnce(
                kreplicator_model::exact::Reason::SourceCompacted,
            ),
            ..RigMade::default()
        });
        let commits = unsaved(&rig, &broker);
        rig.fence.shut();
        assert!(!commits.save_last(&rig.lane, soon()).await);
        // What was saved before need not be saved again.
        rig.fence.open();
        let commits = unsaved(&rig, &broker);
        commits.note(&commits.due(), &[]);
        assert!(commits.save_last(&rig.lane, soon()).await);
    }
}
