//! Links.

use std::sync::Arc;

use kreplicator_model::{desired::Desired, ids::LinkId, spec::Link};
use kreplicator_proto::{
    fault::FieldFault,
    status::Refusal,
    v1::{self, links_server::Links},
};
use kreplicator_store::keys;
use tonic::{Request, Response, Status};

use super::{
    clusters::count,
    core::{Core, refuse_faults},
    draft::Draft,
    loaded::Loaded,
    page::Page,
    picture::Picture,
    repeat::Call,
    writer::Edit,
};
use crate::reports::View;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct LinksService(pub(crate) Arc<Core>);

impl LinksService {
    async fn put(&self, mut request: v1::PutLinkRequest) -> Result<v1::PutLinkResponse, Refusal> {
        let call = Call::of(&mut request)?;
        let message = request.link.unwrap_or_default();
        let link = Link::try_from(&message).map_err(|faults| {
            let within = |fault: FieldFault| fault.within("link");
            Refusal::Invalid(faults.into_iter().map(within).collect())
        })?;
        let now = self.0.now();
        let create_only = request.create_only;
        let (source, target) = (link.source.clone(), link.target.clone());
        let decide = move |loaded: &Loaded, resumed: bool| {
            if create_only && !resumed && loaded.desired.links.contains_key(&link.id) {
                return Err(Refusal::Exists {
                    kind: "link",
                    id: link.id.to_string(),
                });
            }
            let fixed = fixed_faults(&loaded.desired, &link);
            if !fixed.is_empty() {
                return Err(Refusal::Precondition(fixed));
            }
            let mut draft = Draft::new(loaded, now);
            let changed = draft.put_link(link.clone());
            refuse_faults(draft.new_faults())?;
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::PutLinkResponse { changed },
            })
        };
        let answer = self.0.writer.write(call, decide).await?;
        self.0.poke([&source, &target]);
        Ok(answer)
    }

    async fn get(&self, request: v1::GetLinkRequest) -> Result<v1::LinkInfo, Refusal> {
        let loaded = self.0.desired.load().await?;
        let link = loaded
            .desired
            .links
            .get(request.id.as_str())
            .ok_or_else(|| unknown(&request.id))?;
        let fleet = self.0.fleet().await;
        let reports = self.0.reports();
        Ok(info(link, Picture::new(&fleet, &reports)))
    }

    async fn list(&self, request: v1::ListRequest) -> Result<v1::ListLinksResponse, Refusal> {
        let page = Page::new(request.page_size, &request.page_token)?;
        let loaded = self.0.desired.load().await?;
        let fleet = self.0.fleet().await;
        let links = loaded
            .desired
            .links
            .values()
            .filter(|link| page.after().is_none_or(|after| link.id.as_str() > after));
        let (links, next_page_token) = page.fill(links, |link| link.id.to_string());
        let links = |reports: &View| {
            let picture = Picture::new(&fleet, reports);
            links.into_iter().map(|link| info(link, picture)).collect()
        };
        Ok(v1::ListLinksResponse {
            links: self.0.walk(links).await,
            next_page_token,
        })
    }

    async fn delete(&self, request: v1::DeleteRequest) -> Result<v1::DeleteResponse, Refusal> {
        let mut request = request;
        let request_id = std::mem::take(&mut request.request_id);
        let call = Call::named("DeleteLink", request_id, &request)?;
        let now = self.0.now();
        let decide = move |loaded: &Loaded, resumed: bool| {
            let id = LinkId::new(&request.id)
                .ok()
                .filter(|id| loaded.revisions.contains_key(&keys::link(id)));
            let mut draft = Draft::new(loaded, now);
            match &id {
                Some(id) => draft.delete_link(id),
                None if resumed => {}
                None => return Err(unknown(&request.id)),
            }
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::DeleteResponse {},
            })
        };
        self.0.writer.write(call, decide).await
    }
}

/// What cannot change on a link that exists: its data and its checkpoints belong to its clusters.
pub(crate) fn fixed_faults(before: &Desired, link: &Link) -> Vec<String> {
    let Some(old) = before.links.get(&link.id) else {
        return Vec::new();
    };
    let id = &link.id;
    let mut faults = Vec::new();
    for (end, old, new) in [
        ("source", &old.source, &link.source),
        ("target", &old.target, &link.target),
    ] {
        if old != new {
            faults.push(format!(
                "link {id}: its {end} cannot change from {old} to {new}; make a link with another \
                 name, or delete this one first"
            ));
        }
    }
    let is_used = before.subscriptions.keys().any(|(of, _)| of == id);
    if old.checkpoint_on != link.checkpoint_on && is_used {
        faults.push(format!(
            "link {id}: checkpoint_on cannot change while the link has subscriptions, since every topic \
             would be copied again; unsubscribe them first"
        ));
    }
    faults
}

fn unknown(id: &str) -> Refusal {
    Refusal::NotFound {
        kind: "link",
        id: id.to_owned(),
    }
}

fn info<'a>(link: &'a Link, picture: Picture<'a>) -> v1::LinkInfo {
    let condition = picture.link(link);
    let promise = condition.delivery.or_of(link.engine());
    v1::LinkInfo {
        link: Some(v1::Link::from(link)),
        status: Some(v1::LinkStatus {
            health: condition.health.into(),
            cause: condition.cause,
            since_ms: condition.since_ms,
            topics: count(picture.topics_of_link(&link.id).count()),
            tasks: Some(condition.tasks),
            lag_records: condition.lag_records,
            delivery: promise.delivery().to_owned(),
            delivery_reason: promise.reason().to_owned(),
        }),
    }
}

#[tonic::async_trait]
impl Links for LinksService {
    async fn put_link(
        &self,
        request: Request<v1::PutLinkRequest>,
    ) -> Result<Response<v1::PutLinkResponse>, Status> {
        Ok(Response::new(self.put(request.into_inner()).await?))
    }

    async fn get_link(
        &self,
        request: Request<v1::GetLinkRequest>,
    ) -> Result<Response<v1::LinkInfo>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_links(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListLinksResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn delete_link(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        Ok(Response::new(self.delete(request.into_inner()).await?))
    }
}
