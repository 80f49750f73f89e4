//! What the book of lines promises on every metadata store: one suite, run against each.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use futures::{FutureExt, future::join_all};
use kreplicator_model::{
    exact::{Line, ProducerEpoch, ProducerId},
    ids::{ClusterId, LinkId, LinkTopic, Offset, OwnerEpoch, Partition, UnixMillis, WorkerId},
};
use kreplicator_store::{MetaStore, Op, Txn, keys};
use kreplicator_worker::{
    clock::WallClock,
    lines::{Allocated, Error, LineBook, LineTarget, NewEntry, StoredLines, TopicLines, Written},
};

/// Runs the suite on the store that the expression makes.
macro_rules! line_book_tests {
    ($attribute:meta, $store:expr, $($name:ident),* $(,)?) => {
        $(
            #[$attribute]
            async fn $name() {
                let held = $store.await;
                line_book::$name(held.store()).await;
            }
        )*
    };
    ($attribute:meta, $store:expr) => {
        line_book::line_book_tests!(
            $attribute,
            $store,
            a_line_is_read_as_it_was_written,
            of_two_writers_of_one_partition_one_is_told_of_the_other,
            writers_of_other_partitions_never_disturb_each_other,
            a_whole_topic_at_once_takes_few_revisions,
            lines_for_another_target_are_absent_and_replaced,
            one_producer_id_serves_all_workers_of_a_link,
            a_producer_id_of_another_target_is_not_used,
            a_failed_allocation_leaves_nothing_behind,
            what_cannot_be_read_is_an_error_and_stays,
        );
    };
}
pub(crate) use line_book_tests;

fn book(store: &Arc<dyn MetaStore>, worker: &str) -> StoredLines {
    let worker = WorkerId::new(worker).expect("legal");
    let clock = WallClock::from_fn(|| UnixMillis(1_000));
    StoredLines::new(Arc::clone(store), worker, clock)
}

fn link() -> LinkId {
    LinkId::new("a-b").expect("legal")
}

fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).expect("legal")
}

fn orders() -> LinkTopic {
    LinkTopic {
        link: link(),
        topic: "orders".parse().expect("legal"),
    }
}

fn target(topic: &str) -> LineTarget {
    LineTarget {
        cluster: cluster("b"),
        cluster_id: Some("kafka-b".to_owned()),
        topic: topic.parse().expect("legal"),
        topic_id: None,
    }
}

fn entry(partition: i32, epoch: i16) -> NewEntry {
    NewEntry {
        partition: Partition(partition),
        line: Line {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(epoch),
            base: Offset(5),
            target_from: Offset(6),
        },
        owner_epoch: OwnerEpoch(3),
    }
}

fn epoch(lines: &TopicLines, partition: i32) -> Option<i16> {
    let line = lines.line(Partition(partition))?;
    Some(line.producer_epoch.0)
}

async fn load(book: &StoredLines) -> TopicLines {
    let loaded = book.load(&orders(), &target("orders")).await;
    loaded.expect("readable")
}

async fn write(book: &StoredLines, expected: &TopicLines, entry: NewEntry) -> Written {
    let target = target("orders");
    let written = book.write(&orders(), &target, expected, entry).await;
    written.expect("writable")
}

#[track_caller]
fn done(written: Written) -> TopicLines {
    match written {
        Written::Done(lines) => lines,
        Written::Conflict(lines) => panic!("in conflict with {lines:?}"),
    }
}

#[track_caller]
fn conflict(written: Written) -> TopicLines {
    match written {
        Written::Done(lines) => panic!("written: {lines:?}"),
        Written::Conflict(lines) => lines,
    }
}

pub(crate) async fn a_line_is_read_as_it_was_written(store: Arc<dyn MetaStore>) {
    let book = book(&store, "w1");
    let empty = load(&book).await;
    assert_eq!((empty.revision(), empty.line(Partition(3))), (None, None));
    let lines = done(write(&book, &empty, entry(3, 0)).await);
    assert_eq!(lines, load(&book).await);
    let found = lines.entry(Partition(3)).expect("written");
    assert_eq!(found.line, entry(3, 0).line);
    assert_eq!(
        (found.worker.as_str(), found.owner_epoch, found.written_at),
        ("w1", OwnerEpoch(3), UnixMillis(1_000))
    );
    let next = done(write(&book, &lines, entry(3, 1)).await);
    assert_eq!(epoch(&next, 3), Some(1));
    assert!(next.revision() > lines.revision());
}

