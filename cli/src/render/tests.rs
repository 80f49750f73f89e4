//! What lists look like, compared with files in `golden/`. After a wanted change, copy what the
//! failing test shows into the file and review the difference.

use kreplicator_proto::v1;

use super::*;
use crate::args::Format;

/// 2026-01-01T00:00:00Z
const NEW_YEAR: i64 = 1_767_225_600_000;

fn counts(running: i32, total: i32) -> Option<v1::TaskCounts> {
    Some(v1::TaskCounts {
        total,
        running,
        pending: total - running,
        faulted: 0,
        paused: 0,
    })
}

fn clusters() -> Vec<clusters::Cluster> {
    let tls_and_sasl = v1::Security {
        tls: Some(v1::Tls::default()),
        sasl: Some(v1::Sasl {
            mechanism: v1::SaslMechanism::ScramSha512.into(),
            username: "mirror".to_owned(),
            password: None,
        }),
    };
    let east = v1::ClusterInfo {
        cluster: Some(v1::Cluster {
            id: "east".to_owned(),
            bootstrap_servers: vec!["east-1:9092".to_owned(), "east-2:9092".to_owned()],
            ..v1::Cluster::default()
        }),
        status: Some(v1::ClusterStatus {
            reachable: true,
            since_ms: NEW_YEAR,
            topics: 12,
            partitions: 96,
            brokers: 3,
            kafka_cluster_id: "lkc-1".to_owned(),
            discovered_at_ms: NEW_YEAR + 5_000,
            ..v1::ClusterStatus::default()
        }),
    };
    let west = v1::ClusterInfo {
        cluster: Some(v1::Cluster {
            id: "west".to_owned(),
            bootstrap_servers: vec!["west-1:9093".to_owned()],
            security: Some(tls_and_sasl),
            ..v1::Cluster::default()
        }),
        status: Some(v1::ClusterStatus {
            cause: "authentication refused; check sasl.username and its password".to_owned(),
            since_ms: NEW_YEAR,
            ..v1::ClusterStatus::default()
        }),
    };
    let new = v1::ClusterInfo {
        cluster: Some(v1::Cluster {
            id: "new".to_owned(),
            bootstrap_servers: vec!["new-1:9092".to_owned()],
            ..v1::Cluster::default()
        }),
        status: None,
    };
    [east, west, new].map(clusters::Cluster::from).into()
}

fn links() -> Vec<links::Link> {
    let info = v1::LinkInfo {
        link: Some(v1::Link {
            engine: v1::Engine::Records.into(),
            id: "east-west".to_owned(),
            source: "east".to_owned(),
            target: "west".to_owned(),
            naming: Some(v1::Naming {
                prefix: "east.".to_owned(),
                ..v1::Naming::default()
            }),
            start: Some(v1::StartPolicy {
                at: Some(v1::start_policy::At::TimestampMs(NEW_YEAR)),
            }),
            ..v1::Link::default()
        }),
        status: Some(v1::LinkStatus {
            health: v1::Health::Degraded.into(),
            cause: "cluster west: not reachable".to_owned(),
            since_ms: NEW_YEAR,
            topics: 2,
            tasks: counts(7, 8),
            lag_records: None,
            delivery: "at_least_once".to_owned(),
            delivery_reason: "records_engine".to_owned(),
        }),
    };
    vec![info.into()]
}

