//! Requests and states to begin with.

use kreplicator_controller::fleet::{ClusterState, FleetState, WorkerView};
use kreplicator_model::{
    ids::{ClusterId, LinkId, LinkTopic, TopicName, UnixMillis, WorkerId},
    resolve::ResolvedTopic,
    spec::StartPolicy,
};
use kreplicator_proto::v1;
use tonic::{Code, Status};

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

pub(crate) fn cluster(id: &str) -> v1::Cluster {
    v1::Cluster {
        id: id.to_owned(),
        bootstrap_servers: vec![format!("{id}.example:9092")],
        ..v1::Cluster::default()
    }
}

pub(crate) fn put_cluster(id: &str) -> v1::PutClusterRequest {
    v1::PutClusterRequest {
        cluster: Some(cluster(id)),
        ..v1::PutClusterRequest::default()
    }
}

pub(crate) fn link(id: &str, source: &str, target: &str) -> v1::Link {
    v1::Link {
        id: id.to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        ..v1::Link::default()
    }
}

pub(crate) fn put_link(link: v1::Link) -> v1::PutLinkRequest {
    v1::PutLinkRequest {
        link: Some(link),
        ..v1::PutLinkRequest::default()
    }
}

pub(crate) fn exact(link: &str, topic: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Topic(topic.to_owned())),
        }),
        ..v1::Subscription::default()
    }
}

pub(crate) fn pattern(link: &str, include: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Pattern(v1::Pattern {
                include: include.to_owned(),
                exclude: Vec::new(),
            })),
        }),
        ..v1::Subscription::default()
    }
}

pub(crate) fn subscribe(subscriptions: Vec<v1::Subscription>) -> v1::SubscribeRequest {
    v1::SubscribeRequest {
        subscriptions,
        ..v1::SubscribeRequest::default()
    }
}

pub(crate) fn reference(link: &str, id: &str) -> v1::SubscriptionRef {
    v1::SubscriptionRef {
        link: link.to_owned(),
        id: id.to_owned(),
    }
}

/// Two reachable clusters, one live worker `w1`, and `topics` of the link `a-b` with two partitions
/// each, asked for by the exact subscription of the same name.
pub(crate) fn running_fleet(topics: &[&str]) -> FleetState {
    let reachable = ClusterState {
        reachable: Some(true),
        since: UnixMillis(5),
        topics: 3,
        partitions: 7,
        brokers: 1,
        discovered_at: Some(UnixMillis(6)),
        ..ClusterState::default()
    };
    let mut fleet = FleetState {
        ready: true,
        clusters: ["a", "b"]
            .map(|id| (ClusterId::new(id).expect("legal"), reachable.clone()))
            .into(),
        workers: [(worker("w1"), live_worker())].into(),
        ..FleetState::default()
    };
    for name in topics {
        let key = LinkTopic {
            link: LinkId::new("a-b").expect("legal"),
            topic: topic(name),
        };
        let resolved = ResolvedTopic {
            subscription: (*name).to_owned(),
            target_topic: topic(name),
            partitions: 2,
            first_partitions: 2,
            start: StartPolicy::Earliest,
            paused: false,
            problem: None,
            origin_clusters: Vec::new(),
            is_new: false,
        };
        fleet.resolved.topics.insert(key, resolved);
    }
    fleet
}

pub(crate) fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).expect("legal")
}

pub(crate) fn live_worker() -> WorkerView {
    WorkerView {
        address: "127.0.0.1:1".to_owned(),
        live: true,
        incarnation: "i1".to_owned(),
        draining: false,
        lost: false,
        version: "1.2.3".to_owned(),
        started_at: UnixMillis(4),
        tasks_assigned: 0,
        tasks_owned: 0,
    }
}

/// Checks that a call was refused with this code, and that the message names each of these.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    names: &[&str],
) -> String {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    for name in names {
        assert!(status.message().contains(name), "no {name:?} in {status:?}");
    }
    status.message().to_owned()
}
