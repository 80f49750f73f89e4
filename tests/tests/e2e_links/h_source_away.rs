//! A source cluster that swallows every packet when the system starts.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api,
    kafka::{KafkaCluster, KafkaOptions},
    proxy::Proxy,
    rig, settings,
    system::{System, SystemOptions},
    tail::Tail,
    wait,
};
use tokio::time::Instant;

use crate::{DEADLINE, PADDING, PARTITIONS, judge, load, scenario};

const HEALTHY: [&str; 3] = ["clicks", "orders", "returns"];
const LOST: [&str; 2] = ["orders", "views"];
/// From the start of the system until everything else runs.
const OTHERS_RUN: Duration = Duration::from_secs(20);

#[test]
fn h_c050_a_black_holed_source_holds_up_nobody_and_works_by_its_new_address() {
    scenario(async {
        let (healthy, lost, target, mut system) = futures::try_join!(
            KafkaCluster::start(KafkaOptions::single("healthy")),
            KafkaCluster::start(KafkaOptions::single("lost")),
            KafkaCluster::start(KafkaOptions::single("target")),
            System::start(SystemOptions::new("source-away", 2, 3)),
        )?;
        let outcome = run(&mut system, &healthy, &lost, &target).await;
        judge(outcome, &system, &[&healthy, &lost, &target])
    });
}

async fn run(
    system: &mut System,
    healthy: &KafkaCluster,
    lost: &KafkaCluster,
    target: &KafkaCluster,
) -> Result<()> {
    let hole = Proxy::start("127.0.0.1:1").await?;
    hole.black_hole();
    let healthy_load = load(healthy, &HEALTHY, 1_000, PADDING).await?;
    let lost_load = load(lost, &LOST, 1_000, PADDING).await?;
    let tail = Tail::start(&target.client_config())?;
    for topic in HEALTHY {
        tail.follow(topic);
    }
    for topic in LOST {
        tail.follow(&format!("lost.{topic}"));
    }

    let api = system.api()?;
    for cluster in [healthy, target] {
        api.put_cluster(api::cluster(cluster.name(), cluster.bootstrap()))
            .await?;
    }
    api.put_cluster(api::cluster("lost", vec![hole.address().to_string()]))
        .await?;
    api.put_link(api::link("healthy-target", "healthy", "target", ""))
        .await?;
    api.put_link(api::link("lost-target", "lost", "target", "lost."))
        .await?;
    let healthy_topics = HEALTHY.map(|topic| api::topic("healthy-target", topic));
    let lost_topics = LOST.map(|topic| api::topic("lost-target", topic));
    let all = v1::SubscribeRequest {
        subscriptions: [&healthy_topics[..], &lost_topics].concat(),
        request_id: api::request_id(),
        // One of the sources cannot be asked.
        allow_missing: true,
    };
    api.subscribe_with(&all).await?;

    for controller in system.controllers() {
        controller.kill().await?;
    }
    for worker in system.workers().values_mut() {
        worker.kill().await?;
    }
    let started = Instant::now();
    for controller in system.controllers() {
        controller.start()?;
    }
    for worker in system.workers().values_mut() {
        worker.start()?;
    }
    for lane in HEALTHY
        .iter()
        .flat_map(|topic| rig::lanes(topic, 0..PARTITIONS))
    {
        tail.first_arrival(&lane, started, OTHERS_RUN).await?;
    }
    system.start_missing().await?;
    let leader = system.leader().await?;
    let cause = wait::until("the fault in the status", DEADLINE, async || {
        let status = api.cluster("lost").await?.status.unwrap_or_default();
        Ok((!status.reachable && !status.cause.is_empty()).then_some(status.cause))
    })
    .await?;
    println!("the status says: {cause}");
    let watched = settings::length(Duration::from_secs(10), Duration::from_secs(120));
    wait::holds_for("the same leader", watched, async || {
        Ok(system.leader().await? == leader)
    })
    .await?;

    // A good address, by the API alone.
    let moved = Instant::now();
    let servers = lost.direct().split(',').map(String::from).collect();
    api.put_cluster(api::cluster("lost", servers)).await?;
    for topic in LOST {
        for lane in rig::lanes(&format!("lost.{topic}"), 0..PARTITIONS) {
            tail.first_arrival(&lane, moved, OTHERS_RUN).await?;
        }
    }
    println!("flows from its new address after {:?}", moved.elapsed());
    let produced = healthy_load.finish(DEADLINE).await?;
    let report = tail.complete(&produced, DEADLINE).await?;
    ensure!(report.is_as_promised(), "{report}");
    let produced = lost_load.finish(DEADLINE).await?;
    let renamed = produced
        .into_iter()
        .map(|((topic, partition), count)| ((format!("lost.{topic}"), partition), count))
        .collect();
    let report = tail.complete(&renamed, DEADLINE).await?;
    ensure!(report.is_exact(), "{report}");
    system.check().context("after all")
}