fn subscriptions() -> Vec<subscriptions::Subscription> {
    let of = |id: &str, by, lag_records, (problem, note): (&str, &str)| v1::SubscriptionInfo {
        id: id.to_owned(),
        subscription: Some(v1::Subscription {
            link: "east-west".to_owned(),
            selector: Some(v1::Selector { by: Some(by) }),
            ..v1::Subscription::default()
        }),
        status: Some(v1::SubscriptionStatus {
            health: v1::Health::Ok.into(),
            since_ms: NEW_YEAR,
            topics: vec![v1::TopicStatus {
                topic: "orders".to_owned(),
                target_topic: "east.orders".to_owned(),
                partitions: 4,
                problem: problem.to_owned(),
                note: note.to_owned(),
            }],
            topics_total: 1,
            tasks: counts(4, 4),
            lag_records,
            ..v1::SubscriptionStatus::default()
        }),
    };
    let topic = v1::selector::By::Topic("orders".to_owned());
    let pattern = v1::selector::By::Pattern(v1::Pattern {
        include: "events\\..*".to_owned(),
        exclude: vec!["events\\.debug".to_owned()],
    });
    let problem = "target topic has 2 partitions, 4 wanted";
    let note = "has 8 partitions and its source 4: the last ones stay empty";
    [
        of("orders", topic, Some(0), ("", note)),
        of("/events\\..*/", pattern, Some(12_345), (problem, "")),
    ]
    .map(subscriptions::Subscription::from)
    .into()
}

fn tasks() -> Vec<tasks::Task> {
    let running = v1::Task {
        link: "east-west".to_owned(),
        topic: "orders".to_owned(),
        partition: 0,
        target_topic: "east.orders".to_owned(),
        state: v1::TaskState::Running.into(),
        worker: "worker-0".to_owned(),
        epoch: 12,
        report: Some(v1::TaskReport {
            since_ms: NEW_YEAR,
            checkpoint: Some(100),
            log_start: Some(0),
            log_end: Some(105),
            lag_records: Some(5),
            progress_at_ms: NEW_YEAR,
            records_total: 1_234_567,
            engine: v1::Engine::Batches.into(),
            delivery: "exactly_once".to_owned(),
            path: "rewritten".to_owned(),
            path_reason: "holes".to_owned(),
            ..v1::TaskReport::default()
        }),
        reason: "worker lost".to_owned(),
    };
    let unassigned = v1::Task {
        link: "east-west".to_owned(),
        topic: "orders".to_owned(),
        partition: 1,
        target_topic: "east.orders".to_owned(),
        state: v1::TaskState::Unassigned.into(),
        reason: "no workers".to_owned(),
        ..v1::Task::default()
    };
    [running, unassigned].map(tasks::Task::from).into()
}

fn workers() -> Vec<workers::Worker> {
    let info = v1::WorkerInfo {
        id: "worker-0".to_owned(),
        address: "worker-0:7071".to_owned(),
        state: v1::WorkerState::Draining.into(),
        tasks_assigned: 8,
        tasks_owned: 7,
        tasks_running: 6,
        records_per_second: 1_999.6,
        bytes_per_second: 3_145_728.0,
        memory_budget_bytes: 512 << 20,
        memory_used_bytes: 1 << 20,
        version: "0.1.0".to_owned(),
        started_at_ms: NEW_YEAR,
    };
    vec![info.into()]
}

/// Every list in one form, one after the other.
fn all(format: Format) -> String {
    [
        list(&clusters(), format),
        list(&links(), format),
        list(&subscriptions(), format),
        list(&tasks(), format),
        list(&workers(), format),
    ]
    .map(|shown| shown.expect("can be shown"))
    .join("\n\n")
}

#[track_caller]
fn compare(shown: &str, golden: &str) {
    assert_eq!(shown, golden.trim_end(), "\n{shown}\n");
}

#[test]
fn tables_are_as_recorded() {
    compare(&all(Format::Table), include_str!("golden/table.txt"));
}

#[test]
fn wide_tables_are_as_recorded() {
    compare(&all(Format::Wide), include_str!("golden/wide.txt"));
}

#[test]
fn json_is_as_recorded() {
    compare(&all(Format::Json), include_str!("golden/json.txt"));
}

#[test]
fn yaml_is_as_recorded() {
    compare(&all(Format::Yaml), include_str!("golden/yaml.txt"));
}

#[test]
fn empty_lists_say_so_to_people_and_are_empty_for_programs() {
    let none: [workers::Worker; 0] = [];
    assert_eq!(list(&none, Format::Table).expect("shown"), "no workers");
    assert_eq!(list(&none, Format::Json).expect("shown"), "[]");
    assert_eq!(list(&none, Format::Yaml).expect("shown"), "[]");
}
