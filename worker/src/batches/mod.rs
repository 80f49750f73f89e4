//! The `batches` engine: passes compressed record batches on as they lie in the source log, each once.
//!
//! - [`BatchEngine`]: the engine. [`link`]: what tasks of one link share.
//! - [`lane`]: one task on the data path. [`life`]: the same task over time. [`start`]: where it begins.
//!   [`mod@mailbox`]: what lane and life tell each other.
//! - [`source`], [`fetcher`], [`nearest`]: reading. [`target`], [`outlet`]: sending. [`commits`]: checkpoints.
//! - [`intake`]: which batches pass, which are dropped, and which are written anew. [`rewriter`]: where that
//!   is done.
//! - [`ends`], [`scan`]: questions to clusters.
//!
//! Per worker there are, for each link, one connection to each source broker and one to each target
//! broker that lead something, another to a target broker while it leads partitions whose replicas do
//! not keep up, and one more to each for small calls, shared by all links.
//!
//! Why nothing is lost, doubled or reordered is argued in
//! `docs/adr/2026-11-29-exactly-once-by-sequences.md`.

mod commits;
mod config;
mod ends;
mod epochs;
mod fetcher;
pub mod intake;
mod lane;
mod life;
mod link;
mod mailbox;
pub mod metrics;
mod nearest;
mod outlet;
mod rewriter;
mod scan;
mod source;
mod start;
mod target;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::Cluster,
};
use kreplicator_wire::cluster::ClusterClient;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::config::BatchConfig;
use self::{
    lane::Lane,
    life::{Life, Parts, Stop},
    link::Running,
    mailbox::mailbox,
    rewriter::Rewriter,
};
use crate::{
    budget::Budget,
    clock::WallClock,
    engine::{Engine, LinkContext, RunningTask, Status, Stopped, TaskSpec},
    fence::OwnershipFence,
    lines::LineBook,
    news::News,
    spawner::Spawner,
};

/// The engine.
pub struct BatchEngine {
    config: BatchConfig,
    secrets: Arc<dyn SecretSource>,
    fence: Arc<dyn OwnershipFence>,
    budget: Arc<Budget>,
    lines: Arc<dyn LineBook>,
    clock: WallClock,
    base: Instant,
    /// Ends whatever still lives when the engine is closed or everything is dropped.
    closing: CancellationToken,
    spawner: Spawner,
    numbers: AtomicU64,
    news: News,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: BTreeMap<LinkId, Running>,
    /// Clients by cluster as declared.
    clients: BTreeMap<ClusterId, (Cluster, ClusterClient)>,
    /// Links made so far; each has connections of its own.
    links_made: u32,
    /// One for all links; there from the first one on.
    rewriter: Option<Rewriter>,
}

impl State {
    /// Keeps only clients of clusters that some link names as they are: the others' tasks end with the last
    /// link that holds one.
    fn forget_clients(&mut self) {
        let links = &self.links;
        self.clients.retain(|_, (cluster, _)| {
            links.values().any(|running| {
                let context = &running.context;
                context.source == *cluster || context.target == *cluster
            })
        });
    }
}

