//! `standalone` between two embedded Kafka clusters, driven by the operator's commands.

mod support;

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer},
};
use support::{Ran, Service, kreplicator, run};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(30);
const RECORDS: i32 = 200;

struct Standalone {
    service: Service,
    endpoint: String,
}

impl Standalone {
    fn start(arguments: impl FnOnce(&mut Command)) -> Self {
        let mut command = kreplicator();
        command.args(["standalone", "--set", "log.format=json"]);
        for setting in [
            "controller.listen_grpc=127.0.0.1:0",
            "controller.listen_http=127.0.0.1:0",
            "worker.listen=127.0.0.1:0",
            "controller.discovery_interval=1s",
            "worker.lease_ttl=2s",
            "worker.fence_margin=500ms",
            "controller.startup_grace=500ms",
        ] {
            command.args(["--set", setting]);
        }
        arguments(&mut command);
        let mut service = Service::start(&mut command);
        let line = service.line_with("ready; use this address", DEADLINE);
        let line: serde_json::Value = serde_json::from_str(&line).expect("a JSON log line");
        let endpoint = line["address"].as_str().expect("an address").to_owned();
        Self { service, endpoint }
    }

    fn ask(&self, arguments: &[&str]) -> Ran {
        run(kreplicator().args(arguments).args(["-e", &self.endpoint]))
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let ran = self.ask(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    /// Asks until the answer fits.
    fn until(&self, arguments: &[&str], fits: impl Fn(&serde_json::Value) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let answer = self.json(arguments);
            if fits(&answer) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{arguments:?} still gives {answer:#}"
            );
        }
    }
}

fn produce(bootstrap: &str, topic: &str) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()
        .expect("a producer");
    for number in 0..RECORDS {
        let value = number.to_string();
        let record = BaseRecord::to(topic)
            .partition(number % 2)
            .key("k")
            .payload(&value);
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("queued");
    }
    producer.flush(DEADLINE).expect("acknowledged");
}

/// The values found at the target, read until all are there.
fn mirrored(bootstrap: &str, topic: &str) -> Vec<String> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "test")
        .set("fetch.wait.max.ms", "20")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..2 {
        list.add_partition_offset(topic, partition, Offset::Beginning)
            .expect("an offset");
    }
    consumer.assign(&list).expect("assigned");
    let deadline = Instant::now() + DEADLINE;
    let mut values = Vec::new();
    let mut distinct = BTreeSet::new();
    let wanted = usize::try_from(RECORDS).expect("positive");
    while distinct.len() < wanted {
        assert!(
            Instant::now() < deadline,
            "{} of {wanted} arrived",
            distinct.len()
        );
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let value = message.payload().expect("a value");
            let value = String::from_utf8(value.to_vec()).expect("text");
            distinct.insert(value.clone());
            values.push(value);
        }
    }
    values
}

fn two_run(tasks: &serde_json::Value) -> bool {
    let all = tasks.as_array().expect("a list");
    all.len() == 2 && all.iter().all(|task| task["state"] == "running")
}

