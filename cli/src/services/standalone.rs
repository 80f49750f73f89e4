//! `standalone`: a controller and a worker in one process, on a store that is a file. No etcd.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::Context as _;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Process, load, print_config};
use crate::{
    args,
    client::{Client, Target},
    commands::apply::{self, Options, send},
    config::{Config, Role, Store, store::FILE_NAME},
    exit::Exit,
    links::Declared,
};

/// Longest wait for the answer to the declarations.
const APPLY_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before they are sent again.
const APPLY_PAUSE: Duration = Duration::from_secs(5);

/// Runs until told to stop.
pub(crate) async fn standalone(args: &args::Standalone) -> anyhow::Result<Exit> {
    let path = |dir: &std::path::PathBuf| dir.join(FILE_NAME).display().to_string();
    let data_dir = args.data_dir.as_ref().map(path);
    let first = data_dir.map(|path| ("store.embedded.path".to_owned(), path));
    let config = load(Role::Standalone, &args.service, first.into_iter().collect())?;
    if args.service.print_config {
        return print_config(&config);
    }
    // A file with faults is refused before anything starts.
    let declared = args.file.as_deref().map(apply::read).transpose()?;
    make_folder(&config)?;

    let process = Process::start(&config).await?;
    let mut controller = kreplicator_controller::wiring::Controller::start(
        config.controller,
        process.store.clone(),
        process.secrets.clone(),
        Some(process.prometheus.clone()),
    )
    .await
    .context("the controller could not be started")?;
    let address = controller.grpc_address();
    let mut worker = kreplicator_worker::wiring::Worker::start(
        config.worker,
        process.store.clone(),
        process.secrets.clone(),
        Some(process.prometheus.clone()),
    )
    .await
    .context("the worker could not be started")?;
    info!(%address, "ready; use this address as --endpoint");

    let declare = async {
        if let Some(declared) = &declared {
            declare(address, declared, args.allow_missing).await?;
        }
        process.shutdown.cancelled().await;
        anyhow::Ok(())
    };
    let ended = tokio::select! {
        declared = declare => declared,
        error = controller.failed() => Err(error).context("the controller failed"),
        error = worker.failed() => Err(error).context("the worker failed"),
    };
    // The worker leaves first: the controller takes its tasks away while it still can.
    let worker = worker
        .stop()
        .await
        .context("the worker did not stop cleanly");
    let controller = controller
        .stop()
        .await
        .context("the controller did not stop cleanly");
    // What ended the run says more than what followed from it.
    ended.and(worker).and(controller)?;
    info!("stopped");
    Ok(Exit::Ok)
}

/// Applies the declarations. A refusal is an error; what cannot be reached now is tried again for ever,
/// since what was declared before runs meanwhile.
async fn declare(
    address: SocketAddr,
    declared: &Declared,
    allow_missing: bool,
) -> anyhow::Result<()> {
    let target: Target = address.to_string().parse().map_err(anyhow::Error::msg)?;
    let client = Client::new(&[target], APPLY_TIMEOUT);
    let options = Options {
        allow_missing,
        ..Options::default()
    };
    let answer = loop {
        match send(&client, declared, options).await {
            Ok(answer) => break answer,
            Err(failure) if failure.exit() == Exit::Unreachable => {
                warn!(%failure, "declarations are not in force yet; trying again");
                sleep(APPLY_PAUSE).await;
            }
            Err(failure) => return Err(failure.into()),
        }
    };
    for warning in &answer.warnings {
        warn!(warning, "declared, with a warning");
    }
    info!(changes = answer.changes.len(), "declarations are in force");
    Ok(())
}

/// Makes the folder of the store's file.
fn make_folder(config: &Config) -> anyhow::Result<()> {
    let Store::Embedded(embedded) = &config.store else {
        return Ok(());
    };
    let folder = embedded
        .path()
        .parent()
        .filter(|folder| *folder != Path::new(""));
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("folder {} could not be made", folder.display()))?;
    }
    Ok(())
}
