//! A few owners of one task, acting at random on a model of a broker's rules.
//!
//! Any owner may take over at any time, whatever the others do: they go on, freeze, come back, send
//! late. Answers are lost, connections break with requests on the way, checkpoints are overwritten by
//! older ones, leaders change, states expire. After every event the target must hold the copyable records
//! of the source from the first on, in order, each once.
//!
//! Some profiles are outside of what can be exactly once (see the decision note). There one owner acts
//! at a time, as leases see to, and nothing may be lost; repeats are allowed only after the machines
//! have said so.

mod broker;
mod events;
mod owner;
mod teeth;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{Answer, BatchId, CheckpointPlace, Line, Now, Producer, ReadFrom, Rewind, Settings};
use crate::ids::{Offset, UnixMillis};
use broker::Broker;
use owner::{Held, Owner};

/// After so long a broker drops a state.
const EXPIRATION_MS: i64 = 10_000;
const LIFETIME: Duration = Duration::from_millis(5_000);
const OWNERS: usize = 3;
const EVENTS: usize = 250;

/// What kind of world it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// All that is promised exactly once: late and frozen owners, expiry, lost answers, clean leader
    /// changes.
    Exact,
    /// And leaders that lack acknowledged records, but not all of them; no expiry.
    Unclean,
    /// A target before Kafka 2.5, whose log may be read.
    OldTarget,
    /// Records older than the target keeps states; one owner at a time.
    OldRecords,
    /// Leaders that may lack all of the line, in a topic of our own, each time with a new owner; one
    /// owner at a time.
    Wiped,
    /// A compacted source; one owner at a time.
    Compacted,
    /// A source that deletes what was not copied; one owner at a time.
    Deleted,
}

/// What is deliberately wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    BaseNotAgreed,
    OtherBoundariesAreARepeat,
    NoQuestionAfterFreeze,
    CheckpointBeforeAck,
    SkipOffByOne,
    FirstNotAlone,
    UncommittedSkipped,
}

#[derive(Debug)]
struct Request {
    owner: usize,
    connection: u64,
    producer: Producer,
    id: BatchId,
    attempt: u32,
    held: Held,
}

#[derive(Debug)]
struct Response {
    id: BatchId,
    attempt: u32,
    answer: Answer,
    /// It is held back until this target offset is committed.
    end: i64,
}

#[derive(Debug)]
pub(super) struct World {
    profile: Profile,
    broken: Broken,
    random: u64,
    now: Now,
    broker: Broker,
    /// By source offset; the value says whether it is copyable.
    source: Vec<bool>,
    source_start: i64,
    /// The group's offset commit, and commits on their way to it.
    checkpoint: Option<CheckpointPlace>,
    commits: Vec<CheckpointPlace>,
    line: Option<Line>,
    requests: Vec<VecDeque<Request>>,
    responses: Vec<VecDeque<Response>>,
    connections: Vec<u64>,
    /// The machines have said that records may come twice.
    is_at_least_once: bool,
    /// An acknowledged record was lost by the target.
    is_shortened: bool,
    old_timestamps: BTreeMap<i64, i64>,
}

impl World {
    fn new(profile: Profile, broken: Broken, seed: u64) -> Self {
        let mut broker = Broker::default();
        broker.tells_log_end = seed % 4 < 3;
        broker.takes_all_for_committed = broken == Broken::UncommittedSkipped;
        broker.keeps_states = profile == Profile::Unclean;
        broker.is_old = profile == Profile::OldTarget;
        broker.knows_by_first = broken == Broken::OtherBoundariesAreARepeat;
        Self {
            profile,
            broken,
            random: seed,
            now: Now {
                mono: Duration::from_secs(1),
                wall: UnixMillis(1_000_000),
            },
            broker,
            source: Vec::new(),
            source_start: 0,
            checkpoint: None,
            commits: Vec::new(),
            line: None,
            requests: (0..OWNERS).map(|_| VecDeque::new()).collect(),
            responses: (0..OWNERS).map(|_| VecDeque::new()).collect(),
            connections: vec![0; OWNERS],
            is_at_least_once: false,
            is_shortened: false,
            old_timestamps: BTreeMap::new(),
        }
    }

    fn settings(&self) -> Settings {
        let is_careless = self.broken == Broken::NoQuestionAfterFreeze;
        let (quiet, unheard) = if is_careless {
            (1 << 40, 1 << 40)
        } else {
            (50, 1_000)
        };
        Settings {
            in_flight_max: 5,
            quiet_max: Duration::from_millis(quiet),
            unheard_max: Duration::from_millis(unheard),
            state_lifetime: LIFETIME,
            history_max: 8,
            source_is_deterministic: self.profile != Profile::Compacted,
        }
    }

    /// Whether only one owner acts at a time.
    fn has_lease(&self) -> bool {
        matches!(
            self.profile,
            Profile::OldRecords | Profile::Wiped | Profile::Compacted | Profile::Deleted
        )
    }

