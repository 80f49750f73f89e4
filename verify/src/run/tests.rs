use std::net::TcpListener;

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::{ids::ClusterId, spec};

use super::*;

fn name(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn options() -> Options {
    Options {
        from: None,
        to: None,
        partition: None,
        ignored: Parts::default(),
        tolerate_duplicates: false,
        wait: Duration::from_secs(1),
        stall_timeout: Duration::from_secs(60),
        partitions_at_once: 4,
        findings: 20,
        seed: 1,
    }
}

fn pair(target_compaction: Compaction) -> Pair {
    Pair {
        source_topic: name("ants"),
        target_topic: name("ants"),
        partition: Partition(0),
        starts_late: false,
        source_compaction: Compaction::Off,
        target_compaction,
    }
}

fn told(target_compaction: Compaction, tally: Tally) -> PartitionReport {
    let outcome = Outcome {
        tally,
        ..Outcome::default()
    };
    report(pair(target_compaction), outcome, &options())
}

#[test]
fn missing_keys_of_a_topic_whose_settings_may_not_be_read_are_neither_lost_nor_compacted() {
    let tally = Tally {
        equal: 9,
        compacted_on_target: 2,
        ..Tally::default()
    };
    let unknown = told(Compaction::Unknown, tally);
    assert_eq!(unknown.verdict, Verdict::NotCompared);
    assert!(unknown.notes[0].contains("DESCRIBE_CONFIGS"), "{unknown:?}");
    assert_eq!(told(Compaction::On, tally).verdict, Verdict::Equal);
    let lost = Tally {
        missing: 1,
        ..tally
    };
    assert_eq!(told(Compaction::Unknown, lost).verdict, Verdict::Different);
    let complete = Tally {
        compacted_on_target: 0,
        ..tally
    };
    assert_eq!(told(Compaction::Unknown, complete).verdict, Verdict::Equal);
}

/// A cluster that takes connections and never answers.
fn silent(id: &str, listener: &TcpListener) -> Cluster {
    let address = listener.local_addr().expect("an address");
    let cluster = spec::Cluster {
        id: ClusterId::new(id).expect("legal"),
        bootstrap_servers: vec![address.to_string()],
        security: spec::Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    Cluster::new(&cluster, &BTreeMap::new(), &ProcessSecrets).expect("legal")
}

/// More time than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn session(listener: &TcpListener) -> Session {
    let (source, target) = (silent("source", listener), silent("target", listener));
    let topics = BTreeMap::from([(name("ants"), 1)]);
    Session {
        source_survey: Survey::new(&source, PATIENCE).expect("legal"),
        target_survey: Survey::new(&target, PATIENCE).expect("legal"),
        source,
        target,
        source_topics: topics.clone(),
        target_topics: topics,
    }
}

/// Runs `work` and stops it soon. What it leaves behind is not waited for.
fn stopped<T>(work: impl AsyncFnOnce(CancellationToken) -> T) -> (T, Duration) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let done = runtime.block_on(async {
        let stop = CancellationToken::new();
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stop.cancel();
            Instant::now()
        };
        let working = async {
            let done = work(stop.clone()).await;
            (done, Instant::now())
        };
        let ((done, end), begin) = tokio::join!(working, stopping);
        (done, end.saturating_duration_since(begin))
    });
    runtime.shutdown_background();
    done
}

#[test]
fn a_run_that_is_stopped_while_settings_are_asked_for_ends_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let topics = [Topics {
        source: name("ants"),
        target: name("ants"),
        starts_late: false,
    }];
    let (report, took) = stopped(async |stop| {
        let progress = Arc::new(Progress::default());
        let session = session(&listener);
        session.run(&topics, &options(), &progress, &stop).await
    });
    assert!(took < PATIENCE / 4, "{took:?}");
    assert_eq!(report.verdict(), Verdict::NotCompared);
    let told = report.partitions[0].error.as_deref();
    assert_eq!(told, Some("stopped before the end"));
}

#[test]
fn a_comparison_that_is_stopped_while_offsets_are_asked_for_ends_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (outcome, took) = stopped(async |stop| {
        let session = session(&listener);
        let context = Context {
            source: session.source,
            target: session.target,
            source_survey: session.source_survey,
            target_survey: session.target_survey,
            hasher: Hasher::new(1, Parts::default()),
            options: options(),
            progress: Arc::new(Progress::default()),
            stop,
        };
        compare(&context, &pair(Compaction::Off)).await
    });
    assert!(took < PATIENCE / 4, "{took:?}");
    assert_eq!(outcome.error, Some(Error::Stopped));
}
