//! Several clusters and links at once: an unreachable target, an unreachable source, and links in both
//! directions.

mod g_target_away;
mod h_source_away;
mod i_both_ways;

use std::time::Duration;

use anyhow::Result;
use kreplicator_tests::{
    kafka::KafkaCluster,
    load::{Load, LoadOptions},
    skip::{Tier, skip},
    system::System,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a scenario in the tier of end-to-end tests, on a runtime of its own.
fn scenario(run: impl Future<Output = Result<()>>) {
    if skip(Tier::EndToEnd) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    if let Err(fault) = runtime.block_on(run) {
        panic!("{fault:#}");
    }
}

/// Shows and keeps the logs of a scenario that failed.
fn judge(outcome: Result<()>, system: &System, clusters: &[&KafkaCluster]) -> Result<()> {
    if outcome.is_err() {
        clusters.iter().for_each(|cluster| cluster.failed());
        system.failed();
    }
    outcome
}

/// Records of an ordinary size.
const PADDING: usize = 100;

/// Of each topic: five of them have forty.
const PARTITIONS: i32 = 8;

/// Creates topics of [`PARTITIONS`] partitions and writes to them.
async fn load(
    cluster: &KafkaCluster,
    topics: &[&str],
    records_per_second: u32,
    padding: usize,
) -> Result<Load> {
    let names: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    cluster.create_topics(&names, PARTITIONS, &[]).await?;
    let options = LoadOptions {
        records_per_second,
        padding,
    };
    let load = Load::start(&cluster.client_config(), options)?;
    for topic in topics {
        load.add(topic, PARTITIONS);
    }
    Ok(load)
}
