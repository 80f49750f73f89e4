//! Reports of workers and the numbers that come of them.

use std::sync::Arc;

use kreplicator_controller::fleet::Assigned;
use kreplicator_model::ids::{OwnerEpoch, Partition, TaskId};
use kreplicator_proto::v1;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use crate::rig::{
    Controller, LIMIT, Rig, exact, reference, refused, running_fleet, subscribe, topic, worker,
};

/// A worker's report stream.
struct Reporter {
    reports: mpsc::Sender<v1::WorkerReport>,
    acks: Streaming<v1::ReportAck>,
}

impl Reporter {
    async fn open(controller: &Controller) -> Self {
        let (reports, received) = mpsc::channel(4);
        let acks = controller
            .fleet_api()
            .report(ReceiverStream::new(received))
            .await
            .expect("a stream")
            .into_inner();
        Self { reports, acks }
    }

    async fn send(&mut self, report: v1::WorkerReport) -> v1::ReportAck {
        self.reports.send(report).await.expect("open");
        let ack = timeout(LIMIT, self.acks.message()).await.expect("in time");
        ack.expect("no error").expect("an ack")
    }
}

fn entry(partition: i32, state: v1::TaskState, lag: Option<i64>) -> v1::TaskReport {
    v1::TaskReport {
        link: "a-b".to_owned(),
        topic: "t1".to_owned(),
        partition,
        epoch: 3,
        state: state.into(),
        since_ms: 100 + i64::from(partition),
        lag_records: lag,
        ..v1::TaskReport::default()
    }
}

fn report(tasks: Vec<v1::TaskReport>) -> v1::WorkerReport {
    v1::WorkerReport {
        worker: "w1".to_owned(),
        incarnation: "i1".to_owned(),
        full: true,
        tasks,
        records_per_second: 10.5,
        memory_budget_bytes: 512,
        ..v1::WorkerReport::default()
    }
}

/// A leader with both tasks of topic `t1` assigned to `w1` and owned by it.
async fn assigned_rig() -> (Rig, Controller) {
    let (rig, leader) = Rig::with_leader().await;
    leader.declare_link().await;
    rig.discovery.set_topics("a", ["t1"]);
    let one = subscribe(vec![exact("a-b", "t1")]);
    leader
        .subscriptions()
        .subscribe(one)
        .await
        .expect("accepted");
    let mut fleet = running_fleet(&["t1"]);
    for partition in [0, 1] {
        let task = TaskId {
            link: "a-b".parse().expect("legal"),
            topic: topic("t1"),
            partition: Partition(partition),
        };
        let assigned = Assigned {
            worker: worker("w1"),
            epoch: OwnerEpoch(3),
            owned: true,
            stopping: false,
            reason: "new".to_owned(),
            covered_by: std::collections::BTreeSet::new(),
        };
        fleet.assigned.insert(task, assigned);
    }
    leader.fleet.send_replace(Arc::new(fleet));
    (rig, leader)
}

async fn status(leader: &Controller) -> v1::SubscriptionStatus {
    let mut subscriptions = leader.subscriptions();
    let read = subscriptions.get_subscription(reference("a-b", "t1")).await;
    read.expect("known").into_inner().status.expect("a status")
}

#[tokio::test]
async fn c115_lag_is_the_sum_of_what_is_known() {
    let (_rig, leader) = assigned_rig().await;
    let mut worker = Reporter::open(&leader).await;
    let running = v1::TaskState::Running;
    let both = report(vec![entry(0, running, Some(5)), entry(1, running, None)]);
    assert!(!worker.send(both).await.want_full);
    let known = status(&leader).await;
    assert_eq!(known.health(), v1::Health::Ok, "{known:?}");
    assert_eq!(known.lag_records, Some(5));
    assert_eq!(known.since_ms, 101, "since all of it runs");

    let negative = report(vec![
        entry(0, running, Some(-3)),
        entry(1, running, Some(2)),
    ]);
    worker.send(negative).await;
    assert_eq!(status(&leader).await.lag_records, Some(2), "never below 0");
    let none = report(vec![entry(0, running, None), entry(1, running, None)]);
    worker.send(none).await;
    assert_eq!(status(&leader).await.lag_records, None, "unknown is not 0");
}

#[tokio::test]
async fn c113_a_fault_of_one_task_is_told_with_cause_and_since() {
    let (_rig, leader) = assigned_rig().await;
    let mut reporter = Reporter::open(&leader).await;
    let faulted = v1::TaskReport {
        cause: "message too large for topic t1 on cluster b".to_owned(),
        ..entry(1, v1::TaskState::Faulted, Some(8))
    };
    reporter
        .send(report(vec![
            entry(0, v1::TaskState::Running, Some(1)),
            faulted,
        ]))
        .await;
    let status = status(&leader).await;
    assert_eq!(status.health(), v1::Health::Degraded);
    assert!(
        status.cause.contains("t1/1: message too large"),
        "{}",
        status.cause
    );
    assert_eq!(status.since_ms, 101);
    assert_eq!(status.lag_records, Some(9));
    let filter = v1::ListTasksRequest {
        state: v1::TaskState::Faulted.into(),
        worker: "w1".to_owned(),
        ..v1::ListTasksRequest::default()
    };
    let tasks = leader
        .status()
        .list_tasks(filter)
        .await
        .expect("a page")
        .into_inner()
        .tasks;
    assert_eq!(tasks.len(), 1);
    let report = tasks[0].report.clone().expect("a report");
    assert_eq!((report.topic.as_str(), report.partition), ("t1", 1));
    assert_eq!(tasks[0].epoch, 3);
    let listed = leader
        .workers()
        .list_workers(v1::ListRequest::default())
        .await;
    let worker = listed.expect("a list").into_inner().workers.remove(0);
    assert_eq!(worker.tasks_running, 1);
    assert_eq!(worker.memory_budget_bytes, 512);
    assert!((worker.records_per_second - 10.5).abs() < f64::EPSILON);
}

#[tokio::test]
async fn wrong_reports_end_their_stream() {
    let (_rig, leader) = assigned_rig().await;
    let mut first = Reporter::open(&leader).await;
    first.send(report(Vec::new())).await;
    let mut second = Reporter::open(&leader).await;
    second.send(report(Vec::new())).await;
    first.reports.send(report(Vec::new())).await.expect("open");
    let end = timeout(LIMIT, first.acks.message()).await.expect("in time");
    refused(end, Code::Aborted, &["w1"]);

    let mut nobody = Reporter::open(&leader).await;
    let unnamed = v1::WorkerReport {
        worker: "no name!".to_owned(),
        ..report(Vec::new())
    };
    nobody.reports.send(unnamed).await.expect("open");
    let end = timeout(LIMIT, nobody.acks.message())
        .await
        .expect("in time");
    refused(end, Code::InvalidArgument, &["no name!"]);

    let mut stranger = Reporter::open(&leader).await;
    let unknown = v1::WorkerReport {
        worker: "w7".to_owned(),
        ..report(Vec::new())
    };
    assert!(
        stranger.send(unknown).await.want_full,
        "it may be known in a moment"
    );
}
