//! Both data paths behind one door: each task starts on the one that its link names.
//!
//! A link whose engine changes has its tasks stopped on the old one and started on the new one by the
//! supervisor, so that no task is ever on both.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_model::{ids::LinkId, spec};

use crate::engine::{Engine, LinkContext, RunningTask, TaskSpec};

/// The engines of a worker.
#[derive(Debug)]
pub struct Engines {
    records: Arc<dyn Engine>,
    batches: Arc<dyn Engine>,
}

impl Engines {
    /// Joins two engines.
    #[must_use]
    pub fn new(records: Arc<dyn Engine>, batches: Arc<dyn Engine>) -> Self {
        Self { records, batches }
    }

    fn carrying(&self, context: &LinkContext) -> &Arc<dyn Engine> {
        match context.link.engine() {
            spec::Engine::Records => &self.records,
            spec::Engine::Batches => &self.batches,
        }
    }
}

#[async_trait]
impl Engine for Engines {
    fn start(&self, spec: TaskSpec, context: Arc<LinkContext>) -> Arc<dyn RunningTask> {
        self.carrying(&context).start(spec, Arc::clone(&context))
    }

    async fn release_link(&self, link: &LinkId, deadline: Duration) {
        // The link may have been carried by either.
        futures::join!(
            self.records.release_link(link, deadline),
            self.batches.release_link(link, deadline)
        );
    }

    async fn close(&self, deadline: Duration) {
        futures::join!(self.records.close(deadline), self.batches.close(deadline));
    }

    async fn broken(&self) -> String {
        tokio::select! {
            cause = self.records.broken() => cause,
            cause = self.batches.broken() => cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, MutexGuard},
    };

    use kreplicator_model::{
        ids::{ClusterId, OwnerEpoch, TaskId},
        spec::{
            CheckpointSide, Cluster, GapPolicy, Link, Naming, Security, StartPolicy, TargetTopics,
        },
    };
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        engine::{State, Status, Stopped, TargetLimits},
        testkit::engine::status,
    };

    /// Time that a noted engine takes to let go of anything.
    const LETTING_GO: Duration = Duration::from_secs(2);

    /// An engine that notes what it is told.
    #[derive(Debug)]
    struct Noted {
        name: &'static str,
        notes: Notes,
    }

    impl Noted {
        fn note(&self, what: &str) {
            notes(&self.notes).push(format!("{} {what}", self.name));
        }
    }

    #[derive(Debug)]
    struct Idle(TaskSpec);

    #[async_trait]
    impl RunningTask for Idle {
        fn spec(&self) -> &TaskSpec {
            &self.0
        }

        fn status(&self) -> Status {
            status(State::Running)
        }

        async fn stop(&self, _: Duration) -> Stopped {
            Stopped::Clean
        }
    }

    #[async_trait]
    impl Engine for Noted {
        fn start(&self, spec: TaskSpec, _: Arc<LinkContext>) -> Arc<dyn RunningTask> {
            self.note("starts");
            Arc::new(Idle(spec))
        }

        async fn release_link(&self, link: &LinkId, _: Duration) {
            sleep(LETTING_GO).await;
            self.note(&format!("releases {link}"));
        }

        async fn close(&self, _: Duration) {
            sleep(LETTING_GO).await;
            self.note("closes");
        }
    }

    fn notes(notes: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
        notes.lock().expect("no test panics holding it")
    }

    type Notes = Arc<Mutex<Vec<String>>>;

    fn rig() -> (Notes, Arc<dyn Engine>, Arc<dyn Engine>) {
        let notes = Notes::default();
        let engine = |name| {
            let notes = Arc::clone(&notes);
            Arc::new(Noted { name, notes })
        };
        let (records, batches) = (engine("records"), engine("batches"));
        (notes, records, batches)
    }

    fn start(engines: &Engines, engine: Option<spec::Engine>) {
        let cluster = |id: &str| Cluster {
            id: ClusterId::new(id).expect("legal"),
            bootstrap_servers: vec![format!("{id}:9092")],
            security: Security::default(),
            client_options: BTreeMap::new(),
            expected_cluster_id: None,
        };
        let (source, target) = (cluster("a"), cluster("b"));
        let link = Link {
            id: LinkId::new("a-b").expect("legal"),
            source: source.id.clone(),
            target: target.id.clone(),
            naming: Naming::default(),
            start: StartPolicy::default(),
            on_gap: GapPolicy::default(),
            checkpoint_on: CheckpointSide::default(),
            target_topics: TargetTopics::default(),
            paused: false,
            engine,
        };
        let topic = kreplicator_model::ids::TopicName::new("orders").expect("legal");
        let spec = TaskSpec {
            id: TaskId {
                link: link.id.clone(),
                topic: topic.clone(),
                partition: kreplicator_model::ids::Partition(0),
            },
            epoch: OwnerEpoch(1),
            target_topic: topic,
            start: StartPolicy::default(),
            limits: TargetLimits::default(),
        };
        let context = LinkContext {
            link,
            source,
            target,
        };
        engines.start(spec, Arc::new(context));
    }

    #[test]
    fn a_task_starts_on_the_engine_that_its_link_names() {
        let (seen, records, batches) = rig();
        let engines = Engines::new(records, batches);
        for engine in [spec::Engine::Batches, spec::Engine::Records] {
            start(&engines, Some(engine));
            start(&engines, None);
            let started = std::mem::take(&mut *notes(&seen));
            let expected = [engine, spec::Engine::DEFAULT];
            assert_eq!(started, expected.map(|engine| format!("{engine} starts")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn both_let_go_side_by_side() {
        let (seen, records, batches) = rig();
        let engines = Engines::new(records, batches);
        let begun = Instant::now();
        let link = LinkId::new("a-b").expect("legal");
        engines.release_link(&link, LETTING_GO).await;
        engines.close(LETTING_GO).await;
        assert_eq!(begun.elapsed(), 2 * LETTING_GO, "not one after the other");
        let mut seen = std::mem::take(&mut *notes(&seen));
        seen.sort_unstable();
        let expected = [
            "batches closes",
            "batches releases a-b",
            "records closes",
            "records releases a-b",
        ];
        assert_eq!(seen, expected);
    }
}
