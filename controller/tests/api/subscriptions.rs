//! Subscribing and what follows.

use std::sync::Arc;

use kreplicator_model::ids::{OwnerEpoch, Partition, TaskId};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, keys};
use tonic::Code;

use crate::rig::{
    Rig, exact, link, pattern, put_cluster, put_link, reference, refused, running_fleet, subscribe,
    topic, worker,
};

#[tokio::test]
async fn subscribing_tells_what_is_matched_and_repeats_change_nothing() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery
        .set_topics("a", ["orders", "orders-2", "clicks", "__internal"]);
    rig.discovery.take_pokes();
    let mut subscriptions = leader.subscriptions();
    let request = || {
        subscribe(vec![
            exact("a-b", "clicks"),
            pattern("a-b", "orders.*|__.*"),
        ])
    };
    let answer = subscriptions
        .subscribe(request())
        .await
        .expect("accepted")
        .into_inner();
    let results: Vec<(&str, bool, i32)> = answer
        .results
        .iter()
        .map(|result| (result.id.as_str(), result.changed, result.topics))
        .collect();
    assert_eq!(results, [("clicks", true, 1), ("/orders.*|__.*/", true, 2)]);
    assert_eq!(
        rig.discovery.take_pokes(),
        ["a"],
        "the source is looked at at once"
    );

    let again = subscriptions
        .subscribe(request())
        .await
        .expect("accepted")
        .into_inner();
    assert!(again.results.iter().all(|result| !result.changed));
    let paused = v1::Subscription {
        paused: true,
        ..exact("a-b", "clicks")
    };
    let changed = subscriptions
        .subscribe(subscribe(vec![paused]))
        .await
        .expect("accepted");
    assert!(changed.into_inner().results[0].changed);
}

#[tokio::test]
async fn wrong_subscriptions_are_refused_and_leave_nothing() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["orders"]);
    let mut subscriptions = leader.subscriptions();
    let mut refuse = async |request: Vec<v1::Subscription>, code, names: &[&str]| {
        refused(
            subscriptions.subscribe(subscribe(request)).await,
            code,
            names,
        )
    };
    let invalid = Code::InvalidArgument;
    let unmet = Code::FailedPrecondition;
    let good = || exact("a-b", "orders");
    refuse(
        vec![good(), pattern("a-b", "orders(")],
        invalid,
        &["subscriptions[1]", "orders("],
    )
    .await;
    refuse(
        vec![exact("a-b", "a*b")],
        invalid,
        &["subscriptions[0].selector.topic", "a*b"],
    )
    .await;
    refuse(
        vec![good(), good()],
        invalid,
        &["subscriptions[1]", "subscriptions[0]"],
    )
    .await;
    refuse(
        vec![v1::Subscription::default()],
        invalid,
        &["subscriptions[0].link"],
    )
    .await;
    refuse(vec![good(), exact("x-y", "orders")], unmet, &["x-y"]).await;
    refuse(
        vec![exact("a-b", "__kreplicator_origins")],
        invalid,
        &["__kreplicator_origins"],
    )
    .await;
    let message = refuse(
        vec![good(), exact("a-b", "ordesr"), exact("a-b", "gone")],
        unmet,
        &["topic ordesr does not exist on cluster a", "allow missing"],
    )
    .await;
    assert_eq!(
        message.lines().count(),
        2,
        "every missing topic is told: {message}"
    );

    let stored = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert!(stored.entries.is_empty(), "{stored:?}");
}

#[tokio::test]
async fn c067_target_topics_with_more_partitions_are_warned_of_when_they_are_known() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery
        .set_partitions("a", [("orders", 5), ("clicks", 5), ("views", 5)]);
    rig.discovery
        .set_partitions("b", [("orders", 8), ("clicks", 5), ("views", 1)]);
    let mut subscriptions = leader.subscriptions();
    let mut warnings = async |request| {
        let answer = subscriptions.subscribe(subscribe(request)).await;
        answer.expect("accepted").into_inner().warnings
    };
    let by_name = warnings(vec![exact("a-b", "orders"), exact("a-b", "clicks")]).await;
    assert_eq!(by_name.len(), 1, "{by_name:?}");
    for part in [
        "orders",
        "cluster b has 8 partitions",
        "cluster a has 5",
        "stay empty",
    ] {
        assert!(by_name[0].contains(part), "{part} is not in {}", by_name[0]);
    }
    let by_pattern = warnings(vec![pattern("a-b", ".*")]).await;
    assert_eq!(
        by_pattern, by_name,
        "each is told once, however it is meant"
    );

    let names: Vec<String> = (0..30).map(|n| format!("t{n:02}")).collect();
    let all = |count| names.iter().map(move |name| (name.as_str(), count));
    rig.discovery.set_partitions("a", all(1));
    rig.discovery.set_partitions("b", all(2));
    let many = warnings(vec![pattern("a-b", "t.*")]).await;
    assert_eq!(many.len(), 11, "{many:?}");
    assert!(many[10].starts_with("20 more"), "{}", many[10]);

    rig.discovery.set_cause("b", "down");
    let unknown = warnings(vec![exact("a-b", "t00")]).await;
    assert!(unknown.is_empty(), "a target that is away holds up nothing");
}

