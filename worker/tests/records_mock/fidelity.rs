//! Records arrive as they were, or stop their own partition alone.

use kreplicator_worker::engine::{State, Stopped};

use crate::{
    rig::{Rec, Rig, STOP, copied, faulted, fill, numbered, read, status_where, values},
    wire,
};

#[tokio::test(flavor = "multi_thread")]
async fn c011_c013_c015_records_arrive_unchanged() {
    let rig = Rig::new();
    rig.topic("orders", 3);
    let header = |key: &str, value: Option<&str>| {
        (key.to_owned(), value.map(|value| value.as_bytes().to_vec()))
    };
    let mut records = vec![
        Rec {
            key: None,
            value: Some(b"no key".to_vec()),
            ..Rec::new(0, "")
        },
        Rec {
            key: Some(Vec::new()),
            value: Some(Vec::new()),
            ..Rec::new(0, "")
        },
        Rec {
            value: None,
            ..Rec::new(0, "")
        },
        Rec {
            headers: vec![
                header("a", Some("1")),
                header("b", None),
                header("a", Some("3")),
                header("", Some("")),
            ],
            ..Rec::new(0, "headers")
        },
        Rec {
            timestamp: Some(1),
            ..Rec::new(0, "old")
        },
        Rec {
            key: Some(vec![0, 255, 128]),
            value: Some(vec![255; 50_000]),
            headers: vec![("bin".to_owned(), Some(vec![0, 159, 146, 150]))],
            ..Rec::new(0, "")
        },
    ];
    records.extend(numbered(1, 0..50));
    records.extend(numbered(2, 0..50));
    fill(&rig.source, "orders", &records);

    let tasks: Vec<_> = (0..3)
        .map(|partition| rig.start("orders", partition))
        .collect();
    for (task, count) in tasks.iter().zip([6, 50, 50]) {
        copied(task.as_ref(), count).await;
    }
    let found = read(&rig.target, "orders", 3, 106).await;
    for partition in 0..3 {
        let of = |records: &[Rec]| {
            let records = records
                .iter()
                .filter(|record| record.partition == partition);
            records.cloned().collect::<Vec<_>>()
        };
        assert_eq!(of(&found), of(&records), "partition {partition}");
    }
    for task in tasks {
        assert_eq!(task.stop(STOP).await, Stopped::Clean);
        assert_eq!(task.status().state, State::Stopped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c012_one_bad_record_stops_its_own_partition_alone() {
    let rig = Rig::new();
    for topic in ["bad", "good", "other"] {
        rig.topic(topic, 1);
    }
    let mut bad = numbered(0, 0..3);
    // The one thing that cannot be passed on unchanged: a timestamp of 0. The producer takes 0 for
    // "now" as well, so the record is written with its own batch by hand.
    fill(&rig.source, "bad", &bad);
    wire::produce(
        &rig.source.bootstrap_servers(),
        "bad",
        &wire::batch(0, None, b"poison"),
    )
    .await;
    bad.extend(numbered(0, 4..6));
    fill(&rig.source, "bad", &numbered(0, 4..6));
    fill(&rig.source, "good", &numbered(0, 0..10));
    let bad_task = rig.start("bad", 0);
    let good_task = rig.start("good", 0);
    let other_task = rig.start("other", 0);

    let status = faulted(bad_task.as_ref()).await;
    assert!(
        status.cause.contains("offset 3") && status.cause.contains("timestamp 0"),
        "{}",
        status.cause
    );
    assert!(status.retry_at.is_some());
    copied(good_task.as_ref(), 10).await;
    fill(&rig.source, "other", &numbered(0, 0..10));
    copied(other_task.as_ref(), 10).await;
    let first_retry = status.retry_at;
    let status = status_where(bad_task.as_ref(), "another attempt", |status| {
        status.retry_at > first_retry
    })
    .await;
    assert_eq!(
        status.state,
        State::Faulted,
        "an attempt alone proves nothing"
    );
    assert_eq!(status.checkpoint.map(|at| at.0), Some(3));
    assert_eq!(good_task.status().state, State::Running);
    let found = read(&rig.target, "bad", 1, 3).await;
    assert_eq!(
        values(&found, 0),
        ["0,0", "0,1", "0,2"],
        "neighbours are written once"
    );
    assert_eq!(bad_task.stop(STOP).await, Stopped::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn c012_header_names_that_are_no_text_pass_unchanged() {
    let rig = Rig::new();
    rig.topic("odd", 1);
    let name: &[u8] = &[b'n', 0xff, 0xfe];
    let batch = wire::batch(1_700_000_000_000, Some((name, b"value")), b"odd");
    wire::produce(&rig.source.bootstrap_servers(), "odd", &batch).await;
    fill(&rig.source, "odd", &numbered(0, 1..3));
    let task = rig.start("odd", 0);
    copied(task.as_ref(), 3).await;
    let stored = wire::fetch(&rig.target.bootstrap_servers(), "odd").await;
    let has_name = stored.windows(name.len()).any(|window| window == name);
    assert!(has_name, "the name's bytes are at the target");
}
