//! The same data copied between two real brokers by MirrorMaker 2 and by KReplicator's engines, in one
//! run on one machine: processor time, memory, speed, latency.
//!
//! Everything shares the machine with the two brokers, so speeds are lower than of each alone, and
//! equal where the brokers are the bound. Processor time and memory are the contestant's own.
//!
//! - [`options`]: what to measure.
//! - [`stage`]: the two clusters. [`record`], [`fill`]: their data.
//! - [`peer`]: what contestants have in common; [`mm2`] and [`ours`] are they.
//! - [`contest`]: a load copied by each. [`copy`], [`ends`], [`content`], [`procfs`], [`machine`]: how
//!   a copy is measured and checked. [`pulse`], [`latency`]: how long records take.
//! - [`failover`], [`quiet`], [`distance`]: what is measured only on request.
//! - [`figures`], [`report`]: results and ratios. [`bounds`]: those that have to be reached.

mod bounds;
mod content;
mod contest;
mod copy;
mod distance;
mod ends;
mod failover;
mod figures;
mod fill;
mod latency;
mod machine;
mod mm2;
mod options;
mod ours;
mod peer;
mod procfs;
mod pulse;
mod quiet;
mod record;
mod report;
mod stage;

use anyhow::{Result, ensure};
use kreplicator_tests::skip::Tier;
use serde_json::json;

pub(crate) use self::options::Options;
use self::{
    machine::Machine,
    mm2::MirrorMaker,
    options::PeerName,
    ours::Kreplicator,
    peer::Peer,
    report::{line, say},
    stage::Stage,
};

/// Measures what the options ask for.
///
/// # Errors
/// When something is missing on this machine, or a contestant does not copy.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(missing) = Tier::Component.missing() {
        anyhow::bail!("the bench cannot run: {missing}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(measure(options));
    // Threads that still wait for a broker would be waited for.
    runtime.shutdown_background();
    done
}

async fn measure(options: &Options) -> Result<()> {
    let machine = Machine::look()?;
    say(&format!(
        "{} cores and {} MiB of memory, shared by two brokers, the contestant and this program",
        machine.cores,
        machine.memory_bytes >> 20
    ));
    let peers = peers(options).await?;
    ensure!(
        !peers.is_empty(),
        "none of the peers asked for is available; see --peers"
    );
    line(&json!({
        "bench": "mirror_machine",
        "cores": machine.cores,
        "memory_bytes": machine.memory_bytes,
        "kafka": kreplicator_tests::kafka::VERSION,
        "batch_bytes": options.batch_bytes,
        "budget_mebibytes": options.budget_mebibytes,
        "mm2_heap_mebibytes": options.mm2_heap_mebibytes,
    }))?;
    let stage = Stage::start().await?;
    let mut of_loads = Vec::new();
    if options.records > 0 {
        for load in &options.loads {
            let of_load = contest::run(&stage, &peers, options, *load).await?;
            report::load(&of_load, &machine)?;
            of_loads.push(of_load);
        }
    }
    if options.failover {
        failover::run(&stage, &peers).await?;
    }
    if let Some(partitions) = options.quiet {
        quiet::run(&stage, &peers, options, partitions).await?;
    }
    if let Some(round_trip) = options.rtt {
        distance::run(stage, &peers, options, round_trip).await?;
    }
    let unmet = bounds::unmet(&options.at_least, &of_loads);
    ensure!(unmet.is_empty(), "not reached: {}", unmet.join("; "));
    Ok(())
}

/// The contestants asked for that there are.
async fn peers(options: &Options) -> Result<Vec<Box<dyn Peer>>> {
    let mut names = options.peers.clone();
    names.sort_unstable();
    names.dedup();
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    for name in names {
        match name {
            PeerName::Mm2 => {
                let mm2 = MirrorMaker::fetch(options.mm2_heap_mebibytes).await?;
                peers.push(Box::new(mm2));
            }
            PeerName::Records | PeerName::Batches => {
                let ours = Kreplicator::with_engine(name, options.budget_mebibytes).await?;
                match ours {
                    Some(ours) => peers.push(Box::new(ours)),
                    None => say(&format!(
                        "{}: not available in this binary, left out",
                        name.name()
                    )),
                }
            }
        }
    }
    Ok(peers)
}
