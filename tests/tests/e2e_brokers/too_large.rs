//! A record that the target refuses for its size stops one task, and nobody else.

use std::{ops::Range, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    checker::Counts, kafka::KafkaCluster, load::unix_millis, record::Stamp, rig, wait,
};
use rdkafka::{
    producer::{FutureProducer, FutureRecord},
    util::Timeout,
};
use tokio::time::Instant;

use crate::stage::{BASE, LINK, SOON, Stage, UNDISTURBED, scenario, unsaid};

const TOPIC: &str = "parcels";
const PARTITIONS: i32 = 4;
/// Records of each partition before the large one's place.
const SMALL: u64 = 50;
/// All records of each partition.
const ALL: u64 = 2 * SMALL;
const LARGE_BYTES: usize = 5_000_000;
const RAISED: &str = "10485760";

#[test]
fn c031_a_record_too_large_for_the_target_faults_its_task_alone_until_the_limit_is_raised() {
    scenario(async |stage| {
        let raised = [("max.message.bytes", RAISED)];
        stage.one.create_topic(TOPIC, PARTITIONS, &raised).await?;
        // Made by hand with Kafka's default limit. Sizes count after compression, so there is none.
        let plain = ("compression.type", "uncompressed");
        let limited = [plain, ("max.message.bytes", "1048588")];
        stage
            .three
            .create_topic(TOPIC, PARTITIONS, &limited)
            .await?;
        stage.subscribe(LINK, TOPIC, PARTITIONS).await?;
        let allowed = stage
            .allowed_pauses(&Stage::base_lanes(), UNDISTURBED)
            .await;
        let start = Instant::now();
        let writer = Writer::new(&stage.one)?;
        for partition in 0..PARTITIONS {
            writer.write(partition, 0..SMALL, 100).await?;
        }
        for partition in 0..PARTITIONS {
            let bytes = if partition == 0 { LARGE_BYTES } else { 100 };
            writer.write(partition, SMALL..SMALL + 1, bytes).await?;
            writer.write(partition, SMALL + 1..ALL, 100).await?;
        }

        let cause = wait::until("the fault of the task", SOON, async || {
            let tasks = stage.tasks_of(LINK, TOPIC).await?;
            let faulted = tasks[0].state() == v1::TaskState::Faulted;
            let report = tasks[0].report.clone().unwrap_or_default();
            Ok(faulted.then_some(report.cause))
        })
        .await?;
        let offset = format!("offset {SMALL}");
        let named = [TOPIC, "partition 0", &offset, "max.message.bytes"];
        let missing = unsaid(&cause, &named);
        ensure!(missing.is_empty(), "{missing:?} not in {cause:?}");
        // While it is tried again, nothing grows, and the others go on.
        wait::holds_for("one fault", Duration::from_secs(6), async || {
            let ends = stage.three.watermarks(TOPIC).await?;
            let (_, end) = ends.get(&0).context("no partition 0")?;
            ensure!(u64::try_from(*end)? == SMALL, "the target ends at {end}");
            let tasks = stage.tasks_of(LINK, TOPIC).await?;
            Ok(tasks[1..]
                .iter()
                .all(|task| task.state() == v1::TaskState::Running))
        })
        .await?;
        let lanes = rig::lanes(TOPIC, 0..PARTITIONS).into_iter();
        let all: Counts = lanes.map(|lane| (lane, ALL)).collect();
        let mut others = all.clone();
        others.retain(|(_, partition), _| *partition != 0);
        let report = stage.tail.complete(&others, SOON).await?;
        ensure!(report.is_exact(), "the neighbours: {report}");
        stage.check_pauses(start, &allowed)?;

        stage
            .three
            .configure_topic(TOPIC, &[plain, ("max.message.bytes", RAISED)])
            .await?;
        let report = stage.tail.complete(&all, SOON).await?;
        ensure!(report.is_exact(), "{report}");
        let repeats = stage.tail.repeats_since(start);
        ensure!(
            repeats.keys().all(|(topic, _)| topic != BASE),
            "{repeats:?}"
        );
        stage.unsubscribe(LINK, TOPIC).await
    });
}

/// Writes single records, so that the large one has a batch of its own on the source too.
struct Writer(FutureProducer);

impl Writer {
    fn new(cluster: &KafkaCluster) -> Result<Self> {
        let mut config = cluster.client_config();
        config
            .set("allow.auto.create.topics", "false")
            .set("enable.idempotence", "true")
            .set("message.max.bytes", RAISED);
        Ok(Self(config.create()?))
    }

    async fn write(&self, partition: i32, seqs: Range<u64>, padding: usize) -> Result<()> {
        for seq in seqs {
            let content = Stamp {
                topic: TOPIC.to_owned(),
                partition,
                seq,
                timestamp_ms: unix_millis(),
                padding,
            }
            .content();
            let mut record: FutureRecord<'_, [u8], [u8]> =
                FutureRecord::to(TOPIC).partition(partition);
            record.key = content.key.as_deref();
            record.payload = content.value.as_deref();
            record.headers = content.kafka_headers();
            record.timestamp = content.timestamp_ms;
            let sent = self.0.send(record, Timeout::After(SOON)).await;
            sent.map_err(|(fault, _)| fault)?;
        }
        Ok(())
    }
}