#[test]
fn topics_flow_as_declared_and_survive_a_restart() {
    let east = MockCluster::new(1).expect("a cluster");
    let west = MockCluster::new(1).expect("a cluster");
    for (cluster, topic) in [(&east, "orders"), (&west, "east.orders")] {
        cluster.create_topic(topic, 2, 1).expect("made");
    }
    produce(&east.bootstrap_servers(), "orders");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("links.yaml");
    let options = "client_options: {fetch.wait.max.ms: 20, kreplicator.allow.auto.create: true}";
    let declare = |extra: &str| {
        let text = format!(
            "clusters:\n  east: {{bootstrap_servers: \"{}\", {options}}}\n  \
             west: {{bootstrap_servers: \"{}\", {options}}}\n\
             links:\n  east-west:\n    engine: records\n    source: east\n    target: west\n    \
             naming: {{prefix: \"east.\"}}\n    topics: [orders{extra}]\n",
            east.bootstrap_servers(),
            west.bootstrap_servers()
        );
        fs::write(&file, text).expect("written");
        file.display().to_string()
    };
    let path = declare("");
    let data_dir = folder.path().join("data");

    // Applied at the start; nothing is left to do.
    let mut standalone = Standalone::start(|command| {
        command.arg("--data-dir").arg(&data_dir).args(["-f", &path]);
    });
    standalone
        .service
        .line_with("declarations are in force", DEADLINE);
    let again = standalone.ask(&["apply", "-f", &path, "--dry-run"]);
    assert_eq!((again.code, again.stdout.trim()), (Some(0), "no changes"));
    let values = mirrored(&west.bootstrap_servers(), "east.orders");
    assert_eq!(values.len(), 200, "nothing came twice");
    standalone.until(&["get", "links"], |links| {
        links[0]["health"] == "ok" && links[0]["lag_records"] == 0
    });
    standalone.until(&["get", "tasks", "--link", "east-west"], two_run);

    // A topic that does not exist is refused with its line, and can be waited for.
    let path = declare(", returns");
    let refused = standalone.ask(&["apply", "-f", &path]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let line = "links.yaml:10:22: subscription east-west/returns: ";
    assert!(refused.stderr.contains(line), "{}", refused.stderr);
    let pending = standalone.ask(&["apply", "-f", &path, "--dry-run", "--allow-missing"]);
    assert_eq!(pending.code, Some(10), "{}", pending.stderr);
    assert!(
        pending.stdout.contains("+ subscription east-west/returns"),
        "{}",
        pending.stdout
    );

    // Pausing and the like.
    let paused = standalone.ask(&["pause", "--link", "east-west", "orders"]);
    assert_eq!(
        (paused.code, paused.stdout.trim()),
        (Some(0), "1 of 1 paused")
    );
    standalone.until(&["get", "subscriptions"], |subscriptions| {
        subscriptions[0]["health"] == "paused"
    });
    let resumed = standalone.ask(&["resume", "--link", "east-west", "orders"]);
    assert_eq!(
        (resumed.code, resumed.stdout.trim()),
        (Some(0), "1 of 1 resumed")
    );
    let unknown = standalone.ask(&["unsubscribe", "--link", "east-west", "returns"]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("returns"), "{}", unknown.stderr);

    // Followed, line by line.
    let watch = ["watch", "--link", "east-west", "-e", &standalone.endpoint];
    let mut watch = Service::start(kreplicator().args(watch));
    watch.line_with("that is all there is now", DEADLINE);
    assert!(
        watch.seen[0].contains("east-west  orders"),
        "{:?}",
        watch.seen
    );
    assert_eq!(watch.end("INT"), Some(0));

    // The only worker keeps its tasks when drained; waiting for it says so.
    standalone.until(&["get", "tasks", "--link", "east-west"], two_run);
    let workers = standalone.json(&["get", "workers"]);
    let worker = workers[0]["id"].as_str().expect("a name").to_owned();
    let drain = ["worker", "drain", &worker, "--wait", "--wait-timeout", "1s"];
    let drained = standalone.ask(&drain);
    assert_eq!(drained.code, Some(1), "{}", drained.stderr);
    assert!(
        drained.stderr.contains("still has 2 tasks"),
        "{}",
        drained.stderr
    );
    let undrained = standalone.ask(&["worker", "drain", &worker, "--undrain"]);
    assert_eq!(undrained.code, Some(0), "{}", undrained.stderr);

    // The store serves one process.
    let second = run(kreplicator()
        .arg("standalone")
        .arg("--data-dir")
        .arg(&data_dir));
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(second.stderr.contains("store.redb"), "{}", second.stderr);
    assert_eq!(standalone.service.end("TERM"), Some(0));

    // What was declared is remembered, and nothing is copied again.
    let mut standalone = Standalone::start(|command| {
        command.arg("--data-dir").arg(&data_dir);
    });
    produce(&east.bootstrap_servers(), "orders");
    standalone.until(&["get", "tasks"], |tasks| {
        let all = tasks.as_array().expect("a list");
        all.len() == 2 && all.iter().all(|task| task["checkpoint"] == 200)
    });
    let status = standalone.json(&["status"]);
    assert_eq!(status["health"], "ok", "{status:#}");
    for (list, flag) in [
        ("tasks", "--link"),
        ("tasks", "--topic"),
        ("tasks", "--worker"),
        ("subscriptions", "--link"),
    ] {
        let ran = standalone.ask(&["get", list, flag, "nowhere"]);
        assert_eq!(ran.code, Some(3), "get {list} {flag}: {}", ran.stdout);
        assert!(
            ran.stderr.contains("\"nowhere\" does not exist"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(standalone.service.end("INT"), Some(0));
    let (_, high) = west_watermarks(&west.bootstrap_servers());
    assert_eq!(high, 200, "each record once, before and after the restart");
}

fn west_watermarks(bootstrap: &str) -> (i64, i64) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()
        .expect("a consumer");
    consumer
        .fetch_watermarks("east.orders", 0, DEADLINE)
        .expect("an answer")
}
