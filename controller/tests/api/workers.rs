//! Workers, and the state of the whole.

use std::sync::Arc;

use kreplicator_controller::fleet::{Assigned, Problem, WorkerView};
use kreplicator_model::ids::{
    LinkTopic, OwnerEpoch, Partition, PlanGeneration, TaskId, UnixMillis,
};
use kreplicator_proto::v1;
use kreplicator_store::{MetaStore, keys};
use prost::Message;
use tonic::Code;

use crate::rig::{Rig, live_worker, refused, running_fleet, topic, worker};

fn task(partition: i32) -> TaskId {
    TaskId {
        link: "a-b".parse().expect("legal"),
        topic: topic("t1"),
        partition: Partition(partition),
    }
}

fn assigned(id: &str) -> Assigned {
    Assigned {
        worker: worker(id),
        epoch: OwnerEpoch(1),
        owned: true,
        stopping: false,
        reason: "new".to_owned(),
        covered_by: std::collections::BTreeSet::new(),
    }
}

#[tokio::test]
async fn a_worker_is_drained_and_taken_back() {
    let (rig, leader) = Rig::with_leader().await;
    let mut fleet = running_fleet(&["t1"]);
    fleet.assigned.insert(task(0), assigned("w1"));
    fleet.assigned.insert(task(1), assigned("w2"));
    leader.fleet.send_replace(Arc::new(fleet));
    let mut workers = leader.workers();
    let drain = |worker: &str, undrain, request_id: &str| v1::DrainWorkerRequest {
        worker: worker.to_owned(),
        request_id: request_id.to_owned(),
        undrain,
        reason: "new kernel".to_owned(),
    };
    refused(
        workers.drain_worker(drain("w9", false, "")).await,
        Code::NotFound,
        &["w9"],
    );
    refused(
        workers.drain_worker(drain("", false, "")).await,
        Code::InvalidArgument,
        &["worker id"],
    );
    let long = v1::DrainWorkerRequest {
        reason: "x".repeat(2_000),
        ..drain("w1", false, "")
    };
    refused(
        workers.drain_worker(long).await,
        Code::InvalidArgument,
        &["reason"],
    );

    let answer = workers
        .drain_worker(drain("w1", false, "r1"))
        .await
        .expect("known");
    assert_eq!(answer.into_inner().tasks_to_move, 1);
    let key = keys::worker_drain(&worker("w1"));
    let entry = rig
        .store
        .get(&key)
        .await
        .expect("in memory")
        .expect("written");
    let record = v1::WorkerDrain::decode(entry.value.as_slice()).expect("ours");
    assert_eq!(record.reason, "new kernel");
    assert_eq!(record.requested_at_ms, 1_700_000_000_000);
    let again = workers
        .drain_worker(drain("w1", false, "r2"))
        .await
        .expect("known");
    assert_eq!(again.into_inner().tasks_to_move, 1);
    let kept = rig
        .store
        .get(&key)
        .await
        .expect("in memory")
        .expect("written");
    assert_eq!(
        kept.mod_revision, entry.mod_revision,
        "draining twice changes nothing"
    );

    workers
        .drain_worker(drain("w1", true, "r3"))
        .await
        .expect("known");
    assert_eq!(rig.store.get(&key).await.expect("in memory"), None);
    let late = workers
        .drain_worker(drain("w1", false, "r1"))
        .await
        .expect("answered before");
    assert_eq!(late.into_inner().tasks_to_move, 1);
    assert_eq!(
        rig.store.get(&key).await.expect("in memory"),
        None,
        "a repeat does nothing"
    );
}

#[tokio::test]
async fn workers_are_listed_with_their_state() {
    let (_rig, leader) = Rig::with_leader().await;
    let mut fleet = running_fleet(&[]);
    fleet.workers.insert(
        worker("w2"),
        WorkerView {
            draining: true,
            ..live_worker()
        },
    );
    fleet.workers.insert(
        worker("w3"),
        WorkerView {
            live: false,
            lost: true,
            tasks_assigned: 4,
            ..live_worker()
        },
    );
    leader.fleet.send_replace(Arc::new(fleet));
    let list = v1::ListRequest::default();
    let listed = leader
        .workers()
        .list_workers(list)
        .await
        .expect("a list")
        .into_inner();
    let states: Vec<(&str, v1::WorkerState)> = listed
        .workers
        .iter()
        .map(|worker| (worker.id.as_str(), worker.state()))
        .collect();
    assert_eq!(
        states,
        [
            ("w1", v1::WorkerState::Active),
            ("w2", v1::WorkerState::Draining),
            ("w3", v1::WorkerState::Lost),
        ]
    );
    assert_eq!(listed.workers[0].version, "1.2.3");
    assert_eq!(listed.workers[2].tasks_assigned, 4);
}

#[tokio::test]
async fn c113_the_whole_is_not_green_while_a_part_is_not() {
    let (_rig, leader) = Rig::with_leader().await;
    let read = async || {
        let mut status = leader.status();
        status
            .get_status(v1::GetStatusRequest {})
            .await
            .expect("a status")
            .into_inner()
    };
    let empty = read().await;
    assert_eq!(empty.health(), v1::Health::Ok);
    assert_eq!(
        (empty.leader.as_str(), empty.leader_address),
        ("c1", leader.address.to_string())
    );

    leader.declare_link().await;
    let mut fleet = running_fleet(&["t1"]);
    fleet.generation = PlanGeneration(9);
    leader.fleet.send_replace(Arc::new(fleet.clone()));
    let pending = read().await;
    assert_eq!(pending.health(), v1::Health::Pending);
    assert_eq!(pending.plan_generation, 9);
    assert_eq!(pending.workers_active, 1);
    let tasks = pending.tasks.expect("counts");
    assert_eq!((tasks.total, tasks.pending), (2, 2));

    let key = LinkTopic {
        link: "a-b".parse().expect("legal"),
        topic: topic("t1"),
    };
    let problem = Problem {
        message: "target topic t1 must exist; create it".to_owned(),
        since: UnixMillis(50),
    };
    fleet.target_problems.insert(key, problem);
    leader.fleet.send_replace(Arc::new(fleet.clone()));
    let down = read().await;
    assert_eq!(down.health(), v1::Health::Down);
    assert!(
        down.problems[0].starts_with("link a-b: 2 of 2 tasks at fault; t1/0: target topic t1"),
        "{:?}",
        down.problems
    );
    let get = v1::GetLinkRequest {
        id: "a-b".to_owned(),
    };
    let link = leader
        .links()
        .get_link(get)
        .await
        .expect("known")
        .into_inner();
    let status = link.status.expect("a status");
    assert_eq!(status.health(), v1::Health::Down);
    assert_eq!(status.since_ms, 50);
    assert_eq!(status.delivery, "", "no task has said what it promises");

    fleet.ready = false;
    leader.fleet.send_replace(Arc::new(fleet));
    assert_eq!(
        read().await.health(),
        v1::Health::Pending,
        "nothing is known yet"
    );
}
