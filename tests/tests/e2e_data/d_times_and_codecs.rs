//! Records of another time, in batches of every codec.

use kreplicator_tests::{
    contents::{Rec, fill_batch},
    load::unix_millis,
};

use crate::{
    sides::{EXACTLY_ONCE, SIDES},
    stage::scenario,
};

const CODECS: [&str; 5] = ["gzip", "snappy", "lz4", "zstd", "none"];
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Records of each batch.
const BATCH: usize = 10;
/// What is promised while the target may forget at once who wrote the records that it took last.
const OLD: (&str, &str) = ("at_least_once", "old_records");
/// Kept for ever, whatever time they are of.
const KEPT: (&str, &str) = ("retention.ms", "-1");
const FOR_EVER: &str = "9223372036854775807";

/// A batch of records, all of now but those at `at`.
fn records(name: &str, at: std::ops::Range<usize>, shift_ms: i64) -> Vec<Rec> {
    let record = |number: usize| {
        let shift_ms = if at.contains(&number) { shift_ms } else { 0 };
        Rec {
            timestamp: Some(unix_millis() + shift_ms),
            ..Rec::new(format!("{name}: {number}"))
        }
    };
    (0..BATCH).map(record).collect()
}

#[test]
fn c020_c022_all_codecs_mixed_are_copied_and_times_that_the_target_refuses_halt_their_partition() {
    const AGES: &str = "ages";
    const ARCHIVE: &str = "archive";
    scenario(async |stage| {
        let tolerant = [KEPT, ("message.timestamp.after.max.ms", FOR_EVER)];
        stage.a.create_topic(AGES, 3, &tolerant).await?;
        stage.a.create_topic(ARCHIVE, 1, &tolerant).await?;
        // That of AGES is made by the system: any age is welcome, and an hour ahead, as Kafka has it.
        for side in SIDES {
            let day = DAY_MS.to_string();
            let fresh = [KEPT, ("message.timestamp.before.max.ms", day.as_str())];
            stage
                .b
                .create_topic(&side.copy_of(ARCHIVE), 1, &fresh)
                .await?;
        }
        let mut mixed = Vec::new();
        for age in [400 * DAY_MS, 0] {
            for codec in CODECS {
                let batch = records(codec, 0..BATCH, -age);
                fill_batch(&stage.a, AGES, 0, codec, &batch)?;
                mixed.extend(batch);
            }
        }
        let ancient = records("ancient", 0..BATCH, -400 * DAY_MS);
        fill_batch(&stage.a, AGES, 2, "lz4", &ancient)?;
        let ahead = records("ahead", 5..6, 2 * HOUR_MS);
        fill_batch(&stage.a, AGES, 1, "zstd", &ahead)?;
        let old = records("old", 7..9, -400 * DAY_MS);
        fill_batch(&stage.a, ARCHIVE, 0, "snappy", &old)?;

        stage.mirror(&[AGES, ARCHIVE]).await?;
        stage
            .caught_up(AGES, 0, i64::try_from(mixed.len())?)
            .await?;
        stage.check_copies(AGES, 0, &mixed).await?;
        let end = i64::try_from(BATCH)?;
        stage.caught_up(AGES, 2, end).await?;
        stage.check_promise(AGES, 2, OLD).await?;
        // What is written now is remembered.
        stage.check_promise(AGES, 0, EXACTLY_ONCE).await?;
        let now = records("now", 0..BATCH, 0);
        fill_batch(&stage.a, AGES, 2, "lz4", &now)?;
        stage.caught_up(AGES, 2, 2 * end).await?;
        stage.check_promise(AGES, 2, EXACTLY_ONCE).await?;
        stage
            .check_copies(AGES, 2, &[ancient, now].concat())
            .await?;
        let setting = ["message.timestamp.after.max.ms"];
        stage.halted(AGES, 1, 5, &setting).await?;
        let setting = ["message.timestamp.before.max.ms"];
        stage.halted(ARCHIVE, 0, 7, &setting).await?;

        for side in SIDES {
            let widened = [KEPT, ("message.timestamp.after.max.ms", FOR_EVER)];
            stage
                .b
                .configure_topic(&side.copy_of(AGES), &widened)
                .await?;
            let widened = [KEPT, ("message.timestamp.before.max.ms", FOR_EVER)];
            stage
                .b
                .configure_topic(&side.copy_of(ARCHIVE), &widened)
                .await?;
        }
        for (topic, partition, records) in [(AGES, 1, &ahead), (ARCHIVE, 0, &old)] {
            stage.caught_up(topic, partition, end).await?;
            stage.check_copies(topic, partition, records).await?;
        }
        stage.leave(&[AGES, ARCHIVE]).await
    });
}
