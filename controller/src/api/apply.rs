//! Bringing the desired state to what a file declares.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kreplicator_model::{
    desired::{Fault, FaultKind},
    ids::{ClusterId, LinkId, UnixMillis},
    spec::{Cluster, Link, Subscription},
};
use kreplicator_proto::{
    fault::FieldFault,
    status::Refusal,
    v1::{self, desired_server::Desired as DesiredApi},
};
use tonic::{Request, Response, Status};

use super::{
    core::{Core, client_faults},
    diff::diff,
    draft::Draft,
    links::fixed_faults,
    loaded::Loaded,
    repeat::Call,
    subscribe::{Missing, Sources},
    surplus,
    writer::Edit,
};
use crate::heavy::heavy;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct DesiredService(pub(crate) Arc<Core>);

impl DesiredService {
    async fn apply(&self, mut request: v1::ApplyRequest) -> Result<v1::ApplyResponse, Refusal> {
        let core = &self.0;
        check_size(&request)?;
        let call = Call::of(&mut request)?;
        let declared = heavy(|| Declared::read(&request));
        if let Some(answer) = core.writer.answered(&call).await? {
            return Ok(answer);
        }
        let before = core.desired.load().await?;
        let now = core.now();
        // What is wrong with the declaration itself is told without asking any cluster.
        heavy(|| declared.draft(&before, now, request.prune).map(drop))?;
        let looked_at = declared.worth_a_look(&before);
        let sources = Sources(core.look(looked_at).await);
        let targets = core.last_seen(&before.desired, declared.links.values());
        let allow_missing = request.allow_missing;
        let decide = {
            let declared = declared.clone();
            move |loaded: &Loaded, resumed: bool| {
                let draft = declared.draft(loaded, now, request.prune)?;
                // What was begun was found to be there.
                if !allow_missing && !resumed {
                    declared.refuse_missing(loaded, &sources)?;
                }
                let mut warnings = sources.warnings();
                let subscriptions = declared.subscriptions.values();
                warnings.extend(surplus::warnings(
                    draft.after(),
                    subscriptions,
                    &sources,
                    &targets,
                ));
                let answer = v1::ApplyResponse {
                    changes: diff(&loaded.desired, draft.after()),
                    warnings,
                };
                Ok(Edit {
                    steps: draft.into_steps(),
                    is_desired: true,
                    answer,
                })
            }
        };
        if request.dry_run {
            return Ok(heavy(|| decide(&before, false))?.answer);
        }
        let answer = core.writer.write(call, decide).await?;
        if !answer.changes.is_empty() {
            core.poke(declared.clusters.keys());
            core.poke(declared.links.values().map(|link| &link.source));
        }
        Ok(answer)
    }
}

/// What a request declares, as far as it can be read, with what is wrong with it.
#[derive(Debug, Clone, Default)]
struct Declared {
    clusters: BTreeMap<ClusterId, Cluster>,
    links: BTreeMap<LinkId, Link>,
    subscriptions: BTreeMap<(LinkId, String), Subscription>,
    faults: Vec<FieldFault>,
}

impl Declared {
    fn read(request: &v1::ApplyRequest) -> Self {
        let mut declared = Self::default();
        for message in &request.clusters {
            let subject = format!("cluster {}", message.id);
            let checked = Cluster::try_from(message).and_then(|cluster| {
                let faults = client_faults(&cluster);
                if faults.is_empty() {
                    Ok(cluster)
                } else {
                    Err(faults)
                }
            });
            if let Some(cluster) = declared.take(&subject, checked) {
                let old = declared.clusters.insert(cluster.id.clone(), cluster);
                declared.once(&subject, old.is_some());
            }
        }
        for message in &request.links {
            let subject = format!("link {}", message.id);
            if let Some(link) = declared.take(&subject, Link::try_from(message)) {
                let old = declared.links.insert(link.id.clone(), link);
                declared.once(&subject, old.is_some());
            }
        }
        for message in &request.subscriptions {
            let subject = subscription_subject(message);
            if let Some(subscription) = declared.take(&subject, Subscription::try_from(message)) {
                let place = (subscription.link.clone(), subscription.selector.id());
                let old = declared.subscriptions.insert(place, subscription);
                declared.once(&subject, old.is_some());
            }
        }
        declared
    }

    fn take<T>(&mut self, subject: &str, checked: Result<T, Vec<FieldFault>>) -> Option<T> {
        checked
            .map_err(|faults| {
                let told = |fault: FieldFault| FieldFault::new(subject, fault.to_string());
                self.faults.extend(faults.into_iter().map(told));
            })
            .ok()
    }

    fn once(&mut self, subject: &str, is_repeated: bool) {
        if is_repeated {
            let fault = FieldFault::new(subject, "is declared twice; leave one out");
            self.faults.push(fault);
        }
    }

