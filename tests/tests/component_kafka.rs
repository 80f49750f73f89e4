//! The harness against real Kafka: what it starts works, and what it finds is there.

use std::time::Duration;

use kreplicator_tests::{
    checker::Counts,
    kafka::{KafkaCluster, KafkaOptions, TlsMode},
    load::{Load, LoadOptions},
    record::Stamp,
    rig,
    skip::{Tier, skip},
    tail::Tail,
};
use rdkafka::{
    ClientConfig, Message as _,
    consumer::{BaseConsumer, Consumer as _},
    producer::{FutureProducer, FutureRecord, Producer as _},
};

const DEADLINE: Duration = Duration::from_secs(30);

fn client_properties(cluster: &KafkaCluster) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap().join(","));
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_arrives_exactly_through_kills_and_restarts_of_its_broker() {
    if skip(Tier::Component) {
        return;
    }
    let mut cluster = KafkaCluster::start(KafkaOptions::single("roundtrip"))
        .await
        .expect("a broker starts");
    cluster
        .create_topic("orders", 4, &[])
        .await
        .expect("created");
    let tail = Tail::start(&cluster.client_config()).expect("a reader");
    tail.follow("orders");
    let options = LoadOptions {
        records_per_second: 1_000,
        padding: 100,
    };
    let load = Load::start(&cluster.client_config(), options).expect("a producer");
    load.add("orders", 4);
    let lane = ("orders".to_owned(), 0);
    let start = tokio::time::Instant::now();
    tail.first_arrival(&lane, start, DEADLINE)
        .await
        .expect("records flow");

    cluster.kill(0).await.expect("it runs");
    let killed = tokio::time::Instant::now();
    cluster.restart(0).await.expect("it comes back");
    tail.first_arrival(&lane, tokio::time::Instant::now(), DEADLINE)
        .await
        .expect("records flow again");
    let pause = tail.pauses([&lane], &(killed..tokio::time::Instant::now()));
    assert!(
        pause[&lane] > Duration::from_millis(500),
        "a broker was away: {pause:?}"
    );

    cluster.grow_topic("orders", 6).await.expect("grown");
    load.add("orders", 6);
    tail.first_arrival(&("orders".to_owned(), 5), start, DEADLINE)
        .await
        .expect("new partitions are read");
    kreplicator_tests::wait::until_true("records in every partition", DEADLINE, async || {
        Ok(load.acknowledged().values().all(|count| *count > 50))
    })
    .await
    .expect("all partitions are written to");

    let produced = load.finish(DEADLINE).await.expect("all acknowledged");
    assert_eq!(produced.len(), 6);
    let report = tail.complete(&produced, DEADLINE).await.expect("complete");
    assert!(report.is_exact(), "{report}");
    let watermarks = cluster.watermarks("orders").await.expect("offsets");
    for ((_, partition), count) in &produced {
        let (start, end) = watermarks[partition];
        assert_eq!((start, end), (0, i64::try_from(*count).expect("few")));
    }

    // Written on from the beginning, so whatever is still read is a repeat.
    let again = Load::start(&cluster.client_config(), options).expect("a producer");
    again.add("orders", 6);
    let repeats = || tail.report(&produced).repeated.count;
    kreplicator_tests::wait::until_true("records that are read", DEADLINE, async || {
        Ok(repeats() > 0)
    })
    .await
    .expect("it is followed");
    tail.leave("orders");
    kreplicator_tests::wait::until_true("the end of reading", DEADLINE, async || {
        let (before, written) = (repeats(), total(&again));
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(repeats() == before && total(&again) > written)
    })
    .await
    .expect("it is left");
}

