//! `kreplicator verify` against real Kafka: topics that differ in one known way each, and what the
//! program says of them. Source and target are two topics of one broker, since to `verify` two clusters
//! are two addresses.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    settings,
    skip::{Tier, skip},
};
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(20);

/// A record as a test writes it.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(&'static str, Option<&'static str>)>,
    timestamp_ms: i64,
}

/// `count` records that are all different, with every kind of part. They are recent, so that retention
/// leaves them alone.
fn records(count: i64) -> Vec<Record> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = i64::try_from(now.expect("after 1970").as_millis()).expect("before long");
    (0..count)
        .map(|at| Record {
            key: (at % 3 != 0).then(|| format!("key-{at}").into_bytes()),
            value: match at % 5 {
                0 => None,
                1 => Some(Vec::new()),
                _ => Some(format!("value-{at}").into_bytes()),
            },
            headers: match at % 4 {
                0 => Vec::new(),
                _ => vec![("a", Some("1")), ("b", None), ("a", Some(""))],
            },
            timestamp_ms: now - 60_000 + at,
        })
        .collect()
}

fn produce(producer: &BaseProducer, topic: &str, partition: i32, records: &[Record]) -> Result<()> {
    for record in records {
        let mut new = BaseRecord::<[u8], [u8]>::to(topic)
            .partition(partition)
            .timestamp(record.timestamp_ms);
        new.key = record.key.as_deref();
        new.payload = record.value.as_deref();
        if !record.headers.is_empty() {
            let headers = record
                .headers
                .iter()
                .fold(OwnedHeaders::new(), |headers, &(key, value)| {
                    headers.insert(Header { key, value })
                });
            new = new.headers(headers);
        }
        producer.send(new).map_err(|(fault, _)| fault)?;
        producer.poll(Duration::ZERO);
    }
    producer.flush(DEADLINE)?;
    Ok(())
}

/// Runs the program with two addresses and `-o json`.
async fn verify(cluster: &KafkaCluster, args: &[&str]) -> Result<Output> {
    let bootstrap = cluster.direct();
    let mut command = Command::new(settings::program());
    command
        .args([
            "verify",
            "--source-bootstrap",
            &bootstrap,
            "--target-bootstrap",
            &bootstrap,
        ])
        .args(["--wait", "500ms", "-o", "json"])
        .args(args)
        .stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn json(output: &Output, code: i32) -> Result<Value> {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.code() == Some(code),
        "{:?}, expected {code}\n{out}{err}",
        output.status
    );
    serde_json::from_str(&out).with_context(|| format!("{out}{err}"))
}

