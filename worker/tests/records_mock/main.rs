//! The records engine against librdkafka's mock clusters: real connections and real clients, no
//! broker. What mock clusters do not have (transactions, limits of topics, expiry) is tested on real
//! Kafka in `tests/component_records.rs`.

mod checkpoints;
mod first_batch;
mod rig;
mod wire;

use std::{sync::Arc, time::Duration};

use kreplicator_model::{
    ids::{ClusterId, OwnerEpoch},
    spec::{CheckpointSide, GapPolicy, StartPolicy},
};
use kreplicator_worker::engine::{Engine, State, Stopped};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{Instant, sleep};

use self::rig::{
    PATIENCE, Rec, Rig, copied, faulted, fill, numbered, quick_config, read, spec, status_where,
    values,
};

const STOP: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn c011_c013_c015_records_arrive_unchanged() {
    let rig = Rig::new();
    rig.topic("orders", 3);
    let header = |key: &str, value: Option<&str>| {
        (key.to_owned(), value.map(|value| value.as_bytes().to_vec()))
    };
    let mut records = vec![
        Rec {
            key: None,
            value: Some(b"no key".to_vec()),
            ..Rec::new(0, "")
        },
        Rec {
            key: Some(Vec::new()),
            value: Some(Vec::new()),
            ..Rec::new(0, "")
        },
        Rec {
            value: None,
            ..Rec::new(0, "")
        },
        Rec {
            headers: vec![
                header("a", Some("1")),
                header("b", None),
                header("a", Some("3")),
                header("", Some("")),
            ],
            ..Rec::new(0, "headers")
        },
        Rec {
            timestamp: Some(1),
            ..Rec::new(0, "old")
        },
        Rec {
            key: Some(vec![0, 255, 128]),
            value: Some(vec![255; 50_000]),
            headers: vec![("bin".to_owned(), Some(vec![0, 159, 146, 150]))],
            ..Rec::new(0, "")
        },
    ];
    records.extend(numbered(1, 0..50));
    records.extend(numbered(2, 0..50));
    fill(&rig.source, "orders", &records);

    let tasks: Vec<_> = (0..3)
        .map(|partition| rig.start("orders", partition))
        .collect();
    for (task, count) in tasks.iter().zip([6, 50, 50]) {
        copied(task.as_ref(), count).await;
    }
    let found = read(&rig.target, "orders", 3, 106).await;
    for partition in 0..3 {
        let of = |records: &[Rec]| {
            let records = records
                .iter()
                .filter(|record| record.partition == partition);
            records.cloned().collect::<Vec<_>>()
        };
        assert_eq!(of(&found), of(&records), "partition {partition}");
    }
    for task in tasks {
        assert_eq!(task.stop(STOP).await, Stopped::Clean);
        assert_eq!(task.status().state, State::Stopped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_from_the_checkpoint_without_repeats() {
    let mut rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..100));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 100).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(
        rig.committed("orders", 0),
        Some((100, "k1 e=7 w=worker-1".to_owned()))
    );

    fill(&rig.source, "orders", &numbered(0, 100..150));
    rig.restart(quick_config()).await;
    let task = rig.start("orders", 0);
    let status = copied(task.as_ref(), 150).await;
    assert_eq!(status.records_total, 50);
    let found = read(&rig.target, "orders", 1, 150).await;
    let expected: Vec<_> = (0..150).map(|number| format!("0,{number}")).collect();
    assert_eq!(values(&found, 0), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c025_a_target_that_goes_away_pauses_the_task_and_nothing_is_lost_or_repeated() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..20));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 20).await;

    rig.target.broker_down(-1).expect("down");
    fill(&rig.source, "orders", &numbered(0, 20..40));
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("cluster b"), "{}", status.cause);
    assert_eq!(
        status.checkpoint.map(|at| at.0),
        Some(20),
        "what is not acknowledged is no progress"
    );

    rig.target.broker_up(-1).expect("up");
    copied(task.as_ref(), 40).await;
    status_where(task.as_ref(), "recovery", |status| {
        status.state == State::Running && status.cause.is_empty()
    })
    .await;
    let found = read(&rig.target, "orders", 1, 40).await;
    let expected: Vec<_> = (0..40).map(|number| format!("0,{number}")).collect();
    assert_eq!(values(&found, 0), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c012_one_bad_record_stops_its_own_partition_alone() {
    let rig = Rig::new();
    for topic in ["bad", "good", "other"] {
        rig.topic(topic, 1);
    }
    let mut bad = numbered(0, 0..3);
    // The one thing that cannot be passed on unchanged: a timestamp of 0. The producer takes 0 for
    // "now" as well, so the record is written with its own batch by hand.
    fill(&rig.source, "bad", &bad);
    wire::produce(
        &rig.source.bootstrap_servers(),
        "bad",
        &wire::batch(0, None, b"poison"),
    )
    .await;
    bad.extend(numbered(0, 4..6));
    fill(&rig.source, "bad", &numbered(0, 4..6));
    fill(&rig.source, "good", &numbered(0, 0..10));
    let bad_task = rig.start("bad", 0);
    let good_task = rig.start("good", 0);
    let other_task = rig.start("other", 0);

    let status = faulted(bad_task.as_ref()).await;
    assert!(
        status.cause.contains("offset 3") && status.cause.contains("timestamp 0"),
        "{}",
        status.cause
    );
    assert!(status.retry_at.is_some());
    copied(good_task.as_ref(), 10).await;
    fill(&rig.source, "other", &numbered(0, 0..10));
    copied(other_task.as_ref(), 10).await;
    let first_retry = status.retry_at;
    let status = status_where(bad_task.as_ref(), "another attempt", |status| {
        status.retry_at > first_retry
    })
    .await;
    assert_eq!(
        status.state,
        State::Faulted,
        "an attempt alone proves nothing"
    );
    assert_eq!(status.checkpoint.map(|at| at.0), Some(3));
    assert_eq!(good_task.status().state, State::Running);
    let found = read(&rig.target, "bad", 1, 3).await;
    assert_eq!(
        values(&found, 0),
        ["0,0", "0,1", "0,2"],
        "neighbours are written once"
    );
    assert_eq!(bad_task.stop(STOP).await, Stopped::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn c012_header_names_that_are_no_text_pass_unchanged() {
    let rig = Rig::new();
    rig.topic("odd", 1);
    let name: &[u8] = &[b'n', 0xff, 0xfe];
    let batch = wire::batch(1_700_000_000_000, Some((name, b"value")), b"odd");
    wire::produce(&rig.source.bootstrap_servers(), "odd", &batch).await;
    fill(&rig.source, "odd", &numbered(0, 1..3));
    let task = rig.start("odd", 0);
    copied(task.as_ref(), 3).await;
    let stored = wire::fetch(&rig.target.bootstrap_servers(), "odd").await;
    let has_name = stored.windows(name.len()).any(|window| window == name);
    assert!(has_name, "the name's bytes are at the target");
}

#[tokio::test(flavor = "multi_thread")]
async fn c107_memory_stays_within_the_budget_while_the_target_is_slow() {
    let mut config = quick_config();
    config.sink.linger = Duration::from_millis(1);
    let rig = Rig::with(config, 4 << 20);
    rig.topic("big", 4);
    let value = "x".repeat(10_000);
    for partition in 0..4 {
        let records: Vec<_> = (0..300)
            .map(|number| Rec::new(partition, &format!("{partition},{number},{value}")))
            .collect();
        fill(&rig.source, "big", &records);
    }
    rig.target
        .broker_round_trip_time(-1, Duration::from_millis(50))
        .expect("slow");
    let tasks: Vec<_> = (0..4)
        .map(|partition| rig.start("big", partition))
        .collect();
    let end = Instant::now() + PATIENCE;
    let mut highest = 0;
    while tasks
        .iter()
        .any(|task| task.status().checkpoint.is_none_or(|at| at.0 < 300))
    {
        highest = highest.max(rig.budget.used_bytes());
        assert!(highest <= rig.budget.limit_bytes(), "{highest} bytes");
        assert!(Instant::now() < end, "{:#?}", tasks[0].status());
        sleep(Duration::from_millis(5)).await;
    }
    assert!(highest > 1 << 20, "the budget was put to use: {highest}");
    let found = read(&rig.target, "big", 4, 1_200).await;
    for partition in 0..4 {
        let expected: Vec<_> = (0..300)
            .map(|number| format!("{partition},{number},{value}"))
            .collect();
        assert!(
            values(&found, partition) == expected,
            "partition {partition} in order, once"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c037_a_closed_fence_stops_sending_and_saving() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    status_where(task.as_ref(), "the save", |_| {
        rig.committed("orders", 0)
            .is_some_and(|(offset, _)| offset == 10)
    })
    .await;

    rig.fence.close();
    fill(&rig.source, "orders", &numbered(0, 10..20));
    status_where(task.as_ref(), "the end", |status| {
        status.state == State::Stopped
    })
    .await;
    let stopped = task.stop(STOP).await;
    assert_eq!(
        stopped,
        Stopped::Forced {
            in_flight_records: 0
        }
    );
    assert_eq!(
        values(&read(&rig.target, "orders", 1, 10).await, 0).len(),
        10
    );
    assert_eq!(
        rig.committed("orders", 0).map(|(offset, _)| offset),
        Some(10)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c046_a_task_that_is_stuck_is_thrown_out_in_time_and_its_neighbours_go_on() {
    let rig = Rig::with_target_brokers(quick_config(), 64 << 20, 2);
    for (topic, leader) in [("free", 1), ("stuck", 2)] {
        rig.topic(topic, 1);
        rig.target
            .partition_leader(topic, 0, Some(leader))
            .expect("a leader");
    }
    fill(&rig.source, "stuck", &numbered(0, 0..1));
    fill(&rig.source, "free", &numbered(0, 0..10));
    let stuck = rig.start("stuck", 0);
    let free = rig.start("free", 0);
    copied(free.as_ref(), 10).await;
    copied(stuck.as_ref(), 1).await;
    let reserved = rig.budget.used_bytes();
    rig.target.broker_down(2).expect("down");
    fill(&rig.source, "stuck", &numbered(0, 1..11));
    status_where(stuck.as_ref(), "records in flight", |status| {
        status.in_flight_records == 10
    })
    .await;

    let began = Instant::now();
    let stopped = stuck.stop(Duration::from_secs(1)).await;
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(stopped, Stopped::Forced { .. }), "{stopped:?}");
    assert_eq!(stuck.status().state, State::Stopped);

    // The leader comes back: nothing of the stopped task may arrive.
    rig.target.broker_up(2).expect("up");
    fill(&rig.source, "free", &numbered(0, 10..20));
    let status = copied(free.as_ref(), 20).await;
    assert_eq!(status.records_total, 20, "the neighbour repeats nothing");
    let found = read(&rig.target, "stuck", 1, 1).await;
    assert_eq!(values(&found, 0), ["0,0"]);
    assert_eq!(rig.budget.used_bytes(), reserved, "its memory is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn c027_a_broken_producer_is_replaced_and_tasks_go_back_to_what_was_acknowledged() {
    rig::metrics();
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.target.id = ClusterId::new("c027").expect("legal");
    rig.context = Arc::new(context);
    rig.topic("orders", 1);
    rig.topic("quiet", 1);
    let quiet = rig.start("quiet", 0);
    status_where(quiet.as_ref(), "a start", |status| {
        status.state == State::Running
    })
    .await;
    fill(&rig.source, "orders", &numbered(0, 0..50));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 50).await;
    rig.target.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    fill(&rig.source, "orders", &numbered(0, 50..100));
    let status = copied(task.as_ref(), 100).await;
    assert!(status.records_total >= 100, "{status:?}");
    let replaced = "kreplicator_worker_producer_rebuilds_total{target=\"c027\"} 1";
    assert!(
        rig::metrics().contains(replaced),
        "the producer was replaced once"
    );
    let found = values(&read(&rig.target, "orders", 1, 100).await, 0);
    let mut distinct = found.clone();
    distinct.dedup();
    distinct.sort_by_key(|value| {
        let number = value.strip_prefix("0,").expect("numbered");
        number.parse::<u32>().expect("a number")
    });
    distinct.dedup();
    let expected: Vec<_> = (0..100).map(|number| format!("0,{number}")).collect();
    assert_eq!(distinct, expected, "nothing is missing");
    assert!(
        found.len() <= 150,
        "repeats are bounded by what was in flight: {}",
        found.len()
    );
    fill(&rig.source, "quiet", &numbered(0, 0..10));
    copied(quiet.as_ref(), 10).await;
    let faults = "kreplicator_worker_task_faults_total{link=\"a-b\",kind=\"target\"}";
    assert!(
        rig::metrics().contains(faults),
        "the busy task noticed: {}",
        rig::metrics()
    );
    assert_eq!(
        quiet.status().state,
        State::Running,
        "the quiet one did not"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c028_the_first_record_goes_alone_until_the_broker_knows_the_producer() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..200));
    rig.target
        .broker_round_trip_time(-1, Duration::from_millis(300))
        .expect("slow");
    let task = rig.start("orders", 0);
    let status = status_where(task.as_ref(), "a first record", |status| {
        status.in_flight_records > 0
    })
    .await;
    assert_eq!((status.in_flight_records, status.records_total), (1, 0));
    let status = status_where(task.as_ref(), "its answer", |status| {
        assert!(status.records_total > 0 || status.in_flight_records == 1);
        status.records_total > 0 && status.in_flight_records > 1
    })
    .await;
    assert!(status.in_flight_records > 2, "the others follow together");
    copied(task.as_ref(), 200).await;
    assert_eq!(
        values(&read(&rig.target, "orders", 1, 200).await, 0).len(),
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c005_a_checkpoint_past_the_end_is_reported_and_never_reset() {
    let rig = Rig::new();
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..50));
    rig.commit("short", 0, 10_000, "");
    let task = rig.start("short", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("ends at 50, before offset 10000"),
        "{}",
        status.cause
    );
    assert_eq!(
        rig.committed("short", 0).map(|(offset, _)| offset),
        Some(10_000)
    );
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
}

/// Fills a mock partition over its limit of 5 MiB, so that it drops the oldest batches.
fn overflow(rig: &Rig, topic: &str) -> i64 {
    let value = "x".repeat(500_000);
    let records: Vec<_> = (0..40).map(|_| Rec::new(0, &value)).collect();
    for batch in records.chunks(2) {
        fill(&rig.source, topic, batch);
    }
    40
}

#[tokio::test(flavor = "multi_thread")]
async fn c001_source_offsets_that_are_gone_are_counted_once_and_the_task_goes_on() {
    let rig = Rig::new();
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..10));
    rig.commit("short", 0, 1, "");
    let end = 10 + overflow(&rig, "short");
    let task = rig.start("short", 0);
    let status = copied(task.as_ref(), end).await;
    let log_start = status_where(task.as_ref(), "a look", |status| status.log_start.is_some())
        .await
        .log_start
        .expect("measured");
    assert!(
        log_start.0 > 10,
        "the mock cluster dropped old batches: {log_start}"
    );
    assert_eq!(status.gap_records_total, log_start.0.unsigned_abs() - 1);
    assert_eq!(status.records_total, (end - log_start.0).unsigned_abs());
}

#[tokio::test(flavor = "multi_thread")]
async fn c001_a_link_that_halts_on_gaps_copies_nothing() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.link.on_gap = GapPolicy::Halt;
    rig.context = Arc::new(context);
    rig.topic("short", 1);
    fill(&rig.source, "short", &numbered(0, 0..10));
    rig.commit("short", 0, 1, "");
    overflow(&rig, "short");
    let task = rig.start("short", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("[1, "), "{}", status.cause);
    assert_eq!(status.records_total, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_owners_checkpoint_fences_this_one() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    rig.commit("orders", 0, 4, "k1 e=8 w=worker-2");
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("worker-2") && status.cause.contains("epoch 8"),
        "{}",
        status.cause
    );
    assert_eq!(status.retry_at, None, "trying again cannot help");
    let mut successor = spec("orders", 0);
    successor.epoch = OwnerEpoch(9);
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    let task = rig.start_spec(successor);
    let status = copied(task.as_ref(), 10).await;
    assert_eq!(status.records_total, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_cannot_be_read_is_an_error_and_not_a_beginning() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    rig.commit("orders", 0, 4, "k2 something new");
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("version 2"), "{}", status.cause);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(task.status().records_total, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_policies_are_resolved_once_and_kept() {
    let mut rig = Rig::new();
    rig.topic("late", 1);
    fill(&rig.source, "late", &numbered(0, 0..10));
    let mut latest = spec("late", 0);
    latest.start = StartPolicy::Latest;
    let task = rig.start_spec(latest.clone());
    let status = status_where(task.as_ref(), "the start", |status| {
        status.checkpoint.is_some()
    })
    .await;
    assert_eq!(status.checkpoint.map(|at| at.0), Some(10));
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(rig.committed("late", 0).map(|(offset, _)| offset), Some(10));

    fill(&rig.source, "late", &numbered(0, 10..15));
    rig.restart(quick_config()).await;
    let task = rig.start_spec(latest);
    let status = copied(task.as_ref(), 15).await;
    assert_eq!(
        status.records_total, 5,
        "what came while it was stopped is copied"
    );
    let found = read(&rig.target, "late", 1, 5).await;
    assert_eq!(values(&found, 0), ["0,10", "0,11", "0,12", "0,13", "0,14"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_can_live_on_the_target() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.link.checkpoint_on = CheckpointSide::Target;
    rig.context = Arc::new(context);
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    assert_eq!(
        rig.committed("orders", 0),
        None,
        "nothing is written to the source"
    );
    rig.restart(quick_config()).await;
    fill(&rig.source, "orders", &numbered(0, 10..12));
    let task = rig.start("orders", 0);
    let status = copied(task.as_ref(), 12).await;
    assert_eq!(status.records_total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_source_is_told_with_its_true_cause_and_does_not_touch_other_links() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let mut context = rig::context(
        &format!("127.0.0.1:{port}"),
        &rig.target.bootstrap_servers(),
    );
    context.link.id = kreplicator_model::ids::LinkId::new("dead").expect("legal");
    let mut dead = spec("orders", 0);
    dead.id.link = context.link.id.clone();
    let dead = rig.engine.start(dead, Arc::new(context));
    let alive = rig.start("orders", 0);
    copied(alive.as_ref(), 10).await;
    let status = faulted(dead.as_ref()).await;
    assert!(
        status.cause.contains("Connection refused"),
        "{}",
        status.cause
    );
    assert_eq!(status.log_end, None);
    assert_eq!(alive.status().state, State::Running);
    let began = Instant::now();
    assert_eq!(dead.stop(Duration::from_secs(1)).await, Stopped::Clean);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_are_a_fault_with_the_remedy() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.target.security.sasl = Some(kreplicator_model::spec::Sasl {
        mechanism: kreplicator_model::spec::SaslMechanism::Plain,
        username: "mirror".to_owned(),
        password: kreplicator_model::spec::SecretRef::Env("KREPLICATOR_TEST_NO_SUCH".to_owned()),
    });
    rig.context = Arc::new(context);
    rig.topic("orders", 1);
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("KREPLICATOR_TEST_NO_SUCH is not set"),
        "{}",
        status.cause
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_topic_that_does_not_exist_is_told_and_starts_when_it_appears() {
    let rig = Rig::new();
    rig.target.create_topic("coming", 1, 1).expect("made");
    let task = rig.start("coming", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("coming"), "{}", status.cause);
    rig.source.create_topic("coming", 1, 1).expect("made");
    fill(&rig.source, "coming", &numbered(0, 0..5));
    copied(task.as_ref(), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_come_and_go_while_others_flow() {
    let rig = Rig::new();
    rig.topic("steady", 1);
    rig.topic("moving", 4);
    fill(&rig.source, "steady", &numbered(0, 0..200));
    for partition in 0..4 {
        fill(&rig.source, "moving", &numbered(partition, 0..50));
    }
    let steady = rig.start("steady", 0);
    for round in 0..5 {
        let tasks: Vec<_> = (0..4)
            .map(|partition| rig.start("moving", partition))
            .collect();
        for task in &tasks {
            copied(task.as_ref(), 50).await;
        }
        for task in tasks {
            assert_eq!(task.stop(STOP).await, Stopped::Clean, "round {round}");
        }
    }
    copied(steady.as_ref(), 200).await;
    let found = read(&rig.target, "moving", 4, 200).await;
    assert_eq!(found.len(), 200, "every record once over all rounds");
    assert_eq!(steady.status().state, State::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn c109_everything_is_let_go_within_the_deadline() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let task = rig.start("orders", 0);
    copied(task.as_ref(), 10).await;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    let began = Instant::now();
    rig.engine
        .release_link(&rig.context.link.id, PATIENCE)
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(rig.budget.used_bytes(), 0, "the reader's memory is back");
    let task = rig.start("orders", 0);
    fill(&rig.source, "orders", &numbered(0, 10..12));
    copied(task.as_ref(), 12).await;
    rig.source.broker_down(-1).expect("down");
    rig.target.broker_down(-1).expect("down");
    let began = Instant::now();
    task.stop(Duration::from_secs(1)).await;
    rig.engine.close(Duration::from_secs(3)).await;
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c028_no_gaps_over_many_lost_producers_and_pauses() {
    const RECORDS: usize = 3_000;
    let mut config = quick_config();
    config.sink.rebuild_interval_min = Duration::from_millis(100);
    config.sink.rebuild_interval_max = Duration::from_millis(200);
    // Little memory: partitions are paused and resumed all the time.
    let rig = Rig::with(config, 3 << 20);
    rig.topic("orders", 4);
    let padding = "x".repeat(1_000);
    for partition in 0..4 {
        let records: Vec<_> = (0..RECORDS)
            .map(|number| Rec::new(partition, &format!("{number:06} {padding}")))
            .collect();
        fill(&rig.source, "orders", &records);
    }
    let tasks: Vec<_> = (0..4)
        .map(|partition| rig.start("orders", partition))
        .collect();
    let all = i64::try_from(RECORDS).expect("small");
    let end = Instant::now() + PATIENCE;
    let mut losses = 0;
    while tasks
        .iter()
        .any(|task| task.status().checkpoint.is_none_or(|at| at.0 < all))
    {
        assert!(Instant::now() < end, "{:#?}", tasks[0].status());
        if losses < 8 && tasks[0].status().records_total > 100 {
            losses += 1;
            rig.target.request_errors(
                RDKafkaApiKey::Produce,
                &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
            );
        }
        sleep(Duration::from_millis(150)).await;
    }
    assert!(losses > 3, "the test was over before it began: {losses}");
    let found = read(&rig.target, "orders", 4, 4 * RECORDS).await;
    for partition in 0..4 {
        let mut next = 0;
        for value in values(&found, partition) {
            let number = value.split(' ').next().expect("numbered");
            let number: usize = number.parse().expect("a number");
            assert!(
                number <= next,
                "partition {partition}: {number} came before {next}"
            );
            next = next.max(number + 1);
        }
        assert_eq!(next, RECORDS, "partition {partition}");
    }
    for task in tasks {
        assert_eq!(task.stop(STOP).await, Stopped::Clean);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_link_takes_over_task_by_task_and_its_old_clients_end() {
    let mut rig = Rig::new();
    rig.topic("orders", 2);
    for partition in 0..2 {
        fill(&rig.source, "orders", &numbered(partition, 0..10));
    }
    let before: Vec<_> = (0..2)
        .map(|partition| rig.start("orders", partition))
        .collect();
    for task in &before {
        copied(task.as_ref(), 10).await;
    }
    let reserved = rig.budget.used_bytes();
    let mut context = (*rig.context).clone();
    context.link.on_gap = GapPolicy::Halt;
    rig.context = Arc::new(context);
    assert_eq!(before[0].stop(STOP).await, Stopped::Clean);
    let first = rig.start("orders", 0);
    fill(&rig.source, "orders", &numbered(0, 10..20));
    fill(&rig.source, "orders", &numbered(1, 10..20));
    copied(first.as_ref(), 20).await;
    copied(before[1].as_ref(), 20).await;
    assert_eq!(before[1].stop(STOP).await, Stopped::Clean);
    let end = Instant::now() + PATIENCE;
    while rig.budget.used_bytes() > reserved {
        assert!(Instant::now() < end, "the old reader's memory is kept");
        sleep(Duration::from_millis(50)).await;
    }
    let second = rig.start("orders", 1);
    fill(&rig.source, "orders", &numbered(1, 20..25));
    copied(second.as_ref(), 25).await;
    let found = read(&rig.target, "orders", 2, 45).await;
    assert_eq!(found.len(), 45, "nothing twice");
}
