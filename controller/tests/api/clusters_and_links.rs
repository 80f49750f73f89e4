//! Clusters and links: good and bad input.

use kreplicator_controller::fleet::FleetState;
use kreplicator_model::ids::{ClusterId, UnixMillis};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, keys};
use std::{collections::BTreeMap, sync::Arc};
use tonic::Code;

use crate::rig::{
    Rig, cluster, exact, link, put_cluster, put_link, refused, running_fleet, subscribe,
};

#[tokio::test]
async fn a_cluster_is_put_read_and_deleted() {
    let (rig, leader) = Rig::with_leader().await;
    let mut clusters = leader.clusters();
    let put = clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    assert!(put.into_inner().changed);
    let again = clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    assert!(
        !again.into_inner().changed,
        "the same again changes nothing"
    );
    assert_eq!(rig.discovery.take_pokes(), ["a", "a"]);

    let get = |id: &str| v1::GetClusterRequest { id: id.to_owned() };
    let read = clusters
        .get_cluster(get("a"))
        .await
        .expect("known")
        .into_inner();
    assert_eq!(read.cluster, Some(cluster("a")));
    let status = read.status.expect("a status");
    assert!(!status.reachable && status.since_ms == 0, "not known yet");
    assert_eq!(status.cause, "was not looked at yet");

    leader.fleet.send_replace(Arc::new(running_fleet(&[])));
    let read = clusters
        .get_cluster(get("a"))
        .await
        .expect("known")
        .into_inner();
    let status = read.status.expect("a status");
    assert!(status.reachable && status.cause.is_empty());
    assert_eq!(
        (status.topics, status.partitions, status.brokers),
        (3, 7, 1)
    );
    assert_eq!((status.since_ms, status.discovered_at_ms), (5, 6));

    let delete = |id: &str| v1::DeleteRequest {
        id: id.to_owned(),
        ..v1::DeleteRequest::default()
    };
    clusters.delete_cluster(delete("a")).await.expect("unused");
    refused(
        clusters.delete_cluster(delete("a")).await,
        Code::NotFound,
        &["\"a\""],
    );
    refused(
        clusters.get_cluster(get("a")).await,
        Code::NotFound,
        &["\"a\""],
    );
    refused(
        clusters.get_cluster(get("A/b")).await,
        Code::NotFound,
        &["A/b"],
    );
}

#[tokio::test]
async fn wrong_clusters_are_refused_with_every_fault() {
    let (rig, leader) = Rig::with_leader().await;
    let mut clusters = leader.clusters();
    let bad = v1::Cluster {
        id: "Not a slug".to_owned(),
        bootstrap_servers: vec!["no-port".to_owned()],
        client_options: BTreeMap::from([("bad name".to_owned(), String::new())]),
        ..v1::Cluster::default()
    };
    let request = v1::PutClusterRequest {
        cluster: Some(bad),
        ..v1::PutClusterRequest::default()
    };
    let names = ["cluster.id", "no-port", "bad name"];
    refused(
        clusters.put_cluster(request).await,
        Code::InvalidArgument,
        &names,
    );

    let owned = v1::Cluster {
        client_options: BTreeMap::from([("enable.auto.commit".to_owned(), "true".to_owned())]),
        ..cluster("a")
    };
    let request = v1::PutClusterRequest {
        cluster: Some(owned),
        ..v1::PutClusterRequest::default()
    };
    let names = ["cluster.client_options", "enable.auto.commit"];
    refused(
        clusters.put_cluster(request).await,
        Code::InvalidArgument,
        &names,
    );
    let empty = v1::PutClusterRequest::default();
    refused(
        clusters.put_cluster(empty).await,
        Code::InvalidArgument,
        &["cluster.id"],
    );

    clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    let create = v1::PutClusterRequest {
        create_only: true,
        ..put_cluster("a")
    };
    refused(
        clusters.put_cluster(create).await,
        Code::AlreadyExists,
        &["\"a\"", "create_only"],
    );
    let stored = rig.store.list(keys::CONFIG).await.expect("in memory");
    assert_eq!(stored.entries.len(), 1, "nothing half-done remains");
}

