//! One of three target brokers is away, with partitions that nobody else can lead.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api,
    rig::{NOISE, lanes},
    settings,
};
use tokio::time::{Instant, sleep};

use crate::{
    leaders::{leader_of_first, leaders},
    stage::{CATCH_UP, PARTITIONS, SOON, Stage, scenario, start_load},
};

/// A link whose target topics have one replica.
const LINK: &str = "one-three-single";
const TOPIC: &str = "views";

/// C030 and C036: partitions on healthy brokers keep their rate, also when the room of those that
/// wait is used up.
#[test]
fn c030_c036_partitions_led_by_other_brokers_do_not_notice_that_one_is_away() {
    scenario(async |stage| {
        stage.one.create_topic(TOPIC, PARTITIONS, &[]).await?;
        let link = v1::Link {
            target_topics: Some(v1::TargetTopics {
                replication_factor: 1,
                ..Default::default()
            }),
            ..api::link(LINK, "one", "three", "")
        };
        stage.api.put_link(link).await?;
        stage.subscribe(LINK, TOPIC, PARTITIONS).await?;
        // Some 300 kB/s for each partition; what may wait is some 2 MB for each.
        let load = start_load(&stage.one, 600, 6_000)?;
        load.add(TOPIC, PARTITIONS);
        for lane in lanes(TOPIC, 0..PARTITIONS) {
            stage
                .tail
                .first_arrival(&lane, Instant::now(), SOON)
                .await?;
        }
        let outcome = one_away(stage).await;
        let produced = load.finish(SOON).await?;
        outcome?;
        let report = stage.tail.complete(&produced, CATCH_UP).await?;
        ensure!(report.is_as_promised(), "{report}");
        stage.unsubscribe(LINK, TOPIC).await
    });
}

async fn one_away(stage: &mut Stage) -> Result<()> {
    let before = stage.placement().await?;
    let away = leader_of_first(&stage.three, TOPIC).await?;
    let leaders = leaders(&stage.three, TOPIC).await?;
    let (lost, kept): (Vec<_>, Vec<_>) = lanes(TOPIC, 0..PARTITIONS)
        .into_iter()
        .partition(|(_, partition)| leaders[partition] == away);
    ensure!(lost.len() >= 2 && kept.len() >= 4, "{leaders:?}");
    let allowed = stage.allowed_pauses(&kept, NOISE).await;

    let start = Instant::now();
    // In an orderly way: after a kill, partitions of more replicas wait for the cluster to give up the
    // lost ones, and so does what is sent after them over the same connection.
    stage.three.stop(away).await?;
    let stopped = Instant::now();
    println!("stopping took {:?}", start.elapsed());
    sleep(settings::length(
        Duration::from_secs(12),
        Duration::from_secs(60),
    ))
    .await;
    let window = stopped..Instant::now();
    for lane in &lost {
        let count = stage.tail.count(lane, &window);
        ensure!(count == 0, "{count} records in {lane:?}, which is away");
    }

    for worker in stage.api.workers().await? {
        let (used, budget) = (worker.memory_used_bytes, worker.memory_budget_bytes);
        println!("{} holds {used} of {budget} bytes", worker.id);
    }

    stage.three.restart(away).await?;
    let returned = Instant::now();
    for lane in &lost {
        stage.tail.first_arrival(lane, returned, SOON).await?;
    }
    println!("all flow again {:?} after its return", returned.elapsed());
    stage.system.wait_running(PARTITIONS * 2, SOON).await?;
    stage.check_pauses(start, &allowed)?;
    stage.check_unmoved(&before).await
}
