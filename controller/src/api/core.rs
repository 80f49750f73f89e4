//! What all services share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use kreplicator_model::{
    desired::{Desired, Fault},
    ids::{ClusterId, UnixMillis},
    spec::{Cluster, Link},
};
use kreplicator_proto::{fault::FieldFault, status::Refusal};
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ApiParts, ClusterView, leadership::Leadership, loaded::DesiredReader, repeat::Answers,
    surplus::Known, writer::Writer,
};
use crate::{fleet::FleetState, reports::View};

/// Longest look at clusters on behalf of one request: leaves room for the first record to flow within
/// two seconds of the call where the cluster answers as it should.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);
/// Looks keep to their deadline themselves and know the cause best; this is for one that does not.
const LOOK_SLACK: Duration = Duration::from_millis(250);
/// How long a request waits for the first pass of a new leader.
const FIRST_PASS_WAIT: Duration = Duration::from_secs(2);

/// What a look at a cluster gave; the cause when it gave nothing.
pub(crate) type Look = Result<ClusterView, String>;

/// What all services share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) parts: ApiParts,
    pub(crate) leadership: Leadership,
    pub(crate) desired: Arc<DesiredReader>,
    pub(crate) writer: Writer,
    /// Streams end when it fires.
    pub(crate) shutdown: CancellationToken,
    /// Everything that was spawned on behalf of a request.
    pub(crate) tasks: TaskTracker,
}

impl Core {
    pub(crate) fn new(parts: ApiParts, shutdown: CancellationToken) -> Self {
        let leadership = Leadership::new(parts.role.clone());
        let tasks = TaskTracker::new();
        let desired = Arc::new(DesiredReader::new(Arc::clone(&parts.store)));
        let answers = Answers::new(Arc::clone(&parts.store), parts.request_retention);
        let writer = Writer::new(
            Arc::clone(&parts.store),
            leadership.clone(),
            Arc::clone(&desired),
            answers,
            tasks.clone(),
        );
        Self {
            parts,
            leadership,
            desired,
            writer,
            shutdown,
            tasks,
        }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.parts.clock.now()
    }

    /// The fleet as seen last. Right after a change of leader the first pass is waited for, a while.
    pub(crate) async fn fleet(&self) -> Arc<FleetState> {
        let mut fleet = self.parts.fleet.clone();
        let ready = timeout(FIRST_PASS_WAIT, fleet.wait_for(|fleet| fleet.ready)).await;
        match ready {
            Ok(Ok(fleet)) => Arc::clone(&fleet),
            Ok(Err(_)) | Err(_) => Arc::clone(&self.parts.fleet.borrow()),
        }
    }

    /// The reports as of now.
    pub(crate) fn reports(&self) -> View<'_> {
        self.parts.reports.view(Instant::now())
    }

    /// Looks at clusters, all at the same time.
    pub(crate) async fn look(
        &self,
        clusters: impl IntoIterator<Item = &Cluster>,
    ) -> BTreeMap<ClusterId, Look> {
        let looks = clusters.into_iter().map(|cluster| async {
            let look = self.parts.discovery.look(cluster, LOOK_DEADLINE);
            let view = timeout(LOOK_DEADLINE + LOOK_SLACK, look)
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {LOOK_DEADLINE:?}")));
            (cluster.id.clone(), view)
        });
        join_all(looks).await.into_iter().collect()
    }

    /// What was last seen on the targets of these links.
    pub(crate) fn last_seen<'a>(
        &self,
        desired: &Desired,
        links: impl IntoIterator<Item = &'a Link>,
    ) -> Known {
        let targets: BTreeSet<&ClusterId> = links.into_iter().map(|link| &link.target).collect();
        targets
            .into_iter()
            .filter_map(|id| {
                let seen = self.parts.discovery.last_seen(desired.clusters.get(id)?)?;
                Some((id.clone(), seen))
            })
            .collect()
    }

    /// Has a cluster looked at again, since what is asked for has changed.
    pub(crate) fn poke<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterId>) {
        for cluster in clusters {
            self.parts.discovery.poke(cluster);
        }
    }
}

/// A warning for a cluster that could not be looked at; the change is accepted all the same.
pub(crate) fn unreachable_warning(cluster: &ClusterId, cause: &str) -> String {
    format!(
        "cluster {cluster} is not reachable now: {cause}; its topics are copied once it is, see \
         `kreplicator get clusters`"
    )
}

/// Refuses faults across the desired state, each with its own line.
pub(crate) fn refuse_faults(faults: Vec<Fault>) -> Result<(), Refusal> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Refusal::Precondition(
        faults.iter().map(ToString::to_string).collect(),
    ))
}

/// Checks of a cluster that concern the Kafka client.
pub(crate) fn client_faults(cluster: &Cluster) -> Vec<FieldFault> {
    kreplicator_kafka::properties::check_client_options(&cluster.client_options)
        .into_iter()
        .map(|fault| FieldFault::new("client_options", fault))
        .collect()
}