#[tokio::test]
async fn c050_an_unreachable_cluster_is_accepted_with_a_warning() {
    let (rig, leader) = Rig::with_leader().await;
    rig.discovery.set_cause("a", "connection refused");
    let mut clusters = leader.clusters();
    let put = clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    let put = put.into_inner();
    assert!(put.changed);
    assert_eq!(put.warnings.len(), 1);
    assert!(put.warnings[0].contains("cluster a is not reachable now: connection refused"));

    let mut fleet = FleetState::clone(&running_fleet(&[]));
    let down = fleet.clusters.get_mut("a").expect("there");
    down.reachable = Some(false);
    down.cause = "connection refused".to_owned();
    down.since = UnixMillis(77);
    leader.fleet.send_replace(Arc::new(fleet));
    let listed = clusters
        .list_clusters(v1::ListRequest::default())
        .await
        .expect("a list")
        .into_inner();
    let status = listed.clusters[0].status.clone().expect("a status");
    assert!(!status.reachable);
    assert_eq!(
        (status.cause.as_str(), status.since_ms),
        ("connection refused", 77)
    );
    let looks = rig.discovery.looks();
    clusters
        .put_cluster(put_cluster("a"))
        .await
        .expect("accepted");
    assert_eq!(rig.discovery.looks(), looks, "the same again asks nobody");
    assert!(ClusterId::new("a").is_ok());
}

#[tokio::test]
async fn links_need_their_clusters_and_clusters_outlive_their_links() {
    let (rig, leader) = Rig::with_leader().await;
    let mut links = leader.links();
    let request = || put_link(link("a-b", "a", "b"));
    let refusal = refused(
        links.put_link(request()).await,
        Code::FailedPrecondition,
        &["link a-b", "a", "b"],
    );
    assert_eq!(
        refusal.lines().count(),
        2,
        "both clusters are told: {refusal}"
    );
    let same = put_link(link("a-a", "a", "a"));
    refused(
        links.put_link(same).await,
        Code::InvalidArgument,
        &["link.target"],
    );

    leader.declare_link().await;
    assert!(
        !links
            .put_link(request())
            .await
            .expect("again")
            .into_inner()
            .changed
    );
    let create = v1::PutLinkRequest {
        create_only: true,
        ..request()
    };
    refused(links.put_link(create).await, Code::AlreadyExists, &["a-b"]);
    let delete = v1::DeleteRequest {
        id: "a".to_owned(),
        ..v1::DeleteRequest::default()
    };
    refused(
        leader.clusters().delete_cluster(delete).await,
        Code::FailedPrecondition,
        &["cluster a", "link a-b"],
    );

    rig.discovery.set_topics("a", ["t1", "t2"]);
    leader
        .subscriptions()
        .subscribe(subscribe(vec![exact("a-b", "t1"), exact("a-b", "t2")]))
        .await
        .expect("accepted");
    let delete = v1::DeleteRequest {
        id: "a-b".to_owned(),
        ..v1::DeleteRequest::default()
    };
    links.delete_link(delete.clone()).await.expect("known");
    let left = rig.store.list(keys::CONFIG).await.expect("in memory");
    let left: Vec<&String> = left.entries.keys().collect();
    assert_eq!(left, ["config/cluster/a", "config/cluster/b"]);
    refused(links.delete_link(delete).await, Code::NotFound, &["a-b"]);
}

#[tokio::test]
async fn what_checkpoints_belong_to_cannot_change_on_a_link() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    leader
        .clusters()
        .put_cluster(put_cluster("c"))
        .await
        .expect("accepted");
    let mut links = leader.links();
    let elsewhere = put_link(link("a-b", "a", "c"));
    refused(
        links.put_link(elsewhere).await,
        Code::FailedPrecondition,
        &["link a-b", "target", "from b to c"],
    );
    let at_target = || {
        put_link(v1::Link {
            checkpoint_on: v1::CheckpointSide::Target.into(),
            ..link("a-b", "a", "b")
        })
    };
    links
        .put_link(at_target())
        .await
        .expect("nothing was copied yet");
    rig.discovery.set_topics("a", ["t1"]);
    let one = subscribe(vec![exact("a-b", "t1")]);
    leader
        .subscriptions()
        .subscribe(one)
        .await
        .expect("accepted");
    let back = put_link(link("a-b", "a", "b"));
    refused(
        links.put_link(back).await,
        Code::FailedPrecondition,
        &["link a-b", "checkpoint_on"],
    );
}

#[tokio::test]
async fn c074_a_pair_of_links_that_would_loop_is_refused() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    leader
        .links()
        .put_link(put_link(link("b-a", "b", "a")))
        .await
        .expect("no topic yet");
    rig.discovery.set_topics("a", ["t"]);
    rig.discovery.set_topics("b", ["t"]);
    let mut subscriptions = leader.subscriptions();
    let one = subscribe(vec![exact("a-b", "t")]);
    subscriptions.subscribe(one).await.expect("one way");
    let back = subscribe(vec![exact("b-a", "t")]);
    refused(
        subscriptions.subscribe(back).await,
        Code::FailedPrecondition,
        &["a-b", "b-a", "prefix"],
    );
}
