//! What the tests stand on.

mod clusters;
mod samples;
mod store;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kreplicator_controller::{
    api::{self, ApiParts, Clock, DiscoveryPort},
    fleet::FleetState,
    heavy::Walks,
    reports::{Limits, Reports},
};
use kreplicator_model::ids::{ControllerId, UnixMillis};
use kreplicator_proto::v1::{
    self, clusters_client::ClustersClient, desired_client::DesiredClient,
    fleet_client::FleetClient, links_client::LinksClient, status_client::StatusClient,
    subscriptions_client::SubscriptionsClient, workers_client::WorkersClient,
};
use kreplicator_store::{
    Compare, MetaStore, Op, Outcome, Txn,
    election::{Role, Term},
    fence::Fence,
    keys,
};
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

pub(crate) use self::samples::*;
use self::{clusters::FakeClusters, store::FaultyStore};

/// Longer than anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Several controllers over one store.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) discovery: Arc<FakeClusters>,
    /// Of the controllers that are started from now on.
    pub(crate) limits: api::Limits,
    terms: u64,
}

/// One controller's API.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) id: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) role: watch::Sender<Role>,
    pub(crate) fleet: watch::Sender<Arc<FleetState>>,
    pub(crate) reports: Arc<Reports>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), api::Error>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::new(FaultyStore::new()),
            discovery: Arc::default(),
            limits: api::Limits::default(),
            terms: 0,
        }
    }

    /// A rig with one leading controller.
    pub(crate) async fn with_leader() -> (Self, Controller) {
        let mut rig = Self::new();
        let leader = rig.controller("c1").await;
        rig.elect(&leader).await;
        (rig, leader)
    }

    /// Starts a controller that knows of no leader.
    pub(crate) async fn controller(&self, id: &'static str) -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let role = watch::Sender::new(Role::Following { leader_value: None });
        let ready = FleetState {
            ready: true,
            ..FleetState::default()
        };
        let fleet = watch::Sender::new(Arc::new(ready));
        let reports = Arc::new(Reports::new(Limits::default()));
        let shutdown = CancellationToken::new();
        let parts = ApiParts {
            controller: ControllerId::new(id).expect("legal"),
            address: address.to_string(),
            store: Arc::clone(&self.store) as Arc<dyn MetaStore>,
            role: role.subscribe(),
            fleet: fleet.subscribe(),
            discovery: Arc::clone(&self.discovery) as Arc<dyn DiscoveryPort>,
            reports: Arc::clone(&reports),
            walks: Walks::default(),
            clock: Arc::new(FixedClock),
            request_retention: Duration::from_secs(3_600),
            limits: self.limits,
        };
        let task = tokio::spawn(api::serve(parts, listener, shutdown.clone()));
        Controller {
            id,
            address,
            role,
            fleet,
            reports,
            shutdown,
            task,
        }
    }

    /// Makes a controller the leader: writes the key and tells it. Others are told by
    /// [`Controller::follow`].
    pub(crate) async fn elect(&mut self, controller: &Controller) {
        let key = keys::LEADER.to_owned();
        let depose = Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete(key.clone())],
        };
        self.store.commit(depose).await.expect("in memory");
        let value = controller.leader_value();
        let elect = Txn {
            compares: vec![Compare::Absent(key.clone())],
            ops: vec![Op::Put {
                key: key.clone(),
                value,
                lease: None,
            }],
        };
        let Outcome::Committed(revision) = self.store.commit(elect).await.expect("in memory")
        else {
            panic!("somebody else leads");
        };
        self.terms += 1;
        controller.role.send_replace(Role::Leading(Term {
            guard: Compare::CreatedAt(key, revision),
            fence: Fence::open_until(Instant::now() + Duration::from_secs(3_600)),
            number: self.terms,
        }));
    }
}

impl Controller {
    fn leader_value(&self) -> Vec<u8> {
        leader_value(self.id, self.address)
    }

    /// Tells this controller that another one leads, reached at `address`.
    pub(crate) fn follow_address(&self, id: &str, address: SocketAddr) {
        self.role.send_replace(Role::Following {
            leader_value: Some(leader_value(id, address)),
        });
    }

    /// Tells this controller that another one leads.
    pub(crate) fn follow(&self, leader: &Controller) {
        self.role.send_replace(Role::Following {
            leader_value: Some(leader.leader_value()),
        });
    }

    /// Tells this controller that nobody leads.
    pub(crate) fn follow_nobody(&self) {
        self.role
            .send_replace(Role::Following { leader_value: None });
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address))
            .expect("an address")
            .timeout(LIMIT)
            .connect_lazy()
    }

    pub(crate) fn clusters(&self) -> ClustersClient<Channel> {
        ClustersClient::new(self.channel())
    }

    pub(crate) fn links(&self) -> LinksClient<Channel> {
        LinksClient::new(self.channel())
    }

    pub(crate) fn subscriptions(&self) -> SubscriptionsClient<Channel> {
        SubscriptionsClient::new(self.channel())
    }

    pub(crate) fn workers(&self) -> WorkersClient<Channel> {
        WorkersClient::new(self.channel())
    }

    pub(crate) fn status(&self) -> StatusClient<Channel> {
        StatusClient::new(self.channel())
    }

    pub(crate) fn desired(&self) -> DesiredClient<Channel> {
        DesiredClient::new(self.channel()).max_decoding_message_size(64 << 20)
    }

    pub(crate) fn fleet_api(&self) -> FleetClient<Channel> {
        FleetClient::new(self.channel())
    }

    /// Declares clusters `a` and `b` and the link `a-b`.
    pub(crate) async fn declare_link(&self) {
        for id in ["a", "b"] {
            self.clusters()
                .put_cluster(put_cluster(id))
                .await
                .expect("accepted");
        }
        self.links()
            .put_link(put_link(link("a-b", "a", "b")))
            .await
            .expect("accepted");
    }

    /// Stops the controller in an orderly way.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.task)
            .await
            .expect("it ends")
            .expect("no panic")
            .expect("no error");
    }

    /// Stops the controller as a crash does.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

fn leader_value(id: &str, address: SocketAddr) -> Vec<u8> {
    v1::Leader {
        controller: id.to_owned(),
        address: address.to_string(),
        elected_at_ms: 1,
    }
    .encode_to_vec()
}

/// Wall-clock time that stands still.
#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000)
    }
}
