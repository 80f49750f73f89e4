//! What a link or a subscription names: clusters, links, patterns, topics.

use super::{Desired, Fault, FaultKind, Identities};
use crate::{
    ids::{ClusterId, LinkId, TopicName},
    selector::{self, Matchers},
    spec::{ALLOW_AUTO_CREATE, Cluster, Engine, Link, Selector, Subscription},
};

pub(super) fn check(
    desired: &Desired,
    identities: &Identities,
    matchers: &mut Matchers,
    faults: &mut Vec<Fault>,
) {
    for (id, link) in &desired.links {
        let mut report = |kind, message| {
            let subject = format!("link {id}");
            faults.push(Fault {
                subject,
                kind,
                message,
            });
        };
        check_clusters(desired, identities, link, &mut report);
        check_naming(link, &mut report);
        check_engine(desired, link, &mut report);
    }
    for ((link, id), subscription) in &desired.subscriptions {
        let mut report = |kind, message| {
            let subject = format!("subscription {link}/{id}");
            faults.push(Fault {
                subject,
                kind,
                message,
            });
        };
        check_subscription(desired, link, subscription, matchers, &mut report);
    }
}

fn check_clusters(
    desired: &Desired,
    identities: &Identities,
    link: &Link,
    report: &mut impl FnMut(FaultKind, String),
) {
    let mut check = |role: &str, cluster: &ClusterId| {
        if !desired.clusters.contains_key(cluster) {
            report(
                FaultKind::UnknownCluster,
                format!("{role} cluster {cluster} is not declared; declare it or correct the name"),
            );
        }
    };
    check("source", &link.source);
    check("target", &link.target);
    let (source, target) = (&link.source, &link.target);
    if source == target {
        report(
            FaultKind::SameCluster,
            format!("source and target are both {source}; a link joins two clusters"),
        );
    } else if identities.are_same(source, target) {
        report(
            FaultKind::SameCluster,
            format!(
                "source {source} and target {target} are one Kafka cluster, by address or pinned \
                 cluster id; a link joins two clusters"
            ),
        );
    }
}

fn check_naming(link: &Link, report: &mut impl FnMut(FaultKind, String)) {
    let prefix = &link.naming.prefix;
    // The shortest topic name tells whether the prefix itself is legal.
    match TopicName::new(format!("{prefix}x")) {
        Err(fault) => report(
            FaultKind::BadName,
            format!("prefix {prefix:?} cannot begin a topic name: {fault}"),
        ),
        Ok(name) if selector::is_ours(&name) => report(
            FaultKind::OursTopic,
            format!("prefix {prefix:?} is kept for KReplicator's own topics; choose another"),
        ),
        Ok(_) => {}
    }
    for (source, target) in &link.naming.rename {
        for topic in [source, target] {
            if selector::is_ours(topic) {
                report(
                    FaultKind::OursTopic,
                    format!(
                        "rename of {source} to {target}: {topic} is KReplicator's own; remove it"
                    ),
                );
            }
        }
    }
    for clash in link.naming.rename_clashes() {
        let (first, second, target) = (clash.first, clash.second, clash.target);
        report(
            FaultKind::NameClash,
            format!(
                "{first} and {second} are both renamed to {target}; give each a name of its own"
            ),
        );
    }
}

/// An engine that the link names must be able to do what its clusters are set to.
fn check_engine(desired: &Desired, link: &Link, report: &mut impl FnMut(FaultKind, String)) {
    if link.engine() != Engine::Batches {
        return;
    }
    let target = desired.clusters.get(&link.target);
    if target.is_some_and(Cluster::allows_auto_create) {
        report(
            FaultKind::EngineUnfit,
            format!(
                "engine batches cannot leave topics to be made by target {}, whose client option \
                 {ALLOW_AUTO_CREATE} is true; remove the option or set engine: records",
                link.target
            ),
        );
    }
}

fn check_subscription(
    desired: &Desired,
    link: &LinkId,
    subscription: &Subscription,
    matchers: &mut Matchers,
    report: &mut impl FnMut(FaultKind, String),
) {
    let Some(link) = desired.links.get(link) else {
        report(
            FaultKind::UnknownLink,
            format!("link {link} is not declared; declare it or correct the name"),
        );
        return;
    };
    if let Err(fault) = matchers.get(&subscription.selector) {
        report(FaultKind::BadPattern, fault.to_string());
    }
    let Selector::Topic(topic) = &subscription.selector else {
        return;
    };
    if selector::is_ours(topic) {
        report(
            FaultKind::OursTopic,
            format!("{topic} is KReplicator's own and is never copied; drop the subscription"),
        );
    } else if let Err(fault) = link.naming.target_of(topic) {
        report(
            FaultKind::BadName,
            format!("target name is not allowed; rename the topic on the link: {fault}"),
        );
    }
}
