//! Workers are killed at random moments.

use std::time::Duration;

use anyhow::ensure;
use kreplicator_tests::{rig::Rig, settings, system::LEASE};
use rand::Rng as _;
use tokio::time::Instant;

use crate::{
    owners::wait_for_one_each,
    stage::{WORKERS, chance, scenario},
};

const RUNNING: &str = "kreplicator_worker_tasks{link=\"a-b\",state=\"running\"}";

/// C026, C038: at random moments, which fall also into the times in which a worker waits for the lease of
/// the process before it, takes over, or is succeeded.
#[test]
fn c026_workers_killed_at_random_moments_leave_every_record_once() {
    scenario(async |rig| {
        let mut chance = chance();
        let kills = settings::length(4, 100);
        let rest_max = settings::length(LEASE / 2, LEASE * 2);
        let start = Instant::now();
        let mut at_work = 0;
        for _ in 0..kills {
            let rest = chance.random_range(Duration::ZERO..rest_max);
            rig.observe(rest).await;
            let victim = WORKERS[chance.random_range(0..WORKERS.len())];
            let running = running(rig, victim).await;
            println!(
                "{:.1?}: {victim} with {running} running tasks",
                start.elapsed()
            );
            at_work += usize::from(running > 0.0);
            let worker = rig.system.worker(victim)?;
            worker.kill().await?;
            worker.start()?;
        }
        ensure!(
            at_work * 4 >= kills,
            "only {at_work} of {kills} were at work"
        );
        rig.settle().await?;
        wait_for_one_each(rig).await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        rig.verify().await
    });
}

/// How many tasks a worker says it runs; none where it does not answer yet.
pub(crate) async fn running(rig: &mut Rig, name: &str) -> f64 {
    let Ok(worker) = rig.system.worker(name) else {
        return 0.0;
    };
    let metrics = worker.metrics().await.unwrap_or_default();
    metrics.get(RUNNING).copied().unwrap_or_default()
}