#[tokio::test]
async fn clashing_target_names_are_refused() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    leader
        .clusters()
        .put_cluster(put_cluster("c"))
        .await
        .expect("accepted");
    leader
        .links()
        .put_link(put_link(link("c-b", "c", "b")))
        .await
        .expect("accepted");
    for cluster in ["a", "c"] {
        rig.discovery.set_topics(cluster, ["orders"]);
    }
    let mut subscriptions = leader.subscriptions();
    let first = subscribe(vec![exact("a-b", "orders")]);
    subscriptions.subscribe(first).await.expect("accepted");
    let second = subscribe(vec![exact("c-b", "orders")]);
    refused(
        subscriptions.subscribe(second).await,
        Code::FailedPrecondition,
        &["orders", "a-b"],
    );
}

#[tokio::test]
async fn a_source_that_does_not_answer_is_told_unless_topics_may_be_missing() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_cause("a", "login refused");
    let mut subscriptions = leader.subscriptions();
    let request = || subscribe(vec![exact("a-b", "orders")]);
    refused(
        subscriptions.subscribe(request()).await,
        Code::Unavailable,
        &["cluster a", "a-b", "login refused", "allow missing"],
    );
    let patterns = subscribe(vec![pattern("a-b", "o.*")]);
    let answer = subscriptions
        .subscribe(patterns)
        .await
        .expect("a pattern needs no topic");
    let answer = answer.into_inner();
    assert_eq!(answer.results[0].topics, 0);
    assert!(answer.warnings[0].contains("login refused"));
    let allowed = v1::SubscribeRequest {
        allow_missing: true,
        ..request()
    };
    let answer = subscriptions
        .subscribe(allowed.clone())
        .await
        .expect("allowed");
    assert!(answer.into_inner().results[0].changed);
    let again = subscriptions
        .subscribe(request())
        .await
        .expect("it is subscribed already");
    assert!(!again.into_inner().results[0].changed);
}

#[tokio::test]
async fn unsubscribing_is_all_or_nothing() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2"]);
    let mut subscriptions = leader.subscriptions();
    let request = subscribe(vec![
        exact("a-b", "t1"),
        exact("a-b", "t2"),
        pattern("a-b", "x/.*"),
    ]);
    subscriptions.subscribe(request).await.expect("accepted");
    let unsubscribe = |ids: &[&str]| v1::UnsubscribeRequest {
        subscriptions: ids.iter().map(|id| reference("a-b", id)).collect(),
        ..v1::UnsubscribeRequest::default()
    };
    refused(
        subscriptions
            .unsubscribe(unsubscribe(&["t1", "t3", "t4"]))
            .await,
        Code::NotFound,
        &["a-b/t3", "a-b/t4"],
    );
    let left = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert_eq!(left.entries.len(), 3);
    subscriptions
        .unsubscribe(unsubscribe(&["t1", "/x/.*/", "t1"]))
        .await
        .expect("known");
    let left = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    let left: Vec<&String> = left.entries.keys().collect();
    assert_eq!(left, ["config/subscription/a-b/t2"]);
}

#[tokio::test]
async fn several_subscriptions_are_paused_and_resumed() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2"]);
    let mut subscriptions = leader.subscriptions();
    let request = subscribe(vec![exact("a-b", "t1"), exact("a-b", "t2")]);
    subscriptions.subscribe(request).await.expect("accepted");
    let all = || v1::PauseRequest {
        subscriptions: vec![reference("a-b", "t1"), reference("a-b", "t2")],
        ..v1::PauseRequest::default()
    };
    let paused = |answer: tonic::Response<v1::PauseResponse>| answer.into_inner().changed;
    let first = subscriptions
        .pause_subscriptions(all())
        .await
        .expect("known");
    assert_eq!(paused(first), 2);
    let second = subscriptions
        .pause_subscriptions(all())
        .await
        .expect("known");
    assert_eq!(paused(second), 0);
    let read = subscriptions
        .get_subscription(reference("a-b", "t1"))
        .await
        .expect("known")
        .into_inner();
    assert!(read.subscription.expect("a spec").paused);
    assert_eq!(read.status.expect("a status").health(), v1::Health::Paused);
    let resumed = subscriptions
        .resume_subscriptions(all())
        .await
        .expect("known");
    assert_eq!(paused(resumed), 2);
    let unknown = v1::PauseRequest {
        subscriptions: vec![reference("a-b", "t9")],
        ..v1::PauseRequest::default()
    };
    refused(
        subscriptions.pause_subscriptions(unknown).await,
        Code::NotFound,
        &["a-b/t9"],
    );
}

