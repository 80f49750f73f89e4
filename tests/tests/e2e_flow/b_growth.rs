//! Partitions are added on the source.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api,
    rig::{self, LINK, Rig, lanes},
    system::DISCOVERY_INTERVAL,
};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(20);

/// C006 and C066: also a topic read from its end gives its new partitions whole, and the target is
/// grown before they are copied.
#[test]
fn b_c006_c066_new_partitions_arrive_whole_and_others_do_not_notice() {
    rig::scenario(async |rig| {
        let allowed = rig.allowed_pauses().await;
        rig.source.create_topic("shipments", 4, &[]).await?;
        rig.tail.follow("shipments");
        let subscription = v1::Subscription {
            start: Some(v1::StartPolicy {
                at: Some(v1::start_policy::At::Latest(true)),
            }),
            ..api::topic(LINK, "shipments")
        };
        let subscribed = Instant::now();
        rig.api.subscribe(vec![subscription]).await?;
        // Only what is written once the tasks run is certain to be after "latest".
        rig.system
            .wait_running(i32::try_from(Rig::base_lanes().len())? + 4, DEADLINE)
            .await?;
        rig.load.add("shipments", 4);
        for lane in lanes("shipments", 0..4) {
            rig.tail.first_arrival(&lane, subscribed, DEADLINE).await?;
        }

        let grown = Instant::now();
        rig.source.grow_topic("shipments", 8).await?;
        target_grows_first(rig).await?;
        rig.load.add("shipments", 8);
        for lane in lanes("shipments", 4..8) {
            let arrival = rig.tail.first_arrival(&lane, grown, DEADLINE).await?;
            let took = arrival - grown;
            let limit = DISCOVERY_INTERVAL + Duration::from_secs(4);
            ensure!(took <= limit, "{lane:?} flows only after {took:?}");
        }
        // From their very first record on, and the others from theirs.
        let report = rig
            .tail
            .complete(&rig.counts_of("shipments"), DEADLINE)
            .await?;
        ensure!(report.is_exact(), "{report}");
        let window = grown..Instant::now();
        rig.check_pauses(&Rig::base_lanes(), &window, &allowed)?;
        // Their rate falls as eight share it, but none of the four stops.
        rig.check_pauses(&lanes("shipments", 0..4), &window, &allowed)?;

        rig.api
            .unsubscribe(vec![api::reference(LINK, "shipments")])
            .await?;
        rig::wait_gone(&rig.api, LINK, "shipments").await?;
        rig.load.remove("shipments");
        Ok(())
    });
}

/// Waits until there is a task for each new partition. None may be there before its target partition is.
async fn target_grows_first(rig: &Rig) -> Result<()> {
    let start = Instant::now();
    loop {
        let tasks = rig.api.tasks(LINK).await?;
        let own = tasks.iter().filter(|task| task.topic == "shipments");
        let tasks = own.count();
        // Asked afterwards, so it may only be larger.
        let partitions = rig.target.partitions("shipments").await?;
        ensure!(
            usize::try_from(partitions)? >= tasks,
            "{tasks} tasks for {partitions} partitions of the target"
        );
        if tasks == 8 {
            return Ok(());
        }
        ensure!(
            start.elapsed() < DEADLINE,
            "{tasks} tasks after {DEADLINE:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
}
