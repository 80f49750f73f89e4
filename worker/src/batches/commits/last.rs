//! The last saves of tasks that stop, put together, and whose turn it is to commit.

use std::{collections::BTreeMap, fmt, future::Future, pin::pin, sync::Arc};

use kreplicator_wire::{cluster::group::Commit, gather::Gather, topic::TopicPartition};
use tokio::{
    sync::{Mutex, MutexGuard, Notify},
    time::{Instant, timeout_at},
};

/// Held by whoever commits: an older commit never overtakes a newer one of this worker (C048).
#[derive(Debug, Default)]
pub(super) struct Turn {
    holder: Mutex<()>,
    cut: Notify,
}

/// The turn of the saves that go on all the time.
pub(super) struct Held<'a> {
    turn: &'a Turn,
    _holder: MutexGuard<'a, ()>,
}

impl Turn {
    /// Waits for the turn. What is done in it gives way to last saves that have waited for long.
    pub(super) async fn take(&self) -> Held<'_> {
        let holder = self.holder.lock().await;
        // Meant for whoever held it before.
        drop(timeout_at(Instant::now(), self.cut.notified()).await);
        Held {
            turn: self,
            _holder: holder,
        }
    }

    /// Waits for the turn of a last save. What is not done when half of the time is over is given up, so
    /// that nothing of a task that has stopped is still being saved after `deadline`.
    async fn take_last(&self, deadline: Instant) -> MutexGuard<'_, ()> {
        let now = Instant::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        let mut holder = pin!(self.holder.lock());
        if let Ok(holder) = timeout_at(half, &mut holder).await {
            return holder;
        }
        self.cut.notify_one();
        holder.await
    }
}

impl Held<'_> {
    /// Does what gives way to a last save that has waited for long; None: it was given up.
    pub(super) async fn unless_cut<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = what => Some(done),
            () = self.turn.cut.notified() => None,
        }
    }
}

/// What a task that stops asks for; without a commit it waits only until nothing of it is being saved.
#[derive(Debug, Clone)]
struct Asked {
    commit: Option<(TopicPartition, Commit)>,
    deadline: Instant,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Saved,
    Refused,
    /// The time of another in the same commit was over.
    Late,
}

/// Last saves of a group: while one commit is under way, others are collected and go into the next one.
#[derive(Default)]
pub(super) struct LastSaves {
    turn: Arc<Turn>,
    waiting: Gather<(), Asked, Outcome>,
}

impl LastSaves {
    pub(super) fn new(turn: Arc<Turn>) -> Self {
        Self {
            turn,
            waiting: Gather::new(),
        }
    }

    /// Saves a commit by `deadline`, or only waits until nothing that was begun before is under way. True:
    /// it is saved. `save` commits by a deadline and gives those that were not saved.
    pub(super) async fn save<F>(
        &self,
        commit: Option<(TopicPartition, Commit)>,
        deadline: Instant,
        save: impl Fn(BTreeMap<TopicPartition, Commit>, Instant) -> F,
    ) -> bool
    where
        F: Future<Output = Vec<(TopicPartition, String)>>,
    {
        let asked = Asked { commit, deadline };
        loop {
            let call = |all: Vec<Asked>| self.save_all(all, &save);
            match self.waiting.ask(&(), asked.clone(), call).await {
                Outcome::Saved => return true,
                Outcome::Refused => return false,
                Outcome::Late if Instant::now() >= deadline => return false,
                Outcome::Late => {}
            }
        }
    }

    async fn save_all<F>(
        &self,
        all: Vec<Asked>,
        save: impl Fn(BTreeMap<TopicPartition, Commit>, Instant) -> F,
    ) -> Vec<Outcome>
    where
        F: Future<Output = Vec<(TopicPartition, String)>>,
    {
        // Whoever asked first is answered in time, and nothing of its task is saved after that.
        let deadline = all.iter().map(|asked| asked.deadline).min();
        let deadline = deadline.unwrap_or_else(Instant::now);
        let _holder = self.turn.take_last(deadline).await;
        let commits: BTreeMap<_, _> = all
            .iter()
            .filter_map(|asked| asked.commit.clone())
            .collect();
        let lost = if commits.is_empty() {
            Some(Vec::new())
        } else {
            timeout_at(deadline, save(commits, deadline)).await.ok()
        };
        let is_late = Instant::now() >= deadline;
        let outcome = |asked: &Asked| {
            let Some((at, _)) = &asked.commit else {
                return Outcome::Saved;
            };
            match &lost {
                Some(lost) if !lost.iter().any(|(other, _)| other == at) => Outcome::Saved,
                Some(_) if !is_late => Outcome::Refused,
                _ => Outcome::Late,
            }
        };
        all.iter().map(outcome).collect()
    }
}

