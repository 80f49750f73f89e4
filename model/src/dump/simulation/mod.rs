//! Owners of one partition at random, on a store that loses answers: each source offset ends in exactly one file.
//!
//! Up to three owners run the machine of [`commit`](super::commit), and a sweeper runs [`sweep`](super::sweep). Any of them may stop between
//! any two operations, for ever (a crash) or for a while (a zombie that comes back). An operation may be done and its
//! answer lost, not be done, or be done much later, when its owner is gone. The store itself may crash and lose what it
//! had shown but not yet put on its disks. Users delete final files. Checkpoints that are kept may be read late.
//!
//! After every event, for every checkpoint that was ever kept: each source offset below it that holds a record is
//! in exactly one file under a final name, and each that holds none is accounted for. In the end one owner
//! comes to the end of the source, and the same holds for all of it.

mod events;
mod owner;
mod store;
mod teeth;

use std::{collections::BTreeMap, time::Duration};

use self::{
    owner::Owner,
    store::{Node, Store},
};
use super::{
    commit::Checkpoint,
    ledger::Reason,
    manifest::{Begin, Manifest, Source},
    names::Books,
};
use crate::ids::{ClusterId, LinkId, Offset, Partition, TopicName};

const OWNERS: usize = 3;
const EVENTS: usize = 400;

/// A rule that is left out, to show that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Renames put the source in place of the target.
    RenameOverwrites,
    /// A rename of a manifest whose answer was lost counts as not done.
    LostMeansFailed,
    /// Whatever is in an attempt's folder is deleted, committed or not.
    SweptAtOnce,
    /// The checkpoint is kept once the manifest is renamed, before the files are.
    CheckpointBeforeFinish,
    /// What was only seen counts as durable.
    SeenIsDurable,
    /// Where the dump begins is not written down.
    NoBegin,
    /// A restarted process uses the names again that it had used before.
    NamesUsedAgain,
    /// Attempts are committed however old they are.
    NoAge,
}

/// What a source offset holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A record, of the bucket with this number.
    Record(i64),
    Nothing(Reason),
}

#[derive(Debug)]
struct World {
    broken: Broken,
    random: u64,
    source: Vec<Held>,
    store: Store,
    /// All that were ever kept; any of them may be what the next owner reads.
    kept: Vec<Checkpoint>,
    /// Final files that users have deleted, by path.
    removed: BTreeMap<String, Vec<i64>>,
    /// Time on everybody's monotonic clock.
    now: Duration,
    /// When each attempt's folder was made, by path.
    attempts_made: BTreeMap<String, Duration>,
    incarnations: u64,
    /// What the last check saw: changes of the store, checkpoints kept, length of the source.
    checked: (u64, usize, usize),
    sweep: Option<events::Sweep>,
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

impl World {
    fn new(broken: Broken, seed: u64) -> Self {
        Self {
            broken,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            source: vec![Held::Record(0); 5],
            store: Store::default(),
            kept: Vec::new(),
            removed: BTreeMap::new(),
            now: Duration::ZERO,
            attempts_made: BTreeMap::new(),
            incarnations: 0,
            checked: (0, 0, 0),
            sweep: None,
        }
    }

    /// Below `end`, by xorshift.
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % end
    }

    fn index_below(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("small")
    }

    fn source_end(&self) -> i64 {
        i64::try_from(self.source.len()).expect("small")
    }

    fn held(&self, offset: i64) -> Held {
        self.source[usize::try_from(offset).expect("not negative")]
    }

    /// Where the dump begins, as far as anybody can know.
    fn begin(&self) -> Option<Offset> {
        match self.store.live.get(books().begin().as_str()) {
            Some(Node::Document(document)) => {
                Some(Begin::from_json(&document.bytes).expect("ours").at)
            }
            _ => None,
        }
    }

    /// Everything below each kept checkpoint is there once.
    fn check(&mut self) {
        let state = (self.store.changes, self.kept.len(), self.source.len());
        if std::mem::replace(&mut self.checked, state) == state {
            return;
        }
        let Some(end) = self.kept.iter().map(|checkpoint| checkpoint.position).max() else {
            return;
        };
        let begin = match self.broken {
            Broken::NoBegin => Offset(0),
            _ => self
                .begin()
                .expect("a checkpoint was kept, so it has begun"),
        };
        let mut files = vec![0_u32; self.source.len()];
        let removed = self.removed.values().map(Vec::as_slice);
        let finals = self.store.finals().map(|(_, offsets)| offsets);
        for offset in finals.chain(removed).flatten() {
            files[usize::try_from(*offset).expect("not negative")] += 1;
        }
        let mut accounted = vec![false; self.source.len()];
        for manifest in self.manifests() {
            for entry in &manifest.left_out {
                for offset in entry.from.0..entry.to.0 {
                    accounted[usize::try_from(offset).expect("not negative")] = true;
                }
            }
        }
        for offset in 0..self.source_end() {
            let index = usize::try_from(offset).expect("not negative");
            assert!(
                files[index] <= 1,
                "offset {offset} is in {} files",
                files[index]
            );
            if offset < begin.0 || offset >= end.0 {
                continue;
            }
            match self.held(offset) {
                Held::Record(_) => assert!(
                    files[index] == 1,
                    "offset {offset} is in no file, and the checkpoint is {end}"
                ),
                Held::Nothing(_) => assert!(
                    accounted[index] && files[index] == 0,
                    "offset {offset} is not accounted for"
                ),
            }
        }
    }

    fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        let folder = books().folder().to_string();
        let paths = self.store.live.keys();
        let paths = paths.filter(move |path| {
            let name = path
                .strip_prefix(&*folder)
                .and_then(|rest| rest.strip_prefix('/'));
            name.and_then(Books::manifest_offset).is_some()
        });
        paths.map(|path| self.store.manifest(path).expect("ours"))
    }
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

fn run(broken: Broken, seed: u64) {
    let _seed = Seed(seed);
    let mut world = World::new(broken, seed);
    let mut owners: Vec<Owner> = (0..OWNERS).map(Owner::new).collect();
    for _ in 0..EVENTS {
        world.event(&mut owners);
        world.check();
    }
    // Whatever is still on its way arrives, old owners act a last time, and one owner comes to the end.
    world.settle(&mut owners);
    world.check();
    let end = world
        .kept
        .iter()
        .map(|checkpoint| checkpoint.position.0)
        .max();
    assert_eq!(end, Some(world.source_end()), "it stands still");
    world.all_joined();
}

impl World {
    /// The manifests form one chain to the end.
    fn all_joined(&self) {
        let path = books().begin();
        let Some(Node::Document(document)) = self.store.live.get(path.as_str()) else {
            return;
        };
        let begin = Begin::from_json(&document.bytes).expect("ours");
        let joined = super::chain::join(&begin, self.manifests());
        assert_eq!(joined.breaks, []);
        assert_eq!(joined.complete_to, Offset(self.source_end()));
    }
}

#[test]
fn c088_each_offset_is_in_exactly_one_file_whatever_happens() {
    for seed in 0..1_000 {
        run(Broken::Nothing, seed);
    }
}
