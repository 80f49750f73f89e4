//! `watch`: subscriptions, a line for each change, until Ctrl-C or the reader goes away.

use std::time::SystemTime;

use futures::StreamExt as _;
use kreplicator_proto::v1::{
    self, subscription_event::Event, subscriptions_client::SubscriptionsClient,
};
use tonic::Code;

use super::{grpc, print};
use crate::{
    args::Watch,
    client::Client,
    exit::{Exit, Failure},
    render::subscriptions::Subscription,
};

/// Runs the command. A stream that breaks is opened again: its first part is then the present state
/// once more.
pub(crate) async fn watch(client: &Client, args: &Watch) -> anyhow::Result<Exit> {
    let link = args.link.as_ref().map(ToString::to_string);
    let request = v1::WatchRequest {
        link: link.unwrap_or_default(),
    };
    loop {
        tokio::select! {
            seen = follow(client, &request) => {
                let failure = seen?;
                eprintln!("watching again: {failure}");
            }
            () = crate::signals::interrupted() => return Ok(Exit::Ok),
        }
    }
}

/// Prints events until the stream breaks, which is given back; other failures are errors.
async fn follow(client: &Client, request: &v1::WatchRequest) -> anyhow::Result<String> {
    let answer = client
        .open(|attempt| {
            // No deadline on the stream itself: it has no end.
            let request = tonic::Request::new(request.clone());
            async move {
                let mut grpc = grpc!(SubscriptionsClient, attempt);
                grpc.watch_subscriptions(request).await
            }
        })
        .await?;
    let mut events = answer.into_inner();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(line) = line(event) {
                    print(&format!("{} {line}", now()))?;
                }
            }
            Err(status) if is_passing(status.code()) => return Ok(status.message().to_owned()),
            Err(status) => {
                let (code, message) = (status.code(), status.message().to_owned());
                return Err(Failure::Answer { code, message }.into());
            }
        }
    }
    Ok("the controller ended the stream".to_owned())
}

/// Whether watching again is the remedy: the leader changed, or we were too slow.
fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Cancelled
            | Code::Unknown
    )
}

fn line(event: v1::SubscriptionEvent) -> Option<String> {
    match event.event? {
        Event::Updated(info) => Some(Subscription::from(info).line()),
        Event::Deleted(gone) => Some(format!("{}  {}  deleted", gone.link, gone.id)),
        Event::Synced(_) => Some("-- that is all there is now; changes follow".to_owned()),
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
