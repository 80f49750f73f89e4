use std::{fmt::Write as _, time::Duration};

use kreplicator_model::{
    desired::Desired,
    ids::{ClusterId, LinkId, UnixMillis, WorkerId},
    resolve::TopicProblem,
};
use kreplicator_proto::v1::TaskReport;
use tokio::time::{Instant, advance};

use super::*;
use crate::{
    api::samples::{desired, entry, fleet, link_topic, report, task},
    fleet::{FleetState, Problem},
    reports::{Limits, Reports},
};

const RUNNING: TaskState = TaskState::Running;
const FAULTED: TaskState = TaskState::Faulted;

fn cluster_id(id: &str) -> ClusterId {
    ClusterId::new(id).expect("legal")
}

/// How link `a-b` stands when `w1` reports `tasks`.
fn link_with(desired: &Desired, fleet: &FleetState, tasks: Vec<TaskReport>) -> Condition {
    let reports = Reports::new(Limits::default());
    report(&reports, fleet, tasks);
    link_after(desired, fleet, &reports)
}

fn link_after(desired: &Desired, fleet: &FleetState, reports: &Reports) -> Condition {
    let view = reports.view(Instant::now());
    let picture = Picture::new(fleet, &view);
    picture.link(&desired.links[&LinkId::new("a-b").expect("legal")])
}

fn since(report: TaskReport, since_ms: i64) -> TaskReport {
    TaskReport { since_ms, ..report }
}

fn at_fault(report: TaskReport, cause: &str) -> TaskReport {
    TaskReport {
        cause: cause.to_owned(),
        ..report
    }
}

/// Health, cause and since, for comparing.
fn told(condition: &Condition) -> String {
    let mut text = format!("{:?}", condition.health);
    if !condition.cause.is_empty() {
        write!(text, ": {}", condition.cause).expect("a string takes all");
    }
    if condition.since_ms != 0 {
        write!(text, " since {}", condition.since_ms).expect("a string takes all");
    }
    text
}

#[tokio::test]
async fn a_link_is_ok_only_when_all_of_it_is_known_to_run() {
    let desired = desired(&["t"]);
    let fleet = fleet(&["t"]);
    let all = vec![
        since(entry("t", 0, RUNNING), 10),
        since(entry("t", 1, RUNNING), 30),
    ];
    let well = link_with(&desired, &fleet, all);
    assert_eq!(told(&well), "Ok since 30");
    assert_eq!((well.tasks.total, well.tasks.running), (2, 2));
    let half = link_with(&desired, &fleet, vec![entry("t", 0, RUNNING)]);
    assert_eq!(
        told(&half),
        "Pending: t/1: worker w1 has not reported on it yet"
    );
}

#[tokio::test]
async fn c113_faults_are_counted_and_the_oldest_is_named() {
    let desired = desired(&["t"]);
    let fleet = fleet(&["t"]);
    let one = vec![
        entry("t", 0, RUNNING),
        since(at_fault(entry("t", 1, FAULTED), "no permission"), 40),
    ];
    let degraded = link_with(&desired, &fleet, one);
    let expected = "Degraded: 1 of 2 tasks at fault; t/1: no permission since 40";
    assert_eq!(told(&degraded), expected);
    let both = vec![
        since(at_fault(entry("t", 0, FAULTED), "time not known"), 0),
        since(at_fault(entry("t", 1, FAULTED), "no permission"), 40),
    ];
    let down = link_with(&desired, &fleet, both);
    let expected = "Down: 2 of 2 tasks at fault; t/1: no permission since 40";
    assert_eq!(told(&down), expected);
    let silent = link_with(&desired, &fleet, vec![entry("t", 0, FAULTED)]);
    assert!(silent.cause.contains("gave no cause"), "{silent:?}");
}

#[tokio::test]
async fn c113_a_cluster_that_is_down_is_never_green() {
    let desired = desired(&["t"]);
    let mut fleet = fleet(&["t"]);
    let target = fleet.clusters.get_mut(&cluster_id("b")).expect("there");
    target.reachable = Some(false);
    target.cause = "connection refused".to_owned();
    target.since = UnixMillis(7);
    let running = || vec![entry("t", 0, RUNNING), entry("t", 1, RUNNING)];
    let degraded = link_with(&desired, &fleet, running());
    let expected = "Degraded: cluster b is not reachable: connection refused since 7";
    assert_eq!(told(&degraded), expected);
    fleet.assigned.clear();
    let down = link_with(&desired, &fleet, Vec::new());
    assert_eq!(down.health, Health::Down);
    // The outage of the longest standing is the cause.
    let source = fleet.clusters.get_mut(&cluster_id("a")).expect("there");
    source.reachable = Some(false);
    source.since = UnixMillis(3);
    let both = link_with(&desired, &fleet, Vec::new());
    assert!(both.cause.starts_with("cluster a"), "{both:?}");
}

