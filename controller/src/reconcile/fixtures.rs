//! Values that the tests of this folder share.

use std::collections::BTreeMap;

use kreplicator_model::{
    ids::{
        ClusterId, LinkId, LinkTopic, OwnerEpoch, Partition, TaskId, TopicName, UnixMillis,
        WorkerId,
    },
    resolve::{Resolved, ResolvedTopic, TopicRecord},
    spec::{CheckpointSide, GapPolicy, Link, Naming, StartPolicy, TargetTopics},
};
use kreplicator_proto::{
    assignment::{AssignedTopic, Assignment},
    v1,
};
use kreplicator_store::{
    api::{Entry, Revision},
    keys,
};

use super::{
    book::{Book, LiveWorker, Snapshots},
    chunks::Content,
};

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("legal")
}

pub(super) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).expect("legal")
}

pub(super) fn topic(name: &str) -> LinkTopic {
    LinkTopic {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new(name).expect("legal"),
    }
}

pub(super) fn task(name: &str, partition: i32) -> TaskId {
    let LinkTopic { link, topic } = topic(name);
    TaskId {
        link,
        topic,
        partition: Partition(partition),
    }
}

pub(super) fn link() -> Link {
    Link {
        id: topic("x").link,
        source: cluster("a"),
        target: cluster("b"),
        naming: Naming::default(),
        start: StartPolicy::Earliest,
        on_gap: GapPolicy::default(),
        checkpoint_on: CheckpointSide::default(),
        target_topics: TargetTopics::default(),
        paused: false,
        engine: None,
    }
}

/// A topic that keeps its name and runs.
pub(super) fn resolved_topic(name: &str, partitions: i32) -> ResolvedTopic {
    ResolvedTopic {
        subscription: name.to_owned(),
        target_topic: topic(name).topic,
        partitions,
        first_partitions: partitions,
        start: StartPolicy::Earliest,
        paused: false,
        problem: None,
        origin_clusters: vec![cluster("a")],
        is_new: false,
    }
}

pub(super) fn resolved(topics: &[(&str, i32)]) -> Resolved {
    let topics = topics
        .iter()
        .map(|(name, partitions)| (topic(name), resolved_topic(name, *partitions)));
    Resolved {
        topics: topics.collect(),
        ..Resolved::default()
    }
}

pub(super) fn record(name: &str, partitions: i32, target_partitions: i32) -> TopicRecord {
    TopicRecord {
        target: cluster("b"),
        target_topic: topic(name).topic,
        first_partitions: partitions,
        partitions,
        target_partitions,
        source_gone: false,
        start: StartPolicy::Earliest,
        first_seen: UnixMillis(1),
        origin_clusters: vec![cluster("a")],
        source_cluster_id: Some("ka".to_owned()),
        target_cluster_id: Some("kb".to_owned()),
        source_topic_id: None,
    }
}

/// The book of an empty store.
pub(super) fn empty_book() -> Book {
    let none = BTreeMap::new();
    Book::load(&Snapshots {
        config: &none,
        workers: &none,
        records: &none,
        plan: &none,
        plan_revision: Revision(0),
        owned: &none,
    })
}

pub(super) fn register(book: &mut Book, name: &str, created: i64) {
    let live = LiveWorker {
        created: Revision(created),
        live: v1::WorkerLive::default(),
    };
    book.workers.insert(worker(name), live);
}

/// Enters an assignment as published at `revision`, which is the epoch of all its tasks too.
pub(super) fn assign(book: &mut Book, name: &str, tasks: &[TaskId], revision: u64) {
    let mut chunks: BTreeMap<u32, Assignment> = BTreeMap::new();
    for task in tasks {
        let chunk = chunks
            .entry(keys::chunk_of(&task.link, &task.topic))
            .or_default();
        chunk.generation.0 = revision;
        let told = chunk
            .topics
            .entry(task.link_topic())
            .or_insert_with(|| AssignedTopic {
                target_topic: task.topic.clone(),
                start: StartPolicy::Earliest,
                first_partitions: 4,
                partitions: BTreeMap::new(),
                limits: Default::default(),
            });
        told.partitions.insert(task.partition, OwnerEpoch(revision));
    }
    let at = Revision(i64::try_from(revision).expect("small"));
    for (chunk, assignment) in chunks {
        book.chunk_written(&worker(name), chunk, assignment, at);
    }
}

/// Tasks of a chunk's content.
pub(super) fn tasks_of(content: &Content) -> Vec<TaskId> {
    let topics = content.0.values();
    topics
        .flat_map(|topic| topic.tasks.keys().cloned())
        .collect()
}

/// A value as the store gives it.
pub(super) fn entry(value: Vec<u8>, revision: i64) -> Entry {
    Entry {
        value,
        create_revision: Revision(1),
        mod_revision: Revision(revision),
        lease: None,
    }
}
