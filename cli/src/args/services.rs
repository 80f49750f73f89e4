//! Arguments of the services, and of commands that begin with the name of one.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use kreplicator_model::ids::WorkerId;

use super::{duration, setting};

/// Settings of a service. Later ones win: defaults, file, environment, flags.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Service {
    /// Configuration file (YAML)
    #[arg(short, long, value_name = "FILE", env = "KREPLICATOR_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Override one setting, for example --set worker.lease_ttl=3s; repeatable. Environment
    /// variables do the same: KREPLICATOR__WORKER__LEASE_TTL=3s
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Print the configuration in force, secrets left out, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// `worker`: the service, or an operator's command about workers.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkerArgs {
    /// Settings of the service.
    #[command(flatten)]
    pub(crate) service: Service,
    /// Commands about running workers.
    #[command(subcommand)]
    pub(crate) command: Option<WorkerCommand>,
}

/// Commands about running workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Move every task away from a worker and keep it empty
    Drain(Drain),
}

/// `worker drain`
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The worker
    pub(crate) worker: WorkerId,
    /// Let the worker have tasks again
    #[arg(long)]
    pub(crate) undrain: bool,
    /// Wait until it is empty
    #[arg(long, conflicts_with = "undrain")]
    pub(crate) wait: bool,
    /// Longest time to wait
    #[arg(long, requires = "wait", default_value = "5m", value_parser = duration)]
    pub(crate) wait_timeout: Duration,
    /// Why, for others to see
    #[arg(long, default_value = "")]
    pub(crate) reason: String,
}

/// `standalone`
#[derive(Debug, Args)]
pub(crate) struct Standalone {
    /// Settings of the services.
    #[command(flatten)]
    pub(crate) service: Service,
    /// Folder of the embedded store; the same as --set store.embedded.path=DIR/store.redb
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Declarations to apply at the start, see `apply`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Accept topics in FILE that do not exist yet
    #[arg(long, requires = "file")]
    pub(crate) allow_missing: bool,
}

/// `demo`
#[derive(Debug, Clone, Args)]
pub(crate) struct Demo {
    /// How long to run; default: until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) run_for: Option<Duration>,
    /// Records written a second, over all topics
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) rate: u32,
    /// Topics at the start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) topics: u32,
    /// Partitions a topic
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) partitions: u32,
    /// Write logs to standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
