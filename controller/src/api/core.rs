//! What all services share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use kreplicator_model::{
    desired::{Desired, Fault},
    ids::{ClusterId, UnixMillis},
    spec::{Cluster, Link},
};
use kreplicator_proto::{fault::FieldFault, status::Refusal};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ApiParts, ClusterView, DiscoveryPort, leadership::Leadership, loaded::DesiredReader,
    repeat::Answers, surplus::Known, writer::Writer,
};
use crate::{fleet::FleetState, reports::View};

/// Longest look at clusters on behalf of one request: leaves room for the first record to flow within
/// two seconds of the call where the cluster answers as it should.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);
/// Looks keep to their deadline themselves and know the cause best; this is for one that does not.
const LOOK_SLACK: Duration = Duration::from_millis(250);
/// Clusters looked at at a time: each may take clients of its own, with their threads.
const LOOKS_AT_ONCE: usize = 8;
/// Longest time for all looks of one request; clusters not looked at by then are warned of.
const LOOKS_DEADLINE: Duration = Duration::from_secs(10);
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

    /// Does what walks over everything there is, with the reports as of its turn.
    pub(crate) async fn walk<T>(&self, work: impl FnOnce(&View) -> T) -> T {
        let reports = || self.reports();
        self.parts.walks.turn(|| work(&reports())).await
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
    pub(crate) fn reports(&self) -> View {
        self.parts.reports.view(Instant::now())
    }

    /// Looks at clusters, several at a time.
    pub(crate) async fn look(
        &self,
        clusters: impl IntoIterator<Item = &Cluster>,
    ) -> BTreeMap<ClusterId, Look> {
        let discovery = self.parts.discovery.as_ref();
        look_at(discovery, clusters.into_iter().collect()).await
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

/// Looks at clusters within [`LOOKS_DEADLINE`], [`LOOKS_AT_ONCE`] at a time.
async fn look_at(
    discovery: &dyn DiscoveryPort,
    clusters: Vec<&Cluster>,
) -> BTreeMap<ClusterId, Look> {
    let end = Instant::now() + LOOKS_DEADLINE;
    let missed = || {
        Err(format!(
            "it could not be looked at within {LOOKS_DEADLINE:?}"
        ))
    };
    let ids = clusters.iter().map(|cluster| cluster.id.clone());
    let mut found: BTreeMap<ClusterId, Look> = ids.map(|id| (id, missed())).collect();
    let looks: Vec<_> = clusters
        .into_iter()
        .map(|cluster| look_at_one(discovery, cluster).boxed())
        .collect();
    let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
    while let Ok(Some((id, view))) = timeout_at(end, looks.next()).await {
        found.insert(id, view);
    }
    found
}

async fn look_at_one(discovery: &dyn DiscoveryPort, cluster: &Cluster) -> (ClusterId, Look) {
    let look = discovery.look(cluster, LOOK_DEADLINE);
    let view = timeout(LOOK_DEADLINE + LOOK_SLACK, look)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {LOOK_DEADLINE:?}")));
    (cluster.id.clone(), view)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use tokio::time::sleep;

    use super::*;
    use crate::api::samples;

    /// Answers after a while, and counts who asks at the same time.
    #[derive(Debug, Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait]
    impl DiscoveryPort for Slow {
        async fn look(&self, _: &Cluster, _: Duration) -> Result<ClusterView, String> {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            sleep(Duration::from_millis(1_500)).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            Ok(ClusterView::default())
        }

        fn last_seen(&self, _: &Cluster) -> Option<ClusterView> {
            None
        }

        fn poke(&self, _: &ClusterId) {}
    }

    #[tokio::test(start_paused = true)]
    async fn c110_looks_at_many_clusters_are_few_at_a_time_and_end_together() {
        let clusters: Vec<Cluster> = (0..100)
            .map(|n| samples::cluster(&format!("c{n}")))
            .collect();
        let slow = Slow::default();
        let began = Instant::now();
        let looks = look_at(&slow, clusters.iter().collect()).await;
        assert_eq!(began.elapsed(), LOOKS_DEADLINE);
        assert_eq!(slow.most.load(Ordering::Relaxed), LOOKS_AT_ONCE);
        assert_eq!(looks.len(), 100, "each is answered for");
        let seen = looks.values().filter(|look| look.is_ok()).count();
        assert_eq!(seen, 6 * LOOKS_AT_ONCE);
    }
}
