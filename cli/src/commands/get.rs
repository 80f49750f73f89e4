//! `get`: lists.

use kreplicator_proto::v1::{
    self, clusters_client::ClustersClient, links_client::LinksClient, status_client::StatusClient,
    subscriptions_client::SubscriptionsClient, workers_client::WorkersClient,
};

use super::{grpc, pages, print};
use crate::{
    args::{Get, State, What},
    client::Client,
    exit::{Exit, Failure},
    render::{
        Listed, clusters::Cluster, links::Link, list, subscriptions::Subscription, tasks::Task,
        workers::Worker,
    },
};

/// Items of a page: the most a controller gives.
const PAGE_SIZE: i32 = 1_000;

/// Runs the command.
pub(crate) async fn get(client: &Client, args: &Get) -> anyhow::Result<Exit> {
    check_filters(args)?;
    match args.what {
        What::Clusters => show::<Cluster, _>(args, clusters(client).await?)?,
        What::Links => show::<Link, _>(args, links(client).await?)?,
        What::Subscriptions => {
            let link = args.link.as_ref().map(ToString::to_string);
            show::<Subscription, _>(args, subscriptions(client, link.unwrap_or_default()).await?)?;
        }
        What::Tasks => show::<Task, _>(args, tasks(client, filter(args)).await?)?,
        What::Workers => show::<Worker, _>(args, workers(client).await?)?,
    }
    Ok(Exit::Ok)
}

fn show<T: Listed + From<I>, I>(args: &Get, items: Vec<I>) -> anyhow::Result<()> {
    let items: Vec<T> = items.into_iter().map(T::from).collect();
    print(&list(&items, args.output.output)?)
}

/// Refuses filters that the list would ignore.
fn check_filters(args: &Get) -> Result<(), Failure> {
    let given = [
        (
            "--link",
            args.link.is_some(),
            &[What::Subscriptions, What::Tasks][..],
        ),
        ("--topic", args.topic.is_some(), &[What::Tasks]),
        ("--worker", args.worker.is_some(), &[What::Tasks]),
        ("--state", args.state.is_some(), &[What::Tasks]),
    ];
    for (flag, is_given, lists) in given {
        if is_given && !lists.contains(&args.what) {
            let lists: Vec<String> = lists.iter().map(|what| format!("{what:?}")).collect();
            let lists = lists.join(" and ").to_lowercase();
            return Err(Failure::Usage(format!(
                "{flag} is for {lists}; leave it out"
            )));
        }
    }
    Ok(())
}

fn filter(args: &Get) -> v1::ListTasksRequest {
    let text = |name: Option<String>| name.unwrap_or_default();
    v1::ListTasksRequest {
        page_size: PAGE_SIZE,
        page_token: String::new(),
        link: text(args.link.as_ref().map(ToString::to_string)),
        topic: text(args.topic.as_ref().map(ToString::to_string)),
        worker: text(args.worker.as_ref().map(ToString::to_string)),
        state: args.state.map_or(v1::TaskState::Unspecified, state).into(),
    }
}

fn state(state: State) -> v1::TaskState {
    match state {
        State::Unassigned => v1::TaskState::Unassigned,
        State::Starting => v1::TaskState::Starting,
        State::Running => v1::TaskState::Running,
        State::Stopping => v1::TaskState::Stopping,
        State::Faulted => v1::TaskState::Faulted,
        State::Paused => v1::TaskState::Paused,
    }
}

fn page(page_token: String, link: String) -> v1::ListRequest {
    v1::ListRequest {
        page_size: PAGE_SIZE,
        page_token,
        link,
    }
}

async fn clusters(client: &Client) -> Result<Vec<v1::ClusterInfo>, Failure> {
    pages(async |token| {
        let request = page(token, String::new());
        let answer = client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move { grpc!(ClustersClient, attempt).list_clusters(request).await }
            })
            .await?;
        Ok((answer.clusters, answer.next_page_token))
    })
    .await
}

async fn links(client: &Client) -> Result<Vec<v1::LinkInfo>, Failure> {
    pages(async |token| {
        let request = page(token, String::new());
        let answer = client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move { grpc!(LinksClient, attempt).list_links(request).await }
            })
            .await?;
        Ok((answer.links, answer.next_page_token))
    })
    .await
}

async fn subscriptions(
    client: &Client,
    link: String,
) -> Result<Vec<v1::SubscriptionInfo>, Failure> {
    pages(async |token| {
        let request = page(token, link.clone());
        let answer = client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move {
                    let mut grpc = grpc!(SubscriptionsClient, attempt);
                    grpc.list_subscriptions(request).await
                }
            })
            .await?;
        Ok((answer.subscriptions, answer.next_page_token))
    })
    .await
}

async fn tasks(client: &Client, filter: v1::ListTasksRequest) -> Result<Vec<v1::Task>, Failure> {
    pages(async |page_token| {
        let request = v1::ListTasksRequest {
            page_token,
            ..filter.clone()
        };
        let answer = client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move { grpc!(StatusClient, attempt).list_tasks(request).await }
            })
            .await?;
        Ok((answer.tasks, answer.next_page_token))
    })
    .await
}

/// All workers.
pub(crate) async fn workers(client: &Client) -> Result<Vec<v1::WorkerInfo>, Failure> {
    pages(async |token| {
        let request = page(token, String::new());
        let answer = client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move { grpc!(WorkersClient, attempt).list_workers(request).await }
            })
            .await?;
        Ok((answer.workers, answer.next_page_token))
    })
    .await
}
