//! What the tasks of one link share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use kreplicator_model::{ids::Offset, spec::CheckpointSide};
use kreplicator_wire::cluster::ClusterClient;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::{
    BatchConfig,
    commits::Commits,
    ends::{Group, Questions},
    lane::{Lane, Next, Shared},
    metrics::BatchMetrics,
    outlet::Patience,
    rewriter::Rewriter,
    scan::Scans,
    source::Source,
    start::Starter,
    target::Outlets,
};
use crate::{
    budget::Budget, checkpoint::group_of, clock::WallClock, engine::LinkContext,
    fence::OwnershipFence, flow_metrics::LinkMetrics, lines::LineBook, news::News,
    spawner::Spawner,
};

/// What is shown of a reader that stands still again and again.
const STANDS_STILL: &str = "the source has more, but nothing comes; the reader is opened again";
/// How often senders are told that time has passed.
const TICK: Duration = Duration::from_millis(500);

/// What does not differ from link to link.
pub(super) struct Common {
    pub(super) config: BatchConfig,
    pub(super) fence: Arc<dyn OwnershipFence>,
    pub(super) budget: Arc<Budget>,
    pub(super) lines: Arc<dyn LineBook>,
    pub(super) clock: WallClock,
    pub(super) base: Instant,
    pub(super) news: News,
    pub(super) spawner: Spawner,
    pub(super) rewriter: Rewriter,
    pub(super) cancel: CancellationToken,
}

/// The clusters of a link.
pub(super) struct Ends {
    pub(super) source: ClusterClient,
    pub(super) target: ClusterClient,
    /// Number of the link's own connections.
    pub(super) number: u32,
}

/// A link with tasks.
pub(super) struct Running {
    pub(super) context: Arc<LinkContext>,
    pub(super) shared: Arc<Shared>,
    pub(super) lanes: Lanes,
    pub(super) tools: Arc<Tools>,
}

/// What the lives of a link's tasks work with. What was spawned for them lives until the last who holds
/// this has let go: the link as it is declared now, and each task that was started while it was
/// declared like this.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) starter: Starter,
    pub(super) source: Source,
    pub(super) outlets: Outlets,
    pub(super) commits: Commits,
    _end: DropGuard,
}

impl Running {
    pub(super) fn new(ends: Ends, context: &Arc<LinkContext>, common: Common) -> Self {
        let Common {
            config,
            fence,
            budget,
            lines,
            clock,
            base,
            news,
            spawner,
            rewriter,
            cancel,
        } = common;
        let link = &context.link.id;
        let shared = Arc::new(Shared {
            budget: Arc::clone(&budget),
            fence,
            clock,
            metrics: LinkMetrics::new(link),
            paths: BatchMetrics::new(link),
            base,
            news,
            rewriter,
        });
        let side = context.link.checkpoint_on;
        let keeper = match side {
            CheckpointSide::Source => ends.source.clone(),
            CheckpointSide::Target => ends.target.clone(),
        };
        let group = Group::new(keeper, group_of(link), side, config.call_timeout);
        let source = Questions::new(ends.source.clone(), config.call_timeout);
        let target = Questions::new(ends.target.clone(), config.call_timeout);
        let commits = Commits::new(
            config.clone(),
            group.clone(),
            Arc::clone(&shared.fence),
            cancel.clone(),
            &spawner,
        );
        let lanes = Lanes::default();
        let rack = context.source.client_options.get("client.rack").cloned();
        let reader = Source::new(ends.source, ends.number, rack, budget, spawner.clone());
        spawner.spawn("the clock of a link", {
            let (lanes, cancel) = (lanes.clone(), cancel.clone());
            async move {
                cancel.run_until_cancelled(lanes.keep_ticking()).await;
            }
        });
        spawner.spawn("the inspection of a link", {
            let (lanes, cancel, config) = (lanes.clone(), cancel.clone(), config.clone());
            let (source, reader) = (source.clone(), reader.clone());
            async move {
                let inspecting = lanes.keep_looking(source, reader, config);
                cancel.run_until_cancelled(inspecting).await;
            }
        });
        let outlets = Outlets::new(
            ends.target,
            ends.number,
            Patience {
                least: config.slow_after,
                most: config.replica_patience,
            },
            spawner.clone(),
        );
        let starter = Starter {
            config,
            source,
            target,
            group,
            lines,
            on_gap: context.link.on_gap,
            counts: Scans::new(Arc::clone(&shared.budget)),
            tails: Scans::new(Arc::clone(&shared.budget)),
            shared: Arc::clone(&shared),
        };
        Self {
            context: Arc::clone(context),
            shared,
            lanes,
            tools: Arc::new(Tools {
                starter,
                source: reader,
                outlets,
                commits,
                _end: cancel.drop_guard(),
            }),
        }
    }
}

/// The lanes of a link, as far as they still run.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes(Arc<Mutex<Vec<Weak<Lane>>>>);

/// Whether a lane wants what its source has before `end`. Its broker need not have been heard: what read
/// for the lane may be gone.
fn is_left_behind(lane: &Lane, end: Offset) -> bool {
    matches!(lane.reading_at(), Next::Read { offset, .. } if offset < end)
}

