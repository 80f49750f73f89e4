//! What others see of the lag.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use kreplicator_tests::{
    api,
    rig::{self, LINK},
    wait,
};

const DEADLINE: Duration = Duration::from_secs(20);
const TOPIC: &str = "views";

#[test]
fn k_kafkas_own_tool_shows_the_lag_of_a_paused_topic_and_none_once_it_has_caught_up() {
    rig::scenario(async |rig| {
        let group = format!("kreplicator.{LINK}");
        rig.api
            .pause(vec![api::reference(LINK, TOPIC)], true)
            .await?;
        rig::wait_stopped(&rig.tail, TOPIC).await?;
        rig.observe(Duration::from_secs(2)).await;
        // From here on nothing is written to it, so that all numbers hold still.
        rig.load.remove(TOPIC);
        rig.load.settle(DEADLINE).await?;
        let produced = rig.counts_of(TOPIC);
        let seen = rig.tail.seen();
        // The tool fails for the whole group while a broker is still deleting topics of another scenario.
        let lines = wait::until("a description of the group", DEADLINE, async || {
            Ok(Some(rig.source.describe_group(&group).await?))
        })
        .await?;
        let lines: BTreeMap<i32, _> = lines
            .into_iter()
            .filter(|line| line.topic == TOPIC)
            .map(|line| (line.partition, line))
            .collect();
        let mut sum = 0;
        for (lane, count) in &produced {
            let line = lines
                .get(&lane.1)
                .with_context(|| format!("no line for {lane:?}"))?;
            let behind = i64::try_from(count - seen[lane])?;
            sum += behind;
            ensure!(
                line.end == Some(i64::try_from(*count)?) && line.lag == Some(behind),
                "{behind} records of {lane:?} are not at the target, but the tool says {line:?}"
            );
        }
        ensure!(sum > 0, "nothing was written while paused");

        rig.api
            .pause(vec![api::reference(LINK, TOPIC)], false)
            .await?;
        wait::until_true("a lag of 0", DEADLINE, async || {
            let lines = rig.source.describe_group(&group).await?;
            let lines = lines.iter().filter(|line| line.topic == TOPIC);
            let lags: Vec<_> = lines.map(|line| line.lag).collect();
            Ok(lags == vec![Some(0); lags.len().max(1)])
        })
        .await?;
        // Our own word agrees.
        wait::until_true("the same in the status", DEADLINE, async || {
            let status = rig.api.subscription(LINK, TOPIC).await?.status;
            Ok(status.unwrap_or_default().lag_records == Some(0))
        })
        .await?;
        rig.load.add(TOPIC, rig::PARTITIONS);
        Ok(())
    });
}
