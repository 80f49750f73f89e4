//! Everything that resolving takes, built step by step.

use crate::{
    ids::NameError,
    resolve::*,
    spec::{
        CheckpointSide, Cluster, GapPolicy, Link, Naming, Pattern, Security, Selector,
        Subscription, TargetTopics,
    },
};

pub(super) fn id<T: std::str::FromStr<Err = NameError>>(name: &str) -> T {
    name.parse().expect("legal")
}

/// A topic of a link, written `link/topic`.
pub(super) fn of(name: &str) -> LinkTopic {
    let (link, topic) = name.split_once('/').expect("link/topic");
    LinkTopic {
        link: id(link),
        topic: id(topic),
    }
}

/// Everything that resolving takes, built step by step.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) desired: Desired,
    pub(super) inventory: Inventory,
    pub(super) records: BTreeMap<LinkTopic, TopicRecord>,
    pub(super) baseline: BTreeSet<(LinkId, String)>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A link such as `a-b` between clusters `a` and `b`.
    pub(super) fn link(mut self, name: &str, prefix: &str) -> Self {
        let (source, target) = name.split_once('-').expect("named by its clusters");
        for cluster in [source, target] {
            let cluster: ClusterId = id(cluster);
            let declared = Cluster {
                id: cluster.clone(),
                bootstrap_servers: vec![format!("{cluster}:9092")],
                security: Security::default(),
                client_options: BTreeMap::new(),
                expected_cluster_id: None,
            };
            self.desired.clusters.insert(cluster, declared);
        }
        let link = Link {
            id: id(name),
            source: id(source),
            target: id(target),
            naming: Naming {
                prefix: prefix.to_owned(),
                rename: BTreeMap::new(),
            },
            start: StartPolicy::Latest,
            on_gap: GapPolicy::default(),
            checkpoint_on: CheckpointSide::default(),
            target_topics: TargetTopics::default(),
            paused: false,
            engine: None,
        };
        self.desired.links.insert(link.id.clone(), link);
        self
    }

    pub(super) fn edit_link(&mut self, name: &str) -> &mut Link {
        self.desired.links.get_mut(name).expect("made")
    }

    pub(super) fn subscribe(mut self, link: &str, selector: Selector) -> Self {
        let subscription = Subscription {
            link: id(link),
            selector,
            start: None,
            paused: false,
        };
        let key = (id(link), subscription.selector.id());
        self.desired.subscriptions.insert(key, subscription);
        self
    }

    pub(super) fn topic(self, link: &str, name: &str) -> Self {
        self.subscribe(link, Selector::Topic(id(name)))
    }

    pub(super) fn pattern(self, link: &str, include: &str) -> Self {
        let include = include.to_owned();
        let exclude = Vec::new();
        self.subscribe(link, Selector::Pattern(Pattern { include, exclude }))
    }

    pub(super) fn unsubscribe(mut self, link: &str, subscription: &str) -> Self {
        let key = (id(link), subscription.to_owned());
        self.desired.subscriptions.remove(&key).expect("subscribed");
        self
    }

    pub(super) fn edit_subscription(
        &mut self,
        link: &str,
        subscription: &str,
    ) -> &mut Subscription {
        let key = (id(link), subscription.to_owned());
        self.desired
            .subscriptions
            .get_mut(&key)
            .expect("subscribed")
    }

    /// Topics on a cluster with their numbers of partitions.
    pub(super) fn holds(mut self, cluster: &str, topics: &[(&str, i32)]) -> Self {
        let found = self.inventory.entry(id(cluster)).or_default();
        for (name, partitions) in topics {
            let source = SourceTopic {
                partitions: *partitions,
                topic_id: None,
            };
            found.insert(id(name), source);
        }
        self
    }

    pub(super) fn resolve(&self) -> Resolved {
        resolve(
            &self.desired,
            &self.inventory,
            &self.records,
            &self.baseline,
            &mut Matchers::default(),
        )
    }

    /// What the controller does about an answer: it notes new topics, makes target topics on clusters
    /// that are known, and the first discovery pass of every subscription is over.
    pub(super) fn carry_out(&mut self) -> Resolved {
        let resolved = self.resolve();
        for (id, topic) in resolved.topics.iter().filter(|(_, topic)| topic.runs()) {
            let target = &self.desired.links[&id.link].target;
            self.records
                .entry(id.clone())
                .or_insert_with(|| record(target, topic));
            let found = self.inventory.entry(target.clone()).or_default();
            let made = SourceTopic {
                partitions: topic.partitions,
                topic_id: None,
            };
            found.entry(topic.target_topic.clone()).or_insert(made);
        }
        for (id, topic) in &resolved.topics {
            if let Some(record) = self.records.get_mut(id) {
                record.partitions = topic.partitions;
            }
        }
        self.baseline = self.desired.subscriptions.keys().cloned().collect();
        resolved
    }

    /// Carries answers out until nothing new comes up.
    pub(super) fn settle(&mut self) -> Resolved {
        for _ in 0..20 {
            let before = self.records.len();
            let resolved = self.carry_out();
            if self.records.len() == before {
                return resolved;
            }
        }
        panic!("topics without end: {:?}", self.records.keys());
    }
}

pub(super) fn record(target: &ClusterId, topic: &ResolvedTopic) -> TopicRecord {
    TopicRecord {
        target: target.clone(),
        target_topic: topic.target_topic.clone(),
        first_partitions: topic.first_partitions,
        partitions: topic.partitions,
        target_partitions: topic.partitions,
        source_gone: false,
        start: topic.start,
        first_seen: UnixMillis(1),
        origin_clusters: topic.origin_clusters.clone(),
        source_cluster_id: None,
        target_cluster_id: None,
        source_topic_id: None,
    }
}

/// Which topic goes where, as `link/topic>target`.
pub(super) fn running(resolved: &Resolved) -> Vec<String> {
    let running = resolved.topics.iter().filter(|(_, topic)| topic.runs());
    running
        .map(|(id, topic)| format!("{id}>{}", topic.target_topic))
        .collect()
}

pub(super) fn problem<'a>(resolved: &'a Resolved, name: &str) -> Option<&'a TopicProblem> {
    resolved.topics[&of(name)].problem.as_ref()
}