/// What a look at a partition remembers for the next.
#[derive(Debug, Clone, Copy)]
struct Seen {
    position: Offset,
    since: Instant,
}

impl Lanes {
    pub(super) fn add(&self, lane: &Arc<Lane>) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.push(Arc::downgrade(lane));
    }

    fn live(&self) -> Vec<Arc<Lane>> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.iter().filter_map(Weak::upgrade).collect()
    }

    async fn keep_ticking(&self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            for lane in self.live() {
                lane.tick();
            }
        }
    }

    /// Looks at the logs of partitions that no answer of a fetcher tells of, and at readers that stand
    /// still though there is more (C102, C104). One that does not answer is waited for by nobody.
    async fn keep_looking(&self, source: Questions, reader: Source, config: BatchConfig) {
        let mut tick = interval(config.inspection_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
        let mut asked: BTreeSet<u64> = BTreeSet::new();
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    let due = self.to_look_at(&mut seen, &reader, config.stall_after);
                    for lane in due {
                        if asked.insert(lane.number) {
                            let source = &source;
                            asking.push(async move {
                                let range = source.committed_range(&lane.source).await;
                                (lane, range)
                            });
                        }
                    }
                }
                Some((lane, range)) = asking.next(), if !asking.is_empty() => {
                    asked.remove(&lane.number);
                    let Ok((start, end)) = range else {
                        lane.unmeasured();
                        continue;
                    };
                    lane.measured(start, end);
                    let is_still = seen
                        .get(&lane.number)
                        .is_some_and(|seen| seen.since.elapsed() >= config.stall_after);
                    if is_still && is_left_behind(&lane, end) {
                        warn!(task = %lane.spec.id, "the reader stands still; it is opened again");
                        lane.shared.metrics.pokes.increment(1);
                        seen.remove(&lane.number);
                        // A follower may stand still itself.
                        lane.turned_away(STANDS_STILL, Instant::now());
                        reader.read(&lane);
                    }
                }
            }
        }
    }

    /// Lanes whose logs nobody tells of or whose readers stand still, and where all are by now.
    fn to_look_at(
        &self,
        seen: &mut BTreeMap<u64, Seen>,
        reader: &Source,
        stall_after: Duration,
    ) -> Vec<Arc<Lane>> {
        let now = Instant::now();
        let mut before = std::mem::take(seen);
        let mut due = Vec::new();
        for lane in self.live() {
            if lane.asks_anew(now) {
                reader.read(&lane);
            }
            let Some(position) = lane.position() else {
                due.push(lane);
                continue;
            };
            let last = before.remove(&lane.number);
            let last = last.filter(|last| last.position == position);
            let here = last.unwrap_or(Seen {
                position,
                since: now,
            });
            seen.insert(lane.number, here);
            let is_still = now - here.since >= stall_after;
            if !lane.is_read() || is_still {
                due.push(lane);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ids::WorkerId;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::batches::{
        fetcher::tests::Told,
        testkit::{FakeBroker, Rig},
    };

    const STALL_AFTER: Duration = Duration::from_millis(300);

    /// What read for it has lost it, and its broker answers about others: nothing else would ever tell.
    #[tokio::test]
    async fn c102_a_reader_that_stands_still_is_opened_again() {
        let rig = Rig::running(crate::batches::testkit::RigMade::default());
        let broker = FakeBroker::start().await;
        let spawner = Spawner::default();
        let reader = Source::new(broker.client(), 1, None, Arc::clone(&rig.budget), spawner);
        let config = BatchConfig {
            inspection_interval: Duration::from_millis(20),
            stall_after: STALL_AFTER,
            ..BatchConfig::new(WorkerId::new("w").expect("legal"))
        };
        let lanes = Lanes::default();
        lanes.add(&rig.lane);
        let source = Questions::new(broker.client(), Duration::from_secs(5));
        let looking = lanes.keep_looking(source, reader, config);
        let is_taken = |rig: &Rig| {
            rig.with_fetcher(|fetcher| fetcher.told())
                .contains(&Told::Stop)
        };
        let watching = async {
            // Far longer than it may stand still: there is nothing to read.
            sleep(STALL_AFTER * 3).await;
            assert!(!is_taken(&rig), "it is at the end");
            broker.write(0, 3);
            let written_at = Instant::now();
            while !is_taken(&rig) {
                sleep(Duration::from_millis(10)).await;
            }
            println!("taken away after {:?}", written_at.elapsed());
            assert_eq!(rig.lane.status().cause, "");
        };
        tokio::select! {
            () = looking => panic!("it looks for ever"),
            watched = timeout(Duration::from_secs(30), watching) => watched.expect("opened again"),
        }
    }

    #[test]
    fn c102_a_reader_whose_broker_was_never_heard_is_opened_again_too() {
        let rig = Rig::running(crate::batches::testkit::RigMade::default());
        assert!(!rig.lane.is_read(), "no fetcher has told anything");
        assert!(is_left_behind(&rig.lane, Offset(1)));
        assert!(!is_left_behind(&rig.lane, Offset(0)), "there is no more");
        rig.lane.close();
        assert!(!is_left_behind(&rig.lane, Offset(1)), "it wants no more");
    }
}
