//! Bytes of the metadata store, version 1: what was written once is read for ever, and is still
//! written the same.
//!
//! `cargo test -p kreplicator-proto --test stored_v1 -- --ignored` writes missing fixtures anew after
//! they were deleted; a fixture that exists is never overwritten.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use kreplicator_model::{
    exact::{Line, ProducerEpoch, ProducerId},
    ids::{
        ClusterId, LinkId, LinkTopic, Offset, OwnerEpoch, Partition, PlanGeneration, TaskId,
        TopicName, UnixMillis, WorkerId,
    },
    ownership::Owned,
    resolve::TopicRecord,
    spec::{
        CheckpointSide, Cluster, Engine, GapPolicy, Link, Naming, Pattern, Sasl, SaslMechanism,
        SecretRef, Security, Selector, StartPolicy, Subscription, TargetTopics, Tls,
    },
    target_limits::TargetLimits,
};
use kreplicator_proto::{
    assignment::{AssignedTopic, Assignment, Ownership},
    line_record::{LineEntry, LineRecord, ProducerRecord},
    stored::Stored,
    subscription_record::SubscriptionRecord,
    v1,
};
use prost::Message;

fn cluster_id(name: &str) -> ClusterId {
    ClusterId::new(name).expect("legal")
}

fn link_id(name: &str) -> LinkId {
    LinkId::new(name).expect("legal")
}

fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn cluster() -> Cluster {
    Cluster {
        id: cluster_id("dc-1"),
        bootstrap_servers: vec!["kafka-1:9092".to_owned(), "[::1]:9093".to_owned()],
        security: Security {
            tls: Some(Tls {
                ca_file: Some("/etc/ca.pem".to_owned()),
                cert_file: Some("/etc/cert.pem".to_owned()),
                key_file: Some("/etc/key.pem".to_owned()),
                key_password: Some(SecretRef::File("/etc/key.pass".to_owned())),
                skip_hostname_check: true,
            }),
            sasl: Some(Sasl {
                mechanism: SaslMechanism::ScramSha512,
                username: "mirror".to_owned(),
                password: SecretRef::Env("DC1_PASSWORD".to_owned()),
            }),
        },
        client_options: texts([("fetch.wait.max.ms", "100"), ("client.rack", "r1")]),
        expected_cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
    }
}

fn link() -> Link {
    Link {
        id: link_id("dc-1-to-dc-2"),
        source: cluster_id("dc-1"),
        target: cluster_id("dc-2"),
        naming: Naming {
            prefix: "dc1.".to_owned(),
            rename: BTreeMap::from([(topic("old"), topic("New_1"))]),
        },
        start: StartPolicy::Timestamp(UnixMillis(1_700_000_000_000)),
        on_gap: GapPolicy::Halt,
        checkpoint_on: CheckpointSide::Target,
        target_topics: TargetTopics {
            refuse_create: true,
            refuse_grow: true,
            replication_factor: Some(3),
            config: texts([("retention.ms", "86400000")]),
        },
        paused: true,
        engine: None,
    }
}

fn link_on_batches() -> Link {
    Link {
        engine: Some(Engine::Batches),
        ..link()
    }
}

fn subscription_record() -> SubscriptionRecord {
    SubscriptionRecord {
        subscription: Subscription {
            link: link_id("dc-1-to-dc-2"),
            selector: Selector::Pattern(Pattern {
                include: "orders\\..*".to_owned(),
                exclude: vec![".*\\.tmp".to_owned()],
            }),
            start: Some(StartPolicy::Latest),
            paused: true,
        },
        created_at: UnixMillis(1_700_000_000_001),
        baseline: true,
    }
}

fn link_topic(name: &str) -> LinkTopic {
    LinkTopic {
        link: link_id("dc-1-to-dc-2"),
        topic: topic(name),
    }
}

