//! `verify`: compares the source and the target of a link record by record, without any service of ours.
//!
//! - [`args`]: the command line.
//! - [`plan`]: which clusters and topics that means.
//! - [`progress`]: the bar.

pub(crate) mod args;
mod plan;
mod progress;

use std::sync::Arc;

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::ids::{Offset, Partition};
use kreplicator_verify::{
    report::Verdict,
    run::{Options, Progress, Session},
};
use rand::Rng as _;
use tokio_util::sync::CancellationToken;

use self::{args::Verify, plan::Plan};
use crate::{
    args::Format,
    commands::print,
    exit::{Exit, Failure},
    render::{self, verification::Verification},
    signals::interrupted,
};

/// Runs the command.
pub(crate) async fn run(args: &Verify) -> anyhow::Result<Exit> {
    let plan = Plan::of(args, &ProcessSecrets)?;
    let names = (plan.source.id().to_string(), plan.target.id().to_string());
    let options = Options {
        from: args.from_offset.map(Offset),
        to: args.to_offset.map(Offset),
        partition: args.partition.map(Partition),
        ignored: args.ignored(),
        tolerate_duplicates: args.tolerate_duplicates,
        wait: args.wait,
        stall_timeout: args.stall_timeout,
        partitions_at_once: usize::from(args.partitions_at_once),
        findings: usize::from(args.findings),
        seed: rand::rng().random(),
    };
    let opened = Session::open(plan.source, plan.target, args.stall_timeout);
    let session = opened
        .await
        .map_err(|fault| Failure::NotCompared(fault.to_string()))?;
    let topics = plan.topics.of(session.source_topics())?;

    let progress = Arc::new(Progress::default());
    let stop = CancellationToken::new();
    let bar = progress::Bar::new(&progress)?;
    let running = session.run(&topics, &options, &progress, &stop);
    tokio::pin!(running);
    let report = tokio::select! {
        report = &mut running => report,
        () = bar.run() => unreachable!("a bar has no end"),
        () = interrupted() => {
            // What is done is told.
            stop.cancel();
            running.await
        }
    };
    drop(bar);
    let exit = match report.verdict() {
        Verdict::Equal => Exit::Ok,
        Verdict::Different => Exit::Different,
        Verdict::NotCompared => Exit::NotCompared,
    };
    let shown = Verification::new(&report, names, &options);
    let text = match args.output.output {
        Format::Table | Format::Wide => shown.text(options.findings),
        Format::Json | Format::Yaml => render::data(&shown, args.output.output)?,
    };
    print(&text)?;
    Ok(exit)
}
