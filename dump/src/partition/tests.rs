//! One owner: what it writes, what it says when something fails, and what it holds.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kreplicator_model::{
    dump::{
        commit::{Checkpoint, Fault},
        ledger::{LeftOut, Reason},
        manifest::{Manifest, Source},
        names::{AttemptNames, Books},
        path::StorePath,
        roll::{Limits, Roll},
        sweep::COMMIT_WITHIN,
    },
    ids::{ClusterId, LinkId, Offset, OwnerEpoch, Partition, TopicName, UnixMillis, WorkerId},
};

use super::*;
use crate::{
    commit::Jitter,
    envelope::{self, Footer},
    record::{Header, TimestampType},
    store::Kind,
    testkit::{Faults, MemoryStore, NINE, Noted, Random, SetClock},
    trouble::WaitsFor,
};

const HOUR: i64 = 3_600_000;

struct World {
    store: MemoryStore,
    clock: SetClock,
    noted: Arc<Noted>,
    settings: Settings,
    encoders: Encoders,
    incarnations: u64,
}

fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: None,
        partition: Partition(3),
    }
}

impl World {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(1),
            clock: SetClock::default(),
            noted: Arc::default(),
            settings: Settings::default(),
            encoders: Encoders::inline(),
            incarnations: 0,
        }
    }

    async fn owner(&mut self, checkpoint: Option<Checkpoint>) -> Result<PartitionDump, Error> {
        self.incarnations += 1;
        let worker = WorkerId::new("w").expect("legal");
        let names = AttemptNames::new(&worker, OwnerEpoch(1), self.incarnations);
        let ground = Ground {
            store: Arc::new(self.store.clone()),
            clock: self.clock.clock(),
            jitter: Jitter::from_fn(|| 0.5),
            watcher: Arc::clone(&self.noted) as _,
        };
        let (encoders, settings) = (self.encoders.clone(), self.settings.clone());
        PartitionDump::take_over(
            ground,
            encoders,
            settings,
            source(),
            names,
            checkpoint,
            Offset(10),
        )
        .await
    }

    fn manifest(&self, from: i64) -> Manifest {
        let books = Books::of(&source().topic, Partition(3));
        let path = books.manifest(Offset(from));
        let files = self.store.files(path.as_str());
        let (_, bytes) = files.first().expect("a manifest");
        Manifest::from_json(bytes).expect("ours")
    }
}

fn record(offset: i64, timestamp: i64, value: &[u8]) -> Record<'_> {
    Record {
        offset: Offset(offset),
        timestamp: UnixMillis(timestamp),
        timestamp_type: TimestampType::Create,
        key: Some(b"k"),
        value: Some(value),
        headers: &[Header {
            key: b"h",
            value: None,
        }],
    }
}

async fn offsets(store: &MemoryStore, path: &str) -> Vec<i64> {
    let path = StorePath::new(path).expect("legal");
    let footer = Footer::read(store, &path).await.expect("whole");
    let mut offsets = Vec::new();
    let read = footer.read_all(store, &path, |record| offsets.push(record.offset.0));
    read.await.expect("whole");
    offsets
}

const MORE: Then = Then::More;

#[tokio::test]
async fn records_go_to_the_buckets_of_their_timestamps_and_all_is_committed_at_once() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    assert_eq!(dump.position(), Offset(10));
    let records = [
        record(10, NINE, b"a"),
        record(11, NINE - HOUR, b"b"),
        record(12, -1, b"c"),
        record(13, NINE + 1, b"d"),
    ];
    let all = Appended {
        taken: 4,
        then: MORE,
    };
    assert_eq!(dump.append(&records).await, Ok(all));
    let out = dump.left_out(Offset(14), Offset(16), Reason::Control).await;
    assert_eq!(out, Ok(MORE));
    assert!(world.store.finals().is_empty());
    assert!(dump.held().bytes() > 0);
    let closed = dump.close_and_commit().await.expect("committed");
    let checkpoint = Checkpoint {
        position: Offset(16),
        last: Some(Offset(10)),
    };
    let expected = Closed {
        checkpoint,
        reread: false,
        removed: Vec::new(),
    };
    assert_eq!(closed, expected);
    assert_eq!(dump.held().bytes(), 0);
    let finals: Vec<String> = world
        .store
        .finals()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    let undated = "orders/dt=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__";
    let expected = [
        format!(
            "orders/dt=2026-11-30/hour=08/orders+3+{0:019}+{0:019}.parquet",
            11
        ),
        format!(
            "orders/dt=2026-11-30/hour=09/orders+3+{:019}+{:019}.parquet",
            10, 13
        ),
        format!("{undated}/orders+3+{0:019}+{0:019}.parquet", 12),
    ];
    assert_eq!(finals, expected);
    assert_eq!(offsets(&world.store, &finals[1]).await, [10, 13]);
    let manifest = world.manifest(10);
    let left_out = LeftOut {
        why: Reason::Control,
        from: Offset(14),
        to: Offset(16),
        count: 2,
    };
    assert_eq!(manifest.left_out, [left_out]);
    assert_eq!((manifest.records(), manifest.files.len()), (4, 3));
    assert_eq!(manifest.watermark, Some(UnixMillis(NINE + 1)));
    // The next owner goes on there.
    let next = world.owner(Some(checkpoint)).await.expect("open");
    assert_eq!(
        (next.position(), next.watermark()),
        (Offset(16), Some(UnixMillis(NINE + 1)))
    );
    assert!(world.noted.all().is_empty());
}

