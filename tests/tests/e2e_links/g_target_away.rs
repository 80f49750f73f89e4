//! One of two targets cannot be reached.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    api,
    kafka::{KafkaCluster, KafkaOptions},
    proxy::Proxy,
    rig::{self, NOISE},
    settings,
    system::{System, SystemOptions},
    tail::Tail,
};
use tokio::time::{Instant, sleep};

use crate::{DEADLINE, PARTITIONS, judge, load, scenario};

const TOPICS: [&str; 5] = ["clicks", "orders", "returns", "sessions", "views"];
/// Of both links.
const TASKS: i32 = 2 * 5 * 8;
/// Bytes of each record: with them half a worker's budget is written for it every few seconds.
const PADDING: usize = 2_000;
/// The least there is.
const BUDGET: &str = "16MiB";
/// What all workers together have to hold at some time while a target is away, for what is said of the
/// budget to mean something.
const HELD_BYTES: i64 = 8 << 20;
/// What a process needs beside the budget for records: code, clients, buffers of the allocator.
const OVERHEAD_BYTES: u64 = 200 << 20;

/// C025, C030, C036 and C107: only what cannot be delivered waits, within the budget, and recovers by
/// itself.
#[test]
fn g_c025_a_target_that_is_away_stops_only_its_own_links_and_recovers_without_loss() {
    scenario(async {
        let mut options = SystemOptions::new("target-away", 2, 3);
        options.set_worker("memory_budget_bytes", BUDGET);
        let (source, near, (far, proxies), mut system) = futures::try_join!(
            KafkaCluster::start(KafkaOptions::single("source")),
            KafkaCluster::start(KafkaOptions::single("near")),
            KafkaCluster::start_behind_proxies(KafkaOptions::single("far")),
            System::start(options),
        )?;
        let outcome = run(&mut system, &source, &near, &far, &proxies[0]).await;
        judge(outcome, &system, &[&source, &near, &far])
    });
}

async fn run(
    system: &mut System,
    source: &KafkaCluster,
    near: &KafkaCluster,
    far: &KafkaCluster,
    proxy: &Proxy,
) -> Result<()> {
    let load = load(source, &TOPICS, 2_000, PADDING).await?;
    let tails = [
        Tail::start(&near.client_config())?,
        Tail::start(&far.client_config())?,
    ];
    for tail in &tails {
        TOPICS.iter().for_each(|topic| tail.follow(topic));
    }
    let api = system.api()?;
    for cluster in [source, near, far] {
        api.put_cluster(api::cluster(cluster.name(), cluster.bootstrap()))
            .await?;
    }
    for target in ["near", "far"] {
        let link = format!("to-{target}");
        api.put_link(api::link(&link, "source", target, "")).await?;
        let topics = TOPICS.map(|topic| api::topic(&link, topic));
        api.subscribe(topics.to_vec()).await?;
    }
    system.wait_running(TASKS, DEADLINE).await?;
    for tail in &tails {
        tail.complete(&load.acknowledged(), DEADLINE).await?;
    }
    let owners = owners(system).await?;
    let lanes: Vec<_> = TOPICS
        .iter()
        .flat_map(|topic| rig::lanes(topic, 0..PARTITIONS))
        .collect();
    let begun = Instant::now();
    sleep(Duration::from_secs(5)).await;
    let steady = begun..Instant::now();

    proxy.black_hole();
    let away = settings::length(Duration::from_secs(30), Duration::from_secs(120));
    let start = Instant::now();
    let mut most = 0;
    while start.elapsed() < away {
        most = most.max(check_memory(system).await?);
        sleep(Duration::from_secs(1)).await;
    }
    println!("the workers held up to {most} bytes of records");
    ensure!(most >= HELD_BYTES, "the workers held {most} bytes at most");
    let window = start..Instant::now();
    for (lane, pause) in tails[0].pauses(&lanes, &window) {
        let latency = tails[0].latency(&lane, &steady).quantile(999);
        let allowed = NOISE.max(latency.unwrap_or_default() * 2);
        ensure!(
            pause <= allowed,
            "{lane:?} to the near target paused {pause:?}"
        );
    }

    let returned = Instant::now();
    proxy.pass().await;
    let produced = load.acknowledged();
    let limit = Duration::from_secs(120);
    let report = tails[1].complete(&produced, limit).await?;
    println!(
        "all of the far target's records after {:?}",
        returned.elapsed()
    );
    ensure!(report.is_as_promised(), "{report}");
    system.check()?;
    check_memory(system).await?;
    system.wait_running(TASKS, DEADLINE).await?;
    ensure!(
        self::owners(system).await? == owners,
        "a target's fault moved tasks between workers"
    );
    let produced = load.finish(DEADLINE).await?;
    let report = tails[0].complete(&produced, DEADLINE).await?;
    ensure!(report.is_exact(), "the near target: {report}");
    let report = tails[1].complete(&produced, DEADLINE).await?;
    ensure!(report.is_as_promised(), "the far target: {report}");
    Ok(())
}

/// Checks budget and process size of every worker, and tells how many bytes of records all of them hold.
async fn check_memory(system: &mut System) -> Result<i64> {
    let workers = system.api()?.workers().await?;
    let held = workers.iter().map(|worker| worker.memory_used_bytes).sum();
    for worker in workers {
        let process = system.worker(&worker.id)?.process()?;
        let resident = process.memory_bytes()?;
        ensure!(
            worker.memory_used_bytes <= worker.memory_budget_bytes,
            "{} holds {} bytes of records, its budget is {}",
            worker.id,
            worker.memory_used_bytes,
            worker.memory_budget_bytes
        );
        let limit = u64::try_from(worker.memory_budget_bytes)? + OVERHEAD_BYTES;
        ensure!(
            resident <= limit,
            "{} has {resident} bytes of memory",
            worker.id
        );
    }
    Ok(held)
}

/// Owner and epoch of each task, in order.
async fn owners(system: &System) -> Result<Vec<(String, String, i32, String, u64)>> {
    let tasks = system.api()?.tasks("").await?.into_iter();
    let mut owners: Vec<_> = tasks
        .map(|task| {
            (
                task.link,
                task.topic,
                task.partition,
                task.worker,
                task.epoch,
            )
        })
        .collect();
    owners.sort();
    Ok(owners)
}