/// Findings of the only partition: kind, offsets, number of records, parts.
fn findings(json: &Value) -> Vec<String> {
    let list = json["partitions"][0]["findings"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |finding: &Value| {
        let parts = finding["parts"].as_array().cloned().unwrap_or_default();
        let parts: Vec<_> = parts.iter().filter_map(Value::as_str).collect();
        let line = format!(
            "{} {} {} x{} {}",
            finding["kind"].as_str().unwrap_or_default(),
            finding["source_offset"],
            finding["target_offset"],
            finding["records"],
            parts.join(",")
        );
        line.trim_end().to_owned()
    };
    list.iter().map(text).collect()
}

/// A change of a copy, and what is to be found.
type Case = (&'static str, fn(&mut Vec<Record>), &'static str);

const CASES: &[Case] = &[
    ("equal", |_| {}, ""),
    (
        "missing",
        |copy| drop(copy.remove(100)),
        "missing 100 null x1",
    ),
    (
        "last-missing",
        |copy| drop(copy.pop()),
        "missing 2999 null x1",
    ),
    (
        "doubled",
        |copy| {
            let again = copy[50..60].to_vec();
            copy.splice(60..60, again);
        },
        "doubled null 60 x10",
    ),
    (
        "doubled-at-end",
        |copy| copy.extend(copy.last().cloned()),
        "doubled null 3000 x1",
    ),
    (
        "extra",
        |copy| {
            let alien = Record {
                value: Some(b"alien".to_vec()),
                ..copy[7].clone()
            };
            copy.insert(2_000, alien);
        },
        "extra null 2000 x1",
    ),
    (
        "value",
        |copy| copy[102].value = Some(b"other".to_vec()),
        "altered 102 102 x1 value",
    ),
    (
        "null-for-empty",
        |copy| {
            assert_eq!(copy[101].value, Some(Vec::new()));
            copy[101].value = None;
        },
        "altered 101 101 x1 value",
    ),
    (
        "key",
        |copy| copy[102].key = Some(Vec::new()),
        "altered 102 102 x1 key",
    ),
    (
        "headers-swapped",
        |copy| copy[102].headers.swap(0, 1),
        "altered 102 102 x1 headers",
    ),
    (
        "header-null-for-empty",
        |copy| copy[102].headers[1].1 = Some(""),
        "altered 102 102 x1 headers",
    ),
    (
        "timestamp",
        |copy| copy[102].timestamp_ms += 1,
        "altered 102 102 x1 timestamp",
    ),
    (
        "swapped",
        |copy| copy.swap(500, 501),
        "reordered 500 501 x1",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_difference_is_named_with_its_offsets() -> Result<()> {
    if skip(Tier::EndToEnd) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("verify")).await?;
    let mut topics: Vec<String> = CASES
        .iter()
        .map(|(name, ..)| format!("copy.{name}"))
        .collect();
    topics.extend(["orders", "aborted", "aborted.copy", "old"].map(str::to_owned));
    cluster.create_topics(&topics, 1, &[]).await?;
    cluster
        .create_topic("compact", 1, &[("cleanup.policy", "compact")])
        .await?;
    let producer: BaseProducer = cluster.client_config().create()?;
    let original = records(3_000);
    let mut copies = BTreeMap::new();
    for (name, change, _) in CASES {
        let mut copy = original.clone();
        change(&mut copy);
        copies.insert(format!("copy.{name}"), copy);
    }
    tokio::task::block_in_place(|| -> Result<()> {
        produce(&producer, "orders", 0, &original)?;
        for (topic, copy) in &copies {
            produce(&producer, topic, 0, copy)?;
        }
        Ok(())
    })?;

    for (name, _, expected) in CASES {
        let target = format!("copy.{name}");
        let args = ["--topic", "orders", "--target-topic", &target];
        let code = if expected.is_empty() { 0 } else { 11 };
        let json = json(&verify(&cluster, &args).await?, code).context(*name)?;
        let found = findings(&json).join("|");
        ensure!(found == *expected, "{name}: {found}\n{json:#}");
        let verdict = if code == 0 { "equal" } else { "different" };
        ensure!(json["verdict"] == verdict, "{name}: {json:#}");
        ensure!(json["totals"]["compared"] == 3_000, "{name}: {json:#}");
    }

    duplicates_and_parts_may_be_tolerated(&cluster).await?;
    a_range_is_compared_alone(&cluster).await?;
    aborted_records_are_no_records(&cluster).await?;
    what_is_gone_is_not_missing(&cluster, &producer, &original).await?;
    a_compacted_target_is_told_apart(&cluster, &producer, &original).await?;
    what_cannot_be_compared_has_its_code(&cluster).await?;
    a_file_names_the_topics(&cluster).await
}

async fn duplicates_and_parts_may_be_tolerated(cluster: &KafkaCluster) -> Result<()> {
    for (copy, flag) in [
        ("copy.doubled", ["--tolerate-duplicates"].as_slice()),
        ("copy.timestamp", &["--ignore", "timestamp"]),
        ("copy.headers-swapped", &["--ignore", "headers,key"]),
    ] {
        let args = [&["--topic", "orders", "--target-topic", copy], flag].concat();
        let json = json(&verify(cluster, &args).await?, 0).context(copy)?;
        ensure!(json["verdict"] == "equal", "{json:#}");
    }
    Ok(())
}

async fn a_range_is_compared_alone(cluster: &KafkaCluster) -> Result<()> {
    let run = async |copy: &str, from: &str, to: &str, code| -> Result<Value> {
        let args = [
            "--topic",
            "orders",
            "--target-topic",
            copy,
            "--partition",
            "0",
        ];
        let args = [&args[..], &["--from-offset", from, "--to-offset", to]].concat();
        json(&verify(cluster, &args).await?, code)
    };
    let before = run("copy.missing", "0", "100", 0).await?;
    ensure!(before["totals"]["compared"] == 100, "{before:#}");
    let after = run("copy.missing", "101", "2000", 0).await?;
    ensure!(after["totals"]["compared"] == 1_899, "{after:#}");
    let with = run("copy.missing", "90", "110", 11).await?;
    ensure!(findings(&with) == ["missing 100 null x1"], "{with:#}");
    let altered = run("copy.value", "102", "103", 11).await?;
    ensure!(
        findings(&altered) == ["altered 102 102 x1 value"],
        "{altered:#}"
    );
    Ok(())
}

/// C018: aborted and open transactions, and the marks that end them.
async fn aborted_records_are_no_records(cluster: &KafkaCluster) -> Result<()> {
    let config = cluster.client_config();
    let kept = records(20);
    tokio::task::block_in_place(|| -> Result<()> {
        let mut transactional = config.clone();
        transactional.set("transactional.id", "verify");
        let producer: BaseProducer = transactional.create()?;
        producer.init_transactions(DEADLINE)?;
        for (range, commit) in [
            (0..5, true),
            (5..10, false),
            (10..15, true),
            (15..20, false),
        ] {
            producer.begin_transaction()?;
            produce(&producer, "aborted", 0, &kept[range])?;
            match commit {
                true => producer.commit_transaction(DEADLINE)?,
                false => producer.abort_transaction(DEADLINE)?,
            }
        }
        // Open until the end of the test: not stable yet.
        producer.begin_transaction()?;
        produce(&producer, "aborted", 0, &kept[..3])?;
        let plain: BaseProducer = config.create()?;
        produce(&plain, "aborted.copy", 0, &kept[..5])?;
        produce(&plain, "aborted.copy", 0, &kept[10..15])?;
        Ok(())
    })?;
    let args = ["--topic", "aborted", "--target-topic", "aborted.copy"];
    let json = json(&verify(cluster, &args).await?, 0)?;
    ensure!(json["totals"]["equal"] == 10, "{json:#}");
    Ok(())
}

async fn what_is_gone_is_not_missing(
    cluster: &KafkaCluster,
    producer: &BaseProducer,
    original: &[Record],
) -> Result<()> {
    tokio::task::block_in_place(|| produce(producer, "old", 0, original))?;
    let admin = cluster.admin()?;
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset("old", 0, rdkafka::Offset::Offset(1_000))?;
    admin
        .delete_records(&list, &rdkafka::admin::AdminOptions::new())
        .await?;
    // Gone from the source: the target's first thousand have nothing to be compared with.
    let args = ["--topic", "old", "--target-topic", "copy.equal"];
    let source = json(&verify(cluster, &args).await?, 0)?;
    ensure!(source["totals"]["compared"] == 2_000, "{source:#}");
    ensure!(source["totals"]["not_comparable"] == 1_000, "{source:#}");
    ensure!(
        source["partitions"][0]["source_offsets"]["from"] == 1_000,
        "{source:#}"
    );
    // Gone from the target.
    let args = ["--topic", "orders", "--target-topic", "old"];
    let target = json(&verify(cluster, &args).await?, 0)?;
    ensure!(target["totals"]["not_comparable"] == 1_000, "{target:#}");
    // A hole behind the beginning is none of both.
    let args = ["--topic", "old", "--target-topic", "copy.last-missing"];
    let hole = json(&verify(cluster, &args).await?, 11)?;
    ensure!(hole["totals"]["missing_at_end"] == 1, "{hole:#}");
    Ok(())
}

async fn a_compacted_target_is_told_apart(
    cluster: &KafkaCluster,
    producer: &BaseProducer,
    original: &[Record],
) -> Result<()> {
    // A compacted topic takes keyed records only.
    let keyed = original
        .iter()
        .take(40)
        .filter(|record| record.key.is_some());
    let kept: Vec<Record> = keyed.skip(10).cloned().collect();
    tokio::task::block_in_place(|| produce(producer, "compact", 0, &kept))?;
    let args = [
        "--topic",
        "orders",
        "--target-topic",
        "compact",
        "--partition",
        "0",
    ];
    let args = [&args[..], &["--from-offset", "0", "--to-offset", "40"]].concat();
    let json = json(&verify(cluster, &args).await?, 11)?;
    let missing = original
        .iter()
        .take(40)
        .filter(|record| record.key.is_none())
        .count();
    ensure!(json["totals"]["missing"] == missing, "{json:#}");
    ensure!(json["totals"]["not_comparable"] == 10, "{json:#}");
    let notes = json["partitions"][0]["notes"].to_string();
    ensure!(notes.contains("compacted"), "{notes}");
    Ok(())
}

async fn what_cannot_be_compared_has_its_code(cluster: &KafkaCluster) -> Result<()> {
    let args = ["--topic", "orders", "--target-topic", "nowhere"];
    let absent = json(&verify(cluster, &args).await?, 12)?;
    let error = absent["partitions"][0]["error"].to_string();
    ensure!(
        error.contains("nowhere") && absent["verdict"] == "not_compared",
        "{absent:#}"
    );
    let args = ["--topic", "orders", "--partition", "7"];
    let absent = json(&verify(cluster, &args).await?, 12)?;
    ensure!(absent.to_string().contains("partition 7"), "{absent:#}");
    // The later address wins: nobody is there.
    let port = kreplicator_tests::ports::free()?;
    let mut command = Command::new(settings::program());
    command
        .args([
            "verify",
            "--source-bootstrap",
            &cluster.direct(),
            "--topic",
            "orders",
        ])
        .args([
            "--target-bootstrap",
            &format!("127.0.0.1:{port}"),
            "--stall-timeout",
            "2s",
        ]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(12),
        "{:?} {text}",
        output.status
    );
    ensure!(text.contains("cluster target cannot be reached"), "{text}");
    Ok(())
}

async fn a_file_names_the_topics(cluster: &KafkaCluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("links.yaml");
    let servers = cluster.direct();
    let text = format!(
        "clusters:\n  east: {{bootstrap_servers: [\"{servers}\"]}}\n  west: {{bootstrap_servers: [\"{servers}\"]}}\n\
         links:\n  good:\n    source: east\n    target: west\n    naming: {{rename: {{orders: copy.equal}}}}\n    \
         topics: [orders]\n  bad:\n    source: east\n    target: west\n    naming: {{rename: {{orders: \
         copy.value, aborted: aborted.copy}}}}\n    topics: [orders]\n    patterns: [\"abort..\"]\n"
    );
    fs::write(&file, text)?;
    for (link, code, partitions) in [("good", 0, 1), ("bad", 11, 2)] {
        let mut command = Command::new(settings::program());
        command.args(["verify", "--link", link, "-f"]).arg(&file);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(code), "{text}");
        let lines = text.lines().filter(|line| line.contains("copy"));
        ensure!(lines.count() == partitions, "{text}");
        ensure!(
            text.contains("compared with west") || text.contains("of east compared"),
            "{text}"
        );
        ensure!(code == 0 || text.contains("altered"), "{text}");
    }
    Ok(())
}

/// A live link: the copy is behind when the comparison begins, and catches up while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_behind_is_waited_for_and_what_comes_later_is_left_alone() -> Result<()> {
    if skip(Tier::EndToEnd) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("verify-live")).await?;
    cluster
        .create_topics(&["orders".to_owned(), "copy".to_owned()], 1, &[])
        .await?;
    let producer: BaseProducer = cluster.client_config().create()?;
    let original = records(2_000);
    tokio::task::block_in_place(|| -> Result<()> {
        produce(&producer, "orders", 0, &original[..1_500])?;
        produce(&producer, "copy", 0, &original[..700])
    })?;
    let bootstrap = cluster.direct();
    let running = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(settings::program());
        command
            .args([
                "verify",
                "--source-bootstrap",
                &bootstrap,
                "--target-bootstrap",
                &bootstrap,
            ])
            .args([
                "--topic",
                "orders",
                "--target-topic",
                "copy",
                "--wait",
                "10s",
                "-o",
                "json",
            ]);
        command.output()
    });
    // Whether this comes before or after it looks: all of it is the copy's to have in the end, but
    // for the last hundred, which the source gets after the copy began to catch up.
    tokio::task::block_in_place(|| -> Result<()> {
        for chunk in original[700..1_500].chunks(50) {
            produce(&producer, "copy", 0, chunk)?;
        }
        produce(&producer, "orders", 0, &original[1_500..])
    })?;
    let output = running.await??;
    let json = json(&output, 0)?;
    let compared = json["totals"]["equal"].as_u64().unwrap_or_default();
    ensure!(compared >= 1_500, "{json:#}");
    Ok(())
}