#[tokio::test]
async fn what_was_not_looked_at_is_pending_even_while_records_flow() {
    let desired = desired(&["t"]);
    let mut fleet = fleet(&["t"]);
    let running = || vec![entry("t", 0, RUNNING), entry("t", 1, RUNNING)];
    let source = fleet.clusters.get_mut(&cluster_id("a")).expect("there");
    source.reachable = None;
    let unseen = link_with(&desired, &fleet, running());
    assert_eq!(told(&unseen), "Pending: cluster a was not looked at yet");
    fleet.ready = false;
    let early = link_with(&desired, &fleet, running());
    assert!(early.cause.contains("just taken over"), "{early:?}");
    assert_eq!(early.tasks.running, 2);
}

#[tokio::test]
async fn paused_is_neither_well_nor_at_fault() {
    let mut desired = desired(&["t"]);
    let mut fleet = fleet(&["t"]);
    fleet.assigned.clear();
    for resolved in fleet.resolved.topics.values_mut() {
        resolved.paused = true;
    }
    let all_paused = link_with(&desired, &fleet, Vec::new());
    assert_eq!(told(&all_paused), "Paused");
    assert_eq!(all_paused.tasks.paused, 2);
    for link in desired.links.values_mut() {
        link.paused = true;
    }
    fleet.resolved.topics.clear();
    assert_eq!(told(&link_with(&desired, &fleet, Vec::new())), "Paused");
}

#[tokio::test]
async fn problems_of_topics_are_faults_of_their_tasks() {
    let desired = desired(&["t", "u"]);
    let mut fleet = fleet(&["t", "u"]);
    let running = || vec![entry("u", 0, RUNNING), entry("u", 1, RUNNING)];
    fleet.assigned.retain(|task, _| task.topic.as_str() == "u");
    let gone = fleet
        .resolved
        .topics
        .get_mut(&link_topic("t"))
        .expect("there");
    gone.problem = Some(TopicProblem::SourceGone {
        cluster: cluster_id("a"),
    });
    let degraded = link_with(&desired, &fleet, running());
    assert_eq!(degraded.health, Health::Degraded);
    assert!(
        degraded
            .cause
            .contains("t/0: source topic is gone from cluster a"),
        "{degraded:?}"
    );

    // A problem of the target keeps new partitions waiting; those that run go on.
    let mut fleet = crate::api::samples::fleet(&["t"]);
    fleet
        .resolved
        .topics
        .get_mut(&link_topic("t"))
        .expect("there")
        .partitions = 3;
    let problem = Problem {
        message: "target topic t has 2 partitions; grow it to 3".to_owned(),
        since: UnixMillis(9),
    };
    fleet.target_problems.insert(link_topic("t"), problem);
    let all = vec![entry("t", 0, RUNNING), entry("t", 1, RUNNING)];
    let degraded = link_with(&desired, &fleet, all);
    assert_eq!(
        told(&degraded),
        "Degraded: 1 of 3 tasks at fault; t/2: target topic t has 2 partitions; grow it to 3 since 9"
    );
}

#[tokio::test(start_paused = true)]
async fn c116_a_worker_that_fell_silent_is_told_and_its_lag_is_unknown() {
    let desired = desired(&["t"]);
    let mut fleet = fleet(&["t"]);
    let reports = Reports::new(Limits::default());
    let lagging = |partition, lag| TaskReport {
        lag_records: Some(lag),
        ..entry("t", partition, RUNNING)
    };
    report(&reports, &fleet, vec![lagging(0, 4), lagging(1, 5)]);
    assert_eq!(link_after(&desired, &fleet, &reports).lag_records, Some(9));
    advance(Duration::from_millis(12_700)).await;
    let silent = link_after(&desired, &fleet, &reports);
    let expected = "Pending: t/0: worker w1 has not reported for 12s; see its log";
    assert_eq!(told(&silent), expected);
    assert_eq!(silent.lag_records, None);
    let worker = WorkerId::new("w1").expect("legal");
    fleet.workers.get_mut(&worker).expect("there").live = false;
    let lost = link_after(&desired, &fleet, &reports);
    assert!(lost.cause.contains("worker w1 is lost"), "{lost:?}");
}

