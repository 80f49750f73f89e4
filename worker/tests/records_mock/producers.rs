//! Producers that break and are replaced.

use std::{sync::Arc, time::Duration};

use kreplicator_model::ids::ClusterId;
use kreplicator_worker::engine::{State, Stopped};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{Instant, sleep};

use crate::rig::{
    self, PATIENCE, Rec, Rig, STOP, copied, fill, numbered, quick_config, read, status_where,
    values,
};

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
async fn c126_a_target_that_breaks_every_producer_gets_few_of_them_however_many_tasks_there_are() {
    const PARTITIONS: i32 = 40;
    rig::metrics();
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.target.id = ClusterId::new("c126").expect("legal");
    rig.context = Arc::new(context);
    rig.topic("orders", PARTITIONS);
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER; 20_000];
    rig.target.request_errors(RDKafkaApiKey::Produce, &refused);
    for partition in 0..PARTITIONS {
        fill(&rig.source, "orders", &numbered(partition, 0..5));
    }
    let began = Instant::now();
    let tasks: Vec<_> = (0..PARTITIONS)
        .map(|partition| rig.start("orders", partition))
        .collect();
    let producers = || rig::sample("kreplicator_worker_producer_rebuilds_total{target=\"c126\"}");
    let end = began + PATIENCE;
    while producers() < 2 {
        assert!(Instant::now() < end, "no producer was replaced");
        sleep(Duration::from_millis(50)).await;
    }
    let attempts =
        rig::sample("kreplicator_worker_task_faults_total{link=\"a-b\",kind=\"target\"}");
    sleep(Duration::from_secs(4)).await;
    // Each wait is twice the one before, from a second on: 1 + 2 + 4 + … fit into the time.
    let (made, seconds) = (producers(), began.elapsed().as_secs());
    assert!(
        made <= u64::from((seconds + 1).ilog2()) + 1,
        "{made} producers in {seconds} s"
    );
    assert!(
        attempts >= 2 * u64::from(PARTITIONS.unsigned_abs()),
        "{attempts} faults"
    );
    rig.target.clear_request_errors(RDKafkaApiKey::Produce);
    for task in &tasks {
        copied(task.as_ref(), 5).await;
    }
}