fn assignment() -> Assignment {
    Assignment {
        generation: PlanGeneration(300),
        topics: BTreeMap::from([
            (
                link_topic("clicks"),
                AssignedTopic {
                    target_topic: topic("dc1.clicks"),
                    start: StartPolicy::Earliest,
                    first_partitions: 0,
                    partitions: BTreeMap::from([(Partition(0), OwnerEpoch(300))]),
                    limits: TargetLimits::default(),
                },
            ),
            (
                link_topic("orders"),
                AssignedTopic {
                    target_topic: topic("dc1.orders"),
                    start: StartPolicy::Latest,
                    first_partitions: 4,
                    partitions: BTreeMap::from([
                        (Partition(0), OwnerEpoch(1)),
                        (Partition(7), OwnerEpoch(299)),
                    ]),
                    limits: TargetLimits {
                        max_message_bytes: Some(1_048_588),
                        timestamp_before_max: Some(Duration::from_secs(86_400)),
                        timestamp_after_max: Some(Duration::from_secs(3_600)),
                        compacted: true,
                        log_append_time: true,
                    },
                },
            ),
        ]),
    }
}

fn owned() -> Ownership {
    let task = |name: &str, partition| TaskId {
        link: link_id("dc-1-to-dc-2"),
        topic: topic(name),
        partition: Partition(partition),
    };
    let owned = |epoch, stopping| Owned {
        epoch: OwnerEpoch(epoch),
        stopping,
    };
    Ownership {
        applied_revision: 4_711,
        incarnation: "0190b3a1".to_owned(),
        tasks: BTreeMap::from([
            (task("clicks", 0), owned(300, false)),
            (task("orders", 0), owned(1, true)),
            (task("orders", 7), owned(299, false)),
        ]),
    }
}

fn topic_record() -> TopicRecord {
    TopicRecord {
        target: cluster_id("dc-2"),
        target_topic: topic("dc1.orders"),
        first_partitions: 4,
        partitions: 8,
        target_partitions: 6,
        source_gone: false,
        start: StartPolicy::Timestamp(UnixMillis(5)),
        first_seen: UnixMillis(1_700_000_000_004),
        origin_clusters: vec![cluster_id("dc-0"), cluster_id("dc-1")],
        source_cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
        target_cluster_id: Some("NkU3OEVBNTcwNTJENDM2Qg".to_owned()),
        source_topic_id: Some("PkU3OEVBNTcwNTJENDM2Qg".to_owned()),
    }
}

fn line_record() -> LineRecord {
    let entry = |producer_epoch, base| LineEntry {
        line: Line {
            producer_id: ProducerId(4_711),
            producer_epoch: ProducerEpoch(producer_epoch),
            base: Offset(base),
            target_from: Offset(base + 10),
        },
        written_at: UnixMillis(1_700_000_000_005),
        worker: WorkerId::new("worker-0").expect("legal"),
        owner_epoch: OwnerEpoch(300),
    };
    LineRecord {
        target: cluster_id("dc-2"),
        target_cluster_id: Some("NkU3OEVBNTcwNTJENDM2Qg".to_owned()),
        target_topic: topic("dc1.orders"),
        target_topic_id: Some("QkU3OEVBNTcwNTJENDM2Qg".to_owned()),
        lines: BTreeMap::from([
            (Partition(0), entry(0, 0)),
            (Partition(7), entry(i16::MAX, 1 << 40)),
        ]),
    }
}

fn producer_record() -> ProducerRecord {
    ProducerRecord {
        producer_id: ProducerId(4_711),
        target: cluster_id("dc-2"),
        target_cluster_id: Some("NkU3OEVBNTcwNTJENDM2Qg".to_owned()),
    }
}

fn worker_live() -> v1::WorkerLive {
    v1::WorkerLive {
        incarnation: "0190b3a1".to_owned(),
        address: "worker-0:7071".to_owned(),
        draining: true,
        capacity_tasks: 5_000,
        version: "0.1.0".to_owned(),
        started_at_ms: 1_700_000_000_002,
    }
}

fn leader() -> v1::Leader {
    v1::Leader {
        controller: "controller-0".to_owned(),
        address: "controller-0:7070".to_owned(),
        elected_at_ms: 1_700_000_000_003,
    }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v1/{name}.hex"))
}

/// 32 bytes a line, so that a difference is easy to see.
fn to_hex(bytes: &[u8]) -> String {
    bytes
        .chunks(32)
        .map(|line| {
            let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            digits + "\n"
        })
        .collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).expect("fixtures hold hexadecimal digits")
        })
        .collect()
}

fn fixture_bytes(name: &str) -> Vec<u8> {
    let path = fixture(name);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("fixture {} is missing: {error}", path.display()));
    from_hex(&text)
}

