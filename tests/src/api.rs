//! The gRPC API as a user's program would call it: any controller, a request id for each change, and
//! another try elsewhere when a controller is away.

use std::time::Duration;

use anyhow::Result;
use kreplicator_proto::v1::{
    self, clusters_client::ClustersClient, desired_client::DesiredClient,
    links_client::LinksClient, status_client::StatusClient,
    subscriptions_client::SubscriptionsClient, workers_client::WorkersClient,
};
use rand::Rng as _;
use tokio::time::{Instant, sleep_until};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::settings;

/// Deadline of one try.
const TRY: Duration = Duration::from_secs(10);
/// Rest before the next controller is tried.
const REST: Duration = Duration::from_millis(100);
/// Deadline of a call, tries included.
const CALL: Duration = Duration::from_secs(30);
/// Most bytes of an answer: lists of 1,000 tasks are larger than tonic's 4 MiB allow for.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Result of a call.
pub type Answer<T> = std::result::Result<T, Status>;

/// A client of all controllers.
#[derive(Debug, Clone)]
pub struct Api {
    channels: Vec<Channel>,
}

/// A new request id.
#[must_use]
pub fn request_id() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// The reference to a subscription to one topic, or to a pattern given between slashes.
#[must_use]
pub fn reference(link: &str, id: &str) -> v1::SubscriptionRef {
    v1::SubscriptionRef {
        link: link.to_owned(),
        id: id.to_owned(),
    }
}

/// A subscription to one topic.
#[must_use]
pub fn topic(link: &str, topic: &str) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Topic(topic.to_owned())),
        }),
        ..Default::default()
    }
}

/// A subscription to all topics that match.
#[must_use]
pub fn pattern(link: &str, include: &str, exclude: &[&str]) -> v1::Subscription {
    v1::Subscription {
        link: link.to_owned(),
        selector: Some(v1::Selector {
            by: Some(v1::selector::By::Pattern(v1::Pattern {
                include: include.to_owned(),
                exclude: exclude.iter().map(|text| (*text).to_owned()).collect(),
            })),
        }),
        ..Default::default()
    }
}

/// A cluster without security.
#[must_use]
pub fn cluster(id: &str, bootstrap_servers: Vec<String>) -> v1::Cluster {
    v1::Cluster {
        id: id.to_owned(),
        bootstrap_servers,
        ..Default::default()
    }
}

/// A link that puts `prefix` before topic names.
#[must_use]
pub fn link(id: &str, source: &str, target: &str, prefix: &str) -> v1::Link {
    v1::Link {
        id: id.to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        naming: Some(v1::Naming {
            prefix: prefix.to_owned(),
            ..Default::default()
        }),
        engine: settings::engine().into(),
        ..Default::default()
    }
}

impl Api {
    /// A client of the controllers at these ports; connects when first used.
    ///
    /// # Errors
    /// Never for ports; tonic cannot know.
    pub fn new(ports: impl IntoIterator<Item = u16>) -> Result<Self> {
        let channels = ports.into_iter().map(|port| {
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?
                .connect_timeout(Duration::from_secs(2))
                .timeout(TRY);
            Ok(endpoint.connect_lazy())
        });
        Ok(Self {
            channels: channels.collect::<Result<_>>()?,
        })
    }

    /// The channel of one controller.
    #[must_use]
    pub fn channel(&self, index: usize) -> Channel {
        self.channels[index].clone()
    }

    /// Calls one controller after another until one gives an answer that is not "unavailable".
    async fn call<T>(&self, ask: impl AsyncFn(Channel) -> Answer<T>) -> Answer<T> {
        let end = Instant::now() + CALL;
        loop {
            let mut last = Status::unavailable("there are no controllers");
            for channel in &self.channels {
                match ask(channel.clone()).await {
                    Err(status) if is_transient(&status) => last = status,
                    answer => return answer,
                }
            }
            if Instant::now() + REST >= end {
                return Err(last);
            }
            sleep_until(Instant::now() + REST).await;
        }
    }

