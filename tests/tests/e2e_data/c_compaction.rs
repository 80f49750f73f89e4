//! Compacted topics: holes, tombstones, and records that such a topic does not take.

use anyhow::{Result, ensure};
use kreplicator_tests::{
    contents::{Rec, fill, fill_batch, producer, read, send, written},
    load::unix_millis,
    wait,
};

use crate::{
    raw::{batches, end, record_count},
    sides::SIDES,
    stage::{SOON, Stage, scenario},
};

const STATE: &str = "state";
const KEYS: usize = 50;
const DELETED: usize = 5;
const ROUNDS: usize = 6;
/// Age of what is to be cleaned; segments are to be younger.
const AGE_MS: i64 = 3_600_000;
const SEGMENT_MS: &str = "60000";

fn record(key: usize, value: Option<String>, age_ms: i64) -> Rec {
    Rec {
        key: Some(format!("key-{key}").into_bytes()),
        value: value.map(String::into_bytes),
        timestamp: Some(unix_millis() - age_ms),
        headers: vec![("round".to_owned(), None)],
    }
}

#[test]
fn c114_what_compaction_has_left_is_copied_with_its_tombstones() {
    scenario(async |stage| {
        let settings = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("segment.ms", SEGMENT_MS),
        ];
        stage.a.create_topic(STATE, 1, &settings).await?;
        let cleaned = clean(stage).await?;
        let end = end(&batches(&stage.a, STATE, 0)?);
        ensure!(
            i64::try_from(cleaned.len())? < end,
            "{} records up to {end}",
            cleaned.len()
        );
        stage.mirror(&[STATE]).await?;
        stage.caught_up(STATE, 0, end).await?;
        stage.check_copies(STATE, 0, &cleaned).await?;
        for side in SIDES {
            let settings = stage.b.topic_config(&side.copy_of(STATE)).await?;
            ensure!(settings["cleanup.policy"] == "compact", "{settings:?}");
        }
        // Reading it again may give less, so nobody can count what was delivered.
        let compacted = ("at_least_once", "source_compacted");
        stage.check_promises(STATE, compacted).await?;
        stage.links_promise(compacted).await?;

        // And whatever comes then, old keys and new ones.
        let more: Vec<Rec> = (KEYS - 5..KEYS + 5)
            .map(|key| record(key, (key % 2 > 0).then(|| format!("{key} anew")), 0))
            .collect();
        fill(&stage.a, STATE, 0, &more)?;
        let end = end + i64::try_from(more.len())?;
        stage.caught_up(STATE, 0, end).await?;
        let all = [cleaned, more].concat();
        stage.check_copies(STATE, 0, &all).await?;
        stage.leave(&[STATE]).await
    });
}

/// Writes keys again and again, deletes some, and waits until the cleaner has left the last of each; gives
/// what is left.
async fn clean(stage: &Stage) -> Result<Vec<Rec>> {
    let producer = producer(&stage.a, &[("batch.num.messages", "40")])?;
    for round in 0..ROUNDS {
        let records: Vec<Rec> = (0..KEYS)
            .map(|key| record(key, Some(format!("{key} in round {round}")), AGE_MS))
            .collect();
        send(&producer, STATE, 0, &records)?;
    }
    let deletions: Vec<Rec> = (0..DELETED).map(|key| record(key, None, AGE_MS)).collect();
    send(&producer, STATE, 0, &deletions)?;
    written(&producer)?;
    // Begins a new segment, which leaves the old one to the cleaner.
    fill(
        &stage.a,
        STATE,
        0,
        &[record(KEYS, Some("now".to_owned()), 0)],
    )?;
    let left = KEYS + 1;
    wait::until_true("the cleaner", SOON, async || {
        let log = batches(&stage.a, STATE, 0)?;
        let holes = log.iter().filter(|batch| !batch.shape().is_dense());
        let (count, holes) = (record_count(&log), holes.count());
        ensure!(
            count == i64::try_from(left)? && holes > 0,
            "{count} records in {} batches, {holes} with holes",
            log.len()
        );
        Ok(true)
    })
    .await?;
    let cleaned = read(&stage.a, STATE, 0).await?;
    let tombstones = cleaned.iter().filter(|record| record.value.is_none());
    let tombstones = tombstones.count();
    ensure!(
        (cleaned.len(), tombstones) == (left, DELETED),
        "{} records, {tombstones} tombstones",
        cleaned.len()
    );
    Ok(cleaned)
}

#[test]
fn a_record_without_key_halts_its_partition_of_a_compacted_target_until_it_may_come_in() {
    const TOPIC: &str = "keyless";
    const AT: usize = 10;
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, 2, &[]).await?;
        for side in SIDES {
            let compacted = [("cleanup.policy", "compact")];
            let copy = side.copy_of(TOPIC);
            stage.b.create_topic(&copy, 2, &compacted).await?;
        }
        let keyed: Vec<Rec> = (0..2 * AT)
            .map(|key| record(key, Some(key.to_string()), 0))
            .collect();
        let mut keyless = keyed.clone();
        keyless[AT].key = None;
        // The target refuses it as a whole.
        fill_batch(&stage.a, TOPIC, 0, "lz4", &keyless)?;
        fill_batch(&stage.a, TOPIC, 1, "lz4", &keyed)?;
        stage.mirror(&[TOPIC]).await?;
        let named = ["without key", "cleanup.policy"];
        stage.halted(TOPIC, 0, i64::try_from(AT)?, &named).await?;
        stage.check_copies(TOPIC, 0, &keyless[..AT]).await?;
        let end = i64::try_from(keyed.len())?;
        stage.caught_up(TOPIC, 1, end).await?;
        stage.check_copies(TOPIC, 1, &keyed).await?;

        for side in SIDES {
            let policy = [("cleanup.policy", "delete")];
            stage
                .b
                .configure_topic(&side.copy_of(TOPIC), &policy)
                .await?;
        }
        stage.caught_up(TOPIC, 0, end).await?;
        stage.check_copies(TOPIC, 0, &keyless).await?;
        stage.leave(&[TOPIC]).await
    });
}
