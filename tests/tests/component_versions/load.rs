//! Records of every shape in every codec, and the comparison of what became of them.

use anyhow::{Result, ensure};
use kreplicator_tests::kafka::KafkaCluster;

use crate::bench::{Rec, now_ms, producer, read, send, written};

/// All codecs of Kafka. The youngest, zstd, came with 2.1.
pub(crate) const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Record number `number` of a partition: of one of the shapes there are, and none is like another.
pub(crate) fn record(number: usize) -> Rec {
    let header = |key: &str, value: Option<&[u8]>| (key.to_owned(), value.map(<[u8]>::to_vec));
    let name = number.to_string().into_bytes();
    let plain = Rec {
        key: Some(name.clone()),
        value: Some(noise(number)),
        // Within the last hour and out of order: records much older than that cost the target its memory of
        // who wrote them.
        timestamp: Some(now_ms() - i64::try_from(number * 7919 % 3_600_000).expect("small")),
        headers: Vec::new(),
    };
    match number % 8 {
        0 => Rec { key: None, ..plain },
        1 => Rec {
            value: None,
            ..plain
        },
        2 => Rec {
            key: None,
            value: None,
            headers: vec![header("number", Some(&name))],
            ..plain
        },
        3 => Rec {
            key: Some(Vec::new()),
            value: Some(Vec::new()),
            ..plain
        },
        4 => Rec {
            headers: vec![
                header("a", Some(b"1")),
                header("b", None),
                header("a", Some(&name)),
                header("", Some(b"")),
                header("binary", Some(&[0, 255, 128])),
            ],
            ..plain
        },
        _ => plain,
    }
}

/// Some 700 bytes that do not compress, so that batches of ten are not small enough to be joined.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = (seed as u64) << 1 | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..700).map(|_| next()).collect()
}

/// Writes records in batches of ten, a stretch in each codec.
pub(crate) fn fill(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    codecs: &[&str],
    records: &[Rec],
) -> Result<()> {
    let stretches = records.chunks(records.len().div_ceil(codecs.len()).max(1));
    for (codec, stretch) in codecs.iter().zip(stretches) {
        let settings = [("compression.type", *codec), ("batch.num.messages", "10")];
        let producer = producer(cluster, &settings)?;
        send(&producer, topic, partition, stretch)?;
        written(&producer)?;
    }
    Ok(())
}

/// Whether source and target hold `sent`, all of it, in order, once, and identical.
pub(crate) async fn compare(
    source: &KafkaCluster,
    target: &KafkaCluster,
    topic: &str,
    partition: i32,
    sent: &[Rec],
) -> Result<()> {
    let there = read(source, topic, partition).await?;
    same(&there, sent, "at the source")?;
    let copied = read(target, &format!("copy.{topic}"), partition).await?;
    same(&copied, sent, "at the target")
}

fn same(found: &[Rec], sent: &[Rec], place: &str) -> Result<()> {
    for (number, (found, sent)) in found.iter().zip(sent).enumerate() {
        ensure!(
            found == sent,
            "record {number} {place} is {found:?}, not {sent:?}"
        );
    }
    ensure!(
        found.len() == sent.len(),
        "{} records {place}, not {}",
        found.len(),
        sent.len()
    );
    Ok(())
}
