//! Owners of one partition at random, on a store that loses answers and crashes: each record is in exactly one file, as it
//! was given.
//!
//! As in the model's simulation, but with what really runs: up to three owners call [`PartitionDump`] as tasks do, a sweeper sweeps, and
//! real files are written, in small pieces that encoders finish when they like. An owner may be dropped or frozen at any point where
//! it waits, and so may each of its calls. After whatever changes in the store, for every
//! checkpoint that was ever kept: below it each record is in one file under a final name, equal to what was given, and
//! every other offset is accounted for in a manifest.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use kreplicator_model::{
    dump::{
        chain,
        commit::{Checkpoint, Op},
        digest::Digest,
        ledger::Reason,
        manifest::{Begin, Manifest, Source},
        names::{AttemptNames, Books},
        path::StorePath,
        roll::Limits,
        sweep::ABANDONED_AFTER,
    },
    ids::{ClusterId, LinkId, Offset, OwnerEpoch, Partition, TopicName, UnixMillis, WorkerId},
};

use super::{PartitionDump, Settings, Then};
use crate::{
    commit::{Ground, Jitter},
    digest,
    encoders::Encoders,
    envelope::{self, Footer},
    record::{Header, Record, TimestampType},
    sweeping::sweep,
    testkit::{Faults, MemoryStore, NINE, Noted, Random, SetClock, finish, poll_once},
    trouble::Trouble,
};

const OWNERS: usize = 3;
const EVENTS: u32 = 3_000;
const SEEDS: u64 = 10;
const HOUR: i64 = 3_600_000;

/// What a source offset holds, drawn from its number so that it is the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Record {
        timestamp: i64,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    },
    Nothing(Reason),
}

/// Why an offset holds no record; None: it holds one.
fn nothing(offset: i64) -> Option<Reason> {
    match Random::new(offset.unsigned_abs() + 7).below(6) {
        0 => Some(Reason::Control),
        1 => Some(Reason::Hole),
        _ => None,
    }
}

fn content(offset: i64) -> Content {
    if let Some(why) = nothing(offset) {
        return Content::Nothing(why);
    }
    let mut random = Random::new(offset.unsigned_abs() + 77);
    let mut bytes = |most| match random.below(4) {
        0 => None,
        1 => Some(Vec::new()),
        _ => {
            let length = random.index(most);
            Some(random.bytes(length))
        }
    };
    let (key, value) = (bytes(20), bytes(3_000));
    let headers = vec![(b"\xffh".to_vec(), bytes(9)), (b"h".to_vec(), bytes(9))];
    let skipped = random.index(3);
    Content::Record {
        timestamp: NINE - HOUR * i64::try_from(random.below(3)).expect("small"),
        key,
        value,
        headers: headers.into_iter().skip(skipped).collect(),
    }
}

fn with_record<T>(offset: i64, then: impl FnOnce(&Record<'_>) -> T) -> Option<T> {
    let Content::Record {
        timestamp,
        key,
        value,
        headers,
    } = content(offset)
    else {
        return None;
    };
    let headers = headers_of(&headers);
    Some(then(&record_of(offset, timestamp, &key, &value, &headers)))
}

fn headers_of(headers: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<Header<'_>> {
    let headers = headers.iter().map(|(key, value)| Header {
        key,
        value: value.as_deref(),
    });
    headers.collect()
}

fn record_of<'a>(
    offset: i64,
    timestamp: i64,
    key: &'a Option<Vec<u8>>,
    value: &'a Option<Vec<u8>>,
    headers: &'a [Header<'a>],
) -> Record<'a> {
    Record {
        offset: Offset(offset),
        timestamp: UnixMillis(timestamp),
        timestamp_type: TimestampType::Create,
        key: key.as_deref(),
        value: value.as_deref(),
        headers,
    }
}

fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("t").expect("legal"),
        topic_id: None,
        partition: Partition(0),
    }
}

fn books() -> Books {
    Books::of(&source().topic, Partition(0))
}

