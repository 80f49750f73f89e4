//! Loads and comparisons, each a subcommand that prints one JSON line a step.
//!
//! - [`plan`]: the planner alone, at the scale that it is made for.
//! - [`mirror`]: copying between real brokers, beside MirrorMaker 2.

mod mirror;
mod plan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures KReplicator.
#[derive(Debug, Parser)]
#[command(name = "kreplicator-bench", version)]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The planner: first plan, planning again, a worker lost, workers joined.
    Plan(plan::Options),
    /// Copying between two real brokers, beside MirrorMaker 2.
    Mirror(Box<mirror::Options>),
}

fn main() -> ExitCode {
    let done = match Args::parse().bench {
        Bench::Plan(options) => {
            plan::run(&options);
            Ok(())
        }
        Bench::Mirror(options) => mirror::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