impl fmt::Debug for LastSaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastSaves").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use futures::future::join_all;
    use kreplicator_model::ids::{Offset, Partition, TopicName};
    use tokio::time::{sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn commit(partition: i32) -> (TopicPartition, Commit) {
        let topic = TopicName::new("orders").expect("legal");
        let commit = Commit {
            offset: Offset(7),
            leader_epoch: None,
            metadata: String::new(),
        };
        (TopicPartition::new(topic, Partition(partition)), commit)
    }

    type Lost = Vec<(TopicPartition, String)>;

    /// A far group; counts commits.
    #[derive(Default)]
    struct Far(AtomicUsize);

    impl Far {
        async fn save(&self, commits: BTreeMap<TopicPartition, Commit>) -> Lost {
            self.0.fetch_add(1, Ordering::SeqCst);
            sleep(SECOND).await;
            drop(commits);
            Vec::new()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_hundred_tasks_that_stop_at_once_are_all_saved_in_time_though_the_group_is_far() {
        let (saves, far) = (LastSaves::default(), Far::default());
        let deadline = Instant::now() + 5 * SECOND;
        let last = |at| saves.save(Some(commit(at)), deadline, |all, _| far.save(all));
        let saved = join_all((0..500).map(last)).await;
        assert!(saved.iter().all(|saved| *saved));
        assert!(
            far.0.load(Ordering::SeqCst) <= 2,
            "{far}",
            far = far.0.load(Ordering::SeqCst)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_saved_is_told_of_that_partition_alone() {
        let saves = LastSaves::default();
        let deadline = Instant::now() + 5 * SECOND;
        let refuse_one =
            |_: BTreeMap<_, _>, _| async { vec![(commit(1).0, "the topic is gone".to_owned())] };
        let last = |at| saves.save(Some(commit(at)), deadline, refuse_one);
        assert_eq!(join_all((0..3).map(last)).await, [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_is_silent_is_waited_for_once_by_all() {
        let saves = LastSaves::default();
        let begun = Instant::now();
        let deadline = begun + 5 * SECOND;
        let silent = |_: BTreeMap<_, _>, _| std::future::pending::<Lost>();
        let last = |at| saves.save(Some(commit(at)), deadline, silent);
        let saved = join_all((0..500).map(last)).await;
        assert!(saved.iter().all(|saved| !saved));
        assert!(begun.elapsed() < 6 * SECOND, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn c048_after_a_last_save_nothing_that_was_begun_before_is_under_way() {
        let turn = Arc::new(Turn::default());
        let saves = LastSaves::new(Arc::clone(&turn));
        let held = turn.take().await;
        let far = Far::default();
        let deadline = Instant::now() + 6 * SECOND;
        let stuck = async {
            let done = held.unless_cut(std::future::pending::<()>()).await;
            drop(held);
            done
        };
        let last = saves.save(Some(commit(0)), deadline, |all, _| far.save(all));
        let (done, saved) = timeout(7 * SECOND, async { tokio::join!(stuck, last) })
            .await
            .expect("in time");
        assert_eq!((done, saved), (None, true), "the stuck one gives way");

        // Nothing to save: it still waits.
        let held = turn.take().await;
        let brief = async {
            let done = held.unless_cut(sleep(SECOND)).await;
            drop(held);
            done
        };
        let begun = Instant::now();
        let wait = saves.save(None, begun + 6 * SECOND, |all, _| far.save(all));
        let (done, _) = tokio::join!(brief, wait);
        assert_eq!(done, Some(()), "what takes its usual time is not cut");
        assert_eq!(begun.elapsed(), SECOND);
        assert_eq!(far.0.load(Ordering::SeqCst), 1, "nothing was asked for");
    }
}