#[tokio::test]
async fn what_was_noted_about_a_subscription_survives_changes_of_it() {
    use kreplicator_proto::{stored::Stored, subscription_record::SubscriptionRecord};
    use kreplicator_store::{Op, Txn};

    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    let mut subscriptions = leader.subscriptions();
    let request = || subscribe(vec![pattern("a-b", "t.*")]);
    subscriptions.subscribe(request()).await.expect("accepted");
    let snapshot = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    let (key, entry) = snapshot.entries.first_key_value().expect("one");
    let read = |value: &[u8]| SubscriptionRecord::decode(key, value).expect("ours");
    // As the reconcile loop does after the first discovery.
    let record = SubscriptionRecord {
        baseline: true,
        ..read(&entry.value)
    };
    assert_eq!(record.created_at.0, 1_700_000_000_000);
    let note = Txn {
        compares: Vec::new(),
        ops: vec![Op::Put {
            key: key.clone(),
            value: record.encode(),
            lease: None,
        }],
    };
    rig.store.commit(note).await.expect("in memory");

    let pause = v1::PauseRequest {
        subscriptions: vec![reference("a-b", "/t.*/")],
        ..v1::PauseRequest::default()
    };
    subscriptions
        .pause_subscriptions(pause)
        .await
        .expect("the conflict is solved by a retry");
    let entry = rig.store.get(key).await.expect("in memory").expect("there");
    let paused = read(&entry.value);
    assert!(paused.baseline && paused.subscription.paused);

    let mut wider = pattern("a-b", "t.*");
    if let Some(v1::selector::By::Pattern(pattern)) = &mut wider.selector.as_mut().expect("set").by
    {
        pattern.exclude.push("t1".to_owned());
    }
    subscriptions
        .subscribe(subscribe(vec![wider]))
        .await
        .expect("accepted");
    let entry = rig.store.get(key).await.expect("in memory").expect("there");
    assert!(
        !read(&entry.value).baseline,
        "topics it takes in now are not new"
    );
}

#[tokio::test]
async fn c113_a_subscription_tells_its_state_topic_by_topic() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let mut subscriptions = leader.subscriptions();
    let request = subscribe(vec![exact("a-b", "t1")]);
    subscriptions.subscribe(request).await.expect("accepted");
    let mut fleet = running_fleet(&["t1"]);
    let task = TaskId {
        link: "a-b".parse().expect("legal"),
        topic: topic("t1"),
        partition: Partition(0),
    };
    fleet
        .unassigned
        .insert(task.clone(), "no worker is there".to_owned());
    leader.fleet.send_replace(Arc::new(fleet.clone()));
    let read = subscriptions
        .get_subscription(reference("a-b", "t1"))
        .await
        .expect("known");
    let status = read.into_inner().status.expect("a status");
    assert_eq!(status.health(), v1::Health::Pending);
    assert_eq!(status.cause, "t1/0: no worker is there");
    assert_eq!(status.topics_total, 1);
    assert_eq!(status.topics[0].target_topic, "t1");
    assert_eq!(status.topics[0].partitions, 2);
    assert_eq!(status.lag_records, None, "unknown is not 0");

    fleet.unassigned.clear();
    for partition in [0, 1] {
        let task = TaskId {
            partition: Partition(partition),
            ..task.clone()
        };
        let assigned = kreplicator_controller::fleet::Assigned {
            worker: worker("w1"),
            epoch: OwnerEpoch(3),
            owned: true,
            stopping: false,
            reason: "new".to_owned(),
            covered_by: std::collections::BTreeSet::new(),
        };
        fleet.assigned.insert(task, assigned);
    }
    leader.fleet.send_replace(Arc::new(fleet));
    let read = subscriptions
        .get_subscription(reference("a-b", "t1"))
        .await
        .expect("known");
    let status = read.into_inner().status.expect("a status");
    assert_eq!(
        status.health(),
        v1::Health::Pending,
        "no report: not known to run"
    );
    refused(
        subscriptions.get_subscription(reference("a-b", "t2")).await,
        Code::NotFound,
        &["a-b/t2"],
    );
}