pub(crate) async fn of_two_writers_of_one_partition_one_is_told_of_the_other(
    store: Arc<dyn MetaStore>,
) {
    for round in 0..10 {
        let (first, second) = (book(&store, "w1"), book(&store, "w2"));
        let before = load(&first).await;
        let (a, b) = (entry(0, 2 * round), entry(0, 2 * round + 1));
        let (first, second) = futures::join!(write(&first, &before, a), write(&second, &before, b));
        let (winner, loser) = match (first, second) {
            (Written::Done(winner), Written::Conflict(loser))
            | (Written::Conflict(loser), Written::Done(winner)) => (winner, loser),
            other => panic!("one wins and one does not: {other:?}"),
        };
        assert_eq!(epoch(&loser, 0), epoch(&winner, 0), "told of the winner's");
    }
    // A write whose answer was lost is repeated with what was expected then.
    let book = book(&store, "w1");
    let before = load(&book).await;
    let written = done(write(&book, &before, entry(0, 90)).await);
    assert_eq!(done(write(&book, &before, entry(0, 90)).await), written);
}

pub(crate) async fn writers_of_other_partitions_never_disturb_each_other(
    store: Arc<dyn MetaStore>,
) {
    let books: Vec<_> = (0..5).map(|n| book(&store, &format!("w{n}"))).collect();
    let before = load(&books[0]).await;
    let writes = (0_i32..20).map(|partition| {
        let book = &books[usize::try_from(partition).expect("small") % books.len()];
        write(book, &before, entry(partition, 0))
    });
    for written in join_all(writes).await {
        done(written);
    }
    let after = load(&books[0]).await;
    assert!((0..20).all(|partition| epoch(&after, partition) == Some(0)));
}

pub(crate) async fn a_whole_topic_at_once_takes_few_revisions(store: Arc<dyn MetaStore>) {
    let book = book(&store, "w1");
    let before = store.list("").await.expect("up").revision;
    let tasks = (0..64).map(|partition| {
        let book = &book;
        async move {
            let lines = load(book).await;
            done(write(book, &lines, entry(partition, 0)).await)
        }
    });
    join_all(tasks).await;
    let after = store.list("").await.expect("up").revision;
    let writes = after.0 - before.0;
    assert!(
        (1..=8).contains(&writes),
        "{writes} writes for 64 partitions"
    );
    let lines = load(&book).await;
    assert!((0..64).all(|partition| epoch(&lines, partition) == Some(0)));
}

pub(crate) async fn lines_for_another_target_are_absent_and_replaced(store: Arc<dyn MetaStore>) {
    let book = book(&store, "w1");
    done(write(&book, &TopicLines::default(), entry(0, 4)).await);
    let others = [
        target("b.orders"),
        LineTarget {
            cluster: cluster("c"),
            ..target("orders")
        },
        LineTarget {
            cluster_id: Some("kafka-c".to_owned()),
            ..target("orders")
        },
    ];
    for other in &others {
        let lines = book.load(&orders(), other).await.expect("readable");
        assert_eq!(lines.line(Partition(0)), None, "{other:?}");
        // Who has not seen what is there does not replace it.
        let blind = book
            .write(&orders(), other, &TopicLines::default(), entry(1, 0))
            .await;
        conflict(blind.expect("writable"));
        let written = book.write(&orders(), other, &lines, entry(1, 0)).await;
        let written = done(written.expect("writable"));
        assert_eq!((epoch(&written, 0), epoch(&written, 1)), (None, Some(0)));
    }
    let unknown = LineTarget {
        cluster_id: None,
        ..others[2].clone()
    };
    let lines = book.load(&orders(), &unknown).await.expect("readable");
    assert_eq!(epoch(&lines, 1), Some(0), "an unknown id may be the same");
    let made_anew = |id: &str| LineTarget {
        topic_id: Some(id.to_owned()),
        ..others[2].clone()
    };
    let first = made_anew("x");
    let lines = book.write(&orders(), &first, &lines, entry(2, 0)).await;
    let lines = done(lines.expect("writable"));
    assert!(!lines.is_another_topic(&first));
    let lines = book
        .load(&orders(), &made_anew("y"))
        .await
        .expect("readable");
    assert!(lines.is_another_topic(&made_anew("y")));
    assert_eq!(epoch(&lines, 1), Some(0), "and yet not absent");
    let refused = book
        .write(&orders(), &made_anew("y"), &lines, entry(1, 1))
        .await;
    conflict(refused.expect("writable"));
}

