//! Who owns what, by all who can tell: the API, the lists of the workers themselves, and the alarm for tasks
//! that are listed twice.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::{assignment::Ownership, stored::Stored, v1};
use kreplicator_store::keys;
use kreplicator_tests::{
    checker::Lane,
    rig::{CATCH_UP, LINK, Rig},
    wait,
};

use crate::stage::leaders_metric;

/// Where the store's keys begin in etcd.
pub(crate) const ROOT: &str = "/kreplicator/";
const DOUBLE_CLAIMS: &str = "kreplicator_controller_double_claimed_tasks";

/// Waits until every task has one owner and no more.
///
/// # Errors
/// When it does not come to that; tells who says what.
pub(crate) async fn wait_for_one_each(rig: &mut Rig) -> Result<()> {
    wait::until_true("one owner of each task", CATCH_UP, async || {
        let told = told_by_api(rig).await?;
        let owned = told_by_workers(rig).await?;
        for (lane, workers) in &owned {
            ensure!(
                workers.len() == 1 && told.get(lane) == workers.first(),
                "{lane:?} is owned by {workers:?}, the API says {:?}",
                told.get(lane)
            );
        }
        ensure!(
            owned.len() == told.len(),
            "{} tasks are owned, of {}",
            owned.len(),
            told.len()
        );
        let doubles = leaders_metric(rig, DOUBLE_CLAIMS).await?;
        ensure!(doubles == 0.0, "{DOUBLE_CLAIMS} is {doubles}");
        Ok(true)
    })
    .await
}

/// The owner of each task in the API's list, where each is listed once and runs.
async fn told_by_api(rig: &Rig) -> Result<BTreeMap<Lane, String>> {
    let mut told = BTreeMap::new();
    for task in rig.api.tasks(LINK).await? {
        let lane = (task.topic.clone(), task.partition);
        ensure!(
            task.state() == v1::TaskState::Running,
            "{lane:?}: {:?}",
            task.state()
        );
        let listed = told.insert(lane.clone(), task.worker);
        ensure!(listed.is_none(), "{lane:?} is listed twice");
    }
    let all: BTreeSet<Lane> = Rig::base_lanes().into_iter().collect();
    ensure!(told.keys().eq(&all), "the API lists {:?}", told.keys());
    Ok(told)
}

/// The owners of each task by the workers' own lists in the store.
async fn told_by_workers(rig: &mut Rig) -> Result<BTreeMap<Lane, Vec<String>>> {
    let mut owners: BTreeMap<Lane, Vec<String>> = BTreeMap::new();
    for (key, value) in rig.system.etcd().entries(ROOT, keys::OWNED).await? {
        let (worker, _) = keys::split_chunk(&key, keys::OWNED).context("a strange key")?;
        let chunk = Ownership::decode(&key, &value)?;
        for task in chunk.tasks.into_keys() {
            let lane = (task.topic.to_string(), task.partition.0);
            owners.entry(lane).or_default().push(worker.to_owned());
        }
    }
    Ok(owners)
}
