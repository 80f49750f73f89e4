use std::{collections::BTreeMap, time::Duration};

use kreplicator_model::ids::TopicName;
use kreplicator_proto::assignment::AssignedTopic;
use kreplicator_store::{
    EmbeddedStore, Fence,
    api::{Snapshot, Txn},
};
use tokio::time::Instant;

use super::*;
use crate::reconcile::{
    book::Snapshots,
    chunks::{Content, TopicContent},
    fixtures::{record, topic, worker},
};

struct Scene {
    store: Arc<dyn MetaStore>,
    writer: Writer,
}

/// A leader that holds its key.
async fn leader() -> Scene {
    let store: Arc<dyn MetaStore> = Arc::new(EmbeddedStore::in_memory());
    let revision = put_key(&store, keys::LEADER).await;
    let writer = Writer {
        store: Arc::clone(&store),
        term: Term {
            guard: Compare::CreatedAt(keys::LEADER.to_owned(), revision),
            fence: Fence::open_until(Instant::now() + Duration::from_secs(60)),
            number: 1,
        },
        first_generation: PlanGeneration(1),
        metrics: Arc::new(Metrics::register()),
    };
    Scene { store, writer }
}

async fn put_key(store: &Arc<dyn MetaStore>, key: &str) -> Revision {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![put(key.to_owned(), Vec::new())],
    };
    match store.commit(txn).await.expect("store works") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict => panic!("nothing was compared"),
    }
}

async fn delete_key(store: &Arc<dyn MetaStore>, key: &str) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::Delete(key.to_owned())],
    };
    store.commit(txn).await.expect("store works");
}

impl Scene {
    async fn all(&self) -> Snapshot {
        self.store.list("").await.expect("store works")
    }

    async fn book(&self) -> Book {
        let plan = self.store.list("plan/").await.expect("store works");
        let records = self
            .store
            .list(keys::TOPIC_RECORDS)
            .await
            .expect("store works");
        let none = BTreeMap::new();
        Book::load(&Snapshots {
            config: &none,
            workers: &none,
            records: &records.entries,
            plan: &plan.entries,
            plan_revision: plan.revision,
            owned: &none,
        })
    }
}

/// A chunk that gives `topics` topics with `partitions` partitions each.
fn write(name: &str, chunk: u32, requires: Requires, topics: usize, partitions: i32) -> ChunkWrite {
    let mut content = Content::default();
    let mut gained = std::collections::BTreeSet::new();
    for number in 0..topics {
        let topic = topic(&format!("a-topic-with-quite-a-long-name-{number:06}"));
        let tasks = (0..partitions).map(|partition| TaskId {
            link: topic.link.clone(),
            topic: topic.topic.clone(),
            partition: kreplicator_model::ids::Partition(partition),
        });
        let tasks: BTreeMap<_, _> = tasks.map(|task| (task, None)).collect();
        gained.extend(tasks.keys().cloned());
        let told = AssignedTopic {
            target_topic: TopicName::new("target").expect("legal"),
            start: Default::default(),
            first_partitions: partitions,
            partitions: BTreeMap::new(),
            limits: Default::default(),
        };
        content.0.insert(topic, TopicContent { told, tasks });
    }
    ChunkWrite {
        worker: worker(name),
        chunk,
        parent: None,
        requires,
        content: Some(content),
        gained,
    }
}

#[tokio::test]
async fn c062_a_deposed_leader_writes_nothing() {
    let scene = leader().await;
    let mut book = scene.book().await;
    delete_key(&scene.store, keys::LEADER).await;
    put_key(&scene.store, keys::LEADER).await;
    let before = scene.all().await;
    let mut published = Published::default();
    let writes = vec![write("w1", 0, Requires::Nothing, 1, 1)];
    let chunks = scene.writer.chunks(&mut book, writes, &mut published).await;
    assert!(matches!(chunks, Err(WriteError::Conflict)));
    let noted = vec![(topic("orders"), record("orders", 4, 0))];
    let records = scene.writer.records(&mut book, noted).await;
    assert!(matches!(records, Err(WriteError::Conflict)));
    assert_eq!(scene.all().await, before);
    assert!(published.given.is_empty() && book.records.is_empty());
    assert_eq!(book.plan.generation(), PlanGeneration(0));
}