/// A target that counts what it gave out, from 100.
#[derive(Default)]
struct Giver(AtomicI64);

impl Giver {
    async fn give(&self) -> Allocated {
        tokio::task::yield_now().await;
        Ok(ProducerId(100 + self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn given(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    async fn ask(&self, book: &StoredLines, target: &str, kafka_id: Option<&str>) -> ProducerId {
        let allocate = || self.give().boxed();
        let id = book
            .producer_id(&link(), &cluster(target), kafka_id, &allocate)
            .await;
        id.expect("given")
    }
}

pub(crate) async fn one_producer_id_serves_all_workers_of_a_link(store: Arc<dyn MetaStore>) {
    let books: Vec<_> = (0..4).map(|n| book(&store, &format!("w{n}"))).collect();
    let giver = Giver::default();
    let asks = (0..64).map(|n| giver.ask(&books[n % books.len()], "b", Some("kafka-b")));
    let ids: BTreeSet<_> = join_all(asks).await.into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert!(
        giver.given() <= 4,
        "at most one a worker: {}",
        giver.given()
    );
    let given = giver.given();
    let again = giver.ask(&book(&store, "w9"), "b", None).await;
    assert_eq!((Some(&again), giver.given()), (ids.first(), given));
}

pub(crate) async fn a_producer_id_of_another_target_is_not_used(store: Arc<dyn MetaStore>) {
    let book = book(&store, "w1");
    let giver = Giver::default();
    let places = [
        ("b", Some("kafka-b")),
        ("b", Some("kafka-c")),
        ("c", Some("kafka-c")),
    ];
    for (n, (target, kafka_id)) in (100..).zip(places) {
        for _ in 0..2 {
            assert_eq!(giver.ask(&book, target, kafka_id).await, ProducerId(n));
        }
    }
}

pub(crate) async fn a_failed_allocation_leaves_nothing_behind(store: Arc<dyn MetaStore>) {
    let book = book(&store, "w1");
    let refuse = || async { Err("not authorized".into()) }.boxed();
    let id = book
        .producer_id(&link(), &cluster("b"), None, &refuse)
        .await;
    let error = id.expect_err("refused");
    assert!(error.is_retryable() && error.to_string().contains("a-b"));
    let cause = std::error::Error::source(&error).expect("has one");
    assert_eq!(cause.to_string(), "not authorized");
    let giver = Giver::default();
    assert_eq!(giver.ask(&book, "b", None).await, ProducerId(100));
}

pub(crate) async fn what_cannot_be_read_is_an_error_and_stays(store: Arc<dyn MetaStore>) {
    let torn = vec![0xff];
    for key in [keys::lines(&orders()), keys::producer(&link())] {
        let op = Op::Put {
            key,
            value: torn.clone(),
            lease: None,
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        store.commit(txn).await.expect("up");
    }
    let book = book(&store, "w1");
    let loaded = book.load(&orders(), &target("orders")).await;
    let empty = TopicLines::default();
    let written = book
        .write(&orders(), &target("orders"), &empty, entry(0, 0))
        .await;
    let giver = Giver::default();
    let allocate = || giver.give().boxed();
    let producer = book
        .producer_id(&link(), &cluster("b"), None, &allocate)
        .await;
    for (error, key) in [
        (loaded.expect_err("torn"), "line/a-b/orders"),
        (written.expect_err("torn"), "line/a-b/orders"),
        (producer.expect_err("torn"), "producer/a-b"),
    ] {
        assert!(matches!(error, Error::Unreadable(_)), "{error}");
        assert!(!error.is_retryable() && error.to_string().contains(key));
    }
    assert_eq!(giver.given(), 0, "nobody is asked in vain");
    let kept = store.get(&keys::lines(&orders())).await.expect("up");
    assert_eq!(kept.expect("still there").value, torn);
}
