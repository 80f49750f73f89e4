//! Topic subscriptions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::Subscription,
};
use kreplicator_proto::{
    status::Refusal,
    v1::{self, subscriptions_server::Subscriptions},
};
use kreplicator_store::keys;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{
    core::Core,
    draft::Draft,
    loaded::Loaded,
    page::{Page, cut},
    picture::Picture,
    repeat::Call,
    subscribe::{Sources, check, put_all, sources_of},
    subscription_view::{TOPICS_LISTED_MAX, info, topics_of},
    subscription_watch, surplus,
    writer::Edit,
};
use crate::{heavy::heavy, reports::View};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct SubscriptionsService(pub(crate) Arc<Core>);

impl SubscriptionsService {
    async fn subscribe(
        &self,
        mut request: v1::SubscribeRequest,
    ) -> Result<v1::SubscribeResponse, Refusal> {
        let core = &self.0;
        let call = Call::of(&mut request)?;
        let subscriptions = heavy(|| check(&request.subscriptions))?;
        if let Some(answer) = core.writer.answered(&call).await? {
            return Ok(answer);
        }
        let before = core.desired.load().await?;
        let now = core.now();
        // What is wrong with the request itself is told without asking any cluster.
        heavy(|| put_all(&before, now, &subscriptions, &Sources::default(), true).map(drop))?;
        let sources = Sources(core.look(sources_of(&before, &subscriptions)).await);
        let links = subscriptions
            .iter()
            .filter_map(|subscription| before.desired.links.get(&subscription.link));
        let targets = core.last_seen(&before.desired, links);
        let mut warnings = sources.warnings();
        warnings.extend(heavy(|| {
            surplus::warnings(&before.desired, &subscriptions, &sources, &targets)
        }));
        let read: Vec<ClusterId> = sources.0.keys().cloned().collect();
        let allow_missing = request.allow_missing;
        let decide = move |loaded: &Loaded, _resumed: bool| {
            let (changed, steps) = put_all(loaded, now, &subscriptions, &sources, allow_missing)?;
            let result = |(subscription, changed): (&Subscription, bool)| v1::SubscribeResult {
                id: subscription.selector.id(),
                changed,
                topics: loaded
                    .desired
                    .links
                    .get(&subscription.link)
                    .map_or(0, |link| {
                        sources.matched(&link.source, &subscription.selector)
                    }),
            };
            Ok(Edit {
                steps,
                is_desired: true,
                answer: v1::SubscribeResponse {
                    results: subscriptions.iter().zip(changed).map(result).collect(),
                    warnings: warnings.clone(),
                },
            })
        };
        let answer = core.writer.write(call, decide).await?;
        core.poke(&read);
        Ok(answer)
    }

    async fn unsubscribe(
        &self,
        mut request: v1::UnsubscribeRequest,
    ) -> Result<v1::UnsubscribeResponse, Refusal> {
        let call = Call::of(&mut request)?;
        let now = self.0.now();
        let decide = move |loaded: &Loaded, resumed: bool| {
            let places = find_all(loaded, &request.subscriptions, resumed)?;
            let mut draft = Draft::new(loaded, now);
            for (link, id) in &places {
                draft.delete_subscription(link, id);
            }
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::UnsubscribeResponse {},
            })
        };
        self.0.writer.write(call, decide).await
    }

    /// Pauses or resumes.
    async fn set_paused(
        &self,
        mut request: v1::PauseRequest,
        paused: bool,
    ) -> Result<v1::PauseResponse, Refusal> {
        let method = if paused {
            "PauseSubscriptions"
        } else {
            "ResumeSubscriptions"
        };
        let request_id = std::mem::take(&mut request.request_id);
        let call = Call::named(method, request_id, &request)?;
        let now = self.0.now();
        let decide = move |loaded: &Loaded, resumed: bool| {
            let mut changed = 0;
            let mut draft = Draft::new(loaded, now);
            for place in find_all(loaded, &request.subscriptions, resumed)? {
                let Some(subscription) = loaded.desired.subscriptions.get(&place) else {
                    return Err(Refusal::precondition(format!(
                        "subscription {}/{}: what is stored cannot be read; subscribe again to replace it",
                        place.0, place.1
                    )));
                };
                let subscription = Subscription {
                    paused,
                    ..subscription.clone()
                };
                changed += i32::from(draft.put_subscription(subscription));
            }
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::PauseResponse { changed },
            })
        };
        self.0.writer.write(call, decide).await
    }

    async fn get(&self, request: v1::SubscriptionRef) -> Result<v1::SubscriptionInfo, Refusal> {
        let loaded = self.0.desired.load().await?;
        let unknown = || not_found(&request.link, &request.id);
        let link = LinkId::new(&request.link).map_err(|_| unknown())?;
        let place = (link, request.id.clone());
        let subscription = loaded
            .desired
            .subscriptions
            .get(&place)
            .ok_or_else(unknown)?;
        let fleet = self.0.fleet().await;
        let reports = self.0.reports();
        let picture = Picture::new(&fleet, &reports);
        let topics = topics_of(picture, |link| *link == place.0);
        Ok(info(
            &loaded.desired,
            picture,
            &topics,
            &place.1,
            subscription,
            usize::MAX,
        ))
    }

    async fn list(
        &self,
        request: v1::ListRequest,
    ) -> Result<v1::ListSubscriptionsResponse, Refusal> {
        let page = Page::new(request.page_size, &request.page_token)?;
        let after = page.after().and_then(|after| {
            let (link, id) = after.split_once('/')?;
            Some((LinkId::new(link).ok()?, id.to_owned()))
        });
        let loaded = self.0.desired.load().await?;
        let fleet = self.0.fleet().await;
        if !request.link.is_empty() && !loaded.desired.links.contains_key(request.link.as_str()) {
            return Err(Refusal::NotFound {
                kind: "link",
                id: request.link,
            });
        }
        let subscriptions = loaded
            .desired
            .subscriptions
            .iter()
            .filter(|((link, _), _)| request.link.is_empty() || link.as_str() == request.link)
            .filter(|(place, _)| after.as_ref().is_none_or(|after| *place > after));
        let (subscriptions, next_page_token) =
            page.fill(subscriptions, |((link, id), _)| format!("{link}/{id}"));
        let links: BTreeSet<&LinkId> = subscriptions.iter().map(|((link, _), _)| link).collect();
        let infos = |reports: &View| {
            let picture = Picture::new(&fleet, reports);
            let topics = topics_of(picture, |link| links.contains(link));
            let infos = subscriptions.into_iter().map(|((_, id), subscription)| {
                let desired = &loaded.desired;
                info(
                    desired,
                    picture,
                    &topics,
                    id,
                    subscription,
                    TOPICS_LISTED_MAX,
                )
            });
            infos.collect()
        };
        let infos = self.0.walk(infos).await;
        let place = |info: &v1::SubscriptionInfo| {
            let link = info.subscription.as_ref().map_or("", |spec| &spec.link);
            format!("{link}/{}", info.id)
        };
        let (subscriptions, next_page_token) = cut(infos, next_page_token, place);
        Ok(v1::ListSubscriptionsResponse {
            subscriptions,
            next_page_token,
        })
    }
}

