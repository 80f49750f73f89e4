//! Lists in pages.

use std::{collections::BTreeSet, sync::Arc};

use kreplicator_controller::fleet::FleetState;
use kreplicator_proto::v1;
use tonic::Code;

use crate::rig::{
    Rig, exact, link, pattern, put_cluster, put_link, reference, refused, running_fleet, subscribe,
};

/// Every subscription's id, in pages of `size`.
async fn walk(
    subscriptions: &mut v1::subscriptions_client::SubscriptionsClient<tonic::transport::Channel>,
    link: &str,
    size: i32,
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut token = String::new();
    loop {
        let request = v1::ListRequest {
            page_size: size,
            page_token: token,
            link: link.to_owned(),
        };
        let page = subscriptions
            .list_subscriptions(request)
            .await
            .expect("a page")
            .into_inner();
        assert!(page.subscriptions.len() <= usize::try_from(size).expect("positive"));
        for info in page.subscriptions {
            let spec = info.subscription.expect("a spec");
            ids.push(format!("{}/{}", spec.link, info.id));
        }
        if page.next_page_token.is_empty() {
            return ids;
        }
        token = page.next_page_token;
    }
}

#[tokio::test]
async fn c110_five_thousand_subscriptions_are_listed_in_pages() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    leader
        .clusters()
        .put_cluster(put_cluster("c"))
        .await
        .expect("accepted");
    leader
        .links()
        .put_link(put_link(link("a-c", "a", "c")))
        .await
        .expect("accepted");
    let names: Vec<String> = (0..5_000).map(|n| format!("topic-{n:05}")).collect();
    rig.discovery
        .set_topics("a", names.iter().map(String::as_str));
    let mut subscriptions = leader.subscriptions();
    let request = subscribe(names.iter().map(|name| exact("a-b", name)).collect());
    subscriptions.subscribe(request).await.expect("accepted");
    let other = subscribe(vec![exact("a-c", "topic-00007")]);
    subscriptions.subscribe(other).await.expect("accepted");

    let all = walk(&mut subscriptions, "", 1_000).await;
    assert_eq!(all.len(), 5_001);
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), 5_001, "nothing is given twice");
    assert_eq!(
        walk(&mut subscriptions, "a-c", 10).await,
        ["a-c/topic-00007"]
    );
    assert_eq!(walk(&mut subscriptions, "a-b", 999).await.len(), 5_000);

    // What is deleted on the way does not disturb the rest.
    let request = v1::ListRequest {
        page_size: 10,
        ..v1::ListRequest::default()
    };
    let first = subscriptions
        .list_subscriptions(request)
        .await
        .expect("a page")
        .into_inner();
    let gone = v1::UnsubscribeRequest {
        subscriptions: vec![
            reference("a-b", "topic-00009"),
            reference("a-b", "topic-00010"),
        ],
        ..v1::UnsubscribeRequest::default()
    };
    subscriptions.unsubscribe(gone).await.expect("known");
    let request = v1::ListRequest {
        page_size: 1,
        page_token: first.next_page_token,
        ..v1::ListRequest::default()
    };
    let next = subscriptions
        .list_subscriptions(request)
        .await
        .expect("a page")
        .into_inner();
    assert_eq!(next.subscriptions[0].id, "topic-00011");
}

#[tokio::test]
async fn c110_pages_fit_into_what_clients_take() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    let patterns: Vec<String> = (0..120).map(|n| format!("t{n:03}.*")).collect();
    let mut subscriptions = leader.subscriptions();
    let request = subscribe(
        patterns
            .iter()
            .map(|include| pattern("a-b", include))
            .collect(),
    );
    subscriptions.subscribe(request).await.expect("accepted");
    // 100 topics with the longest names for each of them: 6 MB in all.
    let mut fleet = running_fleet(&[]);
    for include in &patterns {
        for n in 0..100 {
            let name = format!("{}{n:0>245}", include.trim_end_matches(".*"));
            let mut one = running_fleet(&[&name]).resolved.topics;
            for resolved in one.values_mut() {
                resolved.subscription = format!("/{include}/");
            }
            fleet.resolved.topics.extend(one);
        }
    }
    leader.fleet.send_replace(Arc::new(fleet));
    let ids = walk(&mut subscriptions, "", 1_000).await;
    let expected: Vec<String> = patterns
        .iter()
        .map(|include| format!("a-b//{include}/"))
        .collect();
    assert_eq!(ids, expected);
    assert!(rig.discovery.looks() > 0);
}

