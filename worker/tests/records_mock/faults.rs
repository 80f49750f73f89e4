//! Faults of clusters, settings and topics, each with its cause.

use std::{sync::Arc, time::Duration};

use kreplicator_worker::engine::{Engine, State, Stopped};
use tokio::time::Instant;

use crate::rig::{self, Rig, copied, faulted, fill, numbered, spec};

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_source_is_told_with_its_true_cause_and_does_not_touch_other_links() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    fill(&rig.source, "orders", &numbered(0, 0..10));
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let mut context = rig::context(
        &format!("127.0.0.1:{port}"),
        &rig.target.bootstrap_servers(),
    );
    context.link.id = kreplicator_model::ids::LinkId::new("dead").expect("legal");
    let mut dead = spec("orders", 0);
    dead.id.link = context.link.id.clone();
    let dead = rig.engine.start(dead, Arc::new(context));
    let alive = rig.start("orders", 0);
    copied(alive.as_ref(), 10).await;
    let status = faulted(dead.as_ref()).await;
    assert!(
        status.cause.contains("Connection refused"),
        "{}",
        status.cause
    );
    assert_eq!(status.log_end, None);
    assert_eq!(alive.status().state, State::Running);
    let began = Instant::now();
    assert_eq!(dead.stop(Duration::from_secs(1)).await, Stopped::Clean);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_are_a_fault_with_the_remedy() {
    let mut rig = Rig::new();
    let mut context = (*rig.context).clone();
    context.target.security.sasl = Some(kreplicator_model::spec::Sasl {
        mechanism: kreplicator_model::spec::SaslMechanism::Plain,
        username: "mirror".to_owned(),
        password: kreplicator_model::spec::SecretRef::Env("KREPLICATOR_TEST_NO_SUCH".to_owned()),
    });
    rig.context = Arc::new(context);
    rig.topic("orders", 1);
    let task = rig.start("orders", 0);
    let status = faulted(task.as_ref()).await;
    assert!(
        status.cause.contains("KREPLICATOR_TEST_NO_SUCH is not set"),
        "{}",
        status.cause
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_topic_that_does_not_exist_is_told_and_starts_when_it_appears() {
    let rig = Rig::new();
    rig.target.create_topic("coming", 1, 1).expect("made");
    let task = rig.start("coming", 0);
    let status = faulted(task.as_ref()).await;
    assert!(status.cause.contains("coming"), "{}", status.cause);
    rig.source.create_topic("coming", 1, 1).expect("made");
    fill(&rig.source, "coming", &numbered(0, 0..5));
    copied(task.as_ref(), 5).await;
}
