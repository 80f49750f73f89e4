//! `delete`: clusters and links by name.

use kreplicator_proto::v1::{self, clusters_client::ClustersClient, links_client::LinksClient};

use super::{grpc, print};
use crate::{
    args::{Deletable, Delete},
    client::{Client, request_id},
    exit::Exit,
};

/// Runs the command, name by name; stops at the first refusal.
pub(crate) async fn delete(client: &Client, args: &Delete) -> anyhow::Result<Exit> {
    for id in &args.names {
        let request = v1::DeleteRequest {
            id: id.clone(),
            request_id: request_id(),
        };
        client
            .call(|attempt| {
                let request = attempt.request(request.clone());
                async move {
                    match args.what {
                        Deletable::Cluster => {
                            grpc!(ClustersClient, attempt).delete_cluster(request).await
                        }
                        Deletable::Link => grpc!(LinksClient, attempt).delete_link(request).await,
                    }
                }
            })
            .await?;
        let kind = match args.what {
            Deletable::Cluster => "cluster",
            Deletable::Link => "link",
        };
        print(&format!("deleted: {kind} {id}"))?;
    }
    Ok(Exit::Ok)
}
