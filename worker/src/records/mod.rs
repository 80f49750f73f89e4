//! The `records` engine: reads record by record through librdkafka and hands each to a sink.
//!
//! - [`RecordsEngine`]: the engine; one [`driver`] per link, which carries the tasks of the link
//!   through their lives.
//! - [`reader`]: one consumer and one thread per link; hands records to lanes.
//! - [`lane`]: one task on the data path: flow control, the checkpoint, receipts.
//! - [`doubt`]: which records are sent alone.
//! - [`judge`], [`offsets`], [`positions`]: what the source's offsets say about a reader.
//!
//! Per worker there are as many consumers as links with tasks, as many checkpoint clients, and one
//! producer per target cluster.

mod config;
mod doubt;
mod driver;
mod headers;
mod judge;
mod lane;
mod offsets;
mod positions;
mod reader;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::{self, Cluster},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::config::RecordsConfig;
use self::{
    driver::{Driver, Order},
    lane::{Lane, LaneNumber, Shared},
};
use crate::{
    board::Promise,
    budget::Budget,
    clock::WallClock,
    engine::{Delivery, Engine, LinkContext, RunningTask, Status, Stopped, TaskSpec, Weakness},
    fence::OwnershipFence,
    flow_metrics::{self, LinkMetrics},
    sink::kafka::KafkaSink,
    spawner::Spawner,
};

/// The engine.
pub struct RecordsEngine {
    config: RecordsConfig,
    secrets: Arc<dyn SecretSource>,
    fence: Arc<dyn OwnershipFence>,
    budget: Arc<Budget>,
    clock: WallClock,
    cancel: CancellationToken,
    drivers: Spawner,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The drivers of each link; more than one while tasks move over to a changed link.
    links: BTreeMap<LinkId, Vec<Running>>,
    sinks: BTreeMap<ClusterId, Vec<Weak<KafkaSink>>>,
    last_lane: LaneNumber,
}

/// A driver at work. One whose link was changed takes no new tasks and ends with its last one.
struct Running {
    is_superseded: bool,
    context: Arc<LinkContext>,
    shared: Shared,
    orders: mpsc::UnboundedSender<Order>,
}

impl RecordsEngine {
    /// An engine without tasks. Tasks are to be started on a Tokio runtime. When `cancel` is
    /// cancelled, everything is dropped as it stands: nothing more is sent or saved.
    #[must_use]
    pub fn new(
        config: RecordsConfig,
        secrets: Arc<dyn SecretSource>,
        fence: Arc<dyn OwnershipFence>,
        budget: Arc<Budget>,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        let (_, limit) = flow_metrics::budget();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        limit.set(budget.limit_bytes() as f64);
        Arc::new(Self {
            config,
            secrets,
            fence,
            budget,
            clock: WallClock::system(),
            cancel,
            drivers: Spawner::default(),
            state: Mutex::default(),
        })
    }

