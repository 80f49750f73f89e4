//! Which way batches go and why, as it is told: by the task's status, by the metrics, and by what lies on the
//! target.

use anyhow::{Result, ensure};
use kreplicator_tests::{
    contents::{Rec, fill, fill_batch, producer, read, send, written},
    load::unix_millis,
    wait,
};
use rand::{Rng as _, distr::Alphanumeric};
use rdkafka::producer::Producer as _;

use crate::{
    raw::{batches, end},
    sides::{BATCHES, SIDES},
    stage::{SOON, Stage, Way, scenario},
};

const PASSED: Way<'static> = ("passed", "");
const RESUMED: Way<'static> = ("rewritten", "resumed");
const HOLES: Way<'static> = ("rewritten", "holes");
const APPEND_TIME: Way<'static> = ("rewritten", "append_time");
const OVERSIZE: Way<'static> = ("rewritten", "oversize");
const TINY: Way<'static> = ("rewritten", "tiny");

impl Stage {
    /// Waits until all of a topic's only partition is copied, and checks which way its last batch went.
    async fn came(&self, topic: &str, end: usize, way: Way<'_>) -> Result<()> {
        let [report, _] = self.caught_up(topic, 0, i64::try_from(end)?).await?;
        let told = (report.path.as_str(), report.path_reason.as_str());
        ensure!(told == way, "{report:?}");
        Ok(())
    }
}

fn numbered(count: usize) -> Vec<Rec> {
    let records = 0..count;
    records.map(|number| Rec::new(number.to_string())).collect()
}

#[test]
fn a_batch_of_which_a_part_is_copied_already_is_cut() {
    const TOPIC: &str = "resumed";
    const AT: usize = 7;
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, 1, &[]).await?;
        let records = numbered(20);
        fill_batch(&stage.a, TOPIC, 0, "lz4", &records)?;
        for side in SIDES {
            let group = format!("kreplicator.{}", side.link);
            let at = i64::try_from(AT)?;
            stage.a.commit(&group, TOPIC, 0, at).await?;
        }
        let before = stage.went(RESUMED).await?;
        stage.mirror(&[TOPIC]).await?;
        stage.came(TOPIC, records.len(), RESUMED).await?;
        ensure!(stage.went(RESUMED).await? == before + 1);
        stage.check_copies(TOPIC, 0, &records[AT..]).await?;
        stage.leave(&[TOPIC]).await
    });
}

#[test]
fn append_times_of_the_source_become_the_records_own() {
    const TOPIC: &str = "stamped";
    const DAY_MS: i64 = 86_400_000;
    scenario(async |stage| {
        let stamped = [("message.timestamp.type", "LogAppendTime")];
        stage.a.create_topic(TOPIC, 1, &stamped).await?;
        let start = unix_millis();
        let old = |record: Rec| Rec {
            timestamp: Some(start - DAY_MS),
            ..record
        };
        let records: Vec<Rec> = numbered(20).into_iter().map(old).collect();
        fill_batch(&stage.a, TOPIC, 0, "zstd", &records)?;
        let before = stage.went(APPEND_TIME).await?;
        stage.mirror(&[TOPIC]).await?;
        stage.came(TOPIC, records.len(), APPEND_TIME).await?;
        ensure!(stage.went(APPEND_TIME).await? == before + 1);
        let appended = read(&stage.a, TOPIC, 0).await?;
        let is_appended = |record: &Rec| record.timestamp.is_some_and(|time| time >= start);
        ensure!(appended.iter().all(is_appended), "{appended:?}");
        for side in SIDES {
            let settings = stage.b.topic_config(&side.copy_of(TOPIC)).await?;
            let kind = &settings["message.timestamp.type"];
            ensure!(kind == "CreateTime", "{}: {kind}", side.link);
        }
        stage.check_copies(TOPIC, 0, &appended).await?;
        stage.leave(&[TOPIC]).await
    });
}

/// None of its records is too large for the target, all together are.
#[test]
fn c031_a_batch_larger_than_the_target_takes_is_split() {
    const TOPIC: &str = "bundles";
    const RECORD_BYTES: usize = 50_000;
    const LIMIT_BYTES: usize = 200_000;
    scenario(async |stage| {
        let raised = [("max.message.bytes", "10485760")];
        stage.a.create_topic(TOPIC, 1, &raised).await?;
        let limit = LIMIT_BYTES.to_string();
        let plain = ("compression.type", "uncompressed");
        for side in SIDES {
            let limited = [plain, ("max.message.bytes", limit.as_str())];
            let copy = side.copy_of(TOPIC);
            stage.b.create_topic(&copy, 1, &limited).await?;
        }
        let mut rng = rand::rng();
        let mut record = |_| {
            let noise = (&mut rng).sample_iter(Alphanumeric).take(RECORD_BYTES);
            Rec::new(noise.collect::<Vec<u8>>())
        };
        let records: Vec<Rec> = (0..10).map(&mut record).collect();
        fill_batch(&stage.a, TOPIC, 0, "none", &records)?;
        let source = batches(&stage.a, TOPIC, 0)?;
        ensure!(source.len() == 1 && source[0].size_bytes() > 2 * LIMIT_BYTES);
        let before = stage.went(OVERSIZE).await?;
        stage.mirror(&[TOPIC]).await?;
        stage.came(TOPIC, records.len(), OVERSIZE).await?;
        let parts = batches(&stage.b, &BATCHES.copy_of(TOPIC), 0)?;
        let sizes: Vec<usize> = parts.iter().map(|part| part.size_bytes()).collect();
        ensure!(
            sizes.len() >= 3 && sizes.iter().all(|size| *size <= LIMIT_BYTES),
            "{sizes:?}"
        );
        let went = stage.went(OVERSIZE).await? - before;
        ensure!(went == u64::try_from(parts.len())?, "{went} of {sizes:?}");
        stage.check_copies(TOPIC, 0, &records).await?;
        stage.leave(&[TOPIC]).await
    });
}

