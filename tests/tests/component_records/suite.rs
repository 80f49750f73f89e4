//! What every engine has to do on real Kafka: fidelity, refusals, transactions, expiry, security.

#[path = "suite/aborted.rs"]
mod aborted;
#[path = "suite/positions.rs"]
pub(crate) mod positions;
#[path = "suite/renewal.rs"]
mod renewal;

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_kafka::{admin::Admin, error::Error as ClusterError, secrets::ProcessSecrets};
use kreplicator_model::{
    spec::{Sasl, SaslMechanism, SecretRef, Security, Tls},
    target_limits::TargetLimits,
};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions, TlsMode},
    skip::{Tier, skip},
    wait,
};
use kreplicator_worker::engine::{State, Stopped};
use rdkafka::producer::Producer as _;

use crate::{
    bench::{
        GROUP, PATIENCE, Rec, caught_up, context, context_with, faulted, fill, now_ms, producer,
        quick, read, send, spec, status_where, topic_pair, values, written,
    },
    engine::engine,
};

const STOP: Duration = Duration::from_secs(10);

async fn cluster(name: &str) -> Result<KafkaCluster> {
    KafkaCluster::start(KafkaOptions::single(name)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn c011_c013_c015_c020_records_arrive_unchanged_from_every_codec() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("fidelity").await?;
    topic_pair(&cluster, "orders", 2, &[("max.message.bytes", "10485760")]).await?;
    let header = |key: &str, value: Option<&[u8]>| (key.to_owned(), value.map(<[u8]>::to_vec));
    let base = Rec::new("value");
    let shapes = vec![
        Rec {
            key: None,
            ..base.clone()
        },
        Rec {
            key: Some(Vec::new()),
            value: Some(Vec::new()),
            ..base.clone()
        },
        Rec {
            value: None,
            ..base.clone()
        },
        Rec {
            key: None,
            value: None,
            ..base.clone()
        },
        Rec {
            timestamp: Some(1),
            ..base.clone()
        },
        Rec {
            headers: vec![
                header("a", Some(b"1")),
                header("b", None),
                header("a", Some(b"3")),
                header("", Some(b"")),
                header("binary", Some(&[0, 255, 128])),
            ],
            ..base.clone()
        },
        Rec {
            value: Some(vec![7; 200_000]),
            ..base
        },
    ];
    let mut expected = [Vec::new(), Vec::new()];
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let producer = producer(&cluster, &[("compression.type", codec)])?;
        for (partition, expected) in (0..).zip(&mut expected) {
            send(&producer, "orders", partition, &shapes)?;
            expected.extend(shapes.clone());
        }
        written(&producer)?;
    }
    let engine = engine(quick());
    let context = context(&cluster);
    let tasks: Vec<_> = (0..2)
        .map(|partition| engine.start(spec("orders", partition), Arc::clone(&context)))
        .collect();
    for (partition, expected) in (0..).zip(&expected) {
        let end = i64::try_from(expected.len())?;
        caught_up(tasks[usize::try_from(partition)?].as_ref(), end).await?;
        let copied = read(&cluster, "copy.orders", partition).await?;
        assert!(&copied == expected, "partition {partition}: {copied:?}");
    }
    for task in tasks {
        assert_eq!(task.stop(STOP).await, Stopped::Clean);
    }
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c031_a_record_too_large_for_the_target_stops_its_partition_alone() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("large").await?;
    let limit = ("max.message.bytes", "100000");
    topic_pair(&cluster, "orders", 2, &[limit]).await?;
    let small = |number: usize| Rec::new(format!("{number}"));
    let mut records: Vec<_> = (0..50).map(small).collect();
    // Does not compress, or it would fit after all.
    let noise: Vec<u8> = (0..2_000_000_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect();
    records.push(Rec {
        value: Some(noise),
        ..Rec::new("")
    });
    records.extend((51..100).map(small));
    fill(&cluster, "orders", 0, &records)?;
    let others: Vec<_> = (0..100).map(small).collect();
    fill(&cluster, "orders", 1, &others)?;

    let engine = engine(quick());
    let context = context(&cluster);
    let limited = |partition| {
        let mut spec = spec("orders", partition);
        spec.limits = TargetLimits {
            max_message_bytes: Some(100_000),
            ..TargetLimits::default()
        };
        spec
    };
    let stuck = engine.start(limited(0), Arc::clone(&context));
    let free = engine.start(limited(1), Arc::clone(&context));
    let parts = [
        "copy.orders",
        "partition 0",
        "source offset 50",
        "max.message.bytes",
        "100000",
    ];
    let status = faulted(stuck.as_ref(), &parts).await?;
    assert_eq!(status.checkpoint.map(|at| at.0), Some(50));
    caught_up(free.as_ref(), 100).await?;
    // Some more attempts: they write nothing.
    let first_retry = status.retry_at;
    status_where(stuck.as_ref(), "another attempt", |status| {
        status.retry_at > first_retry
    })
    .await?;
    let copied = read(&cluster, "copy.orders", 0).await?;
    let expected: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(values(&copied), expected, "neighbours are written once");

    cluster
        .configure_topic("copy.orders", &[("max.message.bytes", "10485760")])
        .await?;
    caught_up(stuck.as_ref(), 100).await?;
    let copied = read(&cluster, "copy.orders", 0).await?;
    assert!(
        copied == records,
        "all records, once and in order: {}",
        copied.len()
    );
    assert_eq!(free.status().records_total, 100);
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c022_timestamps_and_null_keys_that_the_target_refuses_are_told_with_the_setting()
-> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("refusals").await?;
    let day = "86400000";
    let hour = "3600000";
    topic_pair(
        &cluster,
        "old",
        1,
        &[("message.timestamp.before.max.ms", day)],
    )
    .await?;
    topic_pair(
        &cluster,
        "ahead",
        1,
        &[("message.timestamp.after.max.ms", hour)],
    )
    .await?;
    topic_pair(&cluster, "keyless", 1, &[("cleanup.policy", "compact")]).await?;
    topic_pair(&cluster, "fine", 1, &[]).await?;
    let shifted = |hours: i64| Rec {
        timestamp: Some(now_ms() + hours * 3_600_000),
        ..Rec::new("shifted")
    };
    for (topic, odd) in [
        ("old", shifted(-400 * 24)),
        ("ahead", shifted(2)),
        (
            "keyless",
            Rec {
                key: None,
                ..Rec::new("no key")
            },
        ),
        ("fine", Rec::new("1")),
    ] {
        fill(&cluster, topic, 0, &[Rec::new("0"), odd, Rec::new("2")])?;
    }
    let engine = engine(quick());
    let context = context(&cluster);
    let start = |topic: &str, limits: TargetLimits| {
        let mut spec = spec(topic, 0);
        spec.limits = limits;
        engine.start(spec, Arc::clone(&context))
    };
    let old = start(
        "old",
        TargetLimits {
            timestamp_before_max: Some(Duration::from_secs(86_400)),
            ..TargetLimits::default()
        },
    );
    let ahead = start(
        "ahead",
        TargetLimits {
            timestamp_after_max: Some(Duration::from_secs(3_600)),
            ..TargetLimits::default()
        },
    );
    let keyless = start(
        "keyless",
        TargetLimits {
            compacted: true,
            ..TargetLimits::default()
        },
    );
    let fine = start("fine", TargetLimits::default());
    let place = ["partition 0", "source offset 1"];
    for (task, parts) in [
        (&old, ["copy.old", "message.timestamp.before.max.ms"]),
        (&ahead, ["copy.ahead", "message.timestamp.after.max.ms"]),
        (&keyless, ["copy.keyless", "without key"]),
    ] {
        let status = faulted(task.as_ref(), &[place, parts].concat()).await?;
        assert_eq!(
            status.checkpoint.map(|at| at.0),
            Some(1),
            "{}",
            status.cause
        );
    }
    caught_up(fine.as_ref(), 3).await?;
    cluster
        .configure_topic(
            "copy.old",
            &[("message.timestamp.before.max.ms", "9223372036854775807")],
        )
        .await?;
    caught_up(old.as_ref(), 3).await?;
    assert_eq!(
        values(&read(&cluster, "copy.old", 0).await?),
        ["0", "shifted", "2"]
    );
    assert_eq!(values(&read(&cluster, "copy.keyless", 0).await?), ["0"]);
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c016_c114_transactions_are_read_as_committed_and_the_lag_comes_to_zero() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("transactions").await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let producer = producer(
        &cluster,
        &[("transactional.id", "test"), ("compression.type", "lz4")],
    )?;
    producer.init_transactions(PATIENCE)?;
    let mut expected = Vec::new();
    for round in 0..4 {
        producer.begin_transaction()?;
        let records: Vec<_> = (0..10)
            .map(|number| Rec::new(format!("{round},{number}")))
            .collect();
        send(&producer, "orders", 0, &records)?;
        if round % 2 == 0 {
            producer.commit_transaction(PATIENCE)?;
            expected.extend(values(&records));
        } else {
            producer.flush(PATIENCE)?;
            producer.abort_transaction(PATIENCE)?;
        }
    }
    let engine = engine(quick());
    let task = engine.start(spec("orders", 0), context(&cluster));
    // 40 records and four markers.
    let status = caught_up(task.as_ref(), 44).await?;
    assert_eq!(status.records_total, 20);
    assert_eq!(values(&read(&cluster, "copy.orders", 0).await?), expected);
    wait::until_true("the saved checkpoint", PATIENCE, async || {
        let committed = cluster
            .committed(GROUP, &[("orders".to_owned(), 0)])
            .await?;
        Ok(committed.values().any(|(offset, _)| *offset == 44))
    })
    .await?;
    let lines = cluster.describe_group(GROUP).await?;
    ensure!(lines.len() == 1, "{lines:?}");
    assert_eq!(
        (
            lines[0].topic.as_str(),
            lines[0].current,
            lines[0].end,
            lines[0].lag
        ),
        ("orders", Some(44), Some(44), Some(0))
    );

    // Open transactions hold the reader: what is not decided yet is neither copied nor lag.
    producer.begin_transaction()?;
    send(&producer, "orders", 0, &[Rec::new("undecided")])?;
    producer.flush(PATIENCE)?;
    wait::holds_for("nothing is copied", Duration::from_secs(2), async || {
        let status = task.status();
        Ok(status.records_total == 20 && status.log_end.is_some_and(|end| end.0 == 44))
    })
    .await?;
    producer.commit_transaction(PATIENCE)?;
    caught_up(task.as_ref(), 46).await?;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c127_secured_clusters_are_copied_through_a_renewal_and_a_wrong_password_says_so()
-> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions {
        tls: TlsMode::Mutual,
        ..KafkaOptions::single("secured").user("mirror", "s3cret")
    };
    let mut cluster = KafkaCluster::start(options).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    fill(&cluster, "orders", 0, &[Rec::new("0"), Rec::new("1")])?;
    let folder = tempfile::tempdir()?;
    renewal::put_files(cluster.certificates().expect("TLS is on"), folder.path())?;
    let password = |name: &str, text: &str| -> Result<SecretRef> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(SecretRef::File(path.display().to_string()))
    };
    let trusting = renewal::tls(folder.path());
    let security = |ca_file: Option<String>, mechanism, password| Security {
        tls: Some(Tls {
            ca_file,
            ..trusting.clone()
        }),
        sasl: Some(Sasl {
            mechanism,
            username: "mirror".to_owned(),
            password,
        }),
    };
    let ca = trusting.ca_file.clone();
    let right = password("right", "s3cret\n")?;
    let wrong = password("wrong", "guess")?;

    let good = security(ca.clone(), SaslMechanism::ScramSha512, right);
    let good = context_with(cluster.bootstrap(), good);
    let bad = security(ca, SaslMechanism::Plain, wrong);
    let bad = context_with(cluster.bootstrap(), bad);
    let engine = engine(quick());
    let task = engine.start(spec("orders", 0), Arc::new(good.clone()));
    caught_up(task.as_ref(), 2).await?;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);

    let task = engine.start(spec("orders", 0), Arc::new(bad.clone()));
    // Both clusters refuse it; which is asked first is the engine's.
    let refused = [
        "authentication refused by cluster ",
        ": check sasl.username and its password",
    ];
    let status = faulted(task.as_ref(), &refused).await?;
    assert!(!status.cause.contains("guess"), "{}", status.cause);
    task.stop(Duration::from_secs(1)).await;
    assert_eq!(task.status().state, State::Stopped);

    let admin = Admin::connect(&bad.source, &ProcessSecrets)?.with_deadline(Duration::from_secs(5));
    let refused = admin.metadata().await;
    assert!(
        matches!(refused, Err(ClusterError::Authentication { .. })),
        "{refused:?}"
    );
    let untrusted = security(
        None,
        SaslMechanism::Plain,
        SecretRef::File(folder.path().join("right").display().to_string()),
    );
    let untrusted = context_with(cluster.bootstrap(), untrusted);
    let admin =
        Admin::connect(&untrusted.source, &ProcessSecrets)?.with_deadline(Duration::from_secs(5));
    let refused = admin.metadata().await;
    assert!(
        matches!(refused, Err(ClusterError::Tls { .. })),
        "{refused:?}"
    );
    let admin = Admin::connect(&good.source, &ProcessSecrets)?;
    assert_eq!(admin.metadata().await?.brokers, 1);

    let task = engine.start(spec("orders", 0), Arc::new(good.clone()));
    caught_up(task.as_ref(), 2).await?;
    renewal::c127_nothing_is_lost(&mut cluster, &good, task.as_ref(), folder.path()).await?;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    engine.close(PATIENCE).await;
    Ok(())
}
