//! Batches of any producer and codec, passed on unopened.

use anyhow::{Result, ensure};
use kreplicator_batch::Compression;
use kreplicator_tests::{
    contents::{Rec, producer, read, send, written},
    kafka::KafkaCluster,
};
use rand::{Rng as _, distr::Alphanumeric};

use crate::{
    raw::{batches, end},
    sides::{BATCHES, EXACTLY_ONCE, SIDES},
    stage::{Stage, scenario},
};

/// Written by Kafka's own producer.
const JAVA: &str = "java-batches";
/// Written by librdkafka.
const LIBRARY: &str = "library-batches";
const CODECS: [(&str, Compression); 4] = [
    ("zstd", Compression::Zstd),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("none", Compression::None),
];
/// Records of each partition.
const COUNT: usize = 2_000;
/// Records of a batch: enough that none is small, which would let it be joined with others.
const BATCH: usize = 200;

#[test]
fn c021_batches_keep_their_bytes_codecs_and_offsets() {
    scenario(async |stage| {
        stage.a.create_topic(JAVA, 1, &[]).await?;
        stage.a.create_topic(LIBRARY, 4, &[]).await?;
        write_by_java(&stage.a).await?;
        for (partition, (codec, _)) in (0..).zip(CODECS) {
            write_by_library(&stage.a, partition, codec)?;
        }
        stage.mirror(&[JAVA, LIBRARY]).await?;
        check(stage, JAVA, 0, Compression::Lz4).await?;
        for (partition, (_, codec)) in (0..).zip(CODECS) {
            check(stage, LIBRARY, partition, codec).await?;
        }
        for topic in [JAVA, LIBRARY] {
            stage.check_promises(topic, EXACTLY_ONCE).await?;
        }
        stage.links_promise(EXACTLY_ONCE).await?;
        stage.leave(&[JAVA, LIBRARY]).await
    });
}

async fn write_by_java(cluster: &KafkaCluster) -> Result<()> {
    let count = COUNT.to_string();
    let size = ["--record-size", "300", "--throughput", "-1"];
    let codec = ["--command-property", "compression.type=lz4"];
    // A batch is sent when it is full, the last one in the end.
    let batching = ["batch.size=16384", "linger.ms=2000"];
    let topic = ["--topic", JAVA, "--num-records", &count];
    let args = [&topic[..], &size[..], &codec[..], &batching[..]].concat();
    let class = "org.apache.kafka.tools.ProducerPerformance";
    cluster.tool(class, &args).await?;
    Ok(())
}

fn write_by_library(cluster: &KafkaCluster, partition: i32, codec: &str) -> Result<()> {
    let batch = BATCH.to_string();
    let settings = [
        ("compression.type", codec),
        ("batch.num.messages", batch.as_str()),
        ("linger.ms", "2000"),
    ];
    let producer = producer(cluster, &settings)?;
    let mut rng = rand::rng();
    let mut record = |number: usize| {
        let noise = (&mut rng).sample_iter(Alphanumeric).take(150);
        let noise: String = noise.map(char::from).collect();
        Rec {
            key: (!number.is_multiple_of(3)).then(|| format!("key-{}", number % 97).into_bytes()),
            headers: vec![
                ("trace".to_owned(), Some(vec![0, 255])),
                ("trace".to_owned(), None),
            ],
            ..Rec::new(format!("{{\"number\":{number},\"noise\":\"{noise}\"}}"))
        }
    };
    let records: Vec<Rec> = (0..COUNT).map(&mut record).collect();
    send(&producer, LIBRARY, partition, &records)?;
    written(&producer)
}

/// Batch by batch the copy is what the source is, and the other engine's has the same records at the same
/// offsets.
async fn check(stage: &Stage, topic: &str, partition: i32, codec: Compression) -> Result<()> {
    let source = batches(&stage.a, topic, partition)?;
    let [by_batches, _] = stage
        .caught_up(topic, partition, i64::try_from(COUNT)?)
        .await?;
    let path = (by_batches.path.as_str(), by_batches.path_reason.as_str());
    ensure!(path == ("passed", ""), "{by_batches:?}");
    let copy = batches(&stage.b, &BATCHES.copy_of(topic), partition)?;
    ensure!(
        source.len() >= 5 && source.len() == copy.len(),
        "{topic}/{partition}: {} batches, {} copied",
        source.len(),
        copy.len()
    );
    for (source, copy) in source.iter().zip(&copy) {
        let (of, is) = (source.header(), copy.header());
        ensure!(
            of.attributes.compression() == codec && is.attributes.compression() == codec,
            "{codec:?} expected: {of:?}, {is:?}"
        );
        let place = |batch: &kreplicator_batch::BatchHeader| {
            let offsets = (batch.base_offset, batch.last_offset_delta);
            (
                offsets,
                batch.record_count,
                batch.base_timestamp,
                batch.max_timestamp,
            )
        };
        ensure!(place(of) == place(is), "{of:?}, {is:?}");
        ensure!(
            source.payload() == copy.payload(),
            "the records of {topic}/{partition} at {} differ",
            of.base_offset
        );
    }
    ensure!(end(&source) == i64::try_from(COUNT)?, "{}", end(&source));
    for side in SIDES {
        let copied = stage.copied(side, topic, partition).await?;
        ensure!(copied == (0, end(&source)), "{}: {copied:?}", side.link);
    }
    let records = read(&stage.a, topic, partition).await?;
    stage.check_copies(topic, partition, &records).await
}