#[tokio::test]
async fn a_group_of_nothing_but_left_out_offsets_is_committed_and_an_empty_one_is_not() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    let renames = world.store.calls("rename");
    let closed = dump.close_and_commit().await.expect("nothing to do");
    assert_eq!(
        (closed.checkpoint.last, world.store.calls("rename")),
        (None, renames)
    );
    dump.left_out(Offset(10), Offset(20), Reason::Lost)
        .await
        .expect("noted");
    // Between eight and ten minutes, by a jitter that says a half.
    assert_eq!(dump.due_in(), Some(Duration::from_mins(9)));
    world.clock.pass(Duration::from_mins(9));
    assert_eq!(dump.due(), Some(Roll::Age));
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(closed.checkpoint.position, Offset(20));
    assert!(world.manifest(10).files.is_empty());
}

#[tokio::test]
async fn offsets_that_do_not_follow_are_refused_and_nothing_is_taken() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    let gap = [record(10, NINE, b"a"), record(12, NINE, b"b")];
    let refused = Error::OutOfOrder {
        expected: Offset(11),
        found: Offset(12),
    };
    assert_eq!(dump.append(&gap).await, Err(refused));
    assert!(dump.is_empty());
    assert!(dump.append(&[record(9, NINE, b"a")]).await.is_err());
    assert!(
        dump.left_out(Offset(11), Offset(12), Reason::Hole)
            .await
            .is_err()
    );
    assert!(
        dump.left_out(Offset(10), Offset(10), Reason::Hole)
            .await
            .is_err()
    );
    assert_eq!((dump.position(), dump.is_empty()), (Offset(10), true));
}

#[tokio::test]
async fn a_group_ends_within_a_batch_where_the_limits_say_so() {
    let mut world = World::new();
    world.settings.limits = Limits {
        buckets_max: 2,
        file_bytes_max: 3_000,
        ..Limits::default()
    };
    let mut dump = world.owner(None).await.expect("open");
    let three = [
        record(10, NINE, b"a"),
        record(11, NINE - HOUR, b"b"),
        record(12, NINE - 2 * HOUR, b"c"),
    ];
    let appended = dump.append(&three).await.expect("two of them");
    assert_eq!(
        (appended.taken, appended.then),
        (2, Then::Close(Roll::Buckets))
    );
    dump.close_and_commit().await.expect("committed");
    let value = [7; 2_000];
    let large = [12, 13, 14].map(|offset| record(offset, NINE - 2 * HOUR, &value));
    let appended = dump.append(&large).await.expect("two of them");
    assert_eq!(
        (appended.taken, appended.then),
        (2, Then::Close(Roll::Bytes))
    );
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(closed.checkpoint.position, Offset(14));
}

#[tokio::test]
async fn a_record_that_no_file_can_hold_is_told_and_the_rest_goes_on() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    // Never touched, so never really there.
    let value = vec![0; (1 << 30) + 1];
    let records = [record(10, NINE, b"a"), record(11, NINE, &value)];
    let appended = dump.append(&records).await.expect("one of them");
    let bytes = records[1].weight();
    assert_eq!(
        (appended.taken, appended.then),
        (1, Then::TooLarge { bytes })
    );
    let out = dump
        .left_out(Offset(11), Offset(12), Reason::Unreadable)
        .await;
    assert_eq!(out, Ok(MORE));
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(closed.checkpoint.position, Offset(12));
}