impl BatchEngine {
    /// An engine without tasks. Tasks are to be started on a Tokio runtime. When `cancel` is
    /// cancelled, everything is dropped as it stands.
    #[must_use]
    pub fn new(
        config: BatchConfig,
        secrets: Arc<dyn SecretSource>,
        fence: Arc<dyn OwnershipFence>,
        budget: Arc<Budget>,
        lines: Arc<dyn LineBook>,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            secrets,
            fence,
            budget,
            lines,
            clock: WallClock::system(),
            base: Instant::now(),
            closing: cancel.child_token(),
            spawner: Spawner::default(),
            numbers: AtomicU64::new(0),
            news: News::default(),
            state: Mutex::default(),
        })
    }

    /// Counts what its tasks have to tell.
    #[must_use]
    pub fn news(&self) -> News {
        self.news.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of a cluster; one for all links that know it by the same settings.
    fn client(&self, state: &mut State, cluster: &Cluster) -> ClusterClient {
        if let Some((known, client)) = state.clients.get(&cluster.id)
            && known == cluster
        {
            return client.clone();
        }
        let client = ends::client(
            cluster,
            &self.secrets,
            self.config.silence_max,
            &self.spawner,
        );
        let kept = (cluster.clone(), client.clone());
        state.clients.insert(cluster.id.clone(), kept);
        client
    }

    /// Where batches are opened; one for all links.
    fn rewriter(&self, state: &mut State) -> Rewriter {
        let begin = || {
            let (rewriter, jobs) = Rewriter::new();
            let working = rewriter::work(jobs, self.config.rewrites_max);
            let closing = self.closing.clone();
            self.spawner.spawn("the rewriting of batches", async move {
                closing.run_until_cancelled(working).await;
            });
            rewriter
        };
        state.rewriter.get_or_insert_with(begin).clone()
    }

    /// What tasks of a link share; made anew when the link has changed.
    fn link<'a>(&self, state: &'a mut State, context: &Arc<LinkContext>) -> &'a Running {
        let id = &context.link.id;
        let is_current = state
            .links
            .get(id)
            .is_some_and(|running| *running.context == **context);
        if !is_current {
            let source = self.client(state, &context.source);
            let target = self.client(state, &context.target);
            let rewriter = self.rewriter(state);
            state.links_made += 1;
            let running = Running::new(
                link::Ends {
                    source,
                    target,
                    number: state.links_made,
                },
                context,
                link::Common {
                    config: self.config.clone(),
                    fence: Arc::clone(&self.fence),
                    budget: Arc::clone(&self.budget),
                    lines: Arc::clone(&self.lines),
                    clock: self.clock.clone(),
                    base: self.base,
                    news: self.news.clone(),
                    spawner: self.spawner.clone(),
                    rewriter,
                    cancel: self.closing.child_token(),
                },
            );
            state.links.insert(id.clone(), running);
        }
        &state.links[id]
    }
}

#[async_trait]
impl Engine for BatchEngine {
    fn start(&self, spec: TaskSpec, context: Arc<LinkContext>) -> Arc<dyn RunningTask> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        let running = self.link(&mut state, &context);
        let (events, lane_events) = mailbox();
        let (stops, asked) = mailbox();
        let lane = Lane::new(number, spec, Arc::clone(&running.shared), events);
        running.lanes.add(&lane);
        let life = Life::new(Parts {
            lane: Arc::clone(&lane),
            events: lane_events,
            stops: asked,
            tools: Arc::clone(&running.tools),
            cancel: self.closing.clone(),
        });
        self.spawner.spawn("a task", life.run());
        Arc::new(Task {
            lane,
            stops,
            patience: self.config.stop_patience(),
        })
    }

    async fn release_link(&self, link: &LinkId, _deadline: Duration) {
        // Connections end with the last of what was made for the link.
        let mut state = self.lock();
        drop(state.links.remove(link));
        state.forget_clients();
    }

    async fn broken(&self) -> String {
        self.spawner.broken().await
    }

    async fn close(&self, deadline: Duration) {
        let state = std::mem::take(&mut *self.lock());
        drop(state);
        self.closing.cancel();
        let tracker = self.spawner.tracker();
        tracker.close();
        // Lapses where a cluster does not answer; the process is about to end.
        drop(timeout(deadline, tracker.wait()).await);
    }
}

impl fmt::Debug for BatchEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<_> = self.lock().links.keys().cloned().collect();
        f.debug_struct("BatchEngine")
            .field("links", &links)
            .finish_non_exhaustive()
    }
}

/// A task that was started.
#[derive(Debug)]
struct Task {
    lane: Arc<Lane>,
    stops: mailbox::Sender<Stop>,
    /// Added to a stop's own deadline before the life is thought to be gone.
    patience: Duration,
}

#[async_trait]
impl RunningTask for Task {
    fn spec(&self) -> &TaskSpec {
        &self.lane.spec
    }

    fn status(&self) -> Status {
        self.lane.status()
    }

    async fn stop(&self, deadline: Duration) -> Stopped {
        let (reply, stopped) = oneshot::channel();
        if self.stops.send(Stop { deadline, reply }).is_ok()
            && let Ok(Ok(stopped)) = timeout(deadline + self.patience, stopped).await
        {
            return stopped;
        }
        // The engine was closed or cancelled under the task.
        Stopped::Forced {
            in_flight_records: self.lane.close(),
        }
    }
}