/// The subscriptions referred to, each once; all that are unknown are told together. After a part was
/// done already (`resumed`), those that are gone are left out.
fn find_all(
    loaded: &Loaded,
    references: &[v1::SubscriptionRef],
    resumed: bool,
) -> Result<BTreeSet<(LinkId, String)>, Refusal> {
    let mut found = BTreeSet::new();
    let mut unknown = BTreeMap::new();
    for reference in references {
        let place = LinkId::new(&reference.link)
            .ok()
            .map(|link| (link, reference.id.clone()))
            .filter(|(link, id)| {
                let key = keys::subscription(link, id);
                loaded.revisions.contains_key(&key)
            });
        match place {
            Some(place) => {
                found.insert(place);
            }
            None if resumed => {}
            None => {
                unknown.insert((&reference.link, &reference.id), ());
            }
        }
    }
    let names: Vec<String> = unknown
        .keys()
        .map(|(link, id)| format!("{link}/{id}"))
        .collect();
    if names.is_empty() {
        Ok(found)
    } else {
        Err(Refusal::NotFound {
            kind: "subscription",
            id: names.join(", "),
        })
    }
}

fn not_found(link: &str, id: &str) -> Refusal {
    Refusal::NotFound {
        kind: "subscription",
        id: format!("{link}/{id}"),
    }
}

#[tonic::async_trait]
impl Subscriptions for SubscriptionsService {
    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<v1::SubscribeResponse>, Status> {
        Ok(Response::new(
            Self::subscribe(self, request.into_inner()).await?,
        ))
    }

    async fn unsubscribe(
        &self,
        request: Request<v1::UnsubscribeRequest>,
    ) -> Result<Response<v1::UnsubscribeResponse>, Status> {
        Ok(Response::new(
            Self::unsubscribe(self, request.into_inner()).await?,
        ))
    }

    async fn get_subscription(
        &self,
        request: Request<v1::SubscriptionRef>,
    ) -> Result<Response<v1::SubscriptionInfo>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_subscriptions(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListSubscriptionsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn pause_subscriptions(
        &self,
        request: Request<v1::PauseRequest>,
    ) -> Result<Response<v1::PauseResponse>, Status> {
        Ok(Response::new(
            self.set_paused(request.into_inner(), true).await?,
        ))
    }

    async fn resume_subscriptions(
        &self,
        request: Request<v1::PauseRequest>,
    ) -> Result<Response<v1::PauseResponse>, Status> {
        Ok(Response::new(
            self.set_paused(request.into_inner(), false).await?,
        ))
    }

    type WatchSubscriptionsStream = ReceiverStream<Result<v1::SubscriptionEvent, Status>>;

    async fn watch_subscriptions(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchSubscriptionsStream>, Status> {
        let events = subscription_watch::open(&self.0, request.into_inner()).await?;
        Ok(Response::new(ReceiverStream::new(events)))
    }
}