/// What all share.
#[derive(Debug)]
struct World {
    store: MemoryStore,
    clock: SetClock,
    noted: Arc<Noted>,
    /// End of the source.
    end: i64,
    kept: Vec<Checkpoint>,
    incarnations: u64,
    random: Random,
    encoders: Encoders,
    /// How often something happened that is to be tried.
    tried: BTreeMap<&'static str, u32>,
}

impl World {
    fn tried(&mut self, what: &'static str) {
        *self.tried.entry(what).or_default() += 1;
    }
}

type Shared = Rc<RefCell<World>>;

/// An owner from taking over to its death.
async fn own(world: Shared, seed: u64, is_last: bool) {
    let mut random = Random::new(seed);
    let (ground, names, checkpoint, encoders) = {
        let mut world = world.borrow_mut();
        world.incarnations += 1;
        let worker = WorkerId::new("w").expect("legal");
        let names = AttemptNames::new(&worker, OwnerEpoch(1), world.incarnations);
        let ground = Ground {
            store: Arc::new(world.store.clone()),
            clock: world.clock.clock(),
            jitter: Jitter::from_fn(|| 0.3),
            watcher: Arc::clone(&world.noted) as _,
        };
        // The newest, seldom an older one.
        let kept = world.kept.len();
        let index = if !is_last && kept > 0 && random.below(4) == 0 {
            Some(random.index(kept))
        } else {
            kept.checked_sub(1)
        };
        let checkpoint = index.map(|index| world.kept[index]);
        (ground, names, checkpoint, world.encoders.clone())
    };
    let settings = Settings {
        limits: Limits {
            buckets_max: 2,
            file_bytes_max: 20_000,
            ..Limits::default()
        },
        files: envelope::Settings {
            zstd_level: 1,
            row_group_bytes_max: 8 << 10,
            rows_bytes_max: 1_500,
        },
        relieved_bytes_min: 1_000,
        ..Settings::default()
    };
    let start = Offset(i64::try_from(random.below(4)).expect("small"));
    let taken = PartitionDump::open(
        ground,
        encoders,
        settings,
        source(),
        names,
        checkpoint,
        start,
    );
    let mut dump = taken.await.expect("nothing is wrong in the store");
    world.borrow_mut().kept.push(dump.checkpoint());
    loop {
        let end = world.borrow().end;
        if is_last && dump.position().0 == end && dump.is_empty() {
            return;
        }
        let is_at_end = dump.position().0 >= end;
        match random.below(14) {
            0..8 if !is_at_end => {
                let to =
                    end.min(dump.position().0 + 1 + i64::try_from(random.below(6)).expect("small"));
                read(&mut dump, to, &world).await;
            }
            8 => {
                dump.relieve().await.expect("not stopped");
                world.borrow_mut().tried("relieved");
            }
            9..12 => drop_halfway(&mut dump, &mut random, &world).await,
            _ => close(&mut dump, &world).await,
        }
    }
}

/// Gives it what the source has up to an offset.
async fn read(dump: &mut PartitionDump, to: i64, world: &Shared) {
    while dump.position().0 < to {
        let at = dump.position().0;
        let then = match content(at) {
            Content::Nothing(why) => dump.left_out(Offset(at), Offset(at + 1), why).await,
            Content::Record {
                timestamp,
                key,
                value,
                headers,
            } => {
                let headers = headers_of(&headers);
                let record = record_of(at, timestamp, &key, &value, &headers);
                dump.append(&[record]).await.map(|appended| appended.then)
            }
        };
        note_files(dump, world);
        match then.expect("not stopped") {
            Then::More => {}
            Then::Close(_) => close(dump, world).await,
            Then::Reread(position) => {
                assert_eq!(position, dump.position());
                return;
            }
            Then::TooLarge { .. } => panic!("they are small"),
        }
    }
}

async fn close(dump: &mut PartitionDump, world: &Shared) {
    let closed = dump.close_and_commit().await.expect("not stopped");
    assert_eq!(closed.checkpoint.position, dump.position());
    world.borrow_mut().kept.push(closed.checkpoint);
}