/// Records that a load was told are safe.
fn total(load: &Load) -> u64 {
    load.acknowledged().values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_repetition_reordering_and_alteration_are_found_through_a_broker() {
    if skip(Tier::Component) {
        return;
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("faults"))
        .await
        .expect("a broker starts");
    cluster.create_topic("copy", 1, &[]).await.expect("created");
    let producer: FutureProducer = cluster.client_config().create().expect("a producer");
    // 2 is lost, 1 is repeated, 4 comes before 3, and 5 has lost its time.
    for seq in [0, 1, 1, 4, 3, 5] {
        let stamp = Stamp {
            topic: "orders".to_owned(),
            partition: 0,
            seq,
            timestamp_ms: 1_000_000 + i64::try_from(seq).expect("small"),
            padding: 0,
        };
        let mut content = stamp.content();
        if seq == 5 {
            content.timestamp_ms = Some(7);
        }
        let mut record = FutureRecord::<[u8], [u8]>::to("copy")
            .partition(0)
            .timestamp(content.timestamp_ms.expect("set"));
        record.key = content.key.as_deref();
        record.payload = content.value.as_deref();
        record.headers = content.kafka_headers();
        producer.send(record, DEADLINE).await.expect("sent");
    }
    producer.flush(DEADLINE).expect("flushed");
    let tail = Tail::start(&cluster.client_config()).expect("a reader");
    tail.follow("copy");
    let lane = ("copy".to_owned(), 0);
    let seen = Counts::from([(lane.clone(), 4)]);
    kreplicator_tests::wait::until_true("the records", DEADLINE, async || {
        Ok(tail.seen() == seen && tail.report(&Counts::new()).produced == 0)
    })
    .await
    .expect("they arrive");
    let produced = Counts::from([(lane, 6)]);
    kreplicator_tests::wait::until_true("the altered record", DEADLINE, async || {
        Ok(tail.report(&produced).altered.count == 1)
    })
    .await
    .expect("it arrives");
    let report = tail.report(&produced);
    assert_eq!(report.missing.examples, ["copy/0: 2..3", "copy/0: 5..6"]);
    assert_eq!(report.repeated.examples, ["copy/0: 1..2"]);
    assert_eq!(report.reordered.count, 1, "{report}");
    assert!(report.altered.examples[0].contains("timestamp"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secured_cluster_lets_in_those_who_prove_who_they_are() {
    if skip(Tier::Component) {
        return;
    }
    let options = KafkaOptions {
        tls: TlsMode::Mutual,
        ..KafkaOptions::single("secured").user("alice", "right")
    };
    let cluster = KafkaCluster::start(options).await.expect("it starts");
    let certificates = cluster.certificates().expect("TLS is on");
    let connect = |mechanism: &str, password: &str, with_certificate: bool| {
        let mut config = client_properties(&cluster);
        config
            .set("security.protocol", "SASL_SSL")
            .set("ssl.ca.location", certificates.ca().to_string_lossy())
            .set("sasl.mechanism", mechanism)
            .set("sasl.username", "alice")
            .set("sasl.password", password);
        if with_certificate {
            config
                .set(
                    "ssl.certificate.location",
                    certificates.client_certificate().to_string_lossy(),
                )
                .set(
                    "ssl.key.location",
                    certificates.client_key().to_string_lossy(),
                );
        }
        let consumer: BaseConsumer = config.create().expect("legal settings");
        consumer
            .fetch_metadata(None, Duration::from_secs(4))
            .is_ok()
    };
    tokio::task::block_in_place(|| {
        for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
            assert!(connect(mechanism, "right", true), "{mechanism}");
        }
        assert!(!connect("PLAIN", "wrong", true));
        assert!(!connect("SCRAM-SHA-256", "wrong", true));
        assert!(!connect("PLAIN", "right", false), "no certificate");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_loses_one_and_takes_it_back() {
    if skip(Tier::Component) {
        return;
    }
    let mut cluster = KafkaCluster::start(KafkaOptions::triple("triple"))
        .await
        .expect("three brokers start");
    cluster
        .create_topic("orders", 3, &[("retention.ms", "777777")])
        .await
        .expect("created");
    let config = cluster.topic_config("orders").await.expect("settings");
    assert_eq!(config["retention.ms"], "777777");
    let tail = Tail::start(&cluster.client_config()).expect("a reader");
    tail.follow("orders");
    let options = LoadOptions {
        records_per_second: 300,
        padding: 0,
    };
    let load = Load::start(&cluster.client_config(), options).expect("a producer");
    load.add("orders", 3);
    cluster.kill(1).await.expect("it runs");
    // Two of three are enough: all partitions find a leader and flow.
    let killed = tokio::time::Instant::now();
    for partition in 0..3 {
        tail.first_arrival(&("orders".to_owned(), partition), killed, DEADLINE)
            .await
            .expect("another broker leads");
    }
    cluster.restart(1).await.expect("it comes back");
    let produced = load.finish(DEADLINE).await.expect("all acknowledged");
    let report = tail.complete(&produced, DEADLINE).await.expect("complete");
    assert!(report.is_exact(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kafkas_own_tool_tells_committed_offsets_and_lag() {
    if skip(Tier::Component) {
        return;
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("groups"))
        .await
        .expect("a broker starts");
    cluster
        .create_topic("orders", 1, &[])
        .await
        .expect("created");
    let producer: FutureProducer = cluster.client_config().create().expect("a producer");
    for _ in 0..5 {
        let record = FutureRecord::<[u8], [u8]>::to("orders").payload(b"x".as_slice());
        producer.send(record, DEADLINE).await.expect("sent");
    }
    let mut config = cluster.client_config();
    config
        .set("group.id", "reader")
        .set("enable.auto.commit", "false");
    tokio::task::block_in_place(|| {
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut offsets = rdkafka::TopicPartitionList::new();
        offsets
            .add_partition_offset("orders", 0, rdkafka::Offset::Offset(3))
            .expect("legal");
        consumer
            .commit(&offsets, rdkafka::consumer::CommitMode::Sync)
            .expect("committed");
        consumer.assign(&offsets).expect("assigned");
        let message = consumer.poll(DEADLINE).expect("a record").expect("read");
        assert_eq!(message.offset(), 3);
    });
    let lines = cluster.describe_group("reader").await.expect("a table");
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (lines[0].current, lines[0].end, lines[0].lag),
        (Some(3), Some(5), Some(2))
    );
    let asked = [("orders".to_owned(), 0), ("orders".to_owned(), 1)];
    let committed = cluster.committed("reader", &asked).await.expect("offsets");
    assert_eq!(committed.len(), 1);
    assert_eq!(committed[&asked[0]].0, 3);
}

/// What end-to-end tests take for noise must be more than the harness and two brokers make of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_harness_itself_stays_below_the_noise_it_allows_for() {
    if skip(Tier::Component) {
        return;
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("noise"))
        .await
        .expect("a broker starts");
    let names = rig::TOPICS.map(String::from);
    cluster
        .create_topics(&names, rig::PARTITIONS, &[])
        .await
        .expect("created");
    let tail = Tail::start(&cluster.client_config()).expect("a reader");
    let options = LoadOptions {
        records_per_second: rig::RATE,
        padding: 100,
    };
    let load = Load::start(&cluster.client_config(), options).expect("a producer");
    for topic in rig::TOPICS {
        tail.follow(topic);
        load.add(topic, rig::PARTITIONS);
    }
    let lanes = rig::Rig::base_lanes();
    let start = tokio::time::Instant::now();
    for lane in &lanes {
        tail.first_arrival(lane, start, DEADLINE)
            .await
            .expect("records flow");
    }
    let start = tokio::time::Instant::now();
    let time = Duration::from_secs(5);
    tokio::time::sleep_until(start + time).await;
    let window = start..start + time;
    let longest = tail.pauses(&lanes, &window).into_values().max();
    let latency = tail.latency_of_all(&window);
    println!(
        "{} records, longest pause {longest:?}, p50 {:?}, p99.9 {:?}",
        latency.count(),
        latency.quantile(500),
        latency.quantile(999)
    );
    assert!(longest.expect("40 partitions") < rig::NOISE, "{longest:?}");
    let expected = usize::try_from(rig::RATE).expect("small") * 5;
    assert!(
        latency.count() > expected * 9 / 10 && latency.count() < expected * 11 / 10,
        "{} records in 5 s",
        latency.count()
    );
}
