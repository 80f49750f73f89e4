//! Everything at once: all processes killed, 500 topics subscribed.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    api,
    rig::{self, LINK, Rig},
    settings, wait,
};
use tokio::time::{Instant, sleep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Etcd,
    Controllers,
    Workers,
}

use Part::{Controllers, Etcd, Workers};

const ORDERS: [[Part; 3]; 6] = [
    [Workers, Controllers, Etcd],
    [Controllers, Workers, Etcd],
    [Etcd, Workers, Controllers],
    [Etcd, Controllers, Workers],
    [Workers, Etcd, Controllers],
    [Controllers, Etcd, Workers],
];

/// C044: in whatever order they start, nobody has to lend a hand.
#[test]
fn f1_c044_everything_killed_and_started_in_any_order_flows_again() {
    rig::scenario(async |rig| {
        let gaps = settings::length(
            vec![Duration::from_secs(2)],
            vec![Duration::from_secs(1), Duration::from_secs(20)],
        );
        // The short form: the store last, the store first.
        let orders = settings::length(vec![ORDERS[0], ORDERS[3]], ORDERS.to_vec());
        for order in &orders {
            for gap in &gaps {
                rig.system.kill_everything().await?;
                for part in order {
                    start(rig, *part).await?;
                    sleep(*gap).await;
                }
                let context = format!("{order:?}, {gap:?} between");
                rig.settle().await.map_err(|fault| fault.context(context))?;
            }
        }
        Ok(())
    });
}

async fn start(rig: &mut Rig, part: Part) -> Result<()> {
    match part {
        Etcd => rig.system.etcd().restart().await?,
        Controllers => {
            for controller in rig.system.controllers() {
                controller.start()?;
            }
        }
        Workers => {
            for worker in rig.system.workers().values_mut() {
                worker.start()?;
            }
        }
    }
    Ok(())
}

const MANY: usize = 500;
/// Partitions of each, 3,000 together, and a third in the short form: two cores make them with all else that runs.
const PARTITIONS_EACH: i32 = 6;
const PARTITIONS_EACH_SHORT: i32 = 2;
/// From the call until all tasks run.
const ASSIGNED: Duration = Duration::from_secs(60);
/// The longest pause of the others in the short form. Two brokers that make 1,000 partitions each, three
/// unoptimised workers and everything else share the machine's cores then. In full length the usual bound holds.
const CROWDED_PAUSE: Duration = Duration::from_secs(3);
/// Changes of the store that 500 subscriptions, 500 topic records and the plan for them may cost,
/// where each may carry up to 128 keys.
const CHANGES_MAX: i64 = 500;

/// C049.
#[test]
fn f2_c049_five_hundred_topics_in_one_call_run_within_a_minute_and_others_do_not_pause() {
    rig::scenario(async |rig| {
        let partitions = settings::length(PARTITIONS_EACH_SHORT, PARTITIONS_EACH);
        let names: Vec<String> = (0..MANY).map(|index| format!("many-{index:03}")).collect();
        rig.source.create_topics(&names, partitions, &[]).await?;
        rig.settle().await?;
        let started = workers(rig).await?;
        let allowed = rig.allowed_pauses().await;
        let revision = rig.system.etcd().revision().await?;

        let called = Instant::now();
        let subscriptions = names.iter().map(|name| api::topic(LINK, name));
        let results = rig.api.subscribe(subscriptions.collect()).await?;
        ensure!(results.len() == MANY, "{} results", results.len());
        let base = i32::try_from(Rig::base_lanes().len())?;
        let all = base + i32::try_from(MANY)? * partitions;
        rig.system.wait_running(all, ASSIGNED).await?;
        println!("{all} tasks run after {:?}", called.elapsed());
        let allowed = allowed
            .into_iter()
            .map(|(lane, pause)| (lane, pause.max(settings::length(CROWDED_PAUSE, pause))))
            .collect();
        rig.check_pauses(&Rig::base_lanes(), &(called..Instant::now()), &allowed)?;
        ensure!(workers(rig).await? == started, "a worker has started anew");
        let changes = rig.system.etcd().revision().await? - revision;
        // Each partition's line is written once at most, mostly together with others of its topic.
        let mut agreed = 0;
        let prefix = format!("/kreplicator/line/{LINK}/many-");
        for (key, writes) in rig.system.etcd().writes(&prefix).await? {
            let most = i64::from(partitions);
            ensure!(writes <= most, "{key} was written {writes} times");
            agreed += writes;
        }
        let others = changes - agreed;
        println!("{others} changes of the store, and {agreed} of lines");
        ensure!(others <= CHANGES_MAX, "{others} changes of the store");

        let references = names.iter().map(|name| api::reference(LINK, name));
        rig.api.unsubscribe(references.collect()).await?;
        wait::until_true("all tasks to end", ASSIGNED, async || {
            let counts = rig.api.status().await?.tasks.unwrap_or_default();
            Ok(counts.total == base)
        })
        .await?;
        for chunk in names.chunks(100) {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            rig.source.delete_topics(&chunk).await?;
            rig.target.delete_topics(&chunk).await?;
        }
        Ok(())
    });
}

/// Workers and when each started.
async fn workers(rig: &Rig) -> Result<Vec<(String, i64)>> {
    let workers = rig.api.workers().await?.into_iter();
    Ok(workers
        .map(|worker| (worker.id, worker.started_at_ms))
        .collect())
}
