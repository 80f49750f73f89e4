//! Watching subscriptions.

use std::{sync::Arc, time::Duration};

use kreplicator_proto::v1::{self, subscription_event::Event};
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::rig::{
    Controller, LIMIT, Rig, exact, link, put_cluster, put_link, reference, refused, running_fleet,
    subscribe,
};

async fn watch(controller: &Controller, link: &str) -> Streaming<v1::SubscriptionEvent> {
    let request = v1::WatchRequest {
        link: link.to_owned(),
    };
    let mut subscriptions = controller.subscriptions();
    subscriptions
        .watch_subscriptions(request)
        .await
        .expect("a stream")
        .into_inner()
}

async fn next(events: &mut Streaming<v1::SubscriptionEvent>) -> Event {
    let event = timeout(LIMIT, events.message()).await.expect("in time");
    event
        .expect("no error")
        .expect("an event")
        .event
        .expect("not empty")
}

fn updated(event: Event) -> v1::SubscriptionInfo {
    match event {
        Event::Updated(info) => info,
        other => panic!("no update: {other:?}"),
    }
}

#[tokio::test]
async fn a_watch_gives_what_is_then_what_changes() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1", "t2", "t3"]);
    let mut subscriptions = leader.subscriptions();
    let two = subscribe(vec![exact("a-b", "t1"), exact("a-b", "t2")]);
    subscriptions.subscribe(two).await.expect("accepted");
    let mut events = watch(&leader, "").await;
    let first = [
        updated(next(&mut events).await).id,
        updated(next(&mut events).await).id,
    ];
    assert_eq!(first, ["t1", "t2"]);
    assert_eq!(next(&mut events).await, Event::Synced(true));

    let third = subscribe(vec![exact("a-b", "t3")]);
    subscriptions.subscribe(third).await.expect("accepted");
    assert_eq!(updated(next(&mut events).await).id, "t3");

    // A change of state only.
    leader.fleet.send_replace(Arc::new(running_fleet(&["t2"])));
    let mut ids = Vec::new();
    while !ids.contains(&"t2".to_owned()) {
        let info = updated(next(&mut events).await);
        let status = info.status.expect("a status");
        if info.id == "t2" {
            assert_eq!(status.topics_total, 1);
        }
        ids.push(info.id);
    }

    let gone = v1::UnsubscribeRequest {
        subscriptions: vec![reference("a-b", "t1")],
        ..v1::UnsubscribeRequest::default()
    };
    subscriptions.unsubscribe(gone).await.expect("known");
    loop {
        match next(&mut events).await {
            Event::Deleted(deleted) => {
                assert_eq!(deleted, reference("a-b", "t1"));
                break;
            }
            Event::Updated(_) => {}
            Event::Synced(_) => panic!("synced twice"),
        }
    }
}

#[tokio::test]
async fn a_watch_of_one_link_tells_of_no_other() {
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
    rig.discovery.set_topics("a", ["t1", "t2"]);
    let mut subscriptions = leader.subscriptions();
    let other = subscribe(vec![exact("a-b", "t1")]);
    subscriptions.subscribe(other).await.expect("accepted");
    let mut events = watch(&leader, "a-c").await;
    assert_eq!(next(&mut events).await, Event::Synced(true));
    let both = subscribe(vec![exact("a-b", "t2"), exact("a-c", "t2")]);
    subscriptions.subscribe(both).await.expect("accepted");
    let info = updated(next(&mut events).await);
    assert_eq!(info.subscription.expect("a spec").link, "a-c");
    let unknown = v1::WatchRequest {
        link: "x-y".to_owned(),
    };
    refused(
        subscriptions.watch_subscriptions(unknown).await,
        Code::NotFound,
        &["x-y"],
    );
}

#[tokio::test]
async fn nothing_is_sent_while_nothing_changes() {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let one = subscribe(vec![exact("a-b", "t1")]);
    leader
        .subscriptions()
        .subscribe(one)
        .await
        .expect("accepted");
    let mut events = watch(&leader, "").await;
    updated(next(&mut events).await);
    assert_eq!(next(&mut events).await, Event::Synced(true));
    let fleet = leader.fleet.borrow().clone();
    leader.fleet.send_replace(fleet);
    let silence = timeout(Duration::from_millis(2_500), events.message()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn a_shutdown_ends_watches_with_a_word() {
    let (_rig, leader) = Rig::with_leader().await;
    let mut events = watch(&leader, "").await;
    assert_eq!(next(&mut events).await, Event::Synced(true));
    let (end, ()) = tokio::join!(timeout(LIMIT, events.message()), leader.stop());
    refused(end.expect("in time"), Code::Unavailable, &["shutting down"]);
}
