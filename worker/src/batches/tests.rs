//! The engine with clusters that nobody asks anything of: its fence is shut, so no task begins.

use kreplicator_model::{
    exact::ProducerId,
    ids::{LinkTopic, OwnerEpoch, TopicName, WorkerId},
    spec::{CheckpointSide, GapPolicy, Link, Naming, Security, StartPolicy, TargetTopics},
    target_limits::TargetLimits,
};

use super::*;
use crate::{
    batches::testkit::Shutter,
    lines::{Allocate, LineTarget, NewEntry, Result, TopicLines, Written},
    testkit::{link_id, task},
};

/// Is never asked.
#[derive(Debug)]
struct NoLines;

#[async_trait]
impl LineBook for NoLines {
    async fn load(&self, _: &LinkTopic, _: &LineTarget) -> Result<TopicLines> {
        panic!("no task begins")
    }

    async fn write(
        &self,
        _: &LinkTopic,
        _: &LineTarget,
        _: &TopicLines,
        _: NewEntry,
    ) -> Result<Written> {
        panic!("no task begins")
    }

    async fn producer_id(
        &self,
        _: &LinkId,
        _: &ClusterId,
        _: Option<&str>,
        _: &Allocate<'_>,
    ) -> Result<ProducerId> {
        panic!("no task begins")
    }
}

#[derive(Debug)]
struct NoSecrets;

impl SecretSource for NoSecrets {
    fn read(
        &self,
        _: &kreplicator_model::spec::SecretRef,
    ) -> std::result::Result<
        kreplicator_kafka::secrets::Secret,
        kreplicator_kafka::secrets::SecretError,
    > {
        panic!("nothing is connected")
    }
}

pub(super) fn engine() -> Arc<BatchEngine> {
    let fence = Arc::new(Shutter::default());
    fence.shut();
    engine_behind(fence)
}

pub(super) fn engine_behind(fence: Arc<Shutter>) -> Arc<BatchEngine> {
    BatchEngine::new(
        BatchConfig::new(WorkerId::new("w").expect("legal")),
        Arc::new(NoSecrets),
        fence,
        Budget::new(64 << 20),
        Arc::new(NoLines),
        CancellationToken::new(),
    )
}

fn cluster(id: &str, client_id: &str) -> Cluster {
    Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers: vec!["localhost:1".to_owned()],
        security: Security::default(),
        client_options: BTreeMap::from([("client.id".to_owned(), client_id.to_owned())]),
        expected_cluster_id: None,
    }
}

pub(super) fn context(client_id: &str) -> Arc<LinkContext> {
    let (source, target) = (cluster("a", client_id), cluster("b", client_id));
    let link = Link {
        id: link_id("a-b"),
        source: source.id.clone(),
        target: target.id.clone(),
        naming: Naming::default(),
        start: StartPolicy::default(),
        on_gap: GapPolicy::default(),
        checkpoint_on: CheckpointSide::default(),
        target_topics: TargetTopics::default(),
        paused: false,
        engine: None,
    };
    Arc::new(LinkContext {
        link,
        source,
        target,
    })
}

pub(super) fn spec(partition: i32) -> TaskSpec {
    TaskSpec {
        id: task(partition),
        epoch: OwnerEpoch(1),
        target_topic: TopicName::new("orders").expect("legal"),
        start: StartPolicy::default(),
        limits: TargetLimits::default(),
    }
}

/// A life lets go shortly after it has told that it is over.
async fn gone(lifeline: &std::sync::Weak<link::Tools>) {
    for _ in 0..100 {
        if lifeline.upgrade().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody is left who could need it");
}

#[tokio::test(start_paused = true)]
async fn what_tasks_share_lives_until_the_last_of_them_has_stopped_though_the_link_has_changed() {
    let engine = engine();
    let (old, new) = (context("before"), context("after"));
    let lifeline = || {
        let state = engine.lock();
        Arc::downgrade(&state.links.values().next().expect("a link").tools)
    };
    let first = engine.start(spec(0), Arc::clone(&old));
    let second = engine.start(spec(1), old);
    let shared = lifeline();
    let third = engine.start(spec(2), Arc::clone(&new));
    assert!(!shared.ptr_eq(&lifeline()), "the link has changed");

    first.stop(Duration::from_secs(1)).await;
    let again = engine.start(spec(0), new);
    assert!(
        shared.upgrade().is_some(),
        "the second task is still ticked, saved and watched"
    );
    second.stop(Duration::from_secs(1)).await;
    gone(&shared).await;
    let current = lifeline();
    engine.release_link(&link_id("a-b"), Duration::ZERO).await;
    assert!(current.upgrade().is_some(), "two tasks still run");
    for task in [third, again] {
        task.stop(Duration::from_secs(1)).await;
    }
    gone(&current).await;
}

#[tokio::test(start_paused = true)]
async fn clients_go_with_the_last_link_that_names_their_clusters() {
    let engine = engine();
    let task = engine.start(spec(0), context("client"));
    let known = || engine.lock().clients.keys().cloned().collect::<Vec<_>>();
    assert_eq!(known().len(), 2);
    engine.release_link(&link_id("a-c"), Duration::ZERO).await;
    assert_eq!(known().len(), 2, "another link still names them");
    task.stop(Duration::from_secs(1)).await;
    engine.release_link(&link_id("a-b"), Duration::ZERO).await;
    assert_eq!(known(), []);
}

#[tokio::test]
async fn a_panic_of_any_part_is_told() {
    let engine = engine();
    engine.spawner.spawn("a task", async { panic!("odd") });
    let told = timeout(Duration::from_secs(5), engine.broken()).await;
    assert_eq!(told.as_deref(), Ok("a task panicked: odd"));
}

/// Waits for what a task complains about.
async fn cause_of(task: &dyn RunningTask, part: &str) {
    for _ in 0..600 {
        if task.status().cause.contains(part) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{part:?} is not shown: {:?}", task.status());
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_shown_again_once_the_worker_is_registered_again() {
    let fence = Arc::new(Shutter::default());
    let engine = engine_behind(Arc::clone(&fence));
    let task = engine.start(spec(0), context("client"));
    cause_of(task.as_ref(), "cluster b").await;
    fence.shut();
    cause_of(task.as_ref(), "not registered").await;
    fence.open();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The next attempt takes longer.
    let cause = task.status().cause;
    assert!(cause.contains("cluster b"), "{cause}");
    task.stop(Duration::from_secs(1)).await;
}
