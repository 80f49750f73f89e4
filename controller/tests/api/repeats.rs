//! Repeated calls, lost answers and changes of leader in between (C112, C062).

use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, Op, keys};
use tonic::Code;

use crate::rig::{Rig, exact, link, put_cluster, put_link, reference, refused, subscribe};

fn with_id(request_id: &str, topics: &[&str]) -> v1::SubscribeRequest {
    v1::SubscribeRequest {
        request_id: request_id.to_owned(),
        ..subscribe(topics.iter().map(|topic| exact("a-b", topic)).collect())
    }
}

#[tokio::test]
async fn c112_three_at_once_with_one_id_are_one_call() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2"]);
    rig.store.take_commits();
    let calls = (0..3).map(|_| {
        let mut subscriptions = leader.subscriptions();
        async move { subscriptions.subscribe(with_id("r1", &["t1", "t2"])).await }
    });
    let answers: Vec<v1::SubscribeResponse> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|answer| answer.expect("accepted").into_inner())
        .collect();
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert!(answers[0].results.iter().all(|result| result.changed));
    assert_eq!(rig.store.take_commits().len(), 1);

    // Also when the world has changed since.
    rig.discovery.set_cause("a", "gone");
    let late = leader
        .subscriptions()
        .subscribe(with_id("r1", &["t1", "t2"]))
        .await;
    assert_eq!(late.expect("answered before").into_inner(), answers[0]);
}

#[tokio::test]
async fn c112_an_id_belongs_to_one_request() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2"]);
    let mut subscriptions = leader.subscriptions();
    subscriptions
        .subscribe(with_id("r1", &["t1"]))
        .await
        .expect("accepted");
    refused(
        subscriptions.subscribe(with_id("r1", &["t2"])).await,
        Code::AlreadyExists,
        &["r1", "Subscribe"],
    );
    let other = v1::UnsubscribeRequest {
        subscriptions: vec![reference("a-b", "t1")],
        request_id: "r1".to_owned(),
    };
    refused(
        subscriptions.unsubscribe(other).await,
        Code::AlreadyExists,
        &["r1", "Subscribe"],
    );
    let pause = |id: &str| v1::PauseRequest {
        subscriptions: vec![reference("a-b", "t1")],
        request_id: id.to_owned(),
    };
    subscriptions
        .pause_subscriptions(pause("r2"))
        .await
        .expect("known");
    refused(
        subscriptions.resume_subscriptions(pause("r2")).await,
        Code::AlreadyExists,
        &["r2", "PauseSubscriptions"],
    );
    for bad in ["with space", &"x".repeat(129)] {
        refused(
            subscriptions.subscribe(with_id(bad, &["t1"])).await,
            Code::InvalidArgument,
            &["request_id"],
        );
    }
}

#[tokio::test]
async fn c112_a_refused_call_leaves_its_id_free() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", []);
    let mut subscriptions = leader.subscriptions();
    let request = || with_id("r1", &["t1"]);
    refused(
        subscriptions.subscribe(request()).await,
        Code::FailedPrecondition,
        &["t1"],
    );
    rig.discovery.set_topics("a", ["t1"]);
    let answer = subscriptions
        .subscribe(request())
        .await
        .expect("the topic is there now");
    assert!(answer.into_inner().results[0].changed);
}

#[tokio::test]
async fn c112_subscribe_and_unsubscribe_may_race() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    for round in 0..10 {
        let subscribe = async {
            let mut subscriptions = leader.subscriptions();
            subscriptions
                .subscribe(with_id(&format!("s{round}"), &["t1"]))
                .await
        };
        let unsubscribe = async {
            let request = v1::UnsubscribeRequest {
                subscriptions: vec![reference("a-b", "t1")],
                request_id: format!("u{round}"),
            };
            leader.subscriptions().unsubscribe(request).await
        };
        let (subscribed, unsubscribed) = tokio::join!(subscribe, unsubscribe);
        subscribed.expect("always possible");
        let stored = rig
            .store
            .list(keys::SUBSCRIPTIONS)
            .await
            .expect("in memory");
        match unsubscribed {
            Ok(_) => assert!(stored.entries.len() <= 1),
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound, "{status:?}");
                assert_eq!(stored.entries.len(), 1, "subscribed after the refusal");
            }
        }
    }
}

#[tokio::test]
async fn c112_a_lost_answer_of_the_store_is_found_again() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2"]);
    rig.store.lose_next_answer();
    let answer = leader
        .subscriptions()
        .subscribe(with_id("r1", &["t1"]))
        .await;
    assert!(answer.expect("done").into_inner().results[0].changed);
    // Without an id, too: while one process leads nobody else can have written.
    rig.store.lose_next_answer();
    let answer = leader.subscriptions().subscribe(with_id("", &["t2"])).await;
    assert!(answer.expect("done").into_inner().results[0].changed);
    rig.store.lose_next_answer();
    let gone = v1::UnsubscribeRequest {
        subscriptions: vec![reference("a-b", "t2")],
        ..v1::UnsubscribeRequest::default()
    };
    leader
        .subscriptions()
        .unsubscribe(gone)
        .await
        .expect("done, not NOT_FOUND");
}

#[tokio::test]
async fn c062_a_deposed_leader_writes_nothing_and_its_successor_answers() {
    let (mut rig, old) = Rig::with_leader().await;
    old.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let new = rig.controller("c2").await;
    // The old leader is not told.
    rig.elect(&new).await;
    let request = || with_id("r1", &["t1"]);
    refused(
        old.subscriptions().subscribe(request()).await,
        Code::Unavailable,
        &["taken over", "same request id"],
    );
    let stored = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert!(stored.entries.is_empty());
    old.follow(&new);
    let answer = old
        .subscriptions()
        .subscribe(request())
        .await
        .expect("forwarded");
    assert!(answer.into_inner().results[0].changed);
}