#[tokio::test]
async fn every_publication_raises_the_generation_and_gives_it_as_epoch() {
    let scene = leader().await;
    let mut book = scene.book().await;
    for round in 1..=3 {
        let mut published = Published::default();
        let chunk = u32::try_from(round).expect("small");
        let writes = vec![write("w1", chunk, Requires::Nothing, 1, 2)];
        scene
            .writer
            .chunks(&mut book, writes, &mut published)
            .await
            .expect("written");
        assert_eq!(published.given.len(), 2);
        assert_eq!(book.plan.generation(), PlanGeneration(round));
        let written = book.plan.chunk(&worker("w1"), chunk).expect("entered");
        assert!(
            written
                .assignment
                .tasks()
                .values()
                .all(|epoch| epoch.0 == round)
        );
    }
    // What a leader after this one reads is what is in the book.
    let read = scene.book().await;
    assert_eq!(read.plan.generation(), book.plan.generation());
    assert!(read.plan.chunks().eq(book.plan.chunks()));
}

/// Checkpoints in the clusters hold the epochs of plans that a new or restored store knows nothing of.
#[tokio::test]
async fn a_term_publishes_no_generation_from_before_it_began() {
    let mut scene = leader().await;
    scene.writer.first_generation = PlanGeneration(1_700_000_000_000);
    let mut book = scene.book().await;
    for expected in [1_700_000_000_000, 1_700_000_000_001] {
        let chunk = u32::try_from(expected % 8).expect("small");
        let writes = vec![write("w1", chunk, Requires::Nothing, 1, 1)];
        let mut published = Published::default();
        let written = scene.writer.chunks(&mut book, writes, &mut published);
        written.await.expect("written");
        assert_eq!(book.plan.generation(), PlanGeneration(expected));
    }
    // A clock that is behind what is stored changes nothing.
    scene.writer.first_generation = PlanGeneration(5);
    let mut book = scene.book().await;
    let writes = vec![write("w1", 7, Requires::Nothing, 1, 1)];
    let mut published = Published::default();
    let written = scene.writer.chunks(&mut book, writes, &mut published);
    written.await.expect("written");
    assert_eq!(book.plan.generation(), PlanGeneration(1_700_000_000_002));
}

#[tokio::test]
async fn a_second_leader_with_an_old_book_conflicts_and_reads_again() {
    let scene = leader().await;
    let mut old = scene.book().await;
    let mut book = scene.book().await;
    let mut published = Published::default();
    let writes = |chunk| vec![write("w1", chunk, Requires::Nothing, 1, 1)];
    scene
        .writer
        .chunks(&mut book, writes(0), &mut published)
        .await
        .expect("written");
    let stale = scene
        .writer
        .chunks(&mut old, writes(1), &mut published)
        .await;
    assert!(matches!(stale, Err(WriteError::Conflict)));
    let plan = scene.store.list("plan/").await.expect("store works");
    let task = write("w1", 0, Requires::Nothing, 1, 1).gained.pop_first();
    let task = task.expect("one task");
    assert_eq!(old.ledger.assigned_to(&task), None);
    old.plan_read(&plan.entries, plan.revision);
    assert_eq!(
        old.ledger
            .assigned_to(&task)
            .map(|(worker, _)| worker.as_str()),
        Some("w1")
    );
    scene
        .writer
        .chunks(&mut old, writes(1), &mut published)
        .await
        .expect("written");
    assert_eq!(old.plan.generation(), PlanGeneration(2));
}

