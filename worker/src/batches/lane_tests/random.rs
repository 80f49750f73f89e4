//! Any order of events, against a small model of source and target.
//!
//! The target keeps Kafka's rules for producers: it takes what follows, knows the last five batches again,
//! and refuses the rest. Connections break with requests and answers on them, answers come late, leaders
//! move, the life acts when it pleases. In the end everything is there once, in order, and all memory is
//! free.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The source answers with so many batches.
    Fetch(usize),
    /// The target works on the next batch and answers.
    Serve,
    /// It works on it and its answer says that nobody knows.
    ServeUnsure,
    /// It does not take it just now.
    Refuse,
    /// It is not the leader any more.
    Move,
    /// The connection breaks; the target has taken so many batches of it.
    Lose(usize),
    /// Another request of a broken connection tells of it.
    LoseLate,
    /// The life acts on its next event.
    Act,
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..4).prop_map(Step::Fetch),
        6 => Just(Step::Serve),
        1 => Just(Step::ServeUnsure),
        1 => Just(Step::Refuse),
        1 => Just(Step::Move),
        1 => (0_usize..4).prop_map(Step::Lose),
        1 => Just(Step::LoseLate),
        6 => Just(Step::Act),
        1 => Just(Step::Tick),
    ]
}

/// The target partition.
#[derive(Debug, Default)]
struct Target {
    records: Vec<i64>,
    /// Sequence and length of the last batches.
    known: VecDeque<(i64, i64)>,
}

impl Target {
    fn knows(&self, item: &Item) -> bool {
        let first = parse(item).header().producer.base_sequence;
        self.known
            .iter()
            .any(|(known, _)| *known == i64::from(first))
    }

    fn append(&mut self, item: &Item) -> Answer {
        let batch = parse(item);
        let first = i64::from(batch.header().producer.base_sequence);
        let count = i64::from(batch.header().record_count);
        let next = i64::try_from(self.records.len()).expect("small");
        if first == next {
            self.records.extend(offsets_of(&batch));
            self.known.push_back((first, count));
            if self.known.len() > 5 {
                self.known.pop_front();
            }
        } else if !self.known.contains(&(first, count)) {
            return if first < next {
                Answer::Duplicate
            } else {
                Answer::OutOfOrder
            };
        }
        // One record has one offset here, so sequences and offsets are the same.
        Answer::Acked {
            base_offset: Offset(first),
        }
    }

    fn seen(&self, tail_from: Option<Offset>) -> exact::TargetView {
        let end = i64::try_from(self.records.len()).expect("small");
        let mut seen = if end == 0 { nothing() } else { view(end) };
        if let Some(from) = tail_from {
            let mut scan = exact::TailScan::new(PRODUCER, from);
            let count = (end - from.0).unsigned_abs();
            if count > 0 {
                let first = exact::Count(from.0.unsigned_abs()).sequence();
                scan.batch(Some(PRODUCER), Some(first), count, Offset(end));
            }
            seen.tail = Some(exact::Tail::Read(scan));
        }
        seen
    }
}

struct World {
    rig: Rig,
    source: Vec<kreplicator_batch::Batch>,
    target: Target,
    on_the_way: VecDeque<Item>,
    lost: Vec<(u64, u64)>,
    events: VecDeque<Event>,
    is_read: bool,
}

impl World {
    fn new(lengths: &[(i32, usize)]) -> Self {
        let mut base = 0;
        let source = lengths.iter().map(|(count, bytes)| {
            let batch = Made::dense(base, *count).values_of(*bytes).batch();
            base += i64::from(*count);
            batch
        });
        let source = source.collect();
        let rig = Rig::with(tight());
        rig.open_at(0);
        Self {
            rig,
            source,
            target: Target::default(),
            on_the_way: VecDeque::new(),
            lost: Vec::new(),
            events: VecDeque::new(),
            is_read: true,
        }
    }

