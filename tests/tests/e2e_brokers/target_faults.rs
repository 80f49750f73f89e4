//! Brokers of the target are killed and frozen under load: the idempotent producer may break, the
//! flow may not.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::settings;
use tokio::time::{Instant, sleep};

use crate::{
    leaders::leader_of_first,
    stage::{BASE, SOON, Stage, scenario},
};

/// Longer than a request may take: 10 s in the batch engine, 20 s in that of records.
fn beyond_a_request() -> Duration {
    let request = if settings::is_exactly_once() { 10 } else { 20 };
    Duration::from_secs(request + 4)
}

#[test]
fn c027_killed_target_leaders_cost_no_record_and_no_restart() {
    scenario(async |stage| {
        unharmed(stage, async |stage| {
            for _ in 0..settings::length(2, 20) {
                let leader = leader_of_first(&stage.three, BASE).await?;
                let start = Instant::now();
                stage.three.kill(leader).await?;
                for lane in Stage::base_lanes() {
                    // From others, once they have noticed.
                    let from = start + Duration::from_secs(1);
                    stage.tail.first_arrival(&lane, from, SOON).await?;
                }
                println!("all flow again after {:?}", start.elapsed());
                stage.three.restart(leader).await?;
                stage.caught_up().await?;
            }
            Ok(())
        })
        .await
    });
}

#[test]
fn c027_a_target_leader_frozen_beyond_the_request_timeout_costs_no_record_and_no_restart() {
    scenario(async |stage| {
        unharmed(stage, async |stage| {
            let leader = leader_of_first(&stage.three, BASE).await?;
            stage.three.freeze(leader).await?;
            sleep(settings::length(
                beyond_a_request(),
                Duration::from_secs(45),
            ))
            .await;
            stage.three.thaw(leader)?;
            Ok(())
        })
        .await
    });
}

#[test]
fn c028_two_of_three_target_brokers_frozen_again_and_again_leave_no_gap() {
    scenario(async |stage| {
        let away = settings::length(beyond_a_request(), Duration::from_secs(45));
        let between = settings::length(Duration::from_secs(5), Duration::from_secs(20));
        unharmed(stage, async |stage| {
            let rounds = settings::length(2, 10);
            for round in 0..rounds {
                let frozen = [round % 3, (round + 1) % 3];
                for broker in frozen {
                    stage.three.freeze(broker).await?;
                }
                sleep(away).await;
                for broker in frozen {
                    stage.three.thaw(broker)?;
                }
                if round + 1 < rounds {
                    sleep(between).await;
                }
            }
            Ok(())
        })
        .await
    });
}

/// After `harm`, everything that was written arrives in order, with nothing repeated that was saved
/// before, by the same workers.
async fn unharmed(
    stage: &mut Stage,
    harm: impl AsyncFnOnce(&mut Stage) -> Result<()>,
) -> Result<()> {
    let before = stage.placement().await?;
    let saved = stage.checkpoints().await?;
    let produced = stage.load.acknowledged().values().sum::<u64>();
    let rebuilds = stage.rebuilds().await?;
    let start = Instant::now();
    harm(stage).await?;
    stage.settle().await?;
    let written = stage.load.acknowledged().values().sum::<u64>() - produced;
    ensure!(written > 1_000, "only {written} records were written");
    println!(
        "caught up after {:?}; {} clients were made anew",
        start.elapsed(),
        stage.rebuilds().await? - rebuilds
    );
    stage.check_repeats(start, &saved)?;
    stage.check_unmoved(&before).await
}
