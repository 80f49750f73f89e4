//! `subscribe`, `unsubscribe`, `pause`, `resume`: what is done to topics of a link.

use kreplicator_proto::v1::{self, selector::By, subscriptions_client::SubscriptionsClient};

use super::{grpc, print, warn};
use crate::{
    args::{Selection, Subscribe},
    client::{Client, request_id},
    exit::Exit,
};

/// Runs `subscribe`.
pub(crate) async fn subscribe(client: &Client, args: &Subscribe) -> anyhow::Result<Exit> {
    let selection = &args.selection;
    let topics = selection
        .topics
        .iter()
        .map(|topic| By::Topic(topic.to_string()));
    let patterns = selection.pattern.iter().map(|include| {
        By::Pattern(v1::Pattern {
            include: include.clone(),
            exclude: args.exclude.clone(),
        })
    });
    let subscription = |by| v1::Subscription {
        link: selection.link.to_string(),
        selector: Some(v1::Selector { by: Some(by) }),
        start: args.start,
        paused: args.paused,
    };
    let request = v1::SubscribeRequest {
        subscriptions: topics.chain(patterns).map(subscription).collect(),
        request_id: request_id(),
        allow_missing: args.allow_missing,
    };
    let answer = client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move { grpc!(SubscriptionsClient, attempt).subscribe(request).await }
        })
        .await?;
    warn(&answer.warnings);
    for result in &answer.results {
        let done = if result.changed {
            "subscribed"
        } else {
            "unchanged"
        };
        let topics = match result.topics {
            1 => "1 topic".to_owned(),
            count => format!("{count} topics"),
        };
        print(&format!(
            "{done}: {}/{} ({topics})",
            selection.link, result.id
        ))?;
    }
    Ok(Exit::Ok)
}

/// Runs `unsubscribe`.
pub(crate) async fn unsubscribe(client: &Client, selection: &Selection) -> anyhow::Result<Exit> {
    let request = v1::UnsubscribeRequest {
        subscriptions: refs(selection),
        request_id: request_id(),
    };
    client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move {
                grpc!(SubscriptionsClient, attempt)
                    .unsubscribe(request)
                    .await
            }
        })
        .await?;
    for subscription in &request.subscriptions {
        print(&format!(
            "unsubscribed: {}/{}",
            subscription.link, subscription.id
        ))?;
    }
    Ok(Exit::Ok)
}

/// Runs `pause`.
pub(crate) async fn pause(client: &Client, selection: &Selection) -> anyhow::Result<Exit> {
    let request = pause_request(selection);
    let answer = client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move {
                let mut grpc = grpc!(SubscriptionsClient, attempt);
                grpc.pause_subscriptions(request).await
            }
        })
        .await?;
    print(&format!(
        "{} of {} paused",
        answer.changed,
        request.subscriptions.len()
    ))?;
    Ok(Exit::Ok)
}

/// Runs `resume`.
pub(crate) async fn resume(client: &Client, selection: &Selection) -> anyhow::Result<Exit> {
    let request = pause_request(selection);
    let answer = client
        .call(|attempt| {
            let request = attempt.request(request.clone());
            async move {
                let mut grpc = grpc!(SubscriptionsClient, attempt);
                grpc.resume_subscriptions(request).await
            }
        })
        .await?;
    print(&format!(
        "{} of {} resumed",
        answer.changed,
        request.subscriptions.len()
    ))?;
    Ok(Exit::Ok)
}

fn pause_request(selection: &Selection) -> v1::PauseRequest {
    v1::PauseRequest {
        subscriptions: refs(selection),
        request_id: request_id(),
    }
}

fn refs(selection: &Selection) -> Vec<v1::SubscriptionRef> {
    let topics = selection.topics.iter().map(ToString::to_string);
    let patterns = selection
        .pattern
        .iter()
        .map(|include| format!("/{include}/"));
    let of_id = |id| v1::SubscriptionRef {
        link: selection.link.to_string(),
        id,
    };
    topics.chain(patterns).map(of_id).collect()
}