    /// Makes or changes a cluster; true: something changed.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn put_cluster(&self, cluster: v1::Cluster) -> Answer<bool> {
        let request = v1::PutClusterRequest {
            cluster: Some(cluster),
            request_id: request_id(),
            create_only: false,
        };
        self.call(async |channel| {
            let mut client = ClustersClient::new(channel);
            let answer = client.put_cluster(request.clone()).await?;
            Ok(answer.into_inner().changed)
        })
        .await
    }

    /// One cluster with its status.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn cluster(&self, id: &str) -> Answer<v1::ClusterInfo> {
        let request = v1::GetClusterRequest { id: id.to_owned() };
        self.call(async |channel| {
            let mut client = ClustersClient::new(channel);
            Ok(client.get_cluster(request.clone()).await?.into_inner())
        })
        .await
    }

    /// Makes or changes a link; true: something changed.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn put_link(&self, link: v1::Link) -> Answer<bool> {
        let request = v1::PutLinkRequest {
            link: Some(link),
            request_id: request_id(),
            create_only: false,
        };
        self.call(async |channel| {
            let mut client = LinksClient::new(channel);
            Ok(client.put_link(request.clone()).await?.into_inner().changed)
        })
        .await
    }

    /// One link with its status.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn link(&self, id: &str) -> Answer<v1::LinkInfo> {
        let request = v1::GetLinkRequest { id: id.to_owned() };
        self.call(async |channel| {
            let mut client = LinksClient::new(channel);
            Ok(client.get_link(request.clone()).await?.into_inner())
        })
        .await
    }

    /// A page of clusters.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn list_clusters(&self, request: &v1::ListRequest) -> Answer<Vec<v1::ClusterInfo>> {
        self.call(async |channel| {
            let mut client = ClustersClient::new(channel);
            Ok(client
                .list_clusters(request.clone())
                .await?
                .into_inner()
                .clusters)
        })
        .await
    }

    /// A page of links.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn list_links(&self, request: &v1::ListRequest) -> Answer<Vec<v1::LinkInfo>> {
        self.call(async |channel| {
            let mut client = LinksClient::new(channel);
            Ok(client.list_links(request.clone()).await?.into_inner().links)
        })
        .await
    }

    /// A page of subscriptions.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn list_subscriptions(
        &self,
        request: &v1::ListRequest,
    ) -> Answer<Vec<v1::SubscriptionInfo>> {
        self.call(async |channel| {
            let mut client = SubscriptionsClient::new(channel);
            let answer = client.list_subscriptions(request.clone()).await?;
            Ok(answer.into_inner().subscriptions)
        })
        .await
    }

    /// Deletes a link and its subscriptions.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn delete_link(&self, id: &str) -> Answer<()> {
        let request = v1::DeleteRequest {
            id: id.to_owned(),
            request_id: request_id(),
        };
        self.call(async |channel| {
            LinksClient::new(channel)
                .delete_link(request.clone())
                .await?;
            Ok(())
        })
        .await
    }

    /// Subscribes; results in the order asked for.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn subscribe(
        &self,
        subscriptions: Vec<v1::Subscription>,
    ) -> Answer<Vec<v1::SubscribeResult>> {
        let request = v1::SubscribeRequest {
            subscriptions,
            request_id: request_id(),
            allow_missing: false,
        };
        self.subscribe_with(&request).await
    }

    /// Subscribes with a request as given.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn subscribe_with(
        &self,
        request: &v1::SubscribeRequest,
    ) -> Answer<Vec<v1::SubscribeResult>> {
        self.call(async |channel| {
            let mut client = SubscriptionsClient::new(channel);
            Ok(client
                .subscribe(request.clone())
                .await?
                .into_inner()
                .results)
        })
        .await
    }

    /// Unsubscribes.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn unsubscribe(&self, subscriptions: Vec<v1::SubscriptionRef>) -> Answer<()> {
        let request = v1::UnsubscribeRequest {
            subscriptions,
            request_id: request_id(),
        };
        self.call(async |channel| {
            let mut client = SubscriptionsClient::new(channel);
            client.unsubscribe(request.clone()).await?;
            Ok(())
        })
        .await
    }

    /// Pauses or resumes subscriptions; how many changed.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn pause(
        &self,
        subscriptions: Vec<v1::SubscriptionRef>,
        paused: bool,
    ) -> Answer<i32> {
        let request = v1::PauseRequest {
            subscriptions,
            request_id: request_id(),
        };
        self.call(async |channel| {
            let mut client = SubscriptionsClient::new(channel);
            let answer = if paused {
                client.pause_subscriptions(request.clone()).await?
            } else {
                client.resume_subscriptions(request.clone()).await?
            };
            Ok(answer.into_inner().changed)
        })
        .await
    }

    /// One subscription with its status.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn subscription(&self, link: &str, id: &str) -> Answer<v1::SubscriptionInfo> {
        let request = reference(link, id);
        self.call(async |channel| {
            let mut client = SubscriptionsClient::new(channel);
            Ok(client.get_subscription(request.clone()).await?.into_inner())
        })
        .await
    }

    /// All workers.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn workers(&self) -> Answer<Vec<v1::WorkerInfo>> {
        let request = v1::ListRequest {
            page_size: 1_000,
            ..Default::default()
        };
        self.call(async |channel| {
            let mut client = WorkersClient::new(channel);
            Ok(client
                .list_workers(request.clone())
                .await?
                .into_inner()
                .workers)
        })
        .await
    }

    /// Empties a worker, or lets it have tasks again.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn drain(&self, worker: &str, undrain: bool) -> Answer<i32> {
        let request = v1::DrainWorkerRequest {
            worker: worker.to_owned(),
            request_id: request_id(),
            undrain,
            reason: "test".to_owned(),
        };
        self.call(async |channel| {
            let mut client = WorkersClient::new(channel);
            let answer = client.drain_worker(request.clone()).await?;
            Ok(answer.into_inner().tasks_to_move)
        })
        .await
    }

    /// How everything is.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn status(&self) -> Answer<v1::StatusResponse> {
        self.call(async |channel| {
            let mut client = StatusClient::new(channel);
            Ok(client
                .get_status(v1::GetStatusRequest {})
                .await?
                .into_inner())
        })
        .await
    }

    /// All tasks of a link (empty: of all links), page by page.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn tasks(&self, link: &str) -> Answer<Vec<v1::Task>> {
        let mut tasks = Vec::new();
        let mut request = v1::ListTasksRequest {
            page_size: 1_000,
            link: link.to_owned(),
            ..Default::default()
        };
        loop {
            let page = self
                .call(async |channel| {
                    let mut client =
                        StatusClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
                    Ok(client.list_tasks(request.clone()).await?.into_inner())
                })
                .await?;
            tasks.extend(page.tasks);
            if page.next_page_token.is_empty() {
                return Ok(tasks);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Applies a declaration.
    ///
    /// # Errors
    /// The API's refusal.
    pub async fn apply(&self, request: v1::ApplyRequest) -> Answer<Vec<v1::Change>> {
        self.call(async |channel| {
            let mut client = DesiredClient::new(channel);
            Ok(client.apply(request.clone()).await?.into_inner().changes)
        })
        .await
    }
}

/// Whether another controller, or the same one later, may answer. Safe to repeat: changes carry a
/// request id.
fn is_transient(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => true,
        // What tonic makes of a connection that breaks while a call is under way, and of a deadline.
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => true,
        _ => false,
    }
}
