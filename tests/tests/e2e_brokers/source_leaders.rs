//! Leaders of source partitions move: killed, stopped, elected.

use std::time::Duration;

use anyhow::ensure;
use kreplicator_tests::{api, checker::Counts, settings, tail::Tail};
use tokio::time::Instant;

use crate::{
    leaders::{elect_preferred, leader_of_first},
    stage::{PARTITIONS, SOON, scenario, start_load},
};

const LINK: &str = "three-one";
const PREFIX: &str = "back.";
const TOPIC: &str = "moves";
/// From a move of leaders until every partition moves again.
const AGAIN: Duration = Duration::from_secs(30);

#[test]
fn c104_every_partition_moves_again_soon_after_its_source_leader_moved() {
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

        for round in 0..settings::length(3, 33) {
            let leader = leader_of_first(&stage.three, TOPIC).await?;
            let orderly = round % 3 == 2;
            if orderly {
                stage.three.stop(leader).await?;
            } else {
                stage.three.kill(leader).await?;
            }
            // Elected and found by our own producer; what it writes from now on is what counts.
            load.settle(SOON).await?;
            let moved = Instant::now();
            tail.complete(&copied(load.settle(AGAIN).await?), AGAIN)
                .await?;
            let gone = moved.elapsed();
            stage.three.restart(leader).await?;
            elect_preferred(&stage.three).await?;
            let elected = Instant::now();
            tail.complete(&copied(load.settle(AGAIN).await?), AGAIN)
                .await?;
            println!(
                "all partitions moved again after {gone:?} and {:?}",
                elected.elapsed()
            );
        }
        stage.system.wait_running(PARTITIONS * 2, SOON).await?;
        stage.check_unmoved(&before).await?;
        let produced = load.finish(SOON).await?;
        let report = tail.complete(&copied(produced.clone()), SOON).await?;
        // The load's own client may write a batch again, under another epoch of its producer id, when its leader
        // dies before it has answered: the source itself tells what a copy holds.
        let source = Tail::start(&stage.three.client_config())?;
        source.follow(TOPIC);
        let written = source.complete(&produced, SOON).await?;
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

/// The same by target topic.
fn copied(produced: Counts) -> Counts {
    let renamed = produced.into_iter();
    renamed
        .map(|((topic, partition), count)| ((format!("{PREFIX}{topic}"), partition), count))
        .collect()
}
