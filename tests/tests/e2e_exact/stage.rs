//! What the scenarios share: a system that suspects as early as it does by default, chance that can be
//! repeated, and a leader that has suspected nobody yet.

use std::{io::Write as _, time::Duration};

use anyhow::Result;
use kreplicator_tests::{
    rig::{self, CATCH_UP, Rig},
    settings,
    system::{LEASE, SystemOptions},
    wait,
};
use tokio::time::sleep;

pub(crate) use kreplicator_tests::settings::chance;

pub(crate) const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

/// What a leader needs, at the least, until it suspects anybody: it listens to all for `suspect_after`, which
/// is 1 s, and begins when their reports come in.
const LISTENING: Duration = Duration::from_secs(2);

/// Runs a scenario on two workers; none with an engine that may repeat.
pub(crate) fn scenario(run: impl AsyncFnOnce(&mut Rig) -> Result<()>) {
    if !settings::is_exactly_once() {
        drop(writeln!(
            std::io::stderr(),
            "skipped: the records engine may repeat"
        ));
        return;
    }
    let mut options = SystemOptions::new("exact", 2, WORKERS.len());
    let is_default = |name: &str| name == "suspect_after";
    options
        .controller_settings
        .retain(|(name, _)| !is_default(name));
    rig::scenario_on(options, run);
}

/// Lets the other controller lead. One worker is suspected falsely within a minute and no more, but a leader
/// knows only of those that it has suspected itself.
pub(crate) async fn change_leader(rig: &mut Rig) -> Result<()> {
    let leader = rig.system.leader().await?;
    let controller = &mut rig.system.controllers()[leader];
    controller.terminate().await?;
    controller.start()?;
    wait::until_true("another leader", LEASE * 2, async || {
        Ok(rig.system.leader().await? != leader)
    })
    .await?;
    rig.system.start_missing().await?;
    let tasks = i32::try_from(Rig::base_lanes().len())?;
    rig.system.wait_running(tasks, CATCH_UP).await?;
    sleep(LISTENING).await;
    Ok(())
}

/// Series of the leader's metrics with this beginning, added up; 0 without any.
pub(crate) async fn leaders_metric(rig: &mut Rig, series: &str) -> Result<f64> {
    let leader = rig.system.leader().await?;
    let metrics = rig.system.controllers()[leader].metrics().await?;
    let found = metrics.iter().filter(|(name, _)| name.starts_with(series));
    Ok(found.map(|(_, value)| value).sum())
}
