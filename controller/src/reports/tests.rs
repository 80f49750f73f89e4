use kreplicator_model::{
    ids::{LinkId, Partition, TopicName},
    suspicion::Heard,
};
use tokio::time::advance;

use super::*;
use crate::fleet::{Assigned, WorkerView};

const WORKER: &str = "w1";

fn worker_id(name: &str) -> WorkerId {
    WorkerId::new(name).expect("legal")
}

fn task(partition: i32) -> TaskId {
    TaskId {
        link: LinkId::new("a-b").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        partition: Partition(partition),
    }
}

fn assigned(worker: &str, epoch: u64) -> Assigned {
    Assigned {
        worker: worker_id(worker),
        epoch: OwnerEpoch(epoch),
        owned: true,
        stopping: false,
        reason: String::new(),
        covered_by: std::collections::BTreeSet::new(),
    }
}

/// `partitions` tasks of one topic, all on `w1` with epoch 7; `w2` is idle.
fn fleet(partitions: i32) -> FleetState {
    let live = WorkerView::idle();
    FleetState {
        workers: [WORKER, "w2"]
            .map(|id| (worker_id(id), live.clone()))
            .into(),
        assigned: (0..partitions)
            .map(|partition| (task(partition), assigned(WORKER, 7)))
            .collect(),
        ..FleetState::default()
    }
}

fn entry(partition: i32, epoch: u64, lag: i64) -> v1::TaskReport {
    v1::TaskReport {
        link: "a-b".to_owned(),
        topic: "orders".to_owned(),
        partition,
        epoch,
        lag_records: Some(lag),
        ..v1::TaskReport::default()
    }
}

fn report(worker: &str, full: bool, tasks: Vec<v1::TaskReport>) -> v1::WorkerReport {
    v1::WorkerReport {
        worker: worker.to_owned(),
        incarnation: "i1".to_owned(),
        full,
        tasks,
        records_per_second: 5.0,
        ..v1::WorkerReport::default()
    }
}

fn lag(reports: &Reports, partition: i32, assigned: &Assigned) -> Option<i64> {
    let view = reports.view(Instant::now());
    view.task(&task(partition), assigned)?.lag_records
}

#[tokio::test(start_paused = true)]
async fn deltas_need_a_full_base_on_the_same_stream() {
    let fleet = fleet(2);
    let reports = Reports::new(Limits::default());
    let first = reports.open_stream();
    let send = |stream, report| reports.accept(Instant::now(), stream, report, &fleet);

    let delta = || report(WORKER, false, vec![entry(0, 7, 3)]);
    assert_eq!(send(first, delta()), Verdict::WantFull);
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), None);
    let full = || report(WORKER, true, vec![entry(0, 7, 1), entry(1, 7, 2)]);
    assert_eq!(send(first, full()), Verdict::Accepted);
    assert_eq!(send(first, delta()), Verdict::Accepted);
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), Some(3));
    assert_eq!(lag(&reports, 1, &assigned(WORKER, 7)), Some(2));

    let second = reports.open_stream();
    assert_eq!(
        send(second, delta()),
        Verdict::WantFull,
        "new stream, no base"
    );
    assert_eq!(send(second, full()), Verdict::Accepted);
    assert_eq!(send(first, full()), Verdict::Superseded);
    let restarted = v1::WorkerReport {
        incarnation: "i2".to_owned(),
        ..delta()
    };
    assert_eq!(send(second, restarted), Verdict::WantFull);
    let alone = report(WORKER, true, vec![entry(1, 7, 9)]);
    assert_eq!(send(second, alone), Verdict::Accepted);
    assert_eq!(
        lag(&reports, 0, &assigned(WORKER, 7)),
        None,
        "not listed in a full report: gone"
    );
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 1);
}

#[tokio::test(start_paused = true)]
async fn c119_only_the_assigned_worker_and_epoch_count() {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    for worker in [WORKER, "w2"] {
        let stream = reports.open_stream();
        let full = report(worker, true, vec![entry(0, 7, 5)]);
        reports.accept(Instant::now(), stream, full, &fleet);
    }
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), Some(5));
    assert_eq!(
        lag(&reports, 0, &assigned(WORKER, 8)),
        None,
        "moved and back"
    );
    assert_eq!(lag(&reports, 0, &assigned("w3", 7)), None);
}