fn assert_stored<T: Stored + PartialEq + std::fmt::Debug>(name: &str, value: &T) {
    let bytes = fixture_bytes(name);
    let read = T::decode(name, &bytes).expect("bytes of version 1 are readable for ever");
    assert_eq!(&read, value, "{name} is read");
    assert_eq!(to_hex(&value.encode()), to_hex(&bytes), "{name} is written");
}

fn assert_message<M: Message + Default + PartialEq + std::fmt::Debug>(name: &str, value: &M) {
    let bytes = fixture_bytes(name);
    let read: M = kreplicator_proto::stored::message(name, &bytes).expect("readable for ever");
    assert_eq!(&read, value, "{name} is read");
    assert_eq!(
        to_hex(&value.encode_to_vec()),
        to_hex(&bytes),
        "{name} is written"
    );
}

#[test]
fn values_of_version_1_are_read_and_written_as_recorded() {
    assert_stored("cluster", &cluster());
    assert_stored("link", &link());
    assert_stored("link_on_batches", &link_on_batches());
    assert_stored("subscription_record", &subscription_record());
    assert_stored("topic_record", &topic_record());
    assert_stored("assignment", &assignment());
    assert_stored("owned", &owned());
    assert_stored("line_record", &line_record());
    assert_stored("producer_record", &producer_record());
    assert_message("worker_live", &worker_live());
    assert_message("leader", &leader());
}

#[test]
#[ignore = "writes fixtures that are missing"]
fn write_missing_fixtures() {
    let written = [
        ("cluster", cluster().encode()),
        ("link", link().encode()),
        ("link_on_batches", link_on_batches().encode()),
        ("subscription_record", subscription_record().encode()),
        ("topic_record", topic_record().encode()),
        ("assignment", assignment().encode()),
        ("owned", owned().encode()),
        ("line_record", line_record().encode()),
        ("producer_record", producer_record().encode()),
        ("worker_live", worker_live().encode_to_vec()),
        ("leader", leader().encode_to_vec()),
    ];
    for (name, bytes) in written {
        let path = fixture(name);
        if !path.exists() {
            fs::write(&path, to_hex(&bytes)).expect("the fixtures' folder is writable");
        }
    }
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_that_names_its_key() {
    let torn = &assignment().encode()[..20];
    let error = Assignment::decode("plan/assignment/w/0001", torn).expect_err("torn");
    assert!(
        error.to_string().contains("plan/assignment/w/0001"),
        "{error}"
    );
    let mut message = v1::AssignmentChunk::from(&assignment());
    message.topics[1].partitions[0].epoch = 301;
    message.topics[0].target_topic = "a b".to_owned();
    let error = Assignment::decode("k", &message.encode_to_vec()).expect_err("broken");
    assert!(error.reason.contains("topics[1]: epoch 301"), "{error}");
    assert!(error.reason.contains("topics[0].target_topic"), "{error}");
}

#[test]
fn a_line_that_cannot_be_is_refused_field_by_field() {
    let mut message = v1::LineRecord::from(&line_record());
    message.target = "DC".to_owned();
    message.partitions[0].producer_epoch = 40_000;
    message.partitions[0].base = -1;
    let twice = message.partitions[1].clone();
    message.partitions.push(twice);
    let error = LineRecord::decode("line/a-b/t", &message.encode_to_vec()).expect_err("broken");
    for part in [
        "target: ",
        "partitions[0].base: -1 is negative",
        "partitions[0].producer_epoch: 40000 is out of range",
        "partitions[2]: partition 7 is given twice",
    ] {
        assert!(error.reason.contains(part), "{part} in {error}");
    }
    let negative = v1::ProducerRecord {
        producer_id: -1,
        ..v1::ProducerRecord::from(&producer_record())
    };
    let error = ProducerRecord::decode("producer/a-b", &negative.encode_to_vec());
    let error = error.expect_err("brokers give out none below 0");
    assert!(error.to_string().contains("producer/a-b"), "{error}");
}

#[test]
fn the_start_of_a_partition_that_appeared_later_is_offset_0() {
    let assignment = assignment();
    let orders = &assignment.topics[&link_topic("orders")];
    assert_eq!(orders.start_of(Partition(3)), StartPolicy::Latest);
    assert_eq!(orders.start_of(Partition(4)), StartPolicy::Earliest);
}
