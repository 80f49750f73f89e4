//! An engine that does as it is told by a test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_model::{
    ids::{LinkId, Offset, TaskId, UnixMillis},
    spec,
};
use tokio::time::{Instant, sleep, timeout};

use super::store::FlakyStore;
use crate::{
    engine::{
        Delivery, Engine, LinkContext, PathSeen, RunningTask, State, Status, Stopped, TaskSpec,
        Weakness,
    },
    gate::Gate,
};

/// How tasks behave.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Script {
    /// From start to running.
    pub(crate) start_takes: Duration,
    /// From being told to stop to having stopped.
    pub(crate) stop_takes: Duration,
    /// A stop ignores its limit.
    pub(crate) stop_ignores_limit: bool,
    /// It bears a second owner.
    pub(crate) exactly_once: bool,
}

/// One stop as seen by the engine.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) id: TaskId,
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
    pub(crate) outcome: Stopped,
}

#[derive(Debug, Default)]
struct Log {
    script: Script,
    scripts: BTreeMap<TaskId, Script>,
    running: BTreeMap<TaskId, Arc<FakeTask>>,
    starts: Vec<(TaskSpec, Instant)>,
    stops: Vec<Stop>,
    released: Vec<LinkId>,
    closed: bool,
}

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct FakeEngine {
    log: Arc<Mutex<Log>>,
    store: Arc<FlakyStore>,
    gate: Gate,
}

impl FakeEngine {
    pub(crate) fn new(store: Arc<FlakyStore>, gate: Gate) -> Self {
        Self {
            log: Arc::default(),
            store,
            gate,
        }
    }

    pub(crate) fn script(&self, script: Script) {
        self.with(|log| log.script = script);
    }

    pub(crate) fn script_task(&self, id: &TaskId, script: Script) {
        self.with(|log| log.scripts.insert(id.clone(), script));
    }

    /// Tasks that were started and have not stopped, in order.
    pub(crate) fn running(&self) -> Vec<TaskId> {
        self.with(|log| log.running.keys().cloned().collect())
    }

    pub(crate) fn task(&self, id: &TaskId) -> Arc<FakeTask> {
        self.with(|log| Arc::clone(&log.running[id]))
    }

    pub(crate) fn starts(&self) -> Vec<(TaskSpec, Instant)> {
        self.with(|log| log.starts.clone())
    }

    pub(crate) fn stops(&self) -> Vec<Stop> {
        self.with(|log| log.stops.clone())
    }

    pub(crate) fn released(&self) -> Vec<LinkId> {
        self.with(|log| log.released.clone())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.with(|log| log.closed)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Log) -> T) -> T {
        look(&mut self.log.lock().expect("no test panics while it holds this"))
    }
}

#[async_trait]
impl Engine for FakeEngine {
    fn start(&self, spec: TaskSpec, context: Arc<LinkContext>) -> Arc<dyn RunningTask> {
        assert_eq!(context.link.id, spec.id.link);
        assert!(
            self.store.lists(&spec.id, spec.epoch),
            "{} starts unlisted",
            spec.id
        );
        assert!(self.gate.is_open(), "{} starts behind a shut gate", spec.id);
        let task = Arc::new(FakeTask {
            spec: spec.clone(),
            context,
            started_at: Instant::now(),
            engine: self.clone(),
            status: Mutex::new(None),
            stopping: Mutex::new(false),
        });
        self.with(|log| {
            let twice = log.running.insert(spec.id.clone(), Arc::clone(&task));
            assert!(twice.is_none(), "{} runs already", spec.id);
            log.starts.push((spec, Instant::now()));
        });
        task
    }

    async fn release_link(&self, link: &LinkId, _deadline: Duration) {
        self.with(|log| {
            let used = log.running.keys().any(|id| id.link == *link);
            assert!(!used, "the clients of {link} are in use");
            log.released.push(link.clone());
        });
    }

    async fn close(&self, _deadline: Duration) {
        self.with(|log| log.closed = true);
    }
}

/// A task of the engine.
#[derive(Debug)]
pub(crate) struct FakeTask {
    spec: TaskSpec,
    context: Arc<LinkContext>,
    started_at: Instant,
    engine: FakeEngine,
    status: Mutex<Option<Status>>,
    stopping: Mutex<bool>,
}

impl FakeTask {
    pub(crate) fn context(&self) -> &LinkContext {
        &self.context
    }

    /// From now on the task says this of itself.
    pub(crate) fn say(&self, status: Status) {
        *self
            .status
            .lock()
            .expect("no test panics while it holds this") = Some(status);
    }

    fn script(&self) -> Script {
        self.engine.with(|log| {
            let own = log.scripts.get(&self.spec.id);
            own.copied().unwrap_or(log.script)
        })
    }
}

/// A status with nothing special in it.
pub(crate) fn status(state: State) -> Status {
    Status {
        state,
        since: UnixMillis(1_000),
        cause: String::new(),
        retry_at: None,
        checkpoint: Some(Offset(40)),
        log_start: Some(Offset(0)),
        log_end: Some(Offset(100)),
        progress_at: Some(UnixMillis(1_000)),
        records_total: 40,
        bytes_total: 4_000,
        gap_records_total: 0,
        in_flight_records: 7,
        engine: spec::Engine::Batches,
        delivery: Some(Delivery::ExactlyOnce),
        path: Some(PathSeen::Rewritten("holes")),
    }
}

#[async_trait]
impl RunningTask for FakeTask {
    fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    fn status(&self) -> Status {
        let said = self
            .status
            .lock()
            .expect("no test panics while it holds this");
        if let Some(status) = said.clone() {
            return status;
        }
        let stopping = *self
            .stopping
            .lock()
            .expect("no test panics while it holds this");
        let state = if stopping {
            State::Stopping
        } else if self.started_at.elapsed() < self.script().start_takes {
            State::Starting
        } else {
            State::Running
        };
        let delivery = if self.script().exactly_once {
            Delivery::ExactlyOnce
        } else {
            Delivery::AtLeastOnce(Weakness::RecordsEngine)
        };
        Status {
            delivery: Some(delivery),
            ..status(state)
        }
    }

    async fn stop(&self, deadline: Duration) -> Stopped {
        let id = &self.spec.id;
        {
            let mut stopping = self
                .stopping
                .lock()
                .expect("no test panics while it holds this");
            assert!(!*stopping, "{id} is stopped twice");
            *stopping = true;
        }
        let fenced = !self.engine.gate.is_open();
        let script = self.script();
        let limit = if script.stop_ignores_limit {
            Duration::MAX
        } else {
            deadline
        };
        // Throwing away takes its time as well.
        let clean = if fenced {
            sleep(script.stop_takes).await;
            false
        } else {
            timeout(limit, sleep(script.stop_takes)).await.is_ok()
        };
        if fenced {
            assert!(
                !self.engine.gate.is_open(),
                "the gate opened before {id} had stopped"
            );
        } else {
            let epoch = self.spec.epoch;
            assert!(
                self.engine.store.lists(id, epoch),
                "{id} was off the list before it stopped"
            );
        }
        let outcome = if clean {
            Stopped::Clean
        } else {
            Stopped::Forced {
                in_flight_records: 7,
            }
        };
        self.engine.with(|log| {
            log.running.remove(id).expect("it was running");
            log.stops.push(Stop {
                id: id.clone(),
                at: Instant::now(),
                limit: deadline,
                outcome,
            });
        });
        outcome
    }
}