#[tokio::test(start_paused = true)]
async fn c116_a_silent_worker_is_unknown_not_zero() {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let stream = reports.open_stream();
    let full = report(WORKER, true, vec![entry(0, 7, 5)]);
    reports.accept(Instant::now(), stream, full, &fleet);
    advance(Duration::from_secs(6)).await;
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), Some(5));
    assert!(
        reports
            .view(Instant::now())
            .silent_for(&worker_id(WORKER))
            .is_none()
    );
    advance(Duration::from_secs(1)).await;
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), None);
    let view = reports.view(Instant::now());
    assert_eq!(view.worker(&worker_id(WORKER)), None);
    assert_eq!(
        view.silent_for(&worker_id(WORKER)),
        Some(Duration::from_secs(7))
    );
}

/// Memory for so many tasks, and not for one more.
fn room_for(tasks: usize) -> usize {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let full = report(WORKER, true, vec![entry(0, 7, 1)]);
    reports.accept(Instant::now(), reports.open_stream(), full, &fleet);
    let one = reports.view(Instant::now()).bytes_kept();
    assert!(one > size_of::<v1::TaskReport>(), "{one}");
    tasks * one + one / 2
}

#[tokio::test(start_paused = true)]
async fn long_texts_take_room_too() {
    let fleet = fleet(2);
    let reports = Reports::new(Limits {
        bytes_max: room_for(2),
        ..Limits::default()
    });
    let stream = reports.open_stream();
    let long = v1::TaskReport {
        cause: "x".repeat(room_for(1)),
        ..entry(0, 7, 1)
    };
    let full = report(WORKER, true, vec![long, entry(1, 7, 1)]);
    reports.accept(Instant::now(), stream, full, &fleet);
    assert_eq!(reports.view(Instant::now()).left_out(), 1);
    // What was said before is not true any more: it goes where the new word finds no room.
    let longer = v1::TaskReport {
        cause: "x".repeat(room_for(2)),
        ..entry(0, 7, 2)
    };
    let delta = report(WORKER, false, vec![longer]);
    reports.accept(Instant::now(), stream, delta, &fleet);
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_found_no_room_is_asked_again_once_there_is_some() {
    let fleet = fleet(3);
    let reports = Reports::new(Limits {
        bytes_max: room_for(2),
        ..Limits::default()
    });
    let (other, stream) = (reports.open_stream(), reports.open_stream());
    let say = |stream, worker, full, tasks| {
        let report = report(worker, full, tasks);
        reports.accept(Instant::now(), stream, report, &fleet)
    };
    say(other, "w2", true, vec![entry(0, 7, 1)]);
    let all = || vec![entry(1, 7, 1), entry(2, 7, 1)];
    assert_eq!(say(stream, WORKER, true, all()), Verdict::Accepted);
    assert_eq!(reports.view(Instant::now()).left_out(), 1);
    advance(UNASSIGNED_KEPT).await;
    say(other, "w2", true, Vec::new());
    assert_eq!(say(stream, WORKER, false, Vec::new()), Verdict::WantFull);
    assert_eq!(say(stream, WORKER, true, all()), Verdict::Accepted);
    assert_eq!(reports.view(Instant::now()).left_out(), 0);
    assert_eq!(lag(&reports, 2, &assigned(WORKER, 7)), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_reader_holds_up_nobody_and_sees_one_moment() {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let stream = reports.open_stream();
    let say = |lag| {
        let full = report(WORKER, false, vec![entry(0, 7, lag)]);
        reports.accept(Instant::now(), stream, full, &fleet)
    };
    let full = report(WORKER, true, vec![entry(0, 7, 1)]);
    reports.accept(Instant::now(), stream, full, &fleet);
    let before = reports.view(Instant::now());
    // On the thread that reads: it would wait for itself for ever.
    assert_eq!(say(2), Verdict::Accepted);
    let on_w1 = assigned(WORKER, 7);
    let lag_of = |view: &View| {
        view.task(&task(0), &on_w1)
            .and_then(|task| task.lag_records)
    };
    assert_eq!(lag_of(&before), Some(1));
    assert_eq!(lag_of(&reports.view(Instant::now())), Some(2));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_swept() {
    let mut fleet = fleet(3);
    let reports = Reports::new(Limits {
        bytes_max: room_for(2),
        ..Limits::default()
    });
    let stream = reports.open_stream();
    let tasks = |range: std::ops::Range<i32>| range.map(|p| entry(p, 7, 1)).collect::<Vec<_>>();
    let full = report(WORKER, true, tasks(0..3));
    reports.accept(Instant::now(), stream, full, &fleet);
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 2);
    assert_eq!(reports.view(Instant::now()).dropped_total(), 1);
    assert_eq!(reports.view(Instant::now()).left_out(), 1);

    // The first task is unsubscribed; its entry goes once the fleet has had time to catch up.
    fleet.assigned.remove(&task(0));
    advance(UNASSIGNED_KEPT).await;
    let delta = report(WORKER, false, tasks(1..3));
    reports.accept(Instant::now(), stream, delta, &fleet);
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 2);
    assert_eq!(lag(&reports, 0, &assigned(WORKER, 7)), None);
    assert_eq!(lag(&reports, 2, &assigned(WORKER, 7)), Some(1));

    fleet.workers.clear();
    advance(UNASSIGNED_KEPT).await;
    let late = report(WORKER, true, tasks(0..1));
    assert_eq!(
        reports.accept(Instant::now(), stream, late, &fleet),
        Verdict::WantFull,
        "nothing is kept of a worker that the fleet does not know"
    );
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_none_are_refused() {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let stream = reports.open_stream();
    let nobody = report("", true, vec![]);
    let verdict = reports.accept(Instant::now(), stream, nobody, &fleet);
    assert_eq!(verdict, Verdict::BadWorker);
    let bad = v1::TaskReport {
        topic: "no/topic".to_owned(),
        ..entry(0, 7, 1)
    };
    reports.accept(
        Instant::now(),
        stream,
        report(WORKER, true, vec![bad]),
        &fleet,
    );
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 0);
    assert_eq!(reports.view(Instant::now()).dropped_total(), 1);
}

/// A worker that has just registered was not silent before: what it said under its last registration is
/// another matter.
#[tokio::test(start_paused = true)]
async fn a_worker_is_heard_under_its_registration_only() {
    let fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let worker = worker_id(WORKER);
    let heard = |incarnation: &str| {
        let view = reports.view(Instant::now());
        view.heard(&worker, incarnation)
    };
    assert_eq!(heard("i1"), None);
    let beating = v1::WorkerReport {
        heartbeat_interval_ms: 250,
        ..report(WORKER, true, Vec::new())
    };
    reports.accept(Instant::now(), reports.open_stream(), beating, &fleet);
    advance(Duration::from_secs(4)).await;
    let expected = Heard {
        incarnation: "i1".to_owned(),
        silent: Duration::from_secs(4),
        interval: Duration::from_millis(250),
    };
    assert_eq!(heard("i1"), Some(expected));
    assert_eq!(heard("i2"), None);
}

#[tokio::test(start_paused = true)]
async fn a_word_counts_for_its_ownership_and_while_its_worker_is_heard() {
    let fleet = fleet(1);
    let limits = Limits::default();
    let stale_after = limits.stale_after;
    let reports = Reports::new(limits);
    let stream = reports.open_stream();
    let worker = worker_id(WORKER);
    let say = |state: v1::TaskState, log_end: Option<i64>, delivery: &str| {
        let said = v1::TaskReport {
            state: state.into(),
            log_end,
            delivery: delivery.to_owned(),
            ..entry(0, 7, 0)
        };
        let report = report(WORKER, true, vec![said]);
        let verdict = reports.accept(Instant::now(), stream, report, &fleet);
        assert_eq!(verdict, Verdict::Accepted);
    };
    let word = |epoch| reports.word(Instant::now(), &worker, &task(0), OwnerEpoch(epoch));
    assert_eq!(word(7), Word::default());
    say(v1::TaskState::Starting, None, EXACTLY_ONCE);
    assert!(!word(7).copies && word(7).bears_second);
    // It has begun, and has not seen the log yet.
    say(v1::TaskState::Running, None, EXACTLY_ONCE);
    assert!(!word(7).copies);
    say(v1::TaskState::Running, Some(9), "at_least_once");
    assert!(word(7).copies && !word(7).bears_second);
    say(v1::TaskState::Running, Some(9), EXACTLY_ONCE);
    assert!(word(7).copies && word(7).bears_second);
    assert_eq!(word(6), Word::default());
    assert_eq!(word(8), Word::default());
    advance(stale_after + Duration::from_millis(1)).await;
    assert_eq!(word(7), Word::default());
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_says_is_kept_while_it_covers_for_a_successor() {
    let mut fleet = fleet(1);
    let reports = Reports::new(Limits::default());
    let stream = reports.open_stream();
    let say = |fleet: &FleetState, full: bool, tasks| {
        reports.accept(Instant::now(), stream, report(WORKER, full, tasks), fleet)
    };
    let mut successor = assigned("w2", 8);
    successor.covered_by.insert(worker_id(WORKER));
    fleet.assigned.insert(task(0), successor);
    say(&fleet, true, vec![entry(0, 7, 0)]);
    advance(UNASSIGNED_KEPT * 2).await;
    say(&fleet, false, Vec::new());
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 1);
    fleet.assigned.insert(task(0), assigned("w2", 8));
    advance(UNASSIGNED_KEPT * 2).await;
    say(&fleet, false, Vec::new());
    assert_eq!(reports.view(Instant::now()).tasks_kept(), 0);
}
