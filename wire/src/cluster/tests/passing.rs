//! What was true and passed: brokers that left, topics that were not there yet, questions that failed.

use super::*;

fn commit() -> BTreeMap<TopicPartition, Commit> {
    let commit = Commit {
        offset: Offset(1),
        leader_epoch: None,
        metadata: String::new(),
    };
    BTreeMap::from([(lane(), commit)])
}

fn coordinator(id: i32, port: i32, version: i16) -> Option<Bytes> {
    let answer = FindCoordinatorResponse::default()
        .with_node_id(WireBroker(id))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port);
    Some(body(&answer, version))
}

fn committed(version: i16) -> Option<Bytes> {
    let topic = OffsetCommitResponseTopic::default()
        .with_name(wire_topic())
        .with_partitions(vec![OffsetCommitResponsePartition::default()]);
    let answer = OffsetCommitResponse::default().with_topics(vec![topic]);
    Some(body(&answer, version))
}

#[tokio::test]
async fn a_coordinator_that_left_the_cluster_is_looked_up_anew() {
    let leaving = FakeBroker::start(SPEAKS, |api, version, _| match api {
        ApiKey::OffsetCommit => committed(version),
        _ => None,
    })
    .await;
    let (left, finds) = (leaving.port(), Arc::new(AtomicUsize::new(0)));
    let found = Arc::clone(&finds);
    let has_left = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_gone = Arc::clone(&has_left);
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let staying = FakeBroker::start(SPEAKS, move |api, version, _| {
        let (own, is_gone) = (*port.get().expect("set"), is_gone.load(Ordering::Relaxed));
        match api {
            ApiKey::Metadata if is_gone => metadata(&[(1, own)], (1, 5), version),
            ApiKey::Metadata => metadata(&[(1, own), (2, left)], (1, 5), version),
            ApiKey::FindCoordinator => {
                found.fetch_add(1, Ordering::Relaxed);
                let (id, port) = if is_gone { (1, own) } else { (2, left) };
                coordinator(id, port, version)
            }
            ApiKey::OffsetCommit => committed(version),
            _ => None,
        }
    })
    .await;
    own.set(staying.port()).expect("once");
    let client = client(&[staying.address()]);
    let done = client.commit_offsets("copy", &commit(), soon()).await;
    assert_eq!(done[&lane()], Ok(()));
    assert_eq!(leaving.requests(), 1);

    drop(leaving);
    has_left.store(true, Ordering::Relaxed);
    client.mark_stale(&lane().topic);
    client.topic(&lane().topic, soon()).await.expect("known");
    let patience = Instant::now() + Duration::from_secs(3);
    let done = client.commit_offsets("copy", &commit(), patience).await;
    assert_eq!(done[&lane()], Ok(()));
    assert_eq!(finds.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_leader_that_its_cluster_does_not_name_is_looked_up_anew() {
    let told = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&told);
    let own = Arc::new(std::sync::OnceLock::new());
    let port = Arc::clone(&own);
    let broker = FakeBroker::start(SPEAKS, move |api, version, _| match api {
        ApiKey::Metadata => {
            // The second answer is the one about brokers alone.
            let leader = match times.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => (2, 5),
                _ => (1, 6),
            };
            metadata(&[(1, *port.get().expect("set"))], leader, version)
        }
        ApiKey::ListOffsets => end(Code::NONE, 42, version),
        _ => None,
    })
    .await;
    own.set(broker.port()).expect("once");
    let client = client(&[broker.address()]);
    let patience = Instant::now() + Duration::from_secs(3);
    let range = client.committed_range(&lane(), patience).await;
    assert_eq!(range.map(|range| range.end), Ok(Offset(42)));
}

#[tokio::test]
async fn a_topic_that_was_unknown_is_asked_for_again_when_it_is_needed_again() {
    let told = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&told);
    let broker = FakeBroker::start(SPEAKS, move |_, version, _| {
        if times.fetch_add(1, Ordering::Relaxed) > 0 {
            return metadata(&[(1, 1)], (1, 5), version);
        }
        let topic = MetadataResponseTopic::default()
            .with_name(Some(wire_topic()))
            .with_error_code(Code::UNKNOWN_TOPIC_OR_PARTITION.0);
        let answer = MetadataResponse::default().with_topics(vec![topic]);
        Some(body(&answer, version))
    })
    .await;
    let client = client(&[broker.address()]);
    let unknown = client.leader(&lane(), soon()).await;
    let unknown = unknown.expect_err("not there yet").code();
    assert_eq!(unknown, Some(Code::UNKNOWN_TOPIC_OR_PARTITION));
    let leader = client.leader(&lane(), soon()).await.expect("made by now");
    assert_eq!(leader.broker.0, 1);
    client.leader(&lane(), soon()).await.expect("as before");
    assert_eq!(told.load(Ordering::Relaxed), 2, "what is known is kept");
}

#[tokio::test]
async fn a_question_that_failed_is_not_taken_for_an_answer_by_those_behind() {
    let asked = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&asked);
    let broker = FakeBroker::start(SPEAKS, move |_, version, _| {
        let is_first = times.fetch_add(1, Ordering::Relaxed) == 0;
        let answer =
            MetadataResponse::default().with_cluster_id(Some(StrBytes::from_static_str("here")));
        (!is_first).then(|| body(&answer, version))
    })
    .await;
    let client = client(&[broker.address()]);
    let hasty = client.cluster_id(Instant::now() + Duration::from_millis(200));
    let (hasty, patient) = futures::join!(hasty, client.cluster_id(soon()));
    assert!(hasty.is_err(), "{hasty:?}");
    assert_eq!(patient, Ok(Some("here".to_owned())));
}