#[tokio::test(start_paused = true)]
async fn c088_a_file_that_cannot_be_written_gives_the_group_up_and_tells_why() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    let records = [record(10, NINE, b"a"), record(11, NINE, b"b")];
    dump.append(&records).await.expect("taken");
    world.store.set_faults(Faults {
        torn: 1_000,
        ..Faults::default()
    });
    let closed = dump.close_and_commit().await.expect("given up");
    assert!(closed.reread);
    assert_eq!(closed.checkpoint.position, Offset(10));
    assert_eq!((dump.position(), dump.held().bytes()), (Offset(10), 0));
    world.store.set_faults(Faults::default());
    let noted = world.noted.all();
    let trouble = noted[0].as_ref().expect("a trouble");
    assert!(
        matches!(trouble, Trouble::Store(error) if error.kind == Kind::Other),
        "{trouble:?}"
    );
    assert_eq!(trouble.waits_for(), WaitsFor::Person);
    // A folder for the next attempt could be made, which says nothing of its files.
    assert!(!noted.contains(&None), "{noted:?}");
    dump.append(&records).await.expect("taken");
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(world.noted.all().last(), Some(&None), "it is over");
    assert_eq!(
        (closed.reread, closed.checkpoint.position),
        (false, Offset(12))
    );
    assert_eq!(world.store.finals().len(), 1);
    let books = Books::of(&source().topic, Partition(3));
    let left = world.store.files(books.attempts().as_str());
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn c094_what_waits_for_a_person_is_told_again_and_again_and_ends_by_itself() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    dump.append(&[record(10, NINE, b"a")]).await.expect("taken");
    world.store.refuse(Some(Kind::Denied));
    let store = world.store.clone();
    let helped = async {
        tokio::time::sleep(Duration::from_mins(30)).await;
        store.refuse(None);
    };
    let (closed, ()) = tokio::join!(dump.close_and_commit(), helped);
    assert!(closed.expect("in the end").reread);
    let noted = world.noted.all();
    let denied = noted
        .iter()
        .flatten()
        .filter(|trouble| matches!(trouble, Trouble::Store(error) if error.kind == Kind::Denied));
    // Waits end at ten seconds, so half an hour has more than 180 of them.
    assert!(denied.count() > 100, "{}", noted.len());
    assert!(!noted.contains(&None), "nothing was written yet");
    dump.append(&[record(10, NINE, b"a")]).await.expect("taken");
    dump.close_and_commit().await.expect("committed");
    assert_eq!(world.noted.all().last(), Some(&None));
}

#[tokio::test]
async fn a_call_dropped_halfway_gives_the_group_up() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    dump.append(&[record(10, NINE, b"a")]).await.expect("taken");
    {
        let mut closing = std::pin::pin!(dump.close_and_commit());
        assert!(crate::testkit::poll_once(closing.as_mut()).is_pending());
    }
    let appended = dump.append(&[record(11, NINE, b"b")]).await;
    let reread = Appended {
        taken: 0,
        then: Then::Reread(Offset(10)),
    };
    assert_eq!(appended, Ok(reread));
    assert!(dump.is_empty());
    dump.append(&[record(10, NINE, b"a")]).await.expect("taken");
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(
        (closed.reread, closed.checkpoint.position),
        (false, Offset(11))
    );
}

#[tokio::test]
async fn c081_who_loses_the_rename_reads_again_after_the_winner() {
    let mut world = World::new();
    let mut one = world.owner(None).await.expect("open");
    let mut other = world.owner(None).await.expect("open");
    one.append(&[record(10, NINE, b"a"), record(11, NINE, b"b")])
        .await
        .expect("taken");
    other
        .append(&[record(10, NINE, b"a")])
        .await
        .expect("taken");
    let won = one.close_and_commit().await.expect("committed");
    let lost = other.close_and_commit().await.expect("overtaken");
    assert_eq!((won.reread, lost.reread), (false, true));
    assert_eq!(lost.checkpoint, won.checkpoint);
    assert_eq!(other.position(), Offset(12));
    assert_eq!(world.store.finals().len(), 1);
}

#[tokio::test]
async fn an_attempt_that_has_grown_old_unused_is_made_anew_and_nothing_is_read_again() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    world.clock.pass(COMMIT_WITHIN * 3);
    let appended = dump.append(&[record(10, NINE, b"a")]).await.expect("taken");
    assert_eq!((appended.taken, appended.then), (1, MORE));
    let closed = dump.close_and_commit().await.expect("committed");
    assert!(!closed.reread);
}

