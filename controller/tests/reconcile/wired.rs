//! Whole controllers in real time on several threads, spoken to over gRPC.

use std::time::Duration;

use kreplicator_proto::v1::{
    self, GetStatusRequest, Health, PutClusterRequest, PutLinkRequest, SubscribeRequest,
    clusters_client::ClustersClient, links_client::LinksClient, status_client::StatusClient,
    subscriptions_client::SubscriptionsClient,
};
use tonic::transport::Channel;

use crate::support::{Fleet, Settings};

/// Generous: other tests may use the processors.
const SOON: Duration = Duration::from_secs(30);

async fn channel(fleet: &Fleet, controller: &str) -> Channel {
    let address = fleet.controllers[controller].controller.grpc_address();
    Channel::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect()
        .await
        .expect("listens")
}

async fn put_cluster(channel: &Channel, id: &str) {
    let cluster = v1::Cluster {
        id: id.to_owned(),
        bootstrap_servers: vec![format!("{id}:9092")],
        ..v1::Cluster::default()
    };
    let request = PutClusterRequest {
        cluster: Some(cluster),
        ..PutClusterRequest::default()
    };
    let mut clusters = ClustersClient::new(channel.clone());
    clusters.put_cluster(request).await.expect("accepted");
}

async fn subscribe(channel: &Channel, topic: &str) {
    let subscription = v1::Subscription {
        link: "a-b".to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Topic(topic.to_owned())),
        }),
        ..v1::Subscription::default()
    };
    let request = SubscribeRequest {
        subscriptions: vec![subscription],
        ..SubscribeRequest::default()
    };
    let mut subscriptions = SubscriptionsClient::new(channel.clone());
    subscriptions.subscribe(request).await.expect("accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_any_controller_becomes_running_tasks_and_survives_the_leader() {
    let mut fleet = Fleet::with(Settings {
        lease: Duration::from_secs(2),
        ..Settings::default()
    });
    for controller in ["c0", "c1"] {
        fleet.start_controller(controller).await;
        fleet
            .until("one leads", SOON, |fleet| fleet.state().ready)
            .await;
    }
    for worker in ["w1", "w2"] {
        fleet.start_worker(worker);
    }
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.kafka.put_topic("a", "clicks", 4);

    // The second one does not lead and passes everything on.
    let follower = channel(&fleet, "c1").await;
    put_cluster(&follower, "a").await;
    put_cluster(&follower, "b").await;
    let link = v1::Link {
        id: "a-b".to_owned(),
        source: "a".to_owned(),
        target: "b".to_owned(),
        ..v1::Link::default()
    };
    let request = PutLinkRequest {
        link: Some(link),
        ..PutLinkRequest::default()
    };
    let mut links = LinksClient::new(follower.clone());
    links.put_link(request).await.expect("accepted");
    subscribe(&follower, "orders").await;
    // How quick that is on an idle machine is shown on virtual time.
    fleet.until_running(4, SOON).await;
    let mut status = StatusClient::new(follower.clone());
    let told = status
        .get_status(GetStatusRequest {})
        .await
        .expect("answered")
        .into_inner();
    assert_eq!(told.leader, "c0");
    assert_eq!(told.workers_active, 2);
    assert_ne!(told.health(), Health::Down);

    fleet.kill_controller("c0").await;
    fleet
        .until("the other one leads", SOON, |fleet| fleet.state().ready)
        .await;
    let before = fleet.registry.starts();
    subscribe(&follower, "clicks").await;
    fleet.until_running(8, SOON).await;
    let after = fleet.registry.starts();
    assert!(before.iter().all(|(task, count)| after[task] == *count));
    fleet.stop_controller("c1").await;
    assert!(
        fleet
            .store
            .get("controller/leader")
            .await
            .expect("store works")
            .is_none(),
        "the key was not given up"
    );
}
