//! Checkpoints in a group of a mock cluster.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_kafka::{properties::client_properties, secrets::ProcessSecrets};
use kreplicator_model::{
    checkpoint::CheckpointMeta,
    ids::{Offset, OwnerEpoch, TaskId, WorkerId},
    spec::{CheckpointSide, Link},
};
use kreplicator_worker::checkpoint::{
    CheckpointStore, Committed, Error, Save, kafka::KafkaCheckpoints,
};
use rdkafka::{
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};

use super::rig::{Mock, Switch, cluster, context, spec};

const DEADLINE: Duration = Duration::from_secs(10);

fn worker() -> WorkerId {
    WorkerId::new("worker-1").expect("legal")
}

fn store(bootstrap: &str, fence: &Arc<Switch>) -> KafkaCheckpoints {
    store_of(&context(bootstrap, bootstrap).link, bootstrap, fence)
}

fn store_of(link: &Link, bootstrap: &str, fence: &Arc<Switch>) -> KafkaCheckpoints {
    let cluster = cluster("a", bootstrap);
    let properties = client_properties(&cluster, &ProcessSecrets).expect("complete");
    let fence = Arc::clone(fence) as _;
    KafkaCheckpoints::create(link, &cluster, &properties, worker(), fence).expect("a client")
}

fn mock() -> Mock {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("orders", 2, 1).expect("made");
    mock
}

fn task(partition: i32) -> TaskId {
    spec("orders", partition).id
}

fn save(partition: i32, offset: i64) -> Save {
    Save {
        gaps: 0,
        task: task(partition),
        epoch: OwnerEpoch(7),
        offset: Offset(offset),
    }
}

async fn loaded(store: &KafkaCheckpoints, partition: i32) -> Option<Committed> {
    let mut loaded = store
        .load(&[task(partition)], DEADLINE)
        .await
        .expect("answers");
    loaded
        .remove(&task(partition))
        .expect("asked for")
        .expect("readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_saved_is_found_with_its_owner_and_what_is_not_is_none() {
    let mock = mock();
    let store = store(&mock.bootstrap_servers(), &Switch::open());
    let failures = store.save(&[save(0, 42)], DEADLINE).await;
    assert_eq!(failures, Ok(BTreeMap::new()));
    let expected = Committed {
        offset: Offset(42),
        meta: Some(CheckpointMeta::new(OwnerEpoch(7), worker(), None)),
    };
    assert_eq!(loaded(&store, 0).await, Some(expected));
    assert_eq!(loaded(&store, 1).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn c048_a_checkpoint_never_goes_back_unless_it_was_reset_outside() {
    let mock = mock();
    let bootstrap = mock.bootstrap_servers();
    let fence = Switch::open();
    let ours = store(&bootstrap, &fence);
    let offset =
        async |store: &KafkaCheckpoints| loaded(store, 0).await.map(|committed| committed.offset.0);
    ours.save(&[save(0, 42)], DEADLINE).await.expect("saved");
    ours.save(&[save(0, 41)], DEADLINE).await.expect("left out");
    let other = store(&bootstrap, &fence);
    assert_eq!(offset(&other).await, Some(42));

    let operator = store(&bootstrap, &fence);
    operator
        .save(&[save(0, 5)], DEADLINE)
        .await
        .expect("a reset");
    assert_eq!(offset(&ours).await, Some(5));
    ours.save(&[save(0, 6)], DEADLINE).await.expect("saved");
    assert_eq!(offset(&other).await, Some(6));

    ours.forget(&task(0));
    ours.save(&[save(0, 3)], DEADLINE)
        .await
        .expect("another ownership");
    assert_eq!(offset(&other).await, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn c037_nothing_is_saved_behind_a_closed_fence() {
    let mock = mock();
    let fence = Switch::open();
    let store = store(&mock.bootstrap_servers(), &fence);
    store.save(&[save(0, 1)], DEADLINE).await.expect("saved");
    fence.close();
    let refused = store.save(&[save(0, 2)], DEADLINE).await;
    assert_eq!(refused, Err(Error::Fenced));
    assert_eq!(
        loaded(&store, 0).await.map(|committed| committed.offset.0),
        Some(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_save_is_told_for_each_that_was_not_written() {
    let mock = mock();
    let store = store(&mock.bootstrap_servers(), &Switch::open());
    store
        .save(&[save(0, 1), save(1, 1)], DEADLINE)
        .await
        .expect("saved");
    mock.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED],
    );
    let failures = store
        .save(&[save(0, 2), save(1, 2)], DEADLINE)
        .await
        .expect("the coordinator answered");
    assert_eq!(failures.len(), 2, "{failures:?}");
    let text = failures[&task(0)].to_string();
    assert!(
        text.contains("kreplicator.a-b") && text.contains("READ on the group"),
        "{text}"
    );
    store
        .save(&[save(0, 2)], DEADLINE)
        .await
        .expect("saved now");
    assert_eq!(
        loaded(&store, 0).await.map(|committed| committed.offset.0),
        Some(2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_coordinator_is_told_within_the_deadline() {
    let mock = mock();
    let store = store(&mock.bootstrap_servers(), &Switch::open());
    store.save(&[save(0, 1)], DEADLINE).await.expect("saved");
    mock.broker_down(-1).expect("down");
    let began = tokio::time::Instant::now();
    let deadline = Duration::from_secs(1);
    let saved = store.save(&[save(0, 2)], deadline).await;
    assert!(matches!(saved, Err(Error::Unreachable { .. })), "{saved:?}");
    let read = store.load(&[task(0)], deadline).await;
    assert!(matches!(read, Err(Error::Unreachable { .. })), "{read:?}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    mock.broker_up(-1).expect("up");
    let saved = store.save(&[save(0, 3)], Duration::from_secs(20)).await;
    assert_eq!(saved, Ok(BTreeMap::new()), "recovers by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_target_they_go_by_the_target_topic_and_older_ones_are_still_found() {
    let mock = mock();
    mock.create_topic("copy.orders", 2, 1).expect("made");
    mock.create_topic("copy.copy.orders", 2, 1).expect("made");
    let servers = mock.bootstrap_servers();
    // An earlier version used the source's name there too.
    let earlier = store(&servers, &Switch::open());
    earlier.save(&[save(0, 5)], DEADLINE).await.expect("saved");
    let mut link = context(&servers, &servers).link;
    link.checkpoint_on = CheckpointSide::Target;
    link.naming.prefix = "copy.".to_owned();
    let store = store_of(&link, &servers, &Switch::open());
    let offset = async |store: &KafkaCheckpoints, task: TaskId| {
        let mut loaded = store.load(std::slice::from_ref(&task), DEADLINE).await?;
        let found = loaded.remove(&task).expect("asked for")?;
        Ok::<_, Error>(found.map(|found| found.offset.0))
    };
    assert_eq!(offset(&store, task(0)).await, Ok(Some(5)));
    assert_eq!(offset(&store, task(1)).await, Ok(None));
    store.save(&[save(0, 8)], DEADLINE).await.expect("saved");
    assert_eq!(offset(&store, task(0)).await, Ok(Some(8)));
    assert_eq!(
        offset(&earlier, task(0)).await,
        Ok(Some(5)),
        "left as it was"
    );
    // A topic of this name on the source is another task's.
    let other = spec("copy.orders", 0).id;
    assert_eq!(offset(&store, other).await, Ok(None));
}
