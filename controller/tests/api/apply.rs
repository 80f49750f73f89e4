//! Applying a declaration.

use std::collections::BTreeMap;

use kreplicator_proto::v1::{self, change::Action};
use kreplicator_store::{MetaStore, keys};
use tonic::Code;

use crate::rig::{Rig, cluster, exact, link, pattern, refused};

fn declaration() -> v1::ApplyRequest {
    v1::ApplyRequest {
        clusters: vec![cluster("a"), cluster("b")],
        links: vec![link("a-b", "a", "b")],
        subscriptions: vec![exact("a-b", "t1"), pattern("a-b", "orders.*")],
        ..v1::ApplyRequest::default()
    }
}

/// `action kind id` of each change.
fn summary(answer: &v1::ApplyResponse) -> Vec<String> {
    answer
        .changes
        .iter()
        .map(|change| {
            let action = match change.action() {
                Action::Create => "create",
                Action::Update => "update",
                Action::Delete => "delete",
                Action::Unspecified => "?",
            };
            format!("{action} {} {}", change.kind, change.id)
        })
        .collect()
}

#[tokio::test]
async fn a_declaration_is_applied_once_and_shown_before() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_topics("a", ["t1"]);
    let mut desired = leader.desired();
    let dry = v1::ApplyRequest {
        dry_run: true,
        request_id: "r1".to_owned(),
        ..declaration()
    };
    let expected = [
        "create cluster a",
        "create cluster b",
        "create link a-b",
        "create subscription a-b//orders.*/",
        "create subscription a-b/t1",
    ];
    let shown = desired.apply(dry).await.expect("accepted").into_inner();
    assert_eq!(summary(&shown), expected);
    let stored = rig.store.list("").await.expect("in memory");
    let stored: Vec<&String> = stored.entries.keys().collect();
    assert_eq!(stored, [keys::LEADER], "a dry run writes nothing");

    let applied = desired
        .apply(declaration())
        .await
        .expect("accepted")
        .into_inner();
    assert_eq!(applied, shown, "what was shown is what is done");
    let again = desired
        .apply(declaration())
        .await
        .expect("accepted")
        .into_inner();
    assert!(again.changes.is_empty(), "{again:?}");
    let pokes = rig.discovery.take_pokes();
    assert!(pokes.contains(&"a".to_owned()));
}

#[tokio::test]
async fn changes_are_told_field_by_field() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_topics("a", ["t1"]);
    let mut desired = leader.desired();
    desired.apply(declaration()).await.expect("accepted");
    let mut changed = declaration();
    changed.clusters[0].client_options =
        BTreeMap::from([("socket.timeout.ms".to_owned(), "9000".to_owned())]);
    changed.links[0].paused = true;
    changed.subscriptions[0].start = Some(v1::StartPolicy {
        at: Some(v1::start_policy::At::Latest(true)),
    });
    let answer = desired.apply(changed).await.expect("accepted").into_inner();
    assert_eq!(
        summary(&answer),
        [
            "update cluster a",
            "update link a-b",
            "update subscription a-b/t1"
        ]
    );
    let fields: Vec<(&str, &str, &str)> = answer
        .changes
        .iter()
        .flat_map(|change| &change.fields)
        .map(|field| {
            (
                field.path.as_str(),
                field.before.as_str(),
                field.after.as_str(),
            )
        })
        .collect();
    assert_eq!(
        fields,
        [
            ("client_options[\"socket.timeout.ms\"]", "", "9000"),
            ("paused", "", "true"),
            ("start", "", "latest"),
        ]
    );
}

#[tokio::test]
async fn only_pruning_deletes() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_topics("a", ["t1"]);
    let mut desired = leader.desired();
    desired.apply(declaration()).await.expect("accepted");
    let less = v1::ApplyRequest {
        clusters: vec![cluster("a")],
        ..v1::ApplyRequest::default()
    };
    let kept = desired
        .apply(less.clone())
        .await
        .expect("accepted")
        .into_inner();
    assert!(kept.changes.is_empty());
    let pruned = v1::ApplyRequest {
        prune: true,
        ..less
    };
    let answer = desired.apply(pruned).await.expect("accepted").into_inner();
    assert_eq!(
        summary(&answer),
        [
            "delete subscription a-b//orders.*/",
            "delete subscription a-b/t1",
            "delete link a-b",
            "delete cluster b",
        ]
    );
    let stored = rig.store.list(keys::CONFIG).await.expect("in memory");
    let stored: Vec<&String> = stored.entries.keys().collect();
    assert_eq!(stored, ["config/cluster/a"]);

    // A link that is kept needs its clusters.
    let mut desired = leader.desired();
    desired.apply(declaration()).await.expect("accepted");
    let half = v1::ApplyRequest {
        prune: true,
        clusters: vec![cluster("a")],
        ..declaration()
    };
    refused(
        desired.apply(half).await,
        Code::FailedPrecondition,
        &["link a-b", "b"],
    );
    let stored = rig.store.list(keys::CONFIG).await.expect("in memory");
    assert_eq!(stored.entries.len(), 5);
}