#[tokio::test]
async fn a_dump_of_another_cluster_in_the_folder_stops_it_by_name() {
    let mut world = World::new();
    let path = Books::of(&source().topic, Partition(3)).begin();
    world.owner(None).await.expect("open");
    let (_, begin) = world.store.files(path.as_str()).remove(0);
    let begin = String::from_utf8(begin.to_vec()).expect("text");
    world.store.put(&path, begin.replace("\"dc1\"", "\"dc2\""));
    let stopped = world.owner(None).await.expect_err("not ours");
    assert!(
        matches!(stopped, Error::Stopped(Fault::Foreign { .. })),
        "{stopped}"
    );
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_by_name() {
    let mut world = World::new();
    world.settings.limits.age_max = Duration::from_hours(7);
    let refused = world.owner(None).await.expect_err("too long");
    assert!(refused.to_string().contains("age_max"), "{refused}");
    world.settings.limits = Limits {
        age_max: Duration::ZERO,
        file_bytes_max: 0,
        buckets_max: 513,
        ..Limits::default()
    };
    for (zstd_level, row_group_bytes_max) in [(0, (64 << 10) - 1), (10, (512 << 20) + 1)] {
        world.settings.files = envelope::Settings {
            zstd_level,
            row_group_bytes_max,
            rows_bytes_max: 0,
        };
        let refused = world.owner(None).await.expect_err("nothing is legal");
        let refused = refused.to_string();
        for name in [
            "age_max",
            "file_bytes_max",
            "buckets_max",
            "zstd_level",
            "row_group_bytes_max",
            "rows_bytes_max",
        ] {
            assert!(refused.contains(name), "{name}: {refused}");
        }
    }
    world.settings = Settings::default();
    world.owner(None).await.expect("the defaults are legal");
}

/// Tasks run on whatever thread is free.
#[tokio::test]
async fn calls_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    is_send(&dump);
    is_send(&dump.append(&[]));
    is_send(&dump.relieve());
    is_send(&dump.hand_on());
    is_send(&dump.left_out(Offset(0), Offset(1), Reason::Hole));
    is_send(&dump.close_and_commit());
}

/// Bytes of one row group, and of what one file may hold beside it: rows, rows being encoded and what they become, the
/// page under way of each column, and the contexts of its compression.
const ROW_GROUP: usize = 1 << 20;
const BESIDE: usize = 8 << 20;

#[tokio::test]
async fn c095_what_is_held_stays_within_its_bound_however_much_is_given() {
    let mut world = World::new();
    world.encoders = Encoders::new(NonZeroUsize::new(2).expect("not zero")).expect("threads");
    world.settings.files.row_group_bytes_max = ROW_GROUP;
    world.settings.limits.lateness = Duration::from_hours(1_000);
    let mut dump = world.owner(None).await.expect("open");
    let mut random = Random::new(7);
    let buckets = 3;
    let mut most = 0;
    for offset in 10..7_000 {
        let value = random.bytes(8 << 10);
        let timestamp = NINE - HOUR * (offset % buckets);
        let appended = dump
            .append(&[record(offset, timestamp, &value)])
            .await
            .expect("taken");
        assert_eq!((appended.taken, appended.then), (1, MORE));
        most = most.max(dump.held().bytes());
    }
    let bound = usize::try_from(buckets).expect("small") * (ROW_GROUP + BESIDE);
    assert!(
        (ROW_GROUP..=bound).contains(&most),
        "{most} bytes were held, {bound} are allowed"
    );
    assert_eq!(dump.relieve().await, Ok(MORE));
    let left = dump.held().bytes();
    assert!(
        left < 1 << 20,
        "{left} bytes are held after all was written"
    );
    dump.close_and_commit().await.expect("committed");
    assert_eq!(dump.held().bytes(), 0);
    let mut all = Vec::new();
    for (path, bytes) in world.store.finals() {
        assert!(bytes.len() > 8 << 20, "{path} has {} bytes", bytes.len());
        all.extend(offsets(&world.store, &path).await);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(10..7_000));
}

#[tokio::test]
async fn c095_many_open_files_of_small_records_hold_what_was_given_and_little_more() {
    let mut world = World::new();
    world.settings.limits.buckets_max = 512;
    world.settings.limits.lateness = Duration::from_hours(1_000);
    let mut dump = world.owner(None).await.expect("open");
    for offset in 0..5_120 {
        let timestamp = NINE - HOUR * (offset % 512);
        let appended = dump
            .append(&[record(10 + offset, timestamp, &[7; 100])])
            .await;
        assert_eq!(appended.expect("taken").then, MORE);
    }
    // Ten records each: about 2 KB of rows that have grown by doubling.
    let held = dump.held().bytes();
    assert!(held < 512 * 6_000, "{held} bytes are held");
}