#[tokio::test]
async fn c112_a_leader_killed_between_write_and_answer_is_no_harm() {
    let (mut rig, old) = Rig::with_leader().await;
    old.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let first = old.subscriptions().subscribe(with_id("r1", &["t1"])).await;
    let first = first.expect("accepted").into_inner();
    old.crash();
    let new = rig.controller("c2").await;
    rig.elect(&new).await;
    let again = new.subscriptions().subscribe(with_id("r1", &["t1"])).await;
    assert_eq!(again.expect("answered before").into_inner(), first);
}

#[tokio::test]
async fn c049_many_subscriptions_in_one_call_go_on_where_they_stopped() {
    let (mut rig, old) = Rig::with_leader().await;
    old.declare_link().await;
    let names: Vec<String> = (0..500).map(|n| format!("t{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.discovery.set_topics("a", names.clone());
    rig.store.take_commits();
    rig.store.fail_after(Some(2));
    refused(
        old.subscriptions().subscribe(with_id("r1", &names)).await,
        Code::Unavailable,
        &["same request id"],
    );
    let part = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert_eq!(part.entries.len(), 200, "two steps were written");
    rig.store.fail_after(None);
    old.crash();
    let new = rig.controller("c2").await;
    rig.elect(&new).await;
    let answer = new.subscriptions().subscribe(with_id("r1", &names)).await;
    let answer = answer.expect("goes on").into_inner();
    assert_eq!(answer.results.len(), 500);
    assert!(
        answer.results.iter().all(|result| result.changed),
        "the answer is that of the whole call"
    );
    let all = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert_eq!(all.entries.len(), 500);
    let commits = rig.store.take_commits();
    assert!(commits.len() <= 8, "writes are batched: {}", commits.len());
    for commit in &commits {
        assert!(commit.ops.len() <= 128 && commit.compares.len() <= 128);
    }
    let again = new.subscriptions().subscribe(with_id("r1", &names)).await;
    assert_eq!(again.expect("answered before").into_inner(), answer);

    // The way back stops and goes on as well.
    rig.store.fail_after(Some(1));
    let gone = || v1::UnsubscribeRequest {
        subscriptions: names.iter().map(|name| reference("a-b", name)).collect(),
        request_id: "r2".to_owned(),
    };
    let cut = new.subscriptions().unsubscribe(gone()).await;
    refused(cut, Code::Unavailable, &[]);
    rig.store.fail_after(None);
    new.subscriptions()
        .unsubscribe(gone())
        .await
        .expect("what is gone already is no fault");
    let left = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert!(left.entries.is_empty());
}

/// A few hundred kilobytes are kept of an answer, or nothing.
#[tokio::test]
async fn c112_a_repeated_call_whose_answer_was_too_long_to_keep_is_answered_and_done_once() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    let names: Vec<String> = (0..2_000)
        .map(|n| format!("{}{n:04}", "t".repeat(240)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.discovery.set_topics("a", names.clone());
    let mut subscriptions = leader.subscriptions();
    let first = subscriptions.subscribe(with_id("r1", &names)).await;
    let first = first.expect("accepted").into_inner();
    let answer_bytes: usize = first.results.iter().map(|result| result.id.len()).sum();
    assert!(answer_bytes > 400_000, "{answer_bytes} bytes are kept");
    // Somebody changes it since: the repeated call must not put that back.
    let gone = v1::UnsubscribeRequest {
        subscriptions: vec![reference("a-b", names[7])],
        request_id: "r2".to_owned(),
    };
    subscriptions.unsubscribe(gone).await.expect("known");
    rig.store.take_commits();

    let again = subscriptions.subscribe(with_id("r1", &names)).await;
    let again = again.expect("done before").into_inner();
    let ids = |answer: &v1::SubscribeResponse| -> Vec<String> {
        answer
            .results
            .iter()
            .map(|result| result.id.clone())
            .collect()
    };
    assert_eq!(ids(&again), ids(&first));
    assert!(rig.store.take_commits().is_empty(), "nothing is written");
    let stored = rig.store.list(keys::SUBSCRIPTIONS).await;
    assert_eq!(stored.expect("in memory").entries.len(), 1_999);
    refused(
        subscriptions.subscribe(with_id("r1", &names[1..])).await,
        Code::AlreadyExists,
        &["r1", "Subscribe"],
    );
}

#[tokio::test]
async fn kept_answers_share_a_lease() {
    let (rig, leader) = Rig::with_leader().await;
    let mut clusters = leader.clusters();
    for id in ["a", "b", "c"] {
        let request = v1::PutClusterRequest {
            request_id: format!("put-{id}"),
            ..put_cluster(id)
        };
        clusters.put_cluster(request).await.expect("accepted");
    }
    let request = v1::PutLinkRequest {
        request_id: "put-link".to_owned(),
        ..put_link(link("a-b", "a", "b"))
    };
    leader.links().put_link(request).await.expect("accepted");
    let records = rig.store.list(keys::REQUESTS).await.expect("in memory");
    assert_eq!(records.entries.len(), 4);
    let mut leases: Vec<_> = records.entries.values().map(|entry| entry.lease).collect();
    leases.dedup();
    assert!(matches!(leases.as_slice(), [Some(_)]), "{leases:?}");
    // And they are written with the change itself.
    for commit in rig.store.take_commits() {
        let writes = |prefix: &str| {
            commit.ops.iter().any(|op| match op {
                Op::Put { key, .. } => key.starts_with(prefix),
                Op::Delete(_) | Op::DeletePrefix(_) => false,
            })
        };
        assert_eq!(writes(keys::CONFIG), writes(keys::REQUESTS));
    }
}
