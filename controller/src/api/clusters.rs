//! Clusters.

use std::sync::Arc;

use kreplicator_model::{ids::ClusterId, spec::Cluster};
use kreplicator_proto::{
    status::Refusal,
    v1::{self, clusters_server::Clusters},
};
use tonic::{Request, Response, Status};

use super::{
    core::{Core, client_faults, refuse_faults, unreachable_warning},
    draft::Draft,
    loaded::Loaded,
    page::Page,
    repeat::Call,
    writer::Edit,
};
use crate::fleet::{ClusterState, FleetState};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct ClustersService(pub(crate) Arc<Core>);

impl ClustersService {
    async fn put(
        &self,
        mut request: v1::PutClusterRequest,
    ) -> Result<v1::PutClusterResponse, Refusal> {
        let call = Call::of(&mut request)?;
        let message = request.cluster.unwrap_or_default();
        let cluster = check(&message)?;
        let core = &self.0;
        if let Some(answer) = core.writer.answered(&call).await? {
            return Ok(answer);
        }
        let before = core.desired.load().await?;
        let mut warnings = Vec::new();
        // A cluster that does not answer now can be declared all the same (C050).
        if before.desired.clusters.get(&cluster.id) != Some(&cluster) {
            for (id, look) in core.look([&cluster]).await {
                warnings.extend(look.err().map(|cause| unreachable_warning(&id, &cause)));
            }
        }
        let now = core.now();
        let id = cluster.id.clone();
        let create_only = request.create_only;
        let decide = move |loaded: &Loaded, resumed: bool| {
            if create_only && !resumed && loaded.desired.clusters.contains_key(&cluster.id) {
                return Err(exists(&cluster.id));
            }
            let mut draft = Draft::new(loaded, now);
            let changed = draft.put_cluster(cluster.clone());
            refuse_faults(draft.new_faults())?;
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::PutClusterResponse {
                    changed,
                    warnings: warnings.clone(),
                },
            })
        };
        let answer = core.writer.write(call, decide).await?;
        core.poke([&id]);
        Ok(answer)
    }

    async fn get(&self, request: v1::GetClusterRequest) -> Result<v1::ClusterInfo, Refusal> {
        let loaded = self.0.desired.load().await?;
        let cluster = loaded
            .desired
            .clusters
            .get(request.id.as_str())
            .ok_or_else(|| unknown(&request.id))?;
        let fleet = self.0.fleet().await;
        Ok(info(cluster, &fleet))
    }

    async fn list(&self, request: v1::ListRequest) -> Result<v1::ListClustersResponse, Refusal> {
        let page = Page::new(request.page_size, &request.page_token)?;
        let loaded = self.0.desired.load().await?;
        let fleet = self.0.fleet().await;
        let clusters = loaded
            .desired
            .clusters
            .values()
            .filter(|cluster| page.after().is_none_or(|after| cluster.id.as_str() > after));
        let (clusters, next_page_token) = page.fill(clusters, |cluster| cluster.id.to_string());
        Ok(v1::ListClustersResponse {
            clusters: clusters
                .into_iter()
                .map(|cluster| info(cluster, &fleet))
                .collect(),
            next_page_token,
        })
    }

    async fn delete(&self, request: v1::DeleteRequest) -> Result<v1::DeleteResponse, Refusal> {
        let mut request = request;
        let request_id = std::mem::take(&mut request.request_id);
        let call = Call::named("DeleteCluster", request_id, &request)?;
        let now = self.0.now();
        let decide = move |loaded: &Loaded, resumed: bool| {
            let key = ClusterId::new(&request.id)
                .map(|id| (kreplicator_store::keys::cluster(&id), id))
                .ok()
                .filter(|(key, _)| loaded.revisions.contains_key(key));
            let Some((_, id)) = key else {
                return if resumed {
                    Ok(nothing())
                } else {
                    Err(unknown(&request.id))
                };
            };
            let links: Vec<String> = loaded
                .links_of(&id)
                .map(|link| link.id.to_string())
                .collect();
            if !links.is_empty() {
                return Err(Refusal::precondition(format!(
                    "cluster {id}: is used by link {}; delete the link first",
                    links.join(", link ")
                )));
            }
            let mut draft = Draft::new(loaded, now);
            draft.delete_cluster(&id);
            Ok(Edit {
                steps: draft.into_steps(),
                is_desired: true,
                answer: v1::DeleteResponse {},
            })
        };
        self.0.writer.write(call, decide).await
    }
}

/// Checks everything that concerns the cluster alone.
fn check(message: &v1::Cluster) -> Result<Cluster, Refusal> {
    let within = |fault: kreplicator_proto::fault::FieldFault| fault.within("cluster");
    let checked = Cluster::try_from(message);
    let mut faults = match &checked {
        Ok(cluster) => client_faults(cluster),
        Err(faults) => faults.clone(),
    };
    match checked {
        Ok(cluster) if faults.is_empty() => Ok(cluster),
        Ok(_) | Err(_) => {
            faults = faults.into_iter().map(within).collect();
            Err(Refusal::Invalid(faults))
        }
    }
}

fn nothing() -> Edit<v1::DeleteResponse> {
    Edit {
        steps: Vec::new(),
        is_desired: false,
        answer: v1::DeleteResponse {},
    }
}

fn exists(id: &ClusterId) -> Refusal {
    Refusal::Exists {
        kind: "cluster",
        id: id.to_string(),
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::NotFound {
        kind: "cluster",
        id: id.to_owned(),
    }
}

fn info(cluster: &Cluster, fleet: &FleetState) -> v1::ClusterInfo {
    let state = fleet.clusters.get(&cluster.id);
    v1::ClusterInfo {
        cluster: Some(v1::Cluster::from(cluster)),
        status: Some(state.map_or_else(not_looked_at, status)),
    }
}

fn not_looked_at() -> v1::ClusterStatus {
    v1::ClusterStatus {
        cause: "was not looked at yet".to_owned(),
        ..v1::ClusterStatus::default()
    }
}

fn status(state: &ClusterState) -> v1::ClusterStatus {
    let Some(reachable) = state.reachable else {
        return not_looked_at();
    };
    v1::ClusterStatus {
        reachable,
        cause: if reachable {
            String::new()
        } else {
            state.cause.clone()
        },
        since_ms: state.since.0,
        topics: count(state.topics),
        partitions: count(state.partitions),
        brokers: count(state.brokers),
        kafka_cluster_id: state.kafka_cluster_id.clone().unwrap_or_default(),
        discovered_at_ms: state.discovered_at.map_or(0, |at| at.0),
    }
}

/// A count as it crosses the wire.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[tonic::async_trait]
impl Clusters for ClustersService {
    async fn put_cluster(
        &self,
        request: Request<v1::PutClusterRequest>,
    ) -> Result<Response<v1::PutClusterResponse>, Status> {
        Ok(Response::new(self.put(request.into_inner()).await?))
    }

    async fn get_cluster(
        &self,
        request: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::ClusterInfo>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_clusters(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListClustersResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn delete_cluster(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        Ok(Response::new(self.delete(request.into_inner()).await?))
    }
}