#[tokio::test]
async fn a_worker_must_be_what_the_decision_took_it_for() {
    let scene = leader().await;
    let mut book = scene.book().await;
    let mut published = Published::default();
    let live = keys::worker_live(&worker("w1"));
    let registered = put_key(&scene.store, &live).await;
    let lost = vec![write("w1", 0, Requires::Absent, 0, 0)];
    let refused = scene.writer.chunks(&mut book, lost, &mut published).await;
    assert!(
        matches!(refused, Err(WriteError::Conflict)),
        "came back in time and was robbed"
    );
    delete_key(&scene.store, &live).await;
    let anew = put_key(&scene.store, &live).await;
    let writes = |revision| vec![write("w1", 0, Requires::Registered(revision), 1, 1)];
    let refused = scene
        .writer
        .chunks(&mut book, writes(registered), &mut published)
        .await;
    assert!(
        matches!(refused, Err(WriteError::Conflict)),
        "given to a registration that is over"
    );
    scene
        .writer
        .chunks(&mut book, writes(anew), &mut published)
        .await
        .expect("written");
}

#[tokio::test]
async fn large_publications_are_split_to_what_the_store_takes() {
    let scene = leader().await;
    let mut book = scene.book().await;
    let mut published = Published::default();
    // 400 small chunks of 50 workers, then 8 of 500 kB each.
    let mut writes: Vec<_> = (0..400)
        .map(|number| {
            write(
                &format!("w{}", number / 8),
                number % 8,
                Requires::Nothing,
                1,
                1,
            )
        })
        .collect();
    writes.extend((0..8).map(|chunk| write("large", chunk, Requires::Nothing, 2_000, 20)));
    // One that no transaction takes: it is left out, the others are not held up.
    writes.push(write("huge", 0, Requires::Nothing, 12_000, 20));
    scene
        .writer
        .chunks(&mut book, writes, &mut published)
        .await
        .expect("written");
    assert_eq!(published.given.len(), 400 + 8 * 2_000 * 20);
    assert!(book.plan.generation().0 >= 6, "{}", book.plan.generation());
    assert!(book.plan.chunk(&worker("huge"), 0).is_none());
    assert_eq!(published.oversized, [worker("huge")].into());
    let plan = scene
        .store
        .list(keys::ASSIGNMENTS)
        .await
        .expect("store works");
    assert_eq!(plan.entries.len(), 408);
}

#[tokio::test]
async fn records_are_written_in_batches_and_only_over_what_was_read() {
    let scene = leader().await;
    let mut book = scene.book().await;
    let records: Vec<_> = (0..300)
        .map(|number| (topic(&format!("topic-{number}")), record("x", 4, 0)))
        .collect();
    let before = scene.all().await.revision;
    scene
        .writer
        .records(&mut book, records.clone())
        .await
        .expect("written");
    assert_eq!(scene.all().await.revision.0 - before.0, 3);
    let mut other = scene.book().await;
    assert_eq!(other.records.len(), 300);
    let verified = vec![(records[0].0.clone(), record("x", 4, 4))];
    scene
        .writer
        .records(&mut other, verified.clone())
        .await
        .expect("written");
    let stale = scene.writer.records(&mut book, verified).await;
    assert!(matches!(stale, Err(WriteError::Conflict)));
}

#[test]
fn a_chunk_that_is_too_large_is_told_once_until_it_fits_again() {
    let mut known = BTreeSet::new();
    let huge = || BTreeSet::from([worker("huge")]);
    assert_eq!(note_oversized(&mut known, huge(), true), huge());
    assert_eq!(note_oversized(&mut known, huge(), true), BTreeSet::new());
    // Broken off before it came to that chunk.
    note_oversized(&mut known, BTreeSet::new(), false);
    assert_eq!(note_oversized(&mut known, huge(), true), BTreeSet::new());
    note_oversized(&mut known, BTreeSet::new(), true);
    assert_eq!(note_oversized(&mut known, huge(), true), huge());
}
