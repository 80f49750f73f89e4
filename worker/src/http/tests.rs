use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use kreplicator_model::ids::{Offset, UnixMillis};
use tower::ServiceExt;

use super::*;
use crate::{
    engine::{State as TaskState, Status},
    testkit::{Rig, engine::status, eventually, rig::put_link, task, task_on},
};

fn shown(rig: &Rig, per_partition: bool) -> Shown {
    Shown {
        prometheus: None,
        tasks: Arc::clone(&rig.tasks),
        health: Arc::clone(&rig.health),
        clock: WallClock::from_fn(|| UnixMillis(61_500)),
        per_partition,
    }
}

async fn get(shown: Shown, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).expect("legal");
    let response = router(shown).oneshot(request).await.expect("infallible");
    let status = response.status();
    let body = to_bytes(response.into_body(), 10 << 20)
        .await
        .expect("whole");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

/// The samples of one metric.
async fn samples(rig: &Rig, name: &str, per_partition: bool) -> Vec<String> {
    let (code, text) = get(shown(rig, per_partition), "/metrics").await;
    assert_eq!(code, StatusCode::OK);
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'))
        .map(|rest| rest.replace('"', ""))
        .collect()
}

async fn rig_with_three_tasks() -> Rig {
    let mut rig = Rig::start().await;
    let all = [(task(0), 1), (task(1), 1), (task_on("a-c", "clicks", 0), 1)];
    rig.assign(all.clone()).await;
    rig.settle_on(&all).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn c117_lag_is_summed_by_topic_and_by_partition_only_when_asked_for() {
    let rig = rig_with_three_tasks().await;
    rig.engine.task(&task(1)).say(Status {
        log_end: Some(Offset(45)),
        ..status(TaskState::Running)
    });
    let lag = "kreplicator_worker_lag_records";
    assert_eq!(
        samples(&rig, lag, false).await,
        ["link=a-b,topic=orders} 65", "link=a-c,topic=clicks} 60"]
    );
    assert_eq!(
        samples(&rig, lag, true).await,
        [
            "link=a-b,topic=orders,partition=0} 60",
            "link=a-b,topic=orders,partition=1} 5",
            "link=a-c,topic=clicks,partition=0} 60"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn c115_c116_an_unknown_lag_is_absent_and_counted_as_unknown() {
    let rig = rig_with_three_tasks().await;
    rig.engine.task(&task_on("a-c", "clicks", 0)).say(Status {
        log_end: None,
        ..status(TaskState::Faulted)
    });
    rig.engine.task(&task(0)).say(Status {
        checkpoint: Some(Offset(1_000)),
        ..status(TaskState::Running)
    });
    assert_eq!(
        samples(&rig, "kreplicator_worker_lag_records", false).await,
        ["link=a-b,topic=orders} 60"],
        "never negative, never a made-up zero"
    );
    assert_eq!(
        samples(&rig, "kreplicator_worker_lag_unknown_tasks", false).await,
        ["link=a-c} 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn c116_the_age_of_the_last_progress_is_that_of_the_furthest_behind() {
    let rig = rig_with_three_tasks().await;
    rig.engine.task(&task(0)).say(Status {
        progress_at: Some(UnixMillis(61_000)),
        ..status(TaskState::Running)
    });
    rig.engine.task(&task(1)).say(Status {
        progress_at: Some(UnixMillis(41_250)),
        ..status(TaskState::Running)
    });
    rig.engine.task(&task_on("a-c", "clicks", 0)).say(Status {
        progress_at: None,
        ..status(TaskState::Faulted)
    });
    assert_eq!(
        samples(&rig, "kreplicator_worker_progress_age_seconds_max", false).await,
        ["link=a-b} 20.250", "link=a-c} 60.500"],
        "a task that never moved counts from its start"
    );
}

#[tokio::test(start_paused = true)]
async fn c119_a_released_task_is_gone_with_the_next_scrape() {
    let mut rig = rig_with_three_tasks().await;
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    assert_eq!(
        samples(&rig, "kreplicator_worker_lag_records", false).await,
        ["link=a-b,topic=orders} 60"]
    );
    assert_eq!(
        samples(&rig, "kreplicator_worker_tasks", false).await,
        ["link=a-b,state=running} 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_are_counted_by_state_those_that_wait_included() {
    let mut rig = Rig::start().await;
    let waiting = task_on("a-d", "orders", 0);
    rig.assign([(task(0), 1), (task(1), 1), (waiting, 1)]).await;
    eventually("both run", async || rig.engine.running().len() == 2).await;
    rig.engine.task(&task(1)).say(status(TaskState::Faulted));
    eventually("all are counted", async || {
        samples(&rig, "kreplicator_worker_tasks", false).await
            == [
                "link=a-b,state=faulted} 1",
                "link=a-b,state=running} 1",
                "link=a-d,state=waiting} 1",
            ]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn c117_a_scrape_of_many_tasks_is_small_and_quick() {
    let mut rig = Rig::start().await;
    let all: Vec<_> = (0..5_000)
        .map(|n| (task_on("a-b", &format!("topic-{:04}", n / 10), n % 10), 1))
        .collect();
    rig.assign(all.clone()).await;
    eventually("all run", async || rig.tasks.len() == all.len()).await;
    let (_, text) = get(shown(&rig, false), "/metrics").await;
    assert!(text.len() < 100_000, "{} bytes", text.len());
    assert_eq!(
        text.lines().filter(|line| line.contains("topic-")).count(),
        500
    );
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_explained_before_its_samples() {
    let rig = rig_with_three_tasks().await;
    let (_, text) = get(shown(&rig, false), "/metrics").await;
    let mut known = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            known = rest.split(' ').next();
        } else if !line.starts_with('#') {
            let name = line.split('{').next();
            assert_eq!(name, known, "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c113_probes_tell_of_the_process_and_not_of_remote_clusters() {
    let mut rig = rig_with_three_tasks().await;
    for id in rig.engine.running() {
        rig.engine.task(&id).say(Status {
            cause: "cluster a cannot be reached".to_owned(),
            ..status(TaskState::Faulted)
        });
    }
    put_link(&rig.store, "a-d", "a", "nowhere").await;
    rig.assign([(task(0), 1), (task_on("a-d", "orders", 0), 2)])
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(get(shown(&rig, false), "/readyz").await.0, StatusCode::OK);
    assert_eq!(get(shown(&rig, false), "/healthz").await.0, StatusCode::OK);

    rig.store.set_away(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (code, text) = get(shown(&rig, false), "/readyz").await;
    assert_eq!(
        (code, text.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "not registered\n")
    );
    assert_eq!(
        get(shown(&rig, false), "/healthz").await.0,
        StatusCode::OK,
        "a restart would not bring the store back"
    );
}