    /// The change that brings about what is declared; everything that is wrong with it is told at once.
    fn draft<'a>(
        &self,
        loaded: &'a Loaded,
        now: UnixMillis,
        prune: bool,
    ) -> Result<Draft<'a>, Refusal> {
        let mut draft = Draft::new(loaded, now);
        if prune {
            self.prune(loaded, &mut draft);
        }
        for cluster in self.clusters.values() {
            draft.put_cluster(cluster.clone());
        }
        for link in self.links.values() {
            draft.put_link(link.clone());
        }
        for subscription in self.subscriptions.values() {
            draft.put_subscription(subscription.clone());
        }
        let fixed = self
            .links
            .values()
            .flat_map(|link| fixed_faults(&loaded.desired, link));
        let across = draft.new_faults();
        let is_told = |fault: &&Fault| self.faults.is_empty() || !is_about_absence(fault.kind);
        let lines: Vec<String> = fixed
            .chain(across.iter().filter(is_told).map(ToString::to_string))
            .collect();
        if !self.faults.is_empty() {
            let mut faults = self.faults.clone();
            faults.extend(lines.into_iter().map(|line| FieldFault::new("", line)));
            return Err(Refusal::Invalid(faults));
        }
        if !lines.is_empty() {
            return Err(Refusal::Precondition(lines));
        }
        Ok(draft)
    }

    fn prune(&self, loaded: &Loaded, draft: &mut Draft<'_>) {
        for (link, id) in loaded.desired.subscriptions.keys() {
            if !self.subscriptions.contains_key(&(link.clone(), id.clone())) {
                draft.delete_subscription(link, id);
            }
        }
        for link in loaded.desired.links.keys() {
            if !self.links.contains_key(link) {
                draft.delete_link(link);
            }
        }
        for cluster in loaded.desired.clusters.keys() {
            if !self.clusters.contains_key(cluster) {
                draft.delete_cluster(cluster);
            }
        }
    }

    fn link<'a>(&'a self, loaded: &'a Loaded, id: &LinkId) -> Option<&'a Link> {
        self.links.get(id).or_else(|| loaded.desired.links.get(id))
    }

    /// Subscriptions that are new.
    fn new_subscriptions<'a>(
        &'a self,
        loaded: &'a Loaded,
    ) -> impl Iterator<Item = &'a Subscription> {
        self.subscriptions
            .iter()
            .filter(|(place, _)| !loaded.desired.subscriptions.contains_key(*place))
            .map(|(_, subscription)| subscription)
    }

    /// Clusters that are new or changed, and sources of new subscriptions.
    fn worth_a_look<'a>(&'a self, loaded: &'a Loaded) -> Vec<&'a Cluster> {
        let mut ids: BTreeSet<&ClusterId> = self
            .clusters
            .values()
            .filter(|cluster| loaded.desired.clusters.get(&cluster.id) != Some(cluster))
            .map(|cluster| &cluster.id)
            .collect();
        let links = self
            .new_subscriptions(loaded)
            .filter_map(|subscription| self.link(loaded, &subscription.link));
        ids.extend(links.map(|link| &link.source));
        ids.into_iter()
            .filter_map(|id| {
                let known = || loaded.desired.clusters.get(id);
                self.clusters.get(id).or_else(known)
            })
            .collect()
    }

    fn refuse_missing(&self, loaded: &Loaded, sources: &Sources) -> Result<(), Refusal> {
        let mut missing = Missing::default();
        for subscription in self.new_subscriptions(loaded) {
            if let Some(link) = self.link(loaded, &subscription.link) {
                missing.look_for(sources, link, subscription);
            }
        }
        missing.refuse()
    }
}

/// Most clusters that one request may declare; a guess well above what one installation joins.
const CLUSTERS_MAX: usize = 1_000;

fn check_size(request: &v1::ApplyRequest) -> Result<(), Refusal> {
    let clusters = request.clusters.len();
    if clusters <= CLUSTERS_MAX {
        return Ok(());
    }
    Err(Refusal::field(
        "clusters",
        format!("are {clusters}; declare at most {CLUSTERS_MAX} in one request"),
    ))
}

/// What is told to be absent may be declared in a part that cannot be read.
fn is_about_absence(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::UnknownCluster | FaultKind::UnknownLink)
}

fn subscription_subject(message: &v1::Subscription) -> String {
    use v1::selector::By;

    let link = &message.link;
    match message.selector.as_ref().and_then(|s| s.by.as_ref()) {
        Some(By::Topic(topic)) => format!("subscription {link}/{topic}"),
        Some(By::Pattern(pattern)) => format!("subscription {link}//{}/", pattern.include),
        None => format!("subscription {link}"),
    }
}

#[tonic::async_trait]
impl DesiredApi for DesiredService {
    async fn apply(
        &self,
        request: Request<v1::ApplyRequest>,
    ) -> Result<Response<v1::ApplyResponse>, Status> {
        Ok(Response::new(
            Self::apply(self, request.into_inner()).await?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c110_too_many_clusters_are_refused_with_the_limit() {
        let request = |count| v1::ApplyRequest {
            clusters: vec![v1::Cluster::default(); count],
            ..v1::ApplyRequest::default()
        };
        assert_eq!(check_size(&request(CLUSTERS_MAX)), Ok(()));
        let refusal = check_size(&request(CLUSTERS_MAX + 1)).expect_err("refused");
        assert!(refusal.to_string().contains("at most 1000"), "{refusal}");
    }
}
