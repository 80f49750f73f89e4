//! The command line.

mod services;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use kreplicator_model::ids::{LinkId, TopicName, WorkerId};

pub(crate) use self::services::{Demo, Drain, Service, Standalone, WorkerArgs, WorkerCommand};
use crate::{client::Target, exit, links::start_of, verify::args::Verify};

/// Copies topics between Kafka clusters and never stops the flow.
#[derive(Debug, Parser)]
#[command(name = "kreplicator", version, after_help = exit::HELP, max_term_width = 100)]
#[command(arg_required_else_help = true, propagate_version = false)]
pub(crate) struct Cli {
    /// How to reach a controller.
    #[command(flatten)]
    pub(crate) api: Api,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How to reach a controller.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reaching a controller")]
pub(crate) struct Api {
    /// Controller to talk to; repeat it to name others to try
    #[arg(
        short,
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "KREPLICATOR_ENDPOINT"
    )]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7070")]
    pub(crate) endpoint: Vec<Target>,
    /// Longest time a call may take, tries included
    #[arg(long, global = true, default_value = "15s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a controller
    Controller(Service),
    /// Run a worker
    Worker(WorkerArgs),
    /// Run a controller and a worker in one process, on an embedded store
    Standalone(Standalone),
    /// Show what it does: two embedded Kafka clusters, and records that keep arriving
    Demo(Demo),
    /// Bring clusters, links and subscriptions to what a file declares
    Apply(Apply),
    /// List what there is
    Get(Get),
    /// Show how everything is
    Status(Output),
    /// Ask for topics on a link
    Subscribe(Subscribe),
    /// Stop copying topics; what was copied stays
    Unsubscribe(Selection),
    /// Pause subscriptions
    Pause(Selection),
    /// Resume paused subscriptions
    Resume(Selection),
    /// Delete clusters or links; what was copied stays
    Delete(Delete),
    /// Follow subscriptions, a line for each change, until Ctrl-C
    Watch(Watch),
    /// Compare the source and the target of a link record by record
    Verify(Verify),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `apply`
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// File with clusters and links (YAML); - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only print the difference; the exit code tells whether there is one
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete what the file does not declare
    #[arg(long)]
    pub(crate) prune: bool,
    /// Accept topics that do not exist on the source yet; they start when they appear
    #[arg(long)]
    pub(crate) allow_missing: bool,
}

/// `get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What to list
    #[arg(value_enum)]
    pub(crate) what: What,
    /// How to show it.
    #[command(flatten)]
    pub(crate) output: Output,
    /// Only of this link (subscriptions, tasks)
    #[arg(long)]
    pub(crate) link: Option<LinkId>,
    /// Only of this topic (tasks)
    #[arg(long)]
    pub(crate) topic: Option<TopicName>,
    /// Only on this worker (tasks)
    #[arg(long)]
    pub(crate) worker: Option<WorkerId>,
    /// Only in this state (tasks)
    #[arg(long, value_enum)]
    pub(crate) state: Option<State>,
}

/// Lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Kafka clusters
    #[value(alias = "cluster")]
    Clusters,
    /// Links: one source to one target
    #[value(alias = "link")]
    Links,
    /// Topics asked for
    #[value(alias = "subscription")]
    Subscriptions,
    /// Topic-partitions being copied
    #[value(alias = "task")]
    Tasks,
    /// Worker processes
    #[value(alias = "worker")]
    Workers,
}

/// States of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// On no worker
    Unassigned,
    /// Finding its checkpoint
    Starting,
    /// Copying
    Running,
    /// Finishing
    Stopping,
    /// Stopped by a fault
    Faulted,
    /// Paused
    Paused,
}

/// How to show results.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// `subscribe`
#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// Which topics.
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Topics that match are left out (with --pattern); repeatable
    #[arg(long, value_name = "PATTERN", requires = "pattern")]
    pub(crate) exclude: Vec<String>,
    /// Where to begin: earliest, latest or a time such as 2026-01-01T00:00:00Z; default: as the link says
    #[arg(long, value_name = "START", value_parser = start_of)]
    pub(crate) start: Option<kreplicator_proto::v1::StartPolicy>,
    /// Subscribe, but copy nothing until resumed
    #[arg(long)]
    pub(crate) paused: bool,
    /// Accept topics that do not exist on the source yet; they start when they appear
    #[arg(long)]
    pub(crate) allow_missing: bool,
}

/// Subscriptions of a link.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The link
    #[arg(short, long)]
    pub(crate) link: LinkId,
    /// Topics by name
    #[arg(value_name = "TOPIC", required_unless_present = "pattern")]
    pub(crate) topics: Vec<TopicName>,
    /// Topics by regular expression (RE2, anchored); repeatable
    #[arg(short, long)]
    pub(crate) pattern: Vec<String>,
}

/// `delete`
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// What to delete
    #[arg(value_enum)]
    pub(crate) what: Deletable,
    /// Their names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

/// What can be deleted by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deletable {
    /// Clusters that no link uses
    #[value(alias = "clusters")]
    Cluster,
    /// Links with their subscriptions
    #[value(alias = "links")]
    Link,
}

/// `watch`
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only this link
    #[arg(short, long)]
    pub(crate) link: Option<LinkId>,
}

pub(crate) fn duration(given: &str) -> Result<Duration, String> {
    let fault = |_| format!("{given:?} is not a duration; write for example 30s or 5m");
    humantime::parse_duration(given).map_err(fault)
}

pub(crate) fn setting(given: &str) -> Result<(String, String), String> {
    let (key, value) = given
        .split_once('=')
        .ok_or_else(|| format!("{given:?} has no =; write key=value"))?;
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(format!(
            "{key:?} is no setting; write for example log.format"
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn worker_is_a_service_and_a_group_of_commands() {
        let service = parse("kreplicator worker -c w.yaml --set worker.id=w1").expect("fine");
        let Command::Worker(args) = service.command else {
            panic!("{service:?}");
        };
        assert_eq!(
            args.service.set,
            [("worker.id".to_owned(), "w1".to_owned())]
        );
        let drain = parse("kreplicator worker drain w1 --wait").expect("fine");
        let Command::Worker(args) = drain.command else {
            panic!("{drain:?}");
        };
        assert!(matches!(args.command, Some(WorkerCommand::Drain(drain)) if drain.wait));
    }

    #[test]
    fn endpoints_can_be_repeated_after_the_command() {
        let cli = parse("kreplicator status -e a:1 -e b:2").expect("fine");
        let names: Vec<String> = cli.api.endpoint.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a:1", "b:2"]);
    }

    #[test]
    fn wrong_use_is_refused_with_the_remedy() {
        for (line, remedy) in [
            ("kreplicator subscribe -l a-b", "required"),
            (
                "kreplicator subscribe -l a-b x --start soon",
                "write earliest",
            ),
            (
                "kreplicator subscribe -l a-b x.*",
                "a pattern goes in `pattern`",
            ),
            ("kreplicator get stuff", "possible values"),
            ("kreplicator demo --for soon", "for example 30s"),
            ("kreplicator status -e nowhere", "write host:port"),
            (
                "kreplicator worker drain w1 --undrain --wait",
                "cannot be used with",
            ),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(remedy), "{line}: {error}");
        }
    }
}
