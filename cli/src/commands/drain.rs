//! `worker drain`: empties a worker and, if asked, waits until it is empty.

use std::time::Duration;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use kreplicator_proto::v1::{self, workers_client::WorkersClient};
use tokio::time::{Instant, sleep};

use super::{get::workers, grpc, print};
use crate::{
    args::Drain,
    client::{Client, request_id},
    exit::Exit,
};

/// Time between looks at the worker.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) async fn drain(client: &Client, args: &Drain) -> anyhow::Result<Exit> {
    let request = v1::DrainWorkerRequest {
        worker: args.worker.to_string(),
        request_id: request_id(),
        undrain: args.undrain,
        reason: args.reason.clone(),
    };
    let answer = client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move { grpc!(WorkersClient, attempt).drain_worker(request).await }
        })
        .await?;
    if args.undrain {
        print(&format!("{} takes tasks again", args.worker))?;
        return Ok(Exit::Ok);
    }
    print(&format!(
        "{} is draining, {} tasks to move",
        args.worker, answer.tasks_to_move
    ))?;
    if args.wait {
        wait_until_empty(client, args, answer.tasks_to_move).await?;
    }
    Ok(Exit::Ok)
}

async fn wait_until_empty(client: &Client, args: &Drain, to_move: i32) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.wait_timeout;
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::new(to_move.unsigned_abs().into());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks moved, {elapsed}")?;
    bar.set_style(style);
    loop {
        let all = workers(client).await?;
        let worker = all.iter().find(|worker| worker.id == args.worker.as_str());
        // Gone from the list: its process ended after it was emptied.
        let left = worker.map_or(0, |worker| worker.tasks_assigned.max(worker.tasks_owned));
        let moved = to_move.saturating_sub(left).max(0);
        bar.set_position(moved.unsigned_abs().into());
        if left == 0 {
            bar.finish_and_clear();
            return print(&format!("{} is empty", args.worker));
        }
        if Instant::now() >= deadline {
            bar.abandon();
            bail!(
                "{} still has {left} tasks after {}; see `kreplicator get tasks --worker {}`",
                args.worker,
                humantime::format_duration(args.wait_timeout),
                args.worker
            );
        }
        sleep(LOOK_INTERVAL).await;
    }
}
