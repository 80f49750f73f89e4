//! `apply`: brings clusters, links and subscriptions to what a file declares.

use std::{io::Read as _, path::Path};

use anyhow::Context as _;
use kreplicator_proto::v1::{self, desired_client::DesiredClient};

use super::{grpc, print, warn};
use crate::{
    args::Apply,
    client::{Client, request_id},
    exit::{Exit, Failure},
    links::{self, Declared},
    render::changes::changes,
};

/// Runs the command.
pub(crate) async fn apply(client: &Client, args: &Apply) -> anyhow::Result<Exit> {
    let declared = read(&args.file)?;
    if args.prune && declared.is_empty() {
        let message = format!(
            "file {} declares nothing, and --prune would delete everything; leave --prune out, or use \
             `kreplicator delete`",
            args.file.display()
        );
        return Err(Failure::Usage(message).into());
    }
    let options = Options {
        dry_run: args.dry_run,
        prune: args.prune,
        allow_missing: args.allow_missing,
    };
    let answer = send(client, &declared, options).await?;
    warn(&answer.warnings);
    print(&changes(&answer.changes, args.dry_run))?;
    Ok(match args.dry_run && !answer.changes.is_empty() {
        true => Exit::Pending,
        false => Exit::Ok,
    })
}

/// How a file is applied.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Change nothing.
    pub(crate) dry_run: bool,
    /// Delete what is not declared.
    pub(crate) prune: bool,
    /// Accept topics that do not exist yet.
    pub(crate) allow_missing: bool,
}

/// Reads a file, `-` for standard input.
///
/// # Errors
/// All faults of the file at once.
pub(crate) fn read(path: &Path) -> anyhow::Result<Declared> {
    let unreadable = |error: std::io::Error| {
        Failure::Usage(format!("file {} cannot be read: {error}", path.display()))
    };
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("standard input cannot be read")?;
        ("standard input".to_owned(), text)
    } else {
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        (path.display().to_string(), text)
    };
    Ok(links::read(&name, &text).map_err(Failure::Faults)?)
}

/// Sends what is declared; a refusal comes back with the lines of the file.
pub(crate) async fn send(
    client: &Client,
    declared: &Declared,
    options: Options,
) -> Result<v1::ApplyResponse, Failure> {
    let request = v1::ApplyRequest {
        clusters: declared.clusters.clone(),
        links: declared.links.clone(),
        subscriptions: declared.subscriptions.clone(),
        dry_run: options.dry_run,
        prune: options.prune,
        allow_missing: options.allow_missing,
        request_id: request_id(),
    };
    client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move { grpc!(DesiredClient, attempt).apply(request).await }
        })
        .await
        .map_err(|failure| match failure {
            Failure::Answer { code, message } => Failure::Answer {
                code,
                message: declared.places.locate(&message),
            },
            other => other,
        })
}
