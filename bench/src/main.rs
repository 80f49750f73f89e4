//! Loads and comparisons, each a subcommand that prints one JSON line a step.
//!
//! - [`plan`]: the planner alone, at the scale that it is made for.

mod plan;

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
}

fn main() {
    match Args::parse().bench {
        Bench::Plan(options) => plan::run(&options),
    }
}