    /// A number below `limit` (xorshift64*).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn index_below(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).expect("small")
    }

    fn source_end(&self) -> i64 {
        i64::try_from(self.source.len()).expect("small")
    }

    fn is_copyable(&self, offset: i64) -> bool {
        let index = usize::try_from(offset).expect("not negative");
        offset >= self.source_start && self.source[index]
    }

    fn copyable(&self) -> Vec<i64> {
        let all = self.source_start..self.source_end();
        all.filter(|offset| self.is_copyable(*offset)).collect()
    }

    /// The source offset after what is to be passed over.
    fn after(&self, from: ReadFrom) -> i64 {
        let mut at = from.offset.0.max(self.source_start);
        let mut skip = from.skip_records;
        while skip > 0 {
            if self.is_copyable(at) {
                skip -= 1;
            }
            at += 1;
        }
        at
    }

    /// Carries a search out; None: the source no longer has so much.
    fn rewind(&self, mut rewind: Rewind) -> Option<ReadFrom> {
        loop {
            let (from, to) = rewind.stretch();
            let copyable = (from.0..to.0).filter(|at| self.is_copyable(*at)).count();
            match rewind.counted(copyable as u64)? {
                Ok(found) => return Some(found),
                Err(wider) => rewind = wider,
            }
        }
    }

    /// Records have the time of their sending, or one that is long gone.
    fn timestamp(&self, contents: &[i64]) -> i64 {
        let own = contents.iter().map(|at| self.old_timestamps.get(at));
        own.map(|old| old.copied().unwrap_or(self.now.wall.0))
            .max()
            .expect("not empty")
    }

    fn send(&mut self, owner: usize, producer: Producer, id: BatchId, attempt: u32, held: Held) {
        let request = Request {
            owner,
            connection: self.connections[owner],
            producer,
            id,
            attempt,
            held,
        };
        self.requests[owner].push_back(request);
    }

    /// Panics when the target does not hold what it must.
    fn check(&self, owners: &[Owner]) {
        let copied = self.broker.copied();
        if !self.has_lease() && !self.is_at_least_once {
            let copyable = self.copyable();
            let prefix = &copyable[..copied.len().min(copyable.len())];
            assert_eq!(copied, prefix, "not a prefix of the source");
        }
        let mut lines: BTreeMap<Producer, i64> = BTreeMap::new();
        for batch in &self.broker.log {
            let Some(writer) = batch.writer else {
                continue;
            };
            let last = lines.entry(writer).or_insert(-1);
            let is_repeat_allowed = self.is_at_least_once;
            for content in &batch.contents {
                assert!(
                    is_repeat_allowed || content > last,
                    "out of order in a line"
                );
                *last = *content;
            }
        }
        if self.is_shortened {
            return;
        }
        for owner in owners {
            if let Some(running) = &owner.running {
                self.check_checkpoint(running.sender.checkpoint().place.offset, &copied);
            }
        }
        if let Some(checkpoint) = self.checkpoint {
            self.check_checkpoint(checkpoint.offset, &copied);
        }
    }

    /// Everything below a checkpoint is at the target.
    fn check_checkpoint(&self, offset: Offset, copied: &[i64]) {
        let copied: BTreeSet<i64> = copied.iter().copied().collect();
        for at in self.source_start..offset.0 {
            let is_there = !self.is_copyable(at) || copied.contains(&at);
            assert!(
                is_there,
                "record {at} is below checkpoint {offset} and not copied"
            );
        }
    }

    /// Everything that the source still has is at the target, and what came last of each record is in
    /// order.
    fn check_end(&self) {
        let copied = self.broker.copied();
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (index, content) in copied.iter().enumerate() {
            first.entry(*content).or_insert(index);
            last.insert(*content, index);
        }
        let there: BTreeSet<i64> = copied.iter().copied().collect();
        for at in self.copyable() {
            assert!(
                there.contains(&at),
                "record {at} was never copied: {copied:?}"
            );
        }
        let is_repeated = last.len() < copied.len();
        assert!(
            !is_repeated || self.is_at_least_once,
            "a record came twice and nobody has said so"
        );
        // What came late is a repeat; or what was repeated came again in order.
        last.retain(|at, _| self.is_copyable(*at));
        let is_ordered = |places: &BTreeMap<i64, usize>| places.values().is_sorted();
        assert!(
            is_ordered(&first) || is_ordered(&last),
            "reordered: {copied:?}"
        );
    }
}

/// Runs a world of this seed; what it says about repeats at its end.
fn run(profile: Profile, broken: Broken, seed: u64) -> bool {
    let mut world = World::new(
        profile,
        broken,
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
    );
    let mut owners: Vec<Owner> = (0..OWNERS).map(|_| Owner::default()).collect();
    for _ in 0..EVENTS {
        world.event(&mut owners);
        world.check(&owners);
    }
    world.quiesce(&mut owners);
    world.check(&owners);
    world.check_end();
    world.is_at_least_once
}

/// Runs all seeds; in how many nobody said that records may come twice.
fn run_all(profile: Profile, seeds: u64) -> u64 {
    let mut exact = 0;
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(profile, Broken::Nothing, seed));
        match outcome {
            Ok(is_at_least_once) => exact += u64::from(!is_at_least_once),
            Err(_) => panic!("{profile:?} fails with seed {seed}"),
        }
    }
    exact
}

#[test]
fn owners_at_random_deliver_every_record_once_and_in_order() {
    let exact = run_all(Profile::Exact, 1_500);
    assert!(exact >= 1_499, "{exact} runs exactly once");
}

#[test]
fn a_target_that_loses_its_tail_is_healed() {
    let exact = run_all(Profile::Unclean, 600);
    assert!(exact > 540, "{exact} runs exactly once");
}

#[test]
fn an_old_target_is_served_exactly_once_by_its_log() {
    let exact = run_all(Profile::OldTarget, 600);
    assert!(exact > 540, "{exact} runs exactly once");
}

#[test]
fn old_records_are_never_lost() {
    run_all(Profile::OldRecords, 600);
}

#[test]
fn a_target_that_loses_everything_is_filled_again() {
    run_all(Profile::Wiped, 400);
}

#[test]
fn a_compacted_source_is_never_lost() {
    run_all(Profile::Compacted, 400);
}

#[test]
fn records_deleted_at_the_source_lose_no_others() {
    run_all(Profile::Deleted, 400);
}
