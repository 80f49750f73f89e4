use std::{collections::BTreeMap, sync::Arc};

use kreplicator_model::{ids::TopicName, resolve::SourceTopic};

use super::*;
use crate::{
    discovery::{ClusterSnapshot, ClusterTopics},
    reconcile::fixtures::{cluster, link, record, resolved, resolved_topic, topic},
    targets::TargetProblem,
};

fn desired() -> Desired {
    Desired {
        links: [(link().id, link())].into(),
        ..Desired::default()
    }
}

/// A cluster with its Kafka id, and topics with their partitions.
type Seen<'a> = (&'a str, &'a str, &'a [(&'a str, i32)]);

/// Clusters as discovery saw them.
fn snapshot(clusters: &[Seen<'_>]) -> Snapshot {
    let entry = |(name, kafka, topics): &Seen<'_>| {
        let topics = topics.iter().map(|(name, partitions)| {
            let source = SourceTopic {
                partitions: *partitions,
                topic_id: None,
            };
            (TopicName::new(name).expect("legal"), source)
        });
        let known = ClusterSnapshot {
            topics: Some(Arc::new(ClusterTopics {
                topics: topics.collect(),
                confirmed: true,
                kafka_cluster_id: Some((*kafka).to_owned()),
                brokers: 1,
            })),
            ..ClusterSnapshot::default()
        };
        (cluster(name), known)
    };
    clusters.iter().map(entry).collect()
}

fn as_recorded() -> Snapshot {
    snapshot(&[("a", "ka", &[("orders", 4)]), ("b", "kb", &[("orders", 4)])])
}

fn records(target_partitions: i32) -> BTreeMap<LinkTopic, TopicRecord> {
    [(topic("orders"), record("orders", 4, target_partitions))].into()
}

fn changed(
    resolved: &Resolved,
    records: &BTreeMap<LinkTopic, TopicRecord>,
    targets: &BTreeMap<LinkTopic, TargetState>,
    snapshot: &Snapshot,
) -> Option<TopicRecord> {
    let halted = halted(&desired(), resolved, records, snapshot);
    let changed = changed_records(
        &desired(),
        resolved,
        records,
        &halted,
        &BTreeSet::new(),
        targets,
        snapshot,
    );
    assert!(changed.len() <= 1);
    changed.into_iter().next().map(|(_, record)| record)
}

fn verified(partitions: i32) -> BTreeMap<LinkTopic, TargetState> {
    let state = TargetState {
        partitions: Some(partitions),
        ..TargetState::default()
    };
    [(topic("orders"), state)].into()
}

#[test]
fn new_topics_are_noted_with_what_is_known_of_their_clusters() {
    let mut all = resolved(&[]);
    for name in ["orders", "loops"] {
        let fresh = ResolvedTopic {
            is_new: true,
            ..resolved_topic(name, 4)
        };
        all.topics.insert(topic(name), fresh);
    }
    let loops = all.topics.get_mut(&topic("loops")).expect("there");
    loops.problem = Some(kreplicator_model::resolve::TopicProblem::WouldLoop {
        target: cluster("b"),
    });
    let noted = new_records(&desired(), &all, &as_recorded(), UnixMillis(1));
    assert_eq!(noted, [(topic("orders"), record("orders", 4, 0))]);
}

#[test]
fn what_was_verified_and_what_has_grown_is_noted() {
    let all = resolved(&[("orders", 8)]);
    assert_eq!(
        changed(
            &resolved(&[("orders", 4)]),
            &records(4),
            &verified(4),
            &as_recorded()
        ),
        None
    );
    let after = changed(&all, &records(4), &verified(8), &as_recorded()).expect("differs");
    assert_eq!((after.partitions, after.target_partitions), (8, 8));
    assert_eq!(after.first_partitions, 4);
    let mut broken = verified(0);
    broken.get_mut(&topic("orders")).expect("there").problem = Some(TargetProblem {
        message: "deleted".to_owned(),
        stops: true,
    });
    let after = changed(
        &resolved(&[("orders", 4)]),
        &records(4),
        &broken,
        &as_recorded(),
    );
    assert_eq!(after, None, "forgets that the target was there");
}

#[test]
fn c073_another_cluster_under_the_same_name_halts_until_somebody_decides() {
    let all = resolved(&[("orders", 4)]);
    for (side, now) in [
        (
            "source cluster a",
            snapshot(&[("a", "other", &[("orders", 4)]), ("b", "kb", &[])]),
        ),
        (
            "target cluster b",
            snapshot(&[("a", "ka", &[("orders", 4)]), ("b", "other", &[])]),
        ),
    ] {
        let halts = halted(&desired(), &all, &records(4), &now);
        let cause = &halts[&topic("orders")];
        assert!(cause.contains(side) && cause.contains("other"), "{cause}");
        assert_eq!(
            changed(&all, &records(4), &verified(4), &now),
            None,
            "accepted silently"
        );
        // Unsubscribing is the decision.
        let after = changed(&resolved(&[]), &records(4), &BTreeMap::new(), &now);
        let records = [(topic("orders"), after.expect("differs"))].into();
        assert!(halted(&desired(), &all, &records, &now).is_empty());
    }
    assert!(halted(&desired(), &all, &records(4), &as_recorded()).is_empty());
    // A cluster that cannot be reached has no id: no data means wait.
    assert!(halted(&desired(), &all, &records(4), &Snapshot::new()).is_empty());
}

#[test]
fn c002_a_topic_with_fewer_partitions_than_before_halts() {
    let fewer = resolved(&[("orders", 2)]);
    let now = snapshot(&[("a", "ka", &[("orders", 2)]), ("b", "kb", &[("orders", 4)])]);
    assert!(halted(&desired(), &fewer, &records(4), &now).contains_key(&topic("orders")));
    let after = changed(&resolved(&[]), &records(4), &BTreeMap::new(), &now).expect("differs");
    let records = [(topic("orders"), after)].into();
    assert!(halted(&desired(), &fewer, &records, &now).is_empty());
}

#[test]
fn c068_a_deleted_target_is_forgotten_once_its_topic_is_unsubscribed() {
    let gone = snapshot(&[("a", "ka", &[("orders", 4)]), ("b", "kb", &[])]);
    let after = changed(&resolved(&[]), &records(4), &BTreeMap::new(), &gone).expect("differs");
    assert_eq!(after.target_partitions, 0);
    assert_eq!(after.target_cluster_id.as_deref(), Some("kb"));
    // Not by one look, and not while what is asked for cannot be read.
    let mut unconfirmed = gone.clone();
    for known in unconfirmed.values_mut() {
        let topics = known.topics.as_mut().expect("seen");
        Arc::make_mut(topics).confirmed = false;
    }
    let none = resolved(&[]);
    assert_eq!(
        changed(&none, &records(4), &BTreeMap::new(), &unconfirmed),
        None
    );
    let frozen = [link().id].into();
    let unread = changed_records(
        &desired(),
        &none,
        &records(4),
        &BTreeMap::new(),
        &frozen,
        &BTreeMap::new(),
        &gone,
    );
    assert_eq!(unread, []);
    // A target that is there, or was not looked at, is kept in mind.
    for now in [as_recorded(), Snapshot::new()] {
        assert_eq!(
            changed(&resolved(&[]), &records(4), &BTreeMap::new(), &now),
            None
        );
    }
}

#[test]
fn a_cluster_that_is_not_the_declared_one_halts_its_links() {
    let mut now = as_recorded();
    now.get_mut(&cluster("a")).expect("there").refused = Some("cluster a is another".to_owned());
    let halts = halted(&desired(), &resolved(&[("orders", 4)]), &records(4), &now);
    assert_eq!(halts[&topic("orders")], "cluster a is another");
}

#[test]
fn c002_a_topic_that_was_gone_is_another_one_when_it_is_back() {
    let mut gone = resolved(&[("orders", 4)]);
    gone.topics
        .get_mut(&topic("orders"))
        .expect("there")
        .problem = Some(TopicProblem::SourceGone {
        cluster: cluster("a"),
    });
    let now = as_recorded();
    let after = changed(&gone, &records(4), &BTreeMap::new(), &now).expect("differs");
    assert!(after.source_gone);
    let records: BTreeMap<_, _> = [(topic("orders"), after)].into();
    // While it is gone that is what is told; once it is back it is halted.
    assert!(halted(&desired(), &gone, &records, &now).is_empty());
    let back = resolved(&[("orders", 4)]);
    let halts = halted(&desired(), &back, &records, &now);
    assert!(halts[&topic("orders")].contains("made again"));
    assert_eq!(
        changed(&back, &records, &verified(4), &now),
        None,
        "accepted silently"
    );
    let after = changed(&resolved(&[]), &records, &BTreeMap::new(), &now).expect("differs");
    assert!(!after.source_gone);
}

#[test]
fn a_link_that_was_pointed_elsewhere_halts_what_it_has_begun_and_nothing_else() {
    let elsewhere = |change: fn(&mut Link)| {
        let mut link = link();
        change(&mut link);
        Desired {
            links: [(link.id.clone(), link)].into(),
            ..Desired::default()
        }
    };
    let to_c = elsewhere(|link| link.target = cluster("c"));
    let from_c = elsewhere(|link| link.source = cluster("c"));
    let all = resolved(&[("orders", 4)]);
    let now = snapshot(&[
        ("a", "ka", &[("orders", 4)]),
        ("b", "kb", &[("orders", 4)]),
        ("c", "kc", &[("orders", 4)]),
    ]);
    for (desired, part) in [
        (&to_c, "writes to cluster c now"),
        (&from_c, "reads from cluster c now"),
    ] {
        let halts = halted(desired, &all, &records(4), &now);
        let cause = &halts[&topic("orders")];
        assert!(
            cause.contains(part) && cause.contains("a-b"),
            "{part} is not in {cause}"
        );
        assert!(halted(desired, &all, &records(0), &now).is_empty());
    }
    let none = BTreeMap::new();
    let after = changed_records(
        &to_c,
        &all,
        &records(0),
        &none,
        &BTreeSet::new(),
        &BTreeMap::new(),
        &now,
    );
    let (_, after) = after.into_iter().next().expect("differs");
    assert_eq!(after.target, cluster("c"));
    assert_eq!(after.target_cluster_id.as_deref(), Some("kc"));
}