fn note_files(dump: &PartitionDump, world: &Shared) {
    let mut world = world.borrow_mut();
    for file in &dump.files {
        if file.written() > 0 {
            world.tried("written before it is closed");
        }
        if file.is_busy() {
            world.tried("encoded while more is read");
        }
    }
}

/// Begins a call and does not wait for the end.
async fn drop_halfway(dump: &mut PartitionDump, random: &mut Random, world: &Shared) {
    let at = dump.position().0;
    let is_there = at < world.borrow().end;
    match (random.below(6), content(at)) {
        (0, _) => begin_and_drop(dump.relieve(), random, world).await,
        (1, Content::Nothing(why)) if is_there => {
            begin_and_drop(
                dump.left_out(Offset(at), Offset(at + 1), why),
                random,
                world,
            )
            .await;
        }
        (1..4, Content::Record { .. }) if is_there => {
            let appended = async {
                let Content::Record {
                    timestamp,
                    key,
                    value,
                    headers,
                } = content(at)
                else {
                    return;
                };
                let headers = headers_of(&headers);
                let record = record_of(at, timestamp, &key, &value, &headers);
                drop(dump.append(&[record]).await);
            };
            begin_and_drop(appended, random, world).await;
        }
        _ => begin_and_drop(dump.close_and_commit(), random, world).await,
    }
    let dropped = match dump.committer.under_way() {
        Some(Op::Rename { source, .. }) if source.name().ends_with(".json") => {
            "dropped at the rename of a document"
        }
        Some(Op::Rename { .. }) => "dropped at the rename of a file",
        Some(Op::Delete(_)) => "dropped at a deletion",
        Some(Op::MakeFolder(_)) => "dropped at the making of a folder",
        Some(Op::Write { .. }) => "dropped at the writing of a document",
        Some(_) => "dropped elsewhere in a commit",
        None if dump.is_torn => "dropped outside of a commit",
        None => return,
    };
    world.borrow_mut().tried(dropped);
}

