//! `kreplicator`: the one binary. Parses, loads the configuration and hands over.
//!
//! - [`args`]: the command line.
//! - [`config`], [`yaml`]: settings, with all faults told at once.
//! - [`links`]: the file that `apply` reads.
//! - [`client`], [`commands`], [`render`]: the operator's side.
//! - [`verify`]: compares both sides of a link.
//! - [`services`]: controller, worker, standalone.
//! - [`demo`]: what `make demo` runs.
//! - [`exit`], [`logging`], [`signals`]: the process itself.

mod args;
mod client;
mod commands;
mod config;
mod demo;
mod exit;
mod links;
mod logging;
mod render;
mod services;
mod signals;
mod verify;
mod yaml;

use std::{io, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};

use crate::{
    args::{Cli, Command, WorkerCommand},
    client::Client,
    exit::{Exit, Failure},
};

/// Longest wait for threads that still work when everything is done.
const RUNTIME_END_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            match error.downcast_ref::<Failure>() {
                // Each fault has a line of its own that begins with its place.
                Some(Failure::Faults(faults)) => eprintln!("{faults}"),
                _ => eprintln!("error: {error:#}"),
            }
            exit::of(&error).into()
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    // Two libraries bring rustls; without a choice made here it would panic at the first connection.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was installed already"))?;
    if let Command::Completions { shell } = cli.command {
        clap_complete::generate(shell, &mut Cli::command(), "kreplicator", &mut io::stdout());
        return Ok(Exit::Ok);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let done = runtime.block_on(Box::pin(dispatch(cli)));
    // Everything was stopped and saved in there; a thread that hangs in a call of the Kafka library or
    // reads a terminal must not keep the process.
    runtime.shutdown_timeout(RUNTIME_END_TIMEOUT);
    done
}

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let client = || Client::new(&cli.api.endpoint, cli.api.timeout);
    match &cli.command {
        Command::Controller(args) => services::controller(args).await,
        Command::Worker(args) => match &args.command {
            None => services::worker(&args.service).await,
            Some(WorkerCommand::Drain(args)) => commands::drain(&client(), args).await,
        },
        Command::Standalone(args) => services::standalone(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Apply(args) => commands::apply(&client(), args).await,
        Command::Get(args) => commands::get(&client(), args).await,
        Command::Status(args) => commands::status(&client(), *args).await,
        Command::Subscribe(args) => commands::subscribe(&client(), args).await,
        Command::Unsubscribe(args) => commands::unsubscribe(&client(), args).await,
        Command::Pause(args) => commands::pause(&client(), args).await,
        Command::Resume(args) => commands::resume(&client(), args).await,
        Command::Delete(args) => commands::delete(&client(), args).await,
        Command::Watch(args) => commands::watch(&client(), args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Completions { .. } => Ok(Exit::Ok),
    }
}
