//! The same data copied between two real brokers by MirrorMaker 2 and by KReplicator's engines, in one
//! run on one machine: processor time, memory, speed, latency.
//!
//! Everything shares the machine with the two brokers, so speeds are lower than of each alone, and
//! equal where the brokers are the bound. Processor time and memory are the contestant's own.
//!
//! - [`options`]: what to measure.
//! - [`stage`]: the two clusters. [`record`], [`fill`]: their data.
//! - [`peer`]: what contestants have in common; [`mm2`] and [`ours`] are they.
//! - [`contest`]: a load copied by each. [`copy`], [`ends`], [`procfs`], [`machine`]: how
//!   a copy is measured and checked. [`pulse`], [`latency`]: how long records take.
//! - [`failover`], [`quiet`], [`distance`]: what is measured only on request.
//! - [`figures`], [`report`]: results and ratios. [`findings`], [`bounds`]: those that have to be reached.

mod bounds;
mod contest;
mod copy;
mod distance;
mod ends;
mod failover;
mod figures;
mod fill;
mod findings;
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
    bounds::Bound,
    findings::Trial,
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
    let bounds = [&options.at_least[..], &options.at_most[..]].concat();
    let unplanned = bounds::unplanned(&bounds, options);
    ensure!(unplanned.is_empty(), "{}", unplanned.join("; "));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(measure(options, &bounds));
    // Threads that still wait for a broker would be waited for.
    runtime.shutdown_background();
    done
}

async fn measure(options: &Options, bounds: &[Bound]) -> Result<()> {
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
    let mut found = Vec::new();
    if options.records > 0 {
        for load in &options.loads {
            let peers = among(&peers, &options.peers);
            let of_load = contest::run(&stage, &peers, options, *load).await?;
            report::load(&of_load, &machine)?;
            found.extend(findings::of_load(&of_load));
        }
    }
    let peers = among(&peers, options.peers_of(Trial::Quiet));
    if options.failover {
        found.extend(failover::run(&stage, &peers).await?);
    }
    if let Some(partitions) = options.quiet {
        found.extend(quiet::run(&stage, &peers, options, partitions).await?);
    }
    if let Some(round_trip) = options.rtt {
        found.extend(distance::run(stage, &peers, options, round_trip).await?);
    }
    let unmet = bounds::unmet(bounds, &found);
    ensure!(unmet.is_empty(), "not reached: {}", unmet.join("; "));
    if !bounds.is_empty() {
        say(&format!("all {} bounds are kept", bounds.len()));
    }
    Ok(())
}

/// Those of certain names.
fn among<'a>(peers: &'a [Box<dyn Peer>], names: &[PeerName]) -> Vec<&'a dyn Peer> {
    let all = peers.iter().map(AsRef::as_ref);
    all.filter(|peer| names.contains(&peer.name())).collect()
}

/// The contestants asked for that there are.
async fn peers(options: &Options) -> Result<Vec<Box<dyn Peer>>> {
    let mut names = [&options.peers[..], &options.also_peers].concat();
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