#[tokio::test]
async fn every_fault_is_told_and_nothing_is_written() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_topics("a", ["t1"]);
    let mut bad = declaration();
    bad.clusters.push(v1::Cluster {
        id: "c".to_owned(),
        ..v1::Cluster::default()
    });
    bad.links.push(link("c-b", "c", "b"));
    bad.links.push(link("a-b", "a", "b"));
    bad.subscriptions.push(pattern("a-b", "bad("));
    bad.subscriptions.push(exact("a-b", "t1"));
    let mut desired = leader.desired();
    let message = refused(
        desired.apply(bad).await,
        Code::InvalidArgument,
        &[
            "cluster c: bootstrap_servers",
            "link a-b: is declared twice",
            "subscription a-b//bad(/: selector.pattern",
            "subscription a-b/t1: is declared twice",
        ],
    );
    assert!(
        !message.contains("link c-b"),
        "cluster c is declared, if badly: {message}"
    );

    let mut unmet = declaration();
    unmet.links.push(link("x-y", "x", "y"));
    unmet.subscriptions.push(exact("no-link", "t1"));
    let names = ["link x-y", "no-link"];
    refused(desired.apply(unmet).await, Code::FailedPrecondition, &names);

    let mut missing = declaration();
    missing.subscriptions.push(exact("a-b", "t2"));
    missing.subscriptions.push(exact("a-b", "t3"));
    let message = refused(
        desired.apply(missing.clone()).await,
        Code::FailedPrecondition,
        &["subscription a-b/t2", "subscription a-b/t3", "cluster a"],
    );
    assert_eq!(message.lines().count(), 2, "{message}");
    missing.dry_run = true;
    refused(
        desired.apply(missing.clone()).await,
        Code::FailedPrecondition,
        &["a-b/t2"],
    );
    let stored = rig.store.list(keys::CONFIG).await.expect("in memory");
    assert!(stored.entries.is_empty());

    missing.dry_run = false;
    missing.allow_missing = true;
    let answer = desired.apply(missing).await.expect("allowed").into_inner();
    assert_eq!(answer.changes.len(), 7);
}

#[tokio::test]
async fn c050_a_declaration_with_an_unreachable_cluster_is_accepted_with_a_warning() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_topics("a", ["t1"]);
    rig.discovery.set_cause("b", "no route to host");
    let mut desired = leader.desired();
    let answer = desired
        .apply(declaration())
        .await
        .expect("accepted")
        .into_inner();
    assert_eq!(answer.warnings.len(), 1, "{answer:?}");
    assert!(answer.warnings[0].contains("cluster b is not reachable now: no route to host"));

    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_cause("a", "no route to host");
    let refusal = leader.desired().apply(declaration()).await;
    refused(refusal, Code::Unavailable, &["cluster a", "allow missing"]);
    let stored = rig.store.list(keys::CONFIG).await.expect("in memory");
    assert!(stored.entries.is_empty());
}

#[tokio::test]
async fn twelve_thousand_subscriptions_are_applied_and_applied_again() {
    let (rig, leader) = Rig::with_leader().await;
    let names: Vec<String> = (0..12_000).map(|n| format!("topic-{n:05}")).collect();
    rig.discovery
        .set_topics("a", names.iter().map(String::as_str));
    let request = || v1::ApplyRequest {
        subscriptions: names.iter().map(|name| exact("a-b", name)).collect(),
        request_id: "r1".to_owned(),
        ..declaration()
    };
    let mut desired = leader.desired();
    let answer = desired
        .apply(request())
        .await
        .expect("accepted")
        .into_inner();
    assert_eq!(answer.changes.len(), 12_003);
    let stored = rig
        .store
        .list(keys::SUBSCRIPTIONS)
        .await
        .expect("in memory");
    assert_eq!(stored.entries.len(), 12_000);
    for commit in rig.store.take_commits() {
        assert!(commit.ops.len() <= 128 && commit.compares.len() <= 128);
    }
    // The answer is too large to keep: it is worked out anew.
    let again = desired
        .apply(request())
        .await
        .expect("accepted")
        .into_inner();
    assert!(again.changes.is_empty());
}
