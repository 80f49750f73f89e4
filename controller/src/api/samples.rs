//! Samples for the tests of this folder.

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, LinkId, LinkTopic, OwnerEpoch, Partition, TaskId, TopicName, WorkerId},
    resolve::ResolvedTopic,
    spec::{
        CheckpointSide, Cluster, GapPolicy, Link, Naming, Security, Selector, StartPolicy,
        Subscription, TargetTopics,
    },
};
use kreplicator_proto::v1;
use tokio::time::Instant;

use crate::{
    fleet::{Assigned, ClusterState, FleetState, WorkerView},
    reports::Reports,
};

pub(super) fn cluster(id: &str) -> Cluster {
    Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers: vec![format!("{id}:9092")],
        security: Security::default(),
        client_options: Default::default(),
        expected_cluster_id: None,
    }
}

pub(super) fn link(id: &str, source: &str, target: &str) -> Link {
    Link {
        id: LinkId::new(id).expect("legal"),
        source: ClusterId::new(source).expect("legal"),
        target: ClusterId::new(target).expect("legal"),
        naming: Naming::default(),
        start: StartPolicy::default(),
        on_gap: GapPolicy::default(),
        checkpoint_on: CheckpointSide::default(),
        target_topics: TargetTopics::default(),
        paused: false,
        engine: None,
    }
}

pub(super) fn exact(link: &str, topic: &str) -> Subscription {
    Subscription {
        link: LinkId::new(link).expect("legal"),
        selector: Selector::Topic(TopicName::new(topic).expect("legal")),
        start: None,
        paused: false,
    }
}

/// Clusters `a` and `b`, link `a-b`, and an exact subscription for each topic.
pub(super) fn desired(topics: &[&str]) -> Desired {
    let mut desired = Desired::default();
    for id in ["a", "b"] {
        let cluster = cluster(id);
        desired.clusters.insert(cluster.id.clone(), cluster);
    }
    let link = link("a-b", "a", "b");
    for topic in topics {
        let place = (link.id.clone(), (*topic).to_owned());
        desired.subscriptions.insert(place, exact("a-b", topic));
    }
    desired.links.insert(link.id.clone(), link);
    desired
}

pub(super) fn link_topic(topic: &str) -> LinkTopic {
    LinkTopic {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(topic).expect("legal"),
    }
}

pub(super) fn task(topic: &str, partition: i32) -> TaskId {
    let LinkTopic { link, topic } = link_topic(topic);
    TaskId {
        link,
        topic,
        partition: Partition(partition),
    }
}

pub(super) fn assigned(worker: &str) -> Assigned {
    Assigned {
        worker: WorkerId::new(worker).expect("legal"),
        epoch: OwnerEpoch(1),
        owned: true,
        stopping: false,
        reason: String::new(),
        covered_by: std::collections::BTreeSet::new(),
    }
}

/// Two reachable clusters, the live worker `w1`, and two partitions of each topic assigned to it.
pub(super) fn fleet(topics: &[&str]) -> FleetState {
    let reachable = ClusterState {
        reachable: Some(true),
        ..ClusterState::default()
    };
    let live = WorkerView::idle();
    let mut fleet = FleetState {
        ready: true,
        clusters: ["a", "b"]
            .map(|id| (ClusterId::new(id).expect("legal"), reachable.clone()))
            .into(),
        workers: [(WorkerId::new("w1").expect("legal"), live)].into(),
        ..FleetState::default()
    };
    for topic in topics {
        let resolved = ResolvedTopic {
            subscription: (*topic).to_owned(),
            target_topic: TopicName::new(topic).expect("legal"),
            partitions: 2,
            first_partitions: 2,
            start: StartPolicy::Earliest,
            paused: false,
            problem: None,
            origin_clusters: Vec::new(),
            is_new: false,
        };
        fleet.resolved.topics.insert(link_topic(topic), resolved);
        for partition in [0, 1] {
            fleet
                .assigned
                .insert(task(topic, partition), assigned("w1"));
        }
    }
    fleet
}

pub(super) fn entry(topic: &str, partition: i32, state: v1::TaskState) -> v1::TaskReport {
    v1::TaskReport {
        link: "a-b".to_owned(),
        topic: topic.to_owned(),
        partition,
        epoch: 1,
        state: state.into(),
        ..v1::TaskReport::default()
    }
}

/// Takes in a full report of `w1`.
pub(super) fn report(reports: &Reports, fleet: &FleetState, tasks: Vec<v1::TaskReport>) {
    let report = v1::WorkerReport {
        worker: "w1".to_owned(),
        full: true,
        tasks,
        ..v1::WorkerReport::default()
    };
    reports.accept(Instant::now(), reports.open_stream(), report, fleet);
}