#[tokio::test]
async fn a_subscription_tells_of_its_own_topics_only() {
    let desired = desired(&["t", "u", "v"]);
    let mut fleet = fleet(&["t", "u"]);
    let place = (LinkId::new("a-b").expect("legal"), "v".to_owned());
    let missing = link_topic("v").topic;
    fleet.resolved.missing.insert(place, missing);
    let reports = Reports::new(Limits::default());
    let all = vec![
        entry("t", 0, RUNNING),
        entry("t", 1, RUNNING),
        at_fault(entry("u", 0, FAULTED), "bad record"),
    ];
    report(&reports, &fleet, all);
    let view = reports.view(Instant::now());
    let picture = Picture::new(&fleet, &view);
    let link = &desired.links[&LinkId::new("a-b").expect("legal")];
    let stands = |id: &'static str, paused| {
        let selector = Selector::Topic(link_topic(id).topic);
        let key = link_topic(id);
        let topics: Vec<_> = fleet
            .resolved
            .topics
            .get_key_value(&key)
            .into_iter()
            .collect();
        let asked = Asked {
            link,
            id,
            selector: &selector,
            paused,
        };
        told(&picture.subscription(asked, &topics))
    };
    assert_eq!(stands("t", false), "Ok");
    assert_eq!(
        stands("u", false),
        "Down: 1 of 2 tasks at fault; u/0: bad record"
    );
    assert_eq!(
        stands("v", false),
        "Pending: topic v does not exist on cluster a; it starts when it is created"
    );
    assert_eq!(stands("w", false), "Pending: was not looked at yet");
    assert_eq!(stands("u", true), "Paused");
    assert!(picture.link(link).cause.contains("u/0: bad record"));
}

#[test]
fn c113_the_whole_is_as_bad_as_its_parts() {
    let whole = |parts: &[Health]| {
        let conditions: Vec<Condition> = parts
            .iter()
            .map(|health| Condition {
                health: *health,
                ..Condition::default()
            })
            .collect();
        overall(conditions.iter())
    };
    assert_eq!(whole(&[]), Health::Ok);
    assert_eq!(whole(&[Health::Ok, Health::Paused]), Health::Ok);
    assert_eq!(whole(&[Health::Paused]), Health::Paused);
    assert_eq!(whole(&[Health::Ok, Health::Pending]), Health::Pending);
    assert_eq!(whole(&[Health::Ok, Health::Down]), Health::Degraded);
    assert_eq!(whole(&[Health::Paused, Health::Down]), Health::Down);
    assert_eq!(
        whole(&[Health::Degraded, Health::Pending]),
        Health::Degraded
    );
}

#[tokio::test]
async fn every_task_is_listed_once_in_order_leftovers_too() {
    let mut fleet = fleet(&["a", "b", "c", "d"]);
    // Nobody asks for these any more, but they are assigned still.
    for topic in ["a", "c"] {
        fleet.resolved.topics.remove(&link_topic(topic));
    }
    fleet
        .resolved
        .topics
        .get_mut(&link_topic("d"))
        .expect("there")
        .partitions = 1;
    let reports = Reports::new(Limits::default());
    let view = reports.view(Instant::now());
    let picture = Picture::new(&fleet, &view);
    let names = |after: Option<&str>| -> Vec<String> {
        let after = after.map(|topic| task(topic, 0));
        picture
            .tasks_after(after.as_ref())
            .map(|task| format!("{}{}", task.id.topic, task.id.partition))
            .collect()
    };
    assert_eq!(
        names(None),
        ["a0", "a1", "b0", "b1", "c0", "c1", "d0", "d1"]
    );
    assert_eq!(names(Some("b")), ["b1", "c0", "c1", "d0", "d1"]);
    assert_eq!(names(Some("c")), ["c1", "d0", "d1"]);
    assert_eq!(names(Some("d")), ["d1"]);
    let states: Vec<TaskState> = picture.tasks_after(None).map(|task| task.state).collect();
    assert_eq!(states[0], TaskState::Stopping);
    assert_eq!(states[2], TaskState::Starting);
}
