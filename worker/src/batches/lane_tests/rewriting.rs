//! Batches that have to be opened, by somebody who takes the time.

use kreplicator_batch::{Compression, TimestampType};
use proptest::prelude::*;

use super::*;
use crate::{
    batches::{
        rewriter::{self, COPIES},
        testkit,
    },
    budget::{Grant, Share},
};

/// Has to be opened.
fn holed(base: i64) -> kreplicator_batch::Batch {
    Made::with_holes(base, &[0, 2], 2).batch()
}

fn inflating(base: i64, plain_bytes: usize) -> kreplicator_batch::Batch {
    testkit::inflating(base, plain_bytes, TimestampType::LogAppendTime)
}

fn sequences(items: &VecDeque<Item>) -> Vec<i32> {
    let sequence = |item: &Item| parse(item).header().producer.base_sequence;
    items.iter().map(sequence).collect()
}

#[test]
fn what_follows_a_batch_that_is_being_opened_waits_for_it_and_what_is_before_goes() {
    let rig = Rig::running(RigMade::default());
    rig.hold_jobs();
    assert_eq!(
        rig.fetch(&[batch(0, 3), holed(3), batch(6, 2), holed(8)]),
        Next::Pause
    );
    let first = rig.sent();
    assert_eq!(records(&first), [vec![0, 1, 2]]);
    // The lane is free meanwhile: it takes answers, and tells what it has.
    first.iter().for_each(ack);
    assert_eq!(rig.checkpoint(), 3);
    assert_eq!(rig.lane.position(), Some(Offset(3)));
    assert_eq!(rig.fetch(&[holed(3)]), Next::Pause, "it is not taken twice");
    rig.lane.tick();
    assert!(rig.sent().is_empty());
    assert_eq!(rig.jobs_waiting(), 1, "one at a time");

    assert!(rig.open_next());
    let second = rig.sent();
    assert_eq!(records(&second), [vec![3, 5], vec![6, 7]]);
    assert_eq!(sequences(&second), [3, 5]);
    assert_eq!(rig.lane.reading_at(), Next::Pause);
    assert_eq!(rig.with_fetcher(FakeFetcher::told), []);
    assert!(rig.open_next());
    assert_eq!(rig.with_fetcher(FakeFetcher::told), [Told::Resume]);
    let third = rig.sent();
    assert_eq!(records(&third), [vec![8, 10]]);
    assert_eq!(sequences(&third), [7]);
    second.iter().chain(&third).for_each(|item| {
        let base_offset = Offset(parse(item).header().producer.base_sequence.into());
        tell(item, Answer::Acked { base_offset });
    });
    assert_eq!(rig.checkpoint(), 11);
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
}

#[test]
fn c107_memory_for_what_a_batch_unfolds_to_is_taken_before_and_given_back_after() {
    let rig = Rig::running(RigMade::default());
    rig.hold_jobs();
    let batch = inflating(0, 100);
    rig.fetch([&batch]);
    let bytes = batch.size_bytes() as u64;
    assert_eq!(
        rig.budget.used_bytes(),
        0,
        "none while it waits for its turn"
    );
    let work = rig.begin_next().expect("there is memory");
    // Eight times its size is expected.
    assert_eq!(rig.budget.used_bytes(), bytes + COPIES * 8 * bytes);
    work.run();
    let used = rig.budget.used_bytes();
    assert!(used <= 2 * bytes, "only what is to be sent is held: {used}");
    ack_all(&rig);
    assert_eq!(rig.budget.used_bytes(), 0);
}

#[test]
fn c107_memory_of_a_batch_comes_back_when_its_task_stops_or_goes_elsewhere_meanwhile() {
    let ends: [fn(&Rig); 4] = [
        |rig| {
            rig.lane.close();
        },
        |rig| {
            assert!(rig.lane.drain(), "nothing was sent");
            rig.lane.close();
        },
        |rig| {
            rig.lane.close();
            rig.open_at(0);
        },
        |rig| {
            rig.lane.fail(Fault::new(Kind::Target, "away"));
            rig.lane.close();
        },
    ];
    for end in ends {
        let rig = Rig::running(RigMade::default());
        rig.hold_jobs();
        rig.fetch(&[holed(0), holed(3)]);
        let work = rig.begin_next().expect("there is memory");
        let used = rig.budget.used_bytes();
        assert!(used > 0);
        end(&rig);
        assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
        assert_eq!(rig.budget.used_bytes(), used, "the work goes on");
        work.run();
        assert_eq!(rig.budget.used_bytes(), 0);
        assert!(!rig.open_next(), "nothing more is begun");
        assert!(rig.sent().is_empty());

        // While it waits for its turn.
        let rig = Rig::running(RigMade::default());
        rig.hold_jobs();
        rig.fetch(&[holed(0)]);
        end(&rig);
        assert!(rig.begin_next().is_none());
        assert_eq!(rig.budget.used_bytes(), 0);
    }
}

