//! Links in both directions, and one more cluster while they run; each worker runs tasks of all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, ensure};
use kreplicator_tests::{
    api,
    checker::Counts,
    kafka::{KafkaCluster, KafkaOptions},
    rig::{self, NOISE},
    settings,
    system::{System, SystemOptions},
    tail::Tail,
    wait,
};
use tokio::time::{Instant, sleep};

use crate::{DEADLINE, PADDING, PARTITIONS, judge, load, scenario};

/// C071 and C074.
#[test]
fn i_j_c074_both_directions_run_without_loops_and_a_third_cluster_joins_the_workers() {
    scenario(async {
        let (a, b, c, mut system) = futures::try_join!(
            KafkaCluster::start(KafkaOptions::single("a")),
            KafkaCluster::start(KafkaOptions::single("b")),
            KafkaCluster::start(KafkaOptions::single("c")),
            System::start(SystemOptions::new("both-ways", 2, 3)),
        )?;
        let outcome = run(&mut system, &a, &b, &c).await;
        judge(outcome, &system, &[&a, &b, &c])
    });
}

async fn run(
    system: &mut System,
    a: &KafkaCluster,
    b: &KafkaCluster,
    c: &KafkaCluster,
) -> Result<()> {
    // The same name on both sides.
    let load_a = load(a, &["clicks", "orders", "returns"], 1_000, PADDING).await?;
    let load_b = load(b, &["orders", "views"], 1_000, PADDING).await?;
    let tail_a = Tail::start(&a.client_config())?;
    let tail_b = Tail::start(&b.client_config())?;
    for topic in ["b.orders", "b.views"] {
        tail_a.follow(topic);
    }
    for topic in ["a.clicks", "a.orders", "a.returns"] {
        tail_b.follow(topic);
    }
    let api = system.api()?;
    for cluster in [a, b] {
        api.put_cluster(api::cluster(cluster.name(), cluster.bootstrap()))
            .await?;
    }
    api.put_link(api::link("a-b", "a", "b", "a.")).await?;
    api.put_link(api::link("b-a", "b", "a", "b.")).await?;
    let everything = [
        api::pattern("a-b", ".*", &[]),
        api::pattern("b-a", ".*", &[]),
    ];
    api.subscribe(everything.to_vec()).await?;
    let expected = [
        topics(&["b.orders", "b.views", "clicks", "orders", "returns"]),
        topics(&["a.clicks", "a.orders", "a.returns", "orders", "views"]),
    ];
    wait::until_true("the mirrored topics", DEADLINE, async || {
        Ok([a.topics().await?, b.topics().await?] == expected)
    })
    .await?;
    let time = settings::length(Duration::from_secs(20), Duration::from_secs(300));
    wait::holds_for("the number of topics", time, async || {
        Ok([a.topics().await?, b.topics().await?] == expected)
    })
    .await?;
    system.wait_running(5 * 8, DEADLINE).await?;

    // One more cluster; what runs does not notice.
    let lanes = rig::lanes("a.orders", 0..PARTITIONS);
    let added = Instant::now();
    api.put_cluster(api::cluster("c", c.bootstrap())).await?;
    api.put_link(api::link("b-c", "b", "c", "")).await?;
    let tail_c = Tail::start(&c.client_config())?;
    tail_c.follow("views");
    api.subscribe(vec![api::topic("b-c", "views")]).await?;
    for lane in rig::lanes("views", 0..PARTITIONS) {
        tail_c
            .first_arrival(&lane, added, Duration::from_secs(10))
            .await?;
    }
    let mut links: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for task in api.tasks("").await? {
        links.entry(task.worker).or_default().insert(task.link);
    }
    // Two sources, and two targets of one of them.
    let has_all = links.values().any(|links| links.len() == 3);
    ensure!(has_all, "no worker runs tasks of all links: {links:?}");
    sleep(Duration::from_secs(2)).await;
    let pauses = tail_b.pauses(&lanes, &(added..Instant::now()));
    ensure!(pauses.values().all(|pause| *pause <= NOISE), "{pauses:?}");

    let (from_a, from_b) = futures::try_join!(load_a.finish(DEADLINE), load_b.finish(DEADLINE))?;
    exact(&tail_b, &renamed(&from_a, "a.")).await?;
    exact(&tail_a, &renamed(&from_b, "b.")).await?;
    let mut views = from_b;
    views.retain(|(topic, _), _| topic == "views");
    exact(&tail_c, &views).await?;
    let last = [a.topics().await?, b.topics().await?];
    ensure!(last == expected, "{last:?}");
    system.check()
}

fn topics(names: &[&str]) -> BTreeMap<String, i32> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), PARTITIONS))
        .collect()
}

fn renamed(counts: &Counts, prefix: &str) -> Counts {
    let counts = counts.iter();
    counts
        .map(|((topic, partition), count)| ((format!("{prefix}{topic}"), *partition), *count))
        .collect()
}

async fn exact(tail: &Tail, produced: &Counts) -> Result<()> {
    let report = tail.complete(produced, DEADLINE).await?;
    ensure!(report.is_exact(), "{report}");
    Ok(())
}