    /// The byte budget that all tasks share.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn drive(&self, context: &Arc<LinkContext>, sink: Arc<KafkaSink>) -> Running {
        let (orders, incoming) = mpsc::unbounded_channel();
        let (events, lane_events) = mpsc::unbounded_channel();
        let shared = Shared {
            budget: Arc::clone(&self.budget),
            fence: Arc::clone(&self.fence),
            clock: self.clock.clone(),
            metrics: LinkMetrics::new(&context.link.id),
            events,
        };
        let driver = Driver::new(
            self.config.clone(),
            Arc::clone(context),
            Arc::clone(&self.secrets),
            sink,
            shared.clone(),
        );
        let cancel = self.cancel.clone();
        self.drivers.spawn(
            "the driver of a link",
            driver.run(incoming, lane_events, cancel),
        );
        Running {
            is_superseded: false,
            context: Arc::clone(context),
            shared,
            orders,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sink(&self, state: &mut State, cluster: &Cluster) -> Arc<KafkaSink> {
        let sinks = state.sinks.entry(cluster.id.clone()).or_default();
        sinks.retain(|sink| sink.strong_count() > 0);
        let same = sinks
            .iter()
            .filter_map(Weak::upgrade)
            .find(|sink| sink.cluster() == cluster);
        same.unwrap_or_else(|| {
            let sink = Arc::new(KafkaSink::new(
                cluster.clone(),
                Arc::clone(&self.secrets),
                self.config.sink,
            ));
            sinks.push(Arc::downgrade(&sink));
            sink
        })
    }

    async fn release(running: Vec<Running>, deadline: Duration) {
        let end = Instant::now() + deadline;
        let waits = running.into_iter().filter_map(|running| {
            let (reply, released) = oneshot::channel();
            let order = Order::Release {
                deadline: end.saturating_duration_since(Instant::now()),
                reply,
            };
            running.orders.send(order).ok().map(|()| released)
        });
        let waits: Vec<_> = waits.collect();
        for released in waits {
            let left = end.saturating_duration_since(Instant::now());
            if timeout(left, released).await.is_err() {
                tracing::warn!("clients were not released in time; they end in the background");
                return;
            }
        }
    }
}

#[async_trait]
impl Engine for RecordsEngine {
    fn start(&self, spec: TaskSpec, context: Arc<LinkContext>) -> Arc<dyn RunningTask> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.last_lane += 1;
        let number = state.last_lane;
        let link = context.link.id.clone();
        let drivers = state.links.entry(link.clone()).or_default();
        drivers.retain(|running| !running.orders.is_closed());
        let is_for_it = |running: &Running| !running.is_superseded && *running.context == *context;
        if !drivers.iter().any(is_for_it) {
            for running in drivers.iter_mut().filter(|running| !running.is_superseded) {
                running.is_superseded = true;
                // One that is gone has nothing to end.
                drop(running.orders.send(Order::EndWhenEmpty));
            }
            let sink = self.sink(state, &context.target);
            let running = self.drive(&context, sink);
            state.links.entry(link.clone()).or_default().push(running);
        }
        let drivers = state.links.get(&link).expect("just looked at or added");
        let running = drivers
            .iter()
            .find(|running| is_for_it(running))
            .expect("just looked at or added");
        let lane = Lane::new(number, spec, running.shared.clone());
        // A driver ends only when it was released or the engine is cancelled.
        drop(running.orders.send(Order::Add(Arc::clone(&lane))));
        Arc::new(Task {
            lane,
            orders: running.orders.clone(),
            patience: self.config.stop_patience(),
        })
    }

    async fn release_link(&self, link: &LinkId, deadline: Duration) {
        let running = self.lock().links.remove(link);
        Self::release(running.unwrap_or_default(), deadline).await;
    }

    async fn close(&self, deadline: Duration) {
        let end = Instant::now() + deadline;
        let (running, sinks) = {
            let mut state = self.lock();
            (
                std::mem::take(&mut state.links),
                std::mem::take(&mut state.sinks),
            )
        };
        let sinks: Vec<_> = sinks
            .into_values()
            .flatten()
            .filter_map(|sink| sink.upgrade())
            .collect();
        Self::release(running.into_values().flatten().collect(), deadline).await;
        for sink in sinks {
            sink.close(end.saturating_duration_since(Instant::now()))
                .await;
        }
        let drivers = self.drivers.tracker();
        drivers.close();
        let left = end.saturating_duration_since(Instant::now());
        // Lapses where a client does not end; the process is about to.
        drop(timeout(left, drivers.wait()).await);
    }

    async fn broken(&self) -> String {
        self.drivers.broken().await
    }
}

impl fmt::Debug for RecordsEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<_> = self.lock().links.keys().cloned().collect();
        f.debug_struct("RecordsEngine")
            .field("links", &links)
            .finish_non_exhaustive()
    }
}

/// This engine counts nothing and passes no batch on.
const PROMISE: Promise = Promise {
    engine: spec::Engine::Records,
    delivery: Some(Delivery::AtLeastOnce(Weakness::RecordsEngine)),
    path: None,
};

/// A task that was started.
#[derive(Debug)]
struct Task {
    lane: Arc<Lane>,
    orders: mpsc::UnboundedSender<Order>,
    /// Added to a stop's own deadline before the driver is thought to be gone.
    patience: Duration,
}

#[async_trait]
impl RunningTask for Task {
    fn spec(&self) -> &TaskSpec {
        &self.lane.spec
    }

    fn status(&self) -> Status {
        self.lane
            .board
            .status(&self.lane.numbers().shown(), PROMISE)
    }

    async fn stop(&self, deadline: Duration) -> Stopped {
        let (reply, stopped) = oneshot::channel();
        let order = Order::Stop {
            lane: self.lane.number,
            deadline,
            reply,
        };
        if self.orders.send(order).is_ok()
            && let Ok(Ok(stopped)) = timeout(deadline + self.patience, stopped).await
        {
            return stopped;
        }
        // The engine was closed or cancelled under the task.
        self.lane.close();
        Stopped::Forced {
            in_flight_records: self.lane.numbers().in_flight,
        }
    }
}