#[test]
fn what_was_opened_for_a_place_that_was_left_counts_for_nothing() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 2)]);
    let sent = rig.sent();
    rig.hold_jobs();
    let before = rig.budget.used_bytes();
    rig.fetch(&[holed(2), batch(5, 2)]);
    let work = rig.begin_next().expect("there is memory");
    // Another owner is ahead: what is being opened is there already.
    tell(&sent[0], Answer::OutOfOrder);
    rig.lane.target_seen(&view(4));
    assert_eq!(rig.lane.position(), Some(Offset(2)));
    let here = Offset(2);
    assert!(matches!(rig.lane.reading_at(), Next::Read { offset, .. } if offset == here));
    work.run();
    assert!(rig.sent().is_empty());
    assert_eq!(rig.lane.position(), Some(here));
    assert_eq!(rig.budget.used_bytes(), before);
}

#[test]
fn a_batch_that_unfolds_further_than_expected_is_tried_with_more_memory_and_so_are_those_after_it()
{
    let rig = Rig::running(RigMade::default());
    rig.hold_jobs();
    let batches = [inflating(0, 40_000), inflating(1, 40_000)];
    rig.fetch(&batches);
    let mut tries = 0;
    while rig.sent().is_empty() {
        assert!(rig.open_next(), "given up after {tries}");
        tries += 1;
    }
    assert!((2..8).contains(&tries), "{tries} tries");
    assert!(rig.open_next());
    assert_eq!(rig.sent().len(), 1, "at once");
    assert!(rig.events().is_empty());
}

#[test]
fn one_batch_that_unfolds_far_does_not_make_all_that_follow_dear() {
    let rig = Rig::running(RigMade::default());
    rig.hold_jobs();
    let held = |number: i64| {
        // Compressed, so that what it unfolds to is a guess, and a small one.
        let batch = inflating(number, 1_000);
        let batch_bytes = batch.bytes().len() as u64;
        rig.fetch(&[batch]);
        let before = rig.budget.used_bytes();
        let work = rig.begin_next().expect("it waits to be opened");
        let held = rig.budget.used_bytes() - before;
        work.run();
        rig.sent().iter().for_each(ack);
        held / batch_bytes
    };
    let usual = held(0);
    rig.fetch(&[inflating(1, 40_000)]);
    while rig.sent().is_empty() {
        assert!(rig.open_next());
    }
    let dear = held(2);
    assert!(dear > usual, "{dear} bytes a byte, {usual} before");
    for number in 3..20 {
        held(number);
    }
    assert_eq!(held(20), usual);
}