#[tokio::test]
async fn wrong_pages_are_refused() {
    let (_rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    let list = |page_size, token: &str, link: &str| v1::ListRequest {
        page_size,
        page_token: token.to_owned(),
        link: link.to_owned(),
    };
    let mut subscriptions = leader.subscriptions();
    let too_large = subscriptions.list_subscriptions(list(1_001, "", "")).await;
    refused(too_large, Code::InvalidArgument, &["page_size", "1001"]);
    let foreign = subscriptions
        .list_subscriptions(list(0, "nonsense", ""))
        .await;
    refused(foreign, Code::InvalidArgument, &["page_token"]);
    let unknown = subscriptions.list_subscriptions(list(0, "", "x-y")).await;
    refused(unknown, Code::NotFound, &["x-y"]);
    let clusters = leader.clusters().list_clusters(list(-1, "", "")).await;
    refused(clusters, Code::InvalidArgument, &["page_size"]);
    let clusters = leader
        .clusters()
        .list_clusters(list(1, "", ""))
        .await
        .expect("a page");
    let clusters = clusters.into_inner();
    assert_eq!(clusters.clusters.len(), 1);
    let token = clusters.next_page_token;
    let rest = leader
        .clusters()
        .list_clusters(list(1, &token, ""))
        .await
        .expect("a page");
    let rest = rest.into_inner();
    assert_eq!(rest.clusters[0].cluster.as_ref().expect("a spec").id, "b");
    assert!(rest.next_page_token.is_empty());
}

#[tokio::test]
async fn filters_by_what_does_not_exist_are_refused() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", []);
    let waiting = v1::SubscribeRequest {
        subscriptions: vec![exact("a-b", "awaited")],
        allow_missing: true,
        ..v1::SubscribeRequest::default()
    };
    leader
        .subscriptions()
        .subscribe(waiting)
        .await
        .expect("accepted");
    let list = async |link: &str, topic: &str, worker: &str| {
        let request = v1::ListTasksRequest {
            link: link.to_owned(),
            topic: topic.to_owned(),
            worker: worker.to_owned(),
            ..v1::ListTasksRequest::default()
        };
        let answer = leader.status().list_tasks(request).await;
        answer.map(|answer| answer.into_inner().tasks.len())
    };
    let not_found = Code::NotFound;
    // Before the fleet was looked at, only links are known.
    leader.fleet.send_replace(Arc::new(FleetState::default()));
    assert_eq!(list("", "t9", "w9").await.expect("perhaps"), 0);
    refused(
        list("x-y", "", "").await,
        not_found,
        &["link \"x-y\"", "get links"],
    );

    leader.fleet.send_replace(Arc::new(running_fleet(&["t1"])));
    refused(list("x-y", "", "").await, not_found, &["link \"x-y\""]);
    refused(
        list("", "t9", "").await,
        not_found,
        &["topic \"t9\"", "get subscriptions"],
    );
    refused(
        list("", "", "w9").await,
        not_found,
        &["worker \"w9\"", "get workers"],
    );
    assert_eq!(list("a-b", "t1", "").await.expect("tasks"), 2);
    assert_eq!(list("a-b", "awaited", "w1").await.expect("none yet"), 0);
}

#[tokio::test]
async fn tasks_are_listed_by_link_topic_worker_and_state() {
    let (_rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    leader
        .fleet
        .send_replace(Arc::new(running_fleet(&["t1", "t2"])));
    let mut status = leader.status();
    let all = v1::ListTasksRequest {
        page_size: 3,
        ..v1::ListTasksRequest::default()
    };
    let first = status
        .list_tasks(all.clone())
        .await
        .expect("a page")
        .into_inner();
    let name = |task: &v1::Task| format!("{}/{}", task.topic, task.partition);
    let names: Vec<String> = first.tasks.iter().map(name).collect();
    assert_eq!(names, ["t1/0", "t1/1", "t2/0"]);
    let rest = v1::ListTasksRequest {
        page_token: first.next_page_token,
        ..all
    };
    let rest = status.list_tasks(rest).await.expect("a page").into_inner();
    let names: Vec<String> = rest.tasks.iter().map(name).collect();
    assert_eq!(names, ["t2/1"]);
    assert!(rest.next_page_token.is_empty());
    let count = async |request: v1::ListTasksRequest| {
        let mut status = leader.status();
        status
            .list_tasks(request)
            .await
            .expect("a page")
            .into_inner()
            .tasks
            .len()
    };
    let filter = v1::ListTasksRequest::default;
    let topic = v1::ListTasksRequest {
        topic: "t1".to_owned(),
        ..filter()
    };
    assert_eq!(count(topic).await, 2);
    let link = v1::ListTasksRequest {
        link: "a-b".to_owned(),
        ..filter()
    };
    assert_eq!(count(link).await, 4);
    let worker = v1::ListTasksRequest {
        worker: "w1".to_owned(),
        ..filter()
    };
    assert_eq!(count(worker).await, 0, "nothing is assigned");
    for (state, tasks) in [(v1::TaskState::Unassigned, 4), (v1::TaskState::Running, 0)] {
        let request = v1::ListTasksRequest {
            state: state.into(),
            ..filter()
        };
        assert_eq!(count(request).await, tasks, "{state:?}");
    }
    let bad = v1::ListTasksRequest {
        state: 77,
        ..filter()
    };
    refused(
        status.list_tasks(bad).await,
        Code::InvalidArgument,
        &["state", "77"],
    );
}
