//! Two owners of every task, for as long as it takes: the controllers are gone, and the store says to both
//! workers that everything is theirs. No controller would ever write that; whatever else makes two owners
//! makes them for a moment only.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::{assignment::Assignment, stored::Stored};
use kreplicator_store::keys;
use kreplicator_tests::{
    rig::{CATCH_UP, Rig},
    settings, wait,
};
use rand::{Rng as _, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    c_kills::running,
    owners::{ROOT, wait_for_one_each},
    stage::{WORKERS, chance, scenario},
};

const COPIED: &str = "kreplicator_worker_replicated_records_total";
/// Both owners copy for so long before anything happens to them.
const UNDISTURBED: Duration = Duration::from_secs(2);
/// Of the records of that time, what each owner has acknowledged by itself, at the least.
const COPIED_MIN: f64 = 100.0;
const FROZEN_MAX: Duration = Duration::from_secs(2);

/// C038, C039: in turn one of the two is killed and the other is frozen, at random moments.
#[test]
fn c039_two_owners_of_everything_killed_and_frozen_at_random_leave_every_record_once() {
    scenario(async |rig| {
        let mut chance = chance();
        let start = Instant::now();
        for controller in rig.system.controllers() {
            controller.kill().await?;
        }
        assign_everything_to_both(rig).await?;
        wait_for_two_each(rig).await?;
        both_copy(rig).await?;
        for round in 0..settings::length(1, 100) {
            let (killed, frozen) = (WORKERS[round % 2], WORKERS[(round + 1) % 2]);
            kill_and_freeze(rig, killed, frozen, &mut chance).await?;
            println!("{:.1?}: {killed} killed, {frozen} frozen", start.elapsed());
            wait_for_two_each(rig).await?;
        }
        both_copy(rig).await?;
        // A leader finds two owners of everything and keeps one of each.
        rig.settle().await?;
        wait_for_one_each(rig).await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(repeats.is_empty(), "repeated: {repeats:?}");
        rig.verify().await
    });
}

/// Kills one and starts it again; freezes the other while the first is away or comes back.
async fn kill_and_freeze(
    rig: &mut Rig,
    killed: &str,
    frozen: &str,
    chance: &mut StdRng,
) -> Result<()> {
    let mut rest = || chance.random_range(Duration::ZERO..FROZEN_MAX);
    let rests = [rest(), rest(), rest()];
    rig.observe(rests[0]).await;
    let worker = rig.system.worker(killed)?;
    worker.kill().await?;
    worker.start()?;
    rig.observe(rests[1]).await;
    rig.system.worker(frozen)?.process()?.freeze().await?;
    rig.observe(rests[2]).await;
    rig.system.worker(frozen)?.process()?.thaw()
}

/// Writes what a plan would, of a generation that follows: each keeps what it has and gets what the other has,
/// under the same epoch, since who begins a task and finds a newer owner's checkpoint leaves it alone.
async fn assign_everything_to_both(rig: &mut Rig) -> Result<()> {
    let mut chunks: BTreeMap<(String, u32), Assignment> = BTreeMap::new();
    for (key, value) in rig.system.etcd().entries(ROOT, keys::ASSIGNMENTS).await? {
        let (worker, chunk) =
            keys::split_chunk(&key, keys::ASSIGNMENTS).context("a strange key")?;
        chunks.insert(
            (worker.to_owned(), chunk),
            Assignment::decode(&key, &value)?,
        );
    }
    let newest = chunks.values().map(|chunk| chunk.generation).max();
    let mut generation = newest.context("nothing is assigned")?;
    generation.0 += 1;
    let given: Vec<_> = chunks.clone().into_iter().collect();
    for ((owner, number), chunk) in given {
        for worker in WORKERS {
            let own = chunks.entry((worker.to_owned(), number)).or_default();
            own.generation = generation;
            if worker != owner {
                give(own, &chunk);
            }
        }
    }
    let mut client = Box::pin(rig.system.etcd().client()).await?;
    for ((worker, number), chunk) in chunks {
        let key = format!("{ROOT}{}{worker}/{number:04}", keys::ASSIGNMENTS);
        client.put(key, chunk.encode(), None).await?;
    }
    Ok(())
}

/// Adds the tasks of `given` to `own`.
fn give(own: &mut Assignment, given: &Assignment) {
    for (topic, assigned) in &given.topics {
        let entry = own.topics.entry(topic.clone());
        let entry = entry.or_insert_with(|| {
            let mut none = assigned.clone();
            none.partitions.clear();
            none
        });
        for (partition, epoch) in &assigned.partitions {
            entry.partitions.entry(*partition).or_insert(*epoch);
        }
    }
}

/// Waits until each of the workers says that it runs every task.
async fn wait_for_two_each(rig: &mut Rig) -> Result<()> {
    let tasks = Rig::base_lanes().len() as f64;
    wait::until_true("two owners of each task", CATCH_UP, async || {
        for worker in WORKERS {
            let running = running(rig, worker).await;
            ensure!(running == tasks, "{worker} runs {running} of {tasks} tasks");
        }
        Ok(true)
    })
    .await
}

/// Both owners send, and the target answers both.
async fn both_copy(rig: &mut Rig) -> Result<()> {
    let before = copied(rig).await?;
    rig.observe(UNDISTURBED).await;
    let after = copied(rig).await?;
    for (worker, before) in before {
        let copied = after[worker] - before;
        println!("{worker} has copied {copied} records in {UNDISTURBED:?}");
        ensure!(copied >= COPIED_MIN, "{worker} has copied {copied} records");
    }
    Ok(())
}

async fn copied(rig: &mut Rig) -> Result<BTreeMap<&'static str, f64>> {
    let mut copied = BTreeMap::new();
    for worker in WORKERS {
        let metrics = rig.system.worker(worker)?.metrics().await?;
        let own = metrics.iter().filter(|(name, _)| name.starts_with(COPIED));
        copied.insert(worker, own.map(|(_, value)| value).sum());
    }
    Ok(copied)
}
