//! Metrics, health and readiness over HTTP.

use std::sync::Arc;

use kreplicator_controller::{
    fleet::{Assigned, FleetState},
    heavy::Walks,
    http::{self, HttpParts},
    reports::{Limits, Reports},
};
use kreplicator_model::ids::{OwnerEpoch, Partition, TaskId};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, election::Role};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::rig::{Controller, LIMIT, Rig, running_fleet, topic, worker};

struct Endpoint {
    address: std::net::SocketAddr,
    reports: Arc<Reports>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), http::Error>>,
}

impl Endpoint {
    /// An endpoint that sees the world as `controller` does.
    async fn start(rig: &Rig, controller: &Controller) -> Self {
        let role: watch::Receiver<Role> = controller.role.subscribe();
        let reports = Arc::new(Reports::new(Limits::default()));
        let parts = HttpParts {
            prometheus: None,
            store: Arc::clone(&rig.store) as Arc<dyn MetaStore>,
            role,
            fleet: controller.fleet.subscribe(),
            reports: Arc::clone(&reports),
            walks: Walks::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(http::serve(parts, listener, shutdown.clone()));
        Self {
            address,
            reports,
            shutdown,
            task,
        }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("open");
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer))
            .await
            .expect("in time")
            .expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), body.to_owned())
    }
}

#[tokio::test]
async fn connections_that_say_nothing_make_way_for_a_probe() {
    let mut rig = Rig::new();
    let controller = rig.controller("c1").await;
    rig.elect(&controller).await;
    let endpoint = Endpoint::start(&rig, &controller).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(
            TcpStream::connect(endpoint.address)
                .await
                .expect("it listens"),
        );
    }
    assert_eq!(endpoint.get("/healthz").await.0, 200);
    let end = timeout(LIMIT, silent[0].read(&mut [0])).await;
    let end = end.expect("dropped though the time for a request's head is not over");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn c113_readiness_depends_on_store_and_leader_alone() {
    let mut rig = Rig::new();
    let controller = rig.controller("c1").await;
    let endpoint = Endpoint::start(&rig, &controller).await;
    assert_eq!(endpoint.get("/healthz").await.0, 200);
    let (status, body) = endpoint.get("/readyz").await;
    assert_eq!((status, body.as_str()), (503, "no controller leads\n"));
    rig.elect(&controller).await;
    let mut fleet = running_fleet(&[]);
    for cluster in fleet.clusters.values_mut() {
        cluster.reachable = Some(false);
    }
    controller.fleet.send_replace(Arc::new(fleet));
    let (status, body) = endpoint.get("/readyz").await;
    assert_eq!((status, body.as_str()), (200, "leading\n"));
    rig.store.set_deaf(true);
    let (status, body) = endpoint.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("metadata store is not reachable"), "{body}");
    assert_eq!(endpoint.get("/healthz").await.0, 200);
    rig.store.set_deaf(false);
    let other = rig.controller("c2").await;
    controller.follow(&other);
    let (status, body) = endpoint.get("/readyz").await;
    assert_eq!((status, body.as_str()), (200, "following c2\n"));
    assert_eq!(endpoint.get("/nothing").await.0, 404);
    endpoint.shutdown.cancel();
    timeout(LIMIT, endpoint.task)
        .await
        .expect("it ends")
        .expect("no panic")
        .expect("no error");
}

#[tokio::test]
async fn c119_the_leader_alone_tells_of_the_fleet_as_it_is_now() {
    let (rig, leader) = Rig::with_leader().await;
    let endpoint = Endpoint::start(&rig, &leader).await;
    let mut fleet: FleetState = running_fleet(&["t1", "t2"]);
    for (name, partition) in [("t1", 0), ("t1", 1), ("t2", 0)] {
        let task = TaskId {
            link: "a-b".parse().expect("legal"),
            topic: topic(name),
            partition: Partition(partition),
        };
        let assigned = Assigned {
            worker: worker("w1"),
            epoch: OwnerEpoch(3),
            owned: true,
            stopping: false,
            reason: String::new(),
            covered_by: std::collections::BTreeSet::new(),
        };
        fleet.assigned.insert(task, assigned);
    }
    fleet.clusters.get_mut("b").expect("there").reachable = Some(false);
    let entry = |name: &str, partition, lag| v1::TaskReport {
        link: "a-b".to_owned(),
        topic: name.to_owned(),
        partition,
        epoch: 3,
        state: v1::TaskState::Running.into(),
        lag_records: lag,
        ..v1::TaskReport::default()
    };
    let report = v1::WorkerReport {
        worker: "w1".to_owned(),
        full: true,
        tasks: vec![
            entry("t1", 0, Some(4)),
            entry("t1", 1, Some(6)),
            entry("t2", 0, None),
        ],
        ..v1::WorkerReport::default()
    };
    let stream = endpoint.reports.open_stream();
    endpoint
        .reports
        .accept(Instant::now(), stream, report, &fleet);
    leader.fleet.send_replace(Arc::new(fleet.clone()));
    let (status, page) = endpoint.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "kreplicator_controller_workers{state=\"active\"} 1",
        "kreplicator_controller_workers{state=\"lost\"} 0",
        "kreplicator_controller_cluster_reachable{cluster=\"a\"} 1",
        "kreplicator_controller_cluster_reachable{cluster=\"b\"} 0",
        "kreplicator_controller_tasks{link=\"a-b\",state=\"running\"} 3",
        "kreplicator_controller_tasks{link=\"a-b\",state=\"unassigned\"} 1",
        "kreplicator_controller_lag_records{link=\"a-b\",topic=\"t1\"} 10",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "no {line} in\n{page}"
        );
    }
    assert!(
        !page.contains("topic=\"t2\""),
        "unknown lag is absent, not 0"
    );

    // A topic that is gone takes its series along.
    fleet
        .resolved
        .topics
        .retain(|key, _| key.topic != topic("t1"));
    fleet.assigned.retain(|key, _| key.topic != topic("t1"));
    leader.fleet.send_replace(Arc::new(fleet));
    let (_, page) = endpoint.get("/metrics").await;
    assert!(!page.contains("topic=\"t1\""), "{page}");

    leader.follow_nobody();
    let (_, page) = endpoint.get("/metrics").await;
    assert_eq!(page, "", "whoever does not lead tells nothing of the fleet");
}
