//! Leaders of source and target partitions move at random: one cluster is the source of one link and the target of
//! another, and everything that leads anything is killed, stopped, voted out or replaced.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{api, checker::Counts, load::Load, settings, tail::Tail};
use rand::seq::IndexedRandom as _;
use tokio::time::Instant;

use crate::{
    leaders::placed,
    moves::{Kinds, leading, moved},
    stage::{BASE, PARTITIONS, SOON, Stage, scenario, start_load},
};

const LINK: &str = "three-one";
const PREFIX: &str = "back.";
/// The topic whose source moves; that of [`BASE`] is where the target does.
const TOPIC: &str = "moves";
const BOTH: [&str; 2] = [TOPIC, BASE];
/// From a move of leaders until every partition moves again.
const AGAIN: Duration = Duration::from_secs(30);
/// Longest reading of everything that was written, once more: a million records at full length.
const REREAD: Duration = Duration::from_secs(300);

#[test]
fn c104_every_partition_moves_again_soon_after_leaders_of_source_and_target_moved_at_random() {
    scenario(async |stage| {
        stage.three.create_topic(TOPIC, PARTITIONS, &[]).await?;
        let load = start_load(&stage.three, 500, 100)?;
        load.add(TOPIC, PARTITIONS);
        let tail = Tail::start(&stage.one.client_config())?;
        tail.follow(&format!("{PREFIX}{TOPIC}"));
        stage
            .api
            .put_link(api::link(LINK, "three", "one", PREFIX))
            .await?;
        stage.api.subscribe(vec![api::topic(LINK, TOPIC)]).await?;
        stage.system.wait_running(PARTITIONS * 2, SOON).await?;
        tail.complete(&copied(load.settle(SOON).await?), SOON)
            .await?;
        let before = stage.placement().await?;
        let saved = stage.checkpoints().await?;
        let start = Instant::now();

        move_leaders(stage, &load, &tail, settings::length(4, 100)).await?;

        stage.system.wait_running(PARTITIONS * 2, SOON).await?;
        stage.check_unmoved(&before).await?;
        stage.caught_up().await?;
        stage.check_repeats(start, &saved)?;
        let produced = load.finish(SOON).await?;
        let report = tail.complete(&copied(produced.clone()), SOON).await?;
        // The load's own client may write a batch again, under another epoch of its producer id, when its leader
        // dies before it has answered: the source itself tells what a copy holds.
        let source = Tail::start(&stage.three.client_config())?;
        source.follow(TOPIC);
        let written = source.complete(&produced, REREAD).await?;
        let copy = stage.one.watermarks(&format!("{PREFIX}{TOPIC}")).await?;
        ensure!(
            copy == stage.three.watermarks(TOPIC).await?
                && report.repeated.count == written.repeated.count
                && report.reordered.count == written.reordered.count
                && report.altered.count == 0,
            "the copy: {report}; the source: {written}; {copy:?}"
        );
        stage.unsubscribe(LINK, TOPIC).await
    });
}

/// Moves leaders until those of each topic have moved so often.
async fn move_leaders(stage: &mut Stage, load: &Load, tail: &Tail, moves: usize) -> Result<()> {
    let mut chance = settings::chance();
    let mut kinds = Kinds::default();
    let mut done = BOTH.map(|_| 0);
    for round in 1_usize.. {
        ensure!(
            round <= 2 * moves,
            "{done:?} moves in {moves} rounds twice over"
        );
        let before = placed(&stage.three, &BOTH).await?;
        let leading = leading(&before);
        let broker = *leading.choose(&mut chance).context("somebody leads")?;
        let kind = kinds.next(&mut chance)?;
        let after = kind
            .make(&mut stage.three, &BOTH, broker, &mut chance)
            .await?;
        let elected = Instant::now();
        let counts = BOTH.map(|topic| moved(topic, &before, &after));
        ensure!(counts.iter().sum::<usize>() > 0, "{kind:?} moved nothing");
        for lane in Stage::base_lanes() {
            stage.tail.first_arrival(&lane, elected, AGAIN).await?;
        }
        let target = elected.elapsed();
        // Found by our own producer too; what it writes from now on is what counts.
        load.settle(SOON).await?;
        let found = Instant::now();
        tail.complete(&copied(load.settle(AGAIN).await?), AGAIN)
            .await?;
        let source = found.elapsed();
        ensure!(
            target <= AGAIN && source <= AGAIN,
            "{kind:?} of broker {broker}: {target:?} to the target, {source:?} from the source"
        );
        println!(
            "{round}: {kind:?} of broker {broker} moved {counts:?} partitions of {BOTH:?}: all moved again \
             after {source:?} and {target:?}"
        );
        kind.undo(&mut stage.three, &BOTH, broker).await?;
        for (done, count) in done.iter_mut().zip(counts) {
            *done += usize::from(count > 0);
        }
        if done.iter().all(|done| *done >= moves) {
            break;
        }
    }
    Ok(())
}

/// The same by target topic.
fn copied(produced: Counts) -> Counts {
    let renamed = produced.into_iter();
    renamed
        .map(|((topic, partition), count)| ((format!("{PREFIX}{topic}"), partition), count))
        .collect()
}