#[tokio::test]
async fn c095_large_records_are_counted_four_times_and_encoded_one_at_a_time() {
    const LARGE: usize = 16 << 20;
    let mut world = World::new();
    world.encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
    world.settings.limits.lateness = Duration::from_hours(1_000);
    let mut dump = world.owner(None).await.expect("open");
    let value = vec![7; LARGE];
    let large = [record(10, NINE, &value), record(11, NINE - HOUR, &value)];
    assert_eq!(dump.append(&large).await.expect("taken").taken, 2);
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let busy = world.encoders.submit(move || ended.recv().is_err());
    // Each has the large one before it encoded.
    let first = dump.append(&[record(12, NINE, b"a")]).await;
    assert_eq!(first.expect("handed over").taken, 1);
    let held = dump.held().bytes();
    assert!(held >= 5 * LARGE, "{held} bytes are held");
    let record = [record(13, NINE - HOUR, b"b")];
    let mut second = Box::pin(dump.append(&record));
    assert!(
        crate::testkit::poll_once(second.as_mut()).is_pending(),
        "two large ones are encoded at once"
    );
    drop(end);
    assert_eq!(busy.wait().await, Ok(true));
    assert_eq!(second.await.expect("handed over").taken, 1);
    let closed = dump.close_and_commit().await.expect("committed");
    assert_eq!(closed.checkpoint.position, Offset(14));
}

#[tokio::test(start_paused = true)]
async fn late_records_of_a_group_that_is_read_again_are_counted_once() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    let records = [
        record(10, NINE, b"a"),
        record(11, NINE - 5 * HOUR, b"late"),
        record(12, NINE - 5 * HOUR, b"late"),
    ];
    dump.append(&records).await.expect("taken");
    assert_eq!(dump.late_records(), 2);
    world.store.set_faults(Faults {
        torn: 1_000,
        ..Faults::default()
    });
    assert!(dump.close_and_commit().await.expect("given up").reread);
    assert_eq!(dump.late_records(), 0);
    world.store.set_faults(Faults::default());
    dump.append(&records).await.expect("taken");
    assert!(!dump.close_and_commit().await.expect("committed").reread);
    dump.append(&[record(13, NINE - 5 * HOUR, b"late")])
        .await
        .expect("taken");
    assert_eq!(dump.late_records(), 3);
    // Of what was committed nothing is forgotten.
    world.store.set_faults(Faults {
        torn: 1_000,
        ..Faults::default()
    });
    assert!(dump.close_and_commit().await.expect("given up").reread);
    assert_eq!(dump.late_records(), 2);
}

#[tokio::test]
async fn the_highest_number_is_no_offset() {
    let mut world = World::new();
    let mut dump = world.owner(None).await.expect("open");
    let end = Offset(i64::MAX);
    let out = dump.left_out(Offset(10), end, Reason::Hole).await;
    assert_eq!(out, Ok(MORE));
    let refused = dump.append(&[record(i64::MAX, NINE, b"a")]).await;
    assert_eq!(refused, Err(Error::LastOffset));
}

#[tokio::test]
async fn c095_what_is_finished_is_written_though_no_record_comes_to_its_file() {
    let mut world = World::new();
    world.encoders = Encoders::stepped();
    world.settings.files.row_group_bytes_max = 64 << 10;
    world.settings.files.rows_bytes_max = 16 << 10;
    world.settings.limits.lateness = Duration::from_hours(1_000);
    let mut dump = world.owner(None).await.expect("open");
    let value = Random::new(1).bytes(100 << 10);
    for (offset, is_by_timer) in [(10, false), (12, true)] {
        for record in [record(offset, NINE, &value), record(offset + 1, NINE, b"a")] {
            while world.encoders.step() {}
            assert_eq!(dump.append(&[record]).await.expect("taken").taken, 1);
        }
        let before = dump.files[0].written();
        while world.encoders.step() {}
        let then = if is_by_timer {
            dump.hand_on().await
        } else {
            dump.append(&[]).await.map(|appended| appended.then)
        };
        assert_eq!(then, Ok(MORE));
        let written = dump.files[0].written() - before;
        assert!(written > 100 << 10, "{written} bytes were handed on");
        let held = dump.held().bytes();
        assert!(held < 100 << 10, "{held} bytes are held");
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_encoded_are_told_by_their_offsets() {
    let mut world = World::new();
    world.encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
    let mut dump = world.owner(None).await.expect("open");
    dump.append(&[record(10, NINE, b"a"), record(11, NINE, b"b")])
        .await
        .expect("taken");
    world.encoders.shutdown();
    assert!(dump.close_and_commit().await.expect("given up").reread);
    let noted = world.noted.all();
    assert!(
        matches!(&noted[0], Some(Trouble::Encoder { text, .. }) if text.starts_with("offsets 10 to 11: ")),
        "{noted:?}"
    );
}
