use async_trait::async_trait;
use kreplicator_model::{
    ids::{ClusterId, ControllerId, UnixMillis},
    spec::Cluster,
};
use kreplicator_proto::{stored::Stored, subscription_record::SubscriptionRecord};
use kreplicator_store::{
    Compare, MetaStore, Op, Txn,
    election::{Role, Term},
    embedded::EmbeddedStore,
    fence::Fence,
    keys,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::heavy::Walks;
use crate::{
    api::{ApiParts, ClusterView, DiscoveryPort, SystemClock, samples},
    fleet::FleetState,
    reports::{Limits, Reports},
};

/// Nobody looks at clusters here.
#[derive(Debug)]
struct NoClusters;

#[async_trait]
impl DiscoveryPort for NoClusters {
    async fn look(&self, cluster: &Cluster, _: Duration) -> Result<ClusterView, String> {
        panic!("nobody asks for {}", cluster.id);
    }

    fn last_seen(&self, cluster: &Cluster) -> Option<ClusterView> {
        panic!("nobody asks for {}", cluster.id);
    }

    fn poke(&self, cluster: &ClusterId) {
        panic!("nobody pokes {cluster}");
    }
}

/// A leader over a store with clusters `a` and `b`, link `a-b` and `count` subscriptions.
async fn core(
    count: usize,
) -> (
    Arc<Core>,
    watch::Sender<Role>,
    watch::Sender<Arc<FleetState>>,
) {
    let store: Arc<dyn MetaStore> = Arc::new(EmbeddedStore::in_memory());
    let names: Vec<String> = (0..count).map(|n| format!("t{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let desired = samples::desired(&names);
    let mut values = Vec::new();
    for (id, cluster) in &desired.clusters {
        values.push((keys::cluster(id), cluster.encode()));
    }
    for (id, link) in &desired.links {
        values.push((keys::link(id), link.encode()));
    }
    for ((link, id), subscription) in desired.subscriptions {
        let record = SubscriptionRecord {
            subscription,
            created_at: UnixMillis(1),
            baseline: true,
        };
        values.push((keys::subscription(&link, &id), record.encode()));
    }
    for some in values.chunks(100) {
        let put = |(key, value): &(String, Vec<u8>)| Op::Put {
            key: key.clone(),
            value: value.clone(),
            lease: None,
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: some.iter().map(put).collect(),
        };
        store.commit(txn).await.expect("in memory");
    }
    let role = watch::Sender::new(Role::Leading(Term {
        guard: Compare::Absent(keys::LEADER.to_owned()),
        fence: Fence::open_until(Instant::now() + Duration::from_secs(3_600)),
        number: 1,
    }));
    let fleet = watch::Sender::new(Arc::new(samples::fleet(&[])));
    let parts = ApiParts {
        controller: ControllerId::new("c1").expect("legal"),
        address: "127.0.0.1:1".to_owned(),
        store,
        role: role.subscribe(),
        fleet: fleet.subscribe(),
        discovery: Arc::new(NoClusters),
        reports: Arc::new(Reports::new(Limits::default())),
        walks: Walks::default(),
        clock: Arc::new(SystemClock),
        request_retention: Duration::from_secs(3_600),
        limits: crate::api::Limits::default(),
    };
    let core = Arc::new(Core::new(parts, CancellationToken::new()));
    (core, role, fleet)
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_reads_nothing_is_told_to_watch_again() {
    let (core, _role, _fleet) = core(2 * BUFFER).await;
    let mut events = open(&core, v1::WatchRequest::default())
        .await
        .expect("known");
    sleep(PATIENCE + Duration::from_secs(5)).await;
    let mut received = 0;
    let end = loop {
        match events.recv().await.expect("a last word") {
            Ok(_) => received += 1,
            Err(status) => break status,
        }
    };
    assert_eq!(received, BUFFER - 1, "what was on its way, and no more");
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("watch again"), "{end:?}");
    assert!(events.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_misses_states_but_never_the_latest() {
    let (core, _role, fleet) = core(2 * BUFFER).await;
    let mut events = open(&core, v1::WatchRequest::default())
        .await
        .expect("known");
    // While the first picture waits to be read, the state changes many times.
    let latest = 50;
    for partitions in 1..=latest {
        let mut state = samples::fleet(&["t0000"]);
        for resolved in state.resolved.topics.values_mut() {
            resolved.partitions = partitions;
        }
        fleet.send_replace(Arc::new(state));
        sleep(Duration::from_millis(100)).await;
    }
    let mut updates = 0;
    let mut seen = 0;
    while seen != latest {
        let event = events.recv().await.expect("open").expect("no end");
        if let Some(v1::subscription_event::Event::Updated(info)) = event.event
            && info.id == "t0000"
        {
            updates += 1;
            let status = info.status.expect("a status");
            seen = status.topics.first().map_or(0, |topic| topic.partitions);
        }
    }
    assert!(updates <= 3, "states in between are left out: {updates}");
}