#[test]
fn one_record_batches_are_joined_where_they_wait_and_passed_on_where_they_do_not() {
    const TOPIC: &str = "singles";
    const BACKLOG: usize = 3_000;
    const SINGLY: usize = 5;
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, 1, &[]).await?;
        let mut records = numbered(BACKLOG);
        let producer = producer(&stage.a, &[("batch.num.messages", "1")])?;
        send(&producer, TOPIC, 0, &records)?;
        written(&producer)?;
        let source = batches(&stage.a, TOPIC, 0)?;
        ensure!(source.len() == BACKLOG, "{} batches", source.len());
        let before = [stage.went(TINY).await?, stage.went(PASSED).await?];
        stage.mirror(&[TOPIC]).await?;
        stage.came(TOPIC, BACKLOG, TINY).await?;
        let joined = batches(&stage.b, &BATCHES.copy_of(TOPIC), 0)?;
        let told = [stage.went(TINY).await?, stage.went(PASSED).await?];
        let went = [told[0] - before[0], told[1] - before[1]];
        println!("{BACKLOG} batches became {}: {went:?}", joined.len());
        ensure!(
            joined.len() <= BACKLOG / 20 && went[0] + went[1] == u64::try_from(joined.len())?,
            "{} batches, {went:?}",
            joined.len()
        );

        // One at a time there is nothing to be joined with.
        for number in 0..SINGLY {
            let record = Rec::new(format!("alone {number}"));
            fill(&stage.a, TOPIC, 0, std::slice::from_ref(&record))?;
            records.push(record);
            stage.came(TOPIC, records.len(), PASSED).await?;
        }
        let singly = [stage.went(TINY).await?, stage.went(PASSED).await?];
        let expected = [told[0], told[1] + u64::try_from(SINGLY)?];
        ensure!(singly == expected, "{singly:?}, expected {expected:?}");
        stage.check_copies(TOPIC, 0, &records).await?;
        stage.leave(&[TOPIC]).await
    });
}

#[test]
fn a_batch_of_which_compaction_left_a_part_is_closed_up() {
    const TOPIC: &str = "thinned";
    const KEYS: usize = 20;
    const HOUR_MS: i64 = 3_600_000;
    scenario(async |stage| {
        let settings = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("segment.ms", "60000"),
        ];
        stage.a.create_topic(TOPIC, 1, &settings).await?;
        // Each key twice in one batch, of which the cleaner leaves every second record.
        let twice = (0..2 * KEYS).map(|number| Rec {
            key: Some(format!("key-{}", number / 2).into_bytes()),
            timestamp: Some(unix_millis() - HOUR_MS),
            ..Rec::new(number.to_string())
        });
        let twice: Vec<Rec> = twice.collect();
        fill_batch(&stage.a, TOPIC, 0, "lz4", &twice)?;
        // Leaves the segment to the cleaner, and nothing more to copy.
        abort_one(stage, TOPIC)?;
        let left: Vec<Rec> = twice.iter().skip(1).step_by(2).cloned().collect();
        wait::until_true("the cleaner", SOON, async || {
            let found = read(&stage.a, TOPIC, 0).await?;
            ensure!(found == left, "{} records", found.len());
            Ok(true)
        })
        .await?;
        let end = usize::try_from(end(&batches(&stage.a, TOPIC, 0)?))?;
        let before = stage.went(HOLES).await?;
        stage.mirror(&[TOPIC]).await?;
        stage.came(TOPIC, end, HOLES).await?;
        ensure!(stage.went(HOLES).await? == before + 1);
        stage.check_copies(TOPIC, 0, &left).await?;
        stage.leave(&[TOPIC]).await
    });
}

/// Writes a record of now in a transaction that is aborted.
fn abort_one(stage: &Stage, topic: &str) -> Result<()> {
    let producer = producer(&stage.a, &[("transactional.id", topic)])?;
    producer.init_transactions(SOON)?;
    producer.begin_transaction()?;
    send(&producer, topic, 0, &[Rec::new("never mind")])?;
    producer.flush(SOON)?;
    Ok(producer.abort_transaction(SOON)?)
}