    fn end(&self) -> i64 {
        self.source
            .last()
            .map_or(0, |batch| batch.header().next_offset())
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Fetch(count) => self.fetch(count),
            Step::Serve => self.serve(|target, item| (target.append(item), false)),
            Step::ServeUnsure => self.serve(|target, item| {
                target.append(item);
                (Answer::Unsure, false)
            }),
            Step::Refuse => self.serve(|target, item| {
                let is_known = target.knows(item);
                let answer = if is_known {
                    target.append(item)
                } else {
                    Answer::Refused
                };
                (answer, false)
            }),
            Step::Move => self.serve(|_, _| (Answer::Unsure, true)),
            Step::Lose(taken) => self.lose(taken),
            Step::LoseLate => {
                if let Some((run, way)) = self.lost.pop() {
                    self.rig.lane.connection_lost(run, way);
                }
            }
            Step::Act => self.act(),
            Step::Tick => self.rig.lane.tick(),
        }
        self.on_the_way.extend(self.rig.sent());
        self.events.extend(self.rig.events());
        for told in self.rig.with_fetcher(FakeFetcher::told) {
            self.is_read = told == Told::Resume;
        }
        assert!(self.rig.budget.used_bytes() <= self.rig.budget.limit_bytes());
    }

    fn fetch(&mut self, count: usize) {
        let position = self.rig.lane.position().expect("open").0;
        if !self.is_read || !matches!(self.rig.lane.reading_at(), Next::Read { .. }) {
            return;
        }
        let ahead = self
            .source
            .iter()
            .skip_while(|batch| batch.header().next_offset() <= position);
        let batches: Vec<_> = ahead.take(count).cloned().collect();
        self.is_read = self.rig.fetch(&batches) != Next::Pause;
    }

    fn serve(&mut self, serve: impl FnOnce(&mut Target, &Item) -> (Answer, bool)) {
        let Some(item) = self.on_the_way.pop_front() else {
            return;
        };
        let (answer, leader_is_other) = serve(&mut self.target, &item);
        let sent = (item.id, item.attempt);
        self.rig
            .lane
            .answered(item.run, item.way, sent, answer, leader_is_other);
    }

    fn lose(&mut self, taken: usize) {
        let mut gone = std::mem::take(&mut self.on_the_way);
        for item in gone.iter().take(taken) {
            self.target.append(item);
        }
        self.lost
            .extend(gone.iter().skip(1).map(|item| (item.run, item.way)));
        if let Some(first) = gone.pop_front() {
            self.rig.lane.connection_lost(first.run, first.way);
        }
    }

    fn act(&mut self) {
        match self.events.pop_front() {
            None => {}
            Some(Event::FindTarget) => self.rig.connect(),
            Some(Event::AskTarget) => self.rig.lane.target_seen(&self.target.seen(None)),
            Some(Event::ReadTail(from)) => {
                self.rig.lane.target_seen(&self.target.seen(Some(from)));
            }
            Some(Event::Read(_)) => self.is_read = true,
            Some(other) => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.rig.checkpoint() == self.end()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn c107_everything_arrives_once_in_order_and_all_memory_comes_back(
        lengths in proptest::collection::vec(
            (1_i32..6, prop_oneof![Just(10_usize), Just(100), Just(250)]), 1..40),
        steps in proptest::collection::vec(step(), 0..120),
        drain_at_the_end in any::<bool>(),
    ) {
        let mut world = World::new(&lengths);
        for step in steps {
            world.step(step);
        }
        // What is joined anew may end elsewhere than what the target has of it: a drain reads nothing again.
        let mut is_cut = false;
        if drain_at_the_end {
            let mut is_settled = world.rig.lane.drain();
            world.events.extend(world.rig.events());
            for _ in 0..400 {
                if is_settled {
                    break;
                }
                is_cut |= world.events.front() == Some(&Event::Unsettled);
                if is_cut || world.events.front() == Some(&Event::Settled) {
                    is_settled = true;
                }
                if !is_settled {
                    world.step(Step::Act);
                    world.step(Step::Serve);
                    world.step(Step::Tick);
                }
            }
            prop_assert!(is_settled, "{:?}", world.rig.lane);
            let count = world.rig.checkpoint();
            prop_assert!(count <= world.end());
            let delivered: Vec<i64> = (0..count).collect();
            prop_assert_eq!(&world.target.records, &delivered);
        } else {
            for _ in 0..2_000 {
                if world.is_done() {
                    break;
                }
                for step in [Step::Act, Step::Serve, Step::Tick, Step::Fetch(2)] {
                    world.step(step);
                }
            }
            prop_assert!(world.is_done(), "{:?}", world.rig.lane);
            let all: Vec<i64> = (0..world.end()).collect();
            prop_assert_eq!(&world.target.records, &all);
        }
        if !is_cut {
            prop_assert_eq!(world.rig.budget.used_bytes(), 0);
        }
        prop_assert_eq!(world.rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
        prop_assert_eq!(world.rig.lane.close() > 0, is_cut);
        prop_assert_eq!(world.rig.budget.used_bytes(), 0);
    }
}