#[test]
fn c107_a_batch_that_unfolds_to_more_than_the_budget_can_hold_is_a_fault_that_names_it() {
    let rig = Rig::running(RigMade {
        budget_bytes: 1 << 20,
        ..RigMade::default()
    });
    rig.fetch(&[batch(0, 1), inflating(1, 1 << 20)]);
    ack_all(&rig);
    let events = rig.events();
    let [Event::Failed(fault)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(fault.kind, Kind::Memory);
    assert!(fault.cause.contains("source offset 1"), "{fault}");
    assert!(fault.cause.contains("raise it"), "{fault}");
    rig.lane.close();
    assert_eq!(rig.budget.used_bytes(), 0);
}

/// A lane, and others that have all memory there is.
fn crowded() -> (Rig, Vec<Share>) {
    let rig = Rig::running(RigMade {
        budget_bytes: 16 << 10,
        ..RigMade::default()
    });
    let mut others: Vec<_> = (0..2).map(|_| rig.budget.share()).collect();
    for other in &mut others {
        while other.take(64) == Grant::Granted {}
    }
    (rig, others)
}

/// Memory that others use is waited for.
#[test]
fn c036_a_batch_waits_for_memory_without_holding_any() {
    let (rig, others) = crowded();
    let before = rig.budget.used_bytes();
    let large = Made::dense(0, 1).append_time().values_of(200);
    rig.fetch(&[large.compressed(Compression::Lz4).batch()]);
    assert_eq!(rig.budget.used_bytes(), before);
    assert!(rig.sent().is_empty());
    drop(others);
    rig.lane.tick();
    assert_eq!(records(&rig.sent()), [[0]]);
}

#[tokio::test(start_paused = true)]
async fn c036_waiting_for_memory_that_others_hold_is_told_until_it_comes() {
    let (rig, others) = crowded();
    let large = Made::dense(0, 1).append_time().values_of(200);
    rig.fetch(&[large.compressed(Compression::Lz4).batch()]);
    let told = |rig: &Rig| {
        rig.lane.tick();
        rig.lane.status().cause
    };
    assert_eq!(told(&rig), "");
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    let cause = told(&rig);
    assert!(
        cause.contains("of the memory budget of this worker (16384 bytes)"),
        "{cause}"
    );
    drop(others);
    assert_eq!(told(&rig), cause, "until it is opened");
    // So long after the start the target is asked first what it has.
    assert!(rig.sent().is_empty());
    assert!(rig.budget.used_bytes() > 0, "it is opened");
    assert_eq!(told(&rig), "");
}

/// A runtime of one thread goes on while a job cannot.
#[expect(clippy::await_holding_lock, reason = "so that the job cannot")]
#[test]
fn jobs_are_done_on_threads_of_their_own() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let sent = runtime.expect("made").block_on(async {
            let rig = Rig::running(RigMade::default());
            let working = tokio::spawn(rewriter::work(rig.take_jobs(), 1));
            rig.fetch(&[holed(0), holed(3), batch(6, 1)]);
            let held = rig.lane.lock();
            // Done here, it would wait for the lane for ever.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            drop(held);
            let mut sent = VecDeque::new();
            while sent.len() < 3 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                sent.extend(rig.sent());
            }
            working.abort();
            records(&sent)
        });
        done.send(sent)
    });
    let patience = std::time::Duration::from_secs(20);
    let sent = is_done.recv_timeout(patience).expect("the thread goes on");
    assert_eq!(sent, [vec![0, 2], vec![3, 5], vec![6]]);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Fetch(usize),
    Open,
    Ack,
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..5).prop_map(Step::Fetch),
        3 => Just(Step::Open),
        4 => Just(Step::Ack),
        1 => Just(Step::Tick),
    ]
}

/// Each of these ways of being at the source, from an offset on.
fn made(base: i64, kind: usize) -> kreplicator_batch::Batch {
    let dense = Made::dense(base, 3).values_of(200);
    match kind {
        0 => dense.batch(),
        1 => dense.append_time().batch(),
        2 => dense.append_time().compressed(Compression::Lz4).batch(),
        3 => holed(base),
        _ => dense.compressed(Compression::Gzip).batch(),
    }
}

proptest! {
    /// However slow opening is: everything is sent once, in order, counted without a hole, within the budget.
    #[test]
    fn order_and_sequences_stay_right_while_opening_takes_its_time(
        kinds in proptest::collection::vec(0_usize..5, 1..30),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let rig = Rig::running(RigMade {
            budget_bytes: 64 << 10,
            ..RigMade::default()
        });
        rig.hold_jobs();
        let source: Vec<_> = (0..).zip(&kinds).map(|(at, kind)| made(at * 3, *kind)).collect();
        let expected: Vec<i64> = source.iter().flat_map(offsets_of).collect();
        let mut on_the_way = VecDeque::new();
        let mut copied = Vec::new();
        let rest = std::iter::repeat_n([Step::Fetch(3), Step::Open, Step::Ack, Step::Tick], 200);
        for step in steps.into_iter().chain(rest.flatten()) {
            match step {
                Step::Fetch(count) => if let Next::Read { offset, .. } = rig.lane.reading_at() {
                    let ahead = source.iter().filter(|one| one.header().next_offset() > offset.0);
                    rig.fetch(ahead.take(count));
                },
                Step::Open => {
                    rig.open_next();
                }
                Step::Ack => if let Some(item) = on_the_way.pop_front() {
                    let sent = parse(&item);
                    let first = sent.header().producer.base_sequence;
                    prop_assert_eq!(usize::try_from(first).expect("positive"), copied.len());
                    copied.extend(offsets_of(&sent));
                    tell(&item, Answer::Acked { base_offset: Offset(first.into()) });
                },
                Step::Tick => rig.lane.tick(),
            }
            on_the_way.extend(rig.sent());
            prop_assert!(rig.jobs_waiting() <= 1);
            prop_assert!(rig.budget.used_bytes() <= rig.budget.limit_bytes());
        }
        prop_assert_eq!(copied, expected);
        prop_assert_eq!(rig.budget.used_bytes(), 0);
        prop_assert_eq!(rig.with_fetcher(|fetcher| fetcher.occupied_bytes()), 0);
        prop_assert!(rig.events().is_empty());
    }
}