/// Encoders and others go on between some of its polls.
async fn begin_and_drop(call: impl Future, random: &mut Random, world: &Shared) {
    let mut call = Box::pin(call);
    // What a former drop has left is given up in the first few.
    let most = [6, 40][random.index(2)];
    for _ in 0..random.below(most) {
        if poll_once(call.as_mut()).is_ready() {
            return;
        }
        match random.below(4) {
            0 => tokio::task::yield_now().await,
            1 => {
                world.borrow().encoders.step();
            }
            _ => {}
        }
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Checks what is in the store, decoding each file once.
#[derive(Default)]
struct Checker {
    /// Offsets of files by path, with the bytes that were decoded.
    decoded: BTreeMap<String, (Bytes, Vec<i64>)>,
    manifests: BTreeMap<String, (Bytes, Manifest)>,
    seen: Option<(u64, usize)>,
}

impl Checker {
    fn check(&mut self, world: &World) {
        let state = (world.store.changes(), world.kept.len());
        if self.seen.replace(state) == Some(state) {
            return;
        }
        let Some(end) = world.kept.iter().map(|kept| kept.position.0).max() else {
            return;
        };
        let begin = begin(world)
            .expect("a checkpoint was kept, so it has begun")
            .at
            .0;
        let mut files: BTreeMap<i64, u32> = BTreeMap::new();
        for (path, bytes) in world.store.finals() {
            for offset in self.offsets(path, bytes) {
                *files.entry(*offset).or_default() += 1;
            }
        }
        let twice = files.iter().find(|(_, count)| **count > 1);
        assert_eq!(twice, None, "an offset is in more than one file");
        let accounted = self.accounted(world);
        for offset in begin..end {
            let is_in_file = files.contains_key(&offset);
            match nothing(offset) {
                None => {
                    assert!(
                        is_in_file,
                        "{offset} is in no file, and the checkpoint is {end}"
                    );
                }
                Some(why) => {
                    let is_accounted = accounted.contains(&(offset, why));
                    assert!(is_accounted && !is_in_file, "{offset} is not accounted for");
                }
            }
        }
    }

    /// Offsets that manifests tell of as left out.
    fn accounted(&mut self, world: &World) -> BTreeSet<(i64, Reason)> {
        let mut accounted = BTreeSet::new();
        for (path, bytes) in manifest_files(world) {
            let known = self.manifests.get(&path);
            if known.is_none_or(|(known, _)| known != &bytes) {
                let manifest = Manifest::from_json(&bytes).expect("ours");
                self.manifests.insert(path.clone(), (bytes, manifest));
            }
            let (_, manifest) = &self.manifests[&path];
            for entry in &manifest.left_out {
                accounted.extend((entry.from.0..entry.to.0).map(|offset| (offset, entry.why)));
            }
        }
        accounted
    }

    /// The offsets of a final file, whose records are as they were given.
    fn offsets(&mut self, path: String, bytes: Bytes) -> &[i64] {
        let known = self.decoded.get(&path);
        if known.is_none_or(|(known, _)| known != &bytes) {
            let offsets = decode(&path, bytes.clone());
            self.decoded.insert(path.clone(), (bytes, offsets));
        }
        &self.decoded[&path].1
    }
}

fn decode(path: &str, bytes: Bytes) -> Vec<i64> {
    let store = MemoryStore::new(0);
    let path = StorePath::new(path).expect("ours");
    store.put(&path, bytes);
    let mut offsets = Vec::new();
    finish(async {
        let footer = Footer::read(&store, &path).await.expect("whole");
        assert_eq!(footer.facts().source, source());
        let all = footer.read_all(&store, &path, |record| {
            let is_same = with_record(record.offset.0, |given| given == record);
            assert_eq!(is_same, Some(true), "{record:?} is not what was given");
            offsets.push(record.offset.0);
        });
        all.await.expect("whole");
    });
    offsets
}

fn begin(world: &World) -> Option<Begin> {
    let files = world.store.files(books().begin().as_str());
    let (_, bytes) = files.first()?;
    Some(Begin::from_json(bytes).expect("ours"))
}

fn manifest_files(world: &World) -> Vec<(String, Bytes)> {
    let prefix = format!("{}/", books().folder());
    let mut files = world.store.files(&prefix);
    files.retain(|(path, _)| {
        let name = path.strip_prefix(&prefix).unwrap_or_default();
        Books::manifest_offset(name).is_some()
    });
    files
}

/// Says which run it was.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

const WILD: Faults = Faults {
    lost: 30,
    unreachable: 20,
    late: 15,
    torn: 10,
};

/// Time passes, for everybody.
async fn pass(world: &Shared, time: Duration) {
    {
        let world = world.borrow();
        world.clock.pass(time);
        world.store.pass(time);
    }
    tokio::time::advance(time).await;
}

/// Gives how many checkpoints were kept before the end, each further than all before, and what was tried.
async fn run(seed: u64) -> (usize, BTreeMap<&'static str, u32>) {
    let _seed = Seed(seed);
    let world = Rc::new(RefCell::new(World {
        store: MemoryStore::new(seed),
        clock: SetClock::default(),
        noted: Arc::default(),
        end: 6,
        kept: Vec::new(),
        incarnations: 0,
        random: Random::new(seed + 1_000),
        encoders: Encoders::stepped(),
        tried: BTreeMap::new(),
    }));
    world.borrow().store.set_faults(WILD);
    let mut checker = Checker::default();
    let mut owners: [Option<Running>; OWNERS] = Default::default();
    let mut is_frozen = [false; OWNERS];
    let mut sweeping: Option<Running> = None;
    for _ in 0..EVENTS {
        let (me, dice) = {
            let mut world = world.borrow_mut();
            let me = world.random.index(OWNERS);
            (me, world.random.below(1_000))
        };
        match dice {
            0..30 => world.borrow_mut().end += 3,
            30..33 => owners[me] = None,
            36..60 if owners[me].is_none() => {
                let seed = world.borrow_mut().random.below(u64::MAX >> 17);
                owners[me] = Some(Box::pin(own(Rc::clone(&world), seed, false)));
            }
            60..64 => is_frozen[me] = true,
            64..75 => is_frozen[me] = false,
            75..110 => {
                world.borrow().store.arrive();
            }
            110..113 => world.borrow().store.crash(),
            116..130 if sweeping.is_none() => {
                let store = world.borrow().store.clone();
                sweeping = Some(Box::pin(async move {
                    // Whatever fails is tried by the next one.
                    drop(sweep(&store, &source(), None).await);
                }));
            }
            130..190 => {
                world.borrow().encoders.step();
            }
            190..230 => pass(&world, Duration::from_secs(6)).await,
            230..232 => pass(&world, Duration::from_hours(9)).await,
            232 => pass(&world, ABANDONED_AFTER).await,
            233..300 => {
                let is_done = sweeping
                    .as_mut()
                    .is_some_and(|running| poll_once(running.as_mut()).is_ready());
                if is_done {
                    sweeping = None;
                }
            }
            _ if is_frozen[me] => {}
            _ => {
                if let Some(running) = &mut owners[me] {
                    assert!(
                        poll_once(running.as_mut()).is_pending(),
                        "owners go on for ever"
                    );
                }
            }
        }
        checker.check(&world.borrow());
    }
    let mut positions: Vec<Offset> = world
        .borrow()
        .kept
        .iter()
        .map(|kept| kept.position)
        .collect();
    positions.sort_unstable();
    positions.dedup();
    // Whatever is under way arrives, and one owner comes to the end.
    while world.borrow().store.arrive() {}
    world.borrow().store.set_faults(Faults::default());
    drop(owners);
    let mut last = Box::pin(own(Rc::clone(&world), seed, true));
    let mut polls = 0_u32;
    while poll_once(last.as_mut()).is_pending() {
        polls += 1;
        world.borrow().encoders.step();
        assert!(polls < 100_000, "it stands still");
        if polls.is_multiple_of(20) {
            pass(&world, Duration::from_secs(11)).await;
        }
        checker.check(&world.borrow());
    }
    let world = world.borrow();
    checker.check(&world);
    let begin = begin(&world).expect("begun");
    let manifests = manifest_files(&world).into_iter();
    let manifests = manifests.map(|(_, bytes)| Manifest::from_json(&bytes).expect("ours"));
    let manifests: Vec<Manifest> = manifests.collect();
    let joined = chain::join(&begin, &manifests);
    assert_eq!(joined.breaks, []);
    assert_eq!(joined.complete_to, Offset(world.end));
    let mut all = Digest::default();
    for offset in begin.at.0..world.end {
        if let Some(hash) = with_record(offset, digest::of_record) {
            all.add(hash);
        }
    }
    assert_eq!(
        joined.digest, all,
        "the source comes to another digest than the manifests"
    );
    for trouble in world.noted.all().into_iter().flatten() {
        // A sweeper may take a file away from under an owner that has slept for long.
        let is_defect = match &trouble {
            Trouble::Encoder { .. } => true,
            Trouble::Verification { text, .. } => text != "it is not there",
            Trouble::Store(_) => false,
        };
        assert!(!is_defect, "nobody has broken anything: {trouble}");
    }
    (positions.len(), world.tried.clone())
}

#[tokio::test(start_paused = true)]
async fn c088_each_record_is_in_exactly_one_file_as_it_was_given() {
    let mut kept = 0;
    let mut tried: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..SEEDS {
        let (more, what) = run(seed).await;
        kept += more;
        for (what, count) in what {
            *tried.entry(what).or_default() += count;
        }
    }
    // Else nothing would have been tried.
    assert!(
        kept > 8 * SEEDS as usize,
        "only {kept} checkpoints were kept"
    );
    for what in [
        "relieved",
        "written before it is closed",
        "encoded while more is read",
        "dropped at the rename of a document",
        "dropped at the rename of a file",
        "dropped at a deletion",
        "dropped at the making of a folder",
        "dropped at the writing of a document",
        "dropped outside of a commit",
    ] {
        assert!(tried.contains_key(what), "never {what}: {tried:?}");
    }
}
