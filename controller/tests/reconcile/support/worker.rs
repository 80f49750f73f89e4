//! A worker without a data path: it keeps the protocol of claims as the real one does.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use kreplicator_model::{
    ids::{OwnerEpoch, TaskId, WorkerId},
    ownership::Owned,
};
use kreplicator_proto::{
    assignment::{Assignment, Ownership},
    stored::Stored,
    v1,
};
use kreplicator_store::{
    api::{MetaStore, Op, Txn},
    fence::Fence,
    keys,
    session::{Registration, Session, SessionConfig},
    view::{View, ViewOptions},
};
use prost::Message;
use tokio::{task::AbortHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::registry::Registry;

/// How a worker behaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behaviour {
    /// Time to stop a task.
    pub(crate) stop_delay: Duration,
    /// Partitions that it does not take on.
    pub(crate) refuses: BTreeSet<TaskId>,
    /// Most tasks it says it takes; 0: no limit.
    pub(crate) capacity: i32,
    /// Never answers for its assignment.
    pub(crate) deaf: bool,
}

/// A running worker.
#[derive(Debug)]
pub(crate) struct FakeWorker {
    pub(crate) id: WorkerId,
    registry: Registry,
    behaviour: Arc<Mutex<Behaviour>>,
    draining: Arc<tokio::sync::watch::Sender<bool>>,
    task: AbortHandle,
}

impl FakeWorker {
    pub(crate) fn start(
        store: Arc<dyn MetaStore>,
        name: &str,
        ttl: Duration,
        registry: Registry,
        behaviour: Behaviour,
    ) -> Self {
        let id = WorkerId::new(name).expect("legal");
        let behaviour = Arc::new(Mutex::new(behaviour));
        let draining = Arc::new(tokio::sync::watch::Sender::new(false));
        let process = Process {
            store,
            id: id.clone(),
            ttl,
            registry: registry.clone(),
            behaviour: Arc::clone(&behaviour),
            draining: Arc::clone(&draining),
        };
        let task = tokio::spawn(process.run()).abort_handle();
        Self {
            id,
            registry,
            behaviour,
            draining,
            task,
        }
    }

    /// Dies: nothing of it runs any more, and its lease runs out.
    pub(crate) fn crash(self) {
        self.task.abort();
        self.registry.stop_all(&self.id);
    }

    /// Says that it leaves.
    pub(crate) fn announce_leaving(&self) {
        self.draining.send_replace(true);
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().expect("no test panics inside"));
    }
}

struct Process {
    store: Arc<dyn MetaStore>,
    id: WorkerId,
    ttl: Duration,
    registry: Registry,
    behaviour: Arc<Mutex<Behaviour>>,
    draining: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Process {
    fn behaviour(&self) -> Behaviour {
        self.behaviour
            .lock()
            .expect("no test panics inside")
            .clone()
    }

    fn live(&self) -> Vec<u8> {
        v1::WorkerLive {
            incarnation: "1".to_owned(),
            address: format!("{}:7071", self.id),
            draining: *self.draining.borrow(),
            capacity_tasks: self.behaviour().capacity,
            version: "test".to_owned(),
            started_at_ms: 1,
        }
        .encode_to_vec()
    }

    async fn run(self) {
        let config = SessionConfig::new(keys::worker_live(&self.id), self.live(), self.ttl);
        let session = Session::start(Arc::clone(&self.store), config, CancellationToken::new())
            .expect("sound times");
        let announce = async {
            let mut draining = self.draining.subscribe();
            while draining.changed().await.is_ok() {
                session.update_value(self.live()).await.expect("written");
            }
        };
        let work = async {
            loop {
                let registration = session.registered().await;
                let fence: Fence = registration.fence.clone();
                tokio::select! {
                    biased;
                    () = fence.closed() => {}
                    () = self.serve(&registration) => {}
                }
                // What the real one does when its fence closes.
                self.registry.stop_all(&self.id);
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::join!(announce, work);
    }

    /// Follows the assignment under one registration, read after it was made.
    async fn serve(&self, registration: &Registration) {
        let mut view = View::open(
            Arc::clone(&self.store),
            keys::assignments_of(&self.id),
            ViewOptions::default(),
            CancellationToken::new(),
        );
        let mut running: BTreeMap<u32, BTreeMap<TaskId, OwnerEpoch>> = BTreeMap::new();
        loop {
            let delta = view.next().await;
            if self.behaviour().deaf {
                continue;
            }
            for change in delta.changes {
                let (_, chunk) =
                    keys::split_chunk(&change.key, keys::ASSIGNMENTS).expect("a chunk's key");
                let (revision, wanted) = match &change.after {
                    Some(entry) => {
                        let assignment =
                            Assignment::decode(&change.key, &entry.value).expect("readable");
                        (entry.mod_revision.0, assignment.tasks())
                    }
                    None => (0, BTreeMap::new()),
                };
                let running = running.entry(chunk).or_default();
                self.follow(registration, chunk, revision, wanted, running)
                    .await;
            }
        }
    }

    async fn follow(
        &self,
        registration: &Registration,
        chunk: u32,
        revision: i64,
        mut wanted: BTreeMap<TaskId, OwnerEpoch>,
        running: &mut BTreeMap<TaskId, OwnerEpoch>,
    ) {
        let behaviour = self.behaviour();
        wanted.retain(|task, _| !behaviour.refuses.contains(task));
        let over: Vec<TaskId> = running
            .iter()
            .filter(|(task, epoch)| wanted.get(*task) != Some(*epoch))
            .map(|(task, _)| task.clone())
            .collect();
        if !over.is_empty() {
            sleep(behaviour.stop_delay).await;
            for task in &over {
                self.registry.stop(task, &self.id);
                running.remove(task);
            }
        }
        let tasks = wanted.iter().map(|(task, epoch)| {
            let owned = Owned {
                epoch: *epoch,
                stopping: false,
            };
            (task.clone(), owned)
        });
        let claims = Ownership {
            applied_revision: revision,
            incarnation: registration.incarnation.to_string(),
            tasks: tasks.collect(),
        };
        let put = Op::Put {
            key: keys::owned(&self.id, chunk),
            value: claims.encode(),
            lease: Some(registration.lease),
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![put],
        };
        while self.store.commit(txn.clone()).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        if !registration.fence.is_open() {
            return;
        }
        for (task, epoch) in wanted {
            if let Entry::Vacant(free) = running.entry(task) {
                self.registry.start(free.key(), &self.id, epoch);
                free.insert(epoch);
            }
        }
    }
}
