//! The whole worker on a scripted engine, with real sockets and real time.

use kreplicator_store::keys;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testkit::{FakeEngine, FlakyStore, eventually, rig};

struct Setup {
    store: Arc<FlakyStore>,
    engine: FakeEngine,
    worker: Worker,
}

fn config() -> Config {
    Config {
        id: "w-1".to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        lease_ttl: Duration::from_secs(2),
        fence_margin: Duration::from_millis(500),
        ..Config::default()
    }
}

/// A worker that runs one task.
async fn start() -> Setup {
    let store = Arc::new(FlakyStore::new());
    for cluster in ["a", "b"] {
        rig::put_cluster(&store, cluster, &format!("{cluster}:9092")).await;
    }
    rig::put_link(&store, "a-b", "a", "b").await;
    rig::put_assignment(&store, "w-1", &[(rig::task(0), 1)]).await;
    let mut engine = None;
    let worker = Worker::start_with(config(), Arc::clone(&store) as _, None, |_, gate| {
        let fake = FakeEngine::new(Arc::clone(&store), gate);
        engine = Some(fake.clone());
        DataPath {
            engine: Arc::new(fake),
            memory_used: Arc::new(|| 0),
            news: News::default(),
            kill: CancellationToken::new(),
        }
    })
    .await
    .expect("started");
    let engine = engine.expect("the data path was made");
    eventually("the task runs", async || engine.running() == [rig::task(0)]).await;
    Setup {
        store,
        engine,
        worker,
    }
}

#[tokio::test]
async fn connections_that_say_nothing_make_way_for_a_probe() {
    let setup = start().await;
    let address = setup.worker.http_address();
    let mut silent = Vec::new();
    for _ in 0..300 {
        let stream = tokio::net::TcpStream::connect(address).await;
        silent.push(stream.expect("listening"));
    }
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let end = timeout(Duration::from_secs(5), silent[0].read(&mut [0])).await;
    let end = end.expect("dropped though the time for a request's head is not over");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    setup.worker.kill().await;
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("listening");
    let request = format!("GET {path} HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    answer
}

async fn live(store: &FlakyStore) -> Option<kreplicator_store::Entry> {
    let id = WorkerId::new("w-1").expect("legal");
    let live = store.inner().get(&keys::worker_live(&id)).await;
    live.expect("there")
}

#[tokio::test]
async fn a_worker_serves_probes_and_metrics_and_leaves_in_order() {
    let Setup {
        store,
        engine,
        worker,
    } = start().await;
    let address = worker.http_address();
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.contains("kreplicator_worker_tasks{link=\"a-b\",state=\"running\"} 1"),
        "{metrics}"
    );
    let entry = live(&store).await.expect("registered");
    let told: kreplicator_proto::v1::WorkerLive =
        kreplicator_proto::stored::message("live", &entry.value).expect("readable");
    assert_eq!(told.address, address.to_string());

    // A scraper that keeps its connection open keeps nobody.
    let idle = tokio::net::TcpStream::connect(address)
        .await
        .expect("listening");
    timeout(Duration::from_secs(5), worker.stop())
        .await
        .expect("nobody to wait for")
        .expect("left in order");
    drop(idle);
    assert!(engine.is_closed());
    assert!(engine.running().is_empty());
    assert!(live(&store).await.is_none(), "the lease is given back");
}

#[tokio::test]
async fn a_killed_worker_gives_nothing_back() {
    let Setup {
        store,
        engine,
        worker,
    } = start().await;
    let address = worker.http_address();
    worker.kill().await;
    let stop = &engine.stops()[0];
    assert_eq!(stop.limit, Duration::ZERO);
    assert!(matches!(
        stop.outcome,
        crate::engine::Stopped::Forced { .. }
    ));
    assert!(live(&store).await.is_some(), "the lease has to run out");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    eventually("the lease ran out", async || live(&store).await.is_none()).await;
}

#[tokio::test]
async fn run_until_leaves_when_it_is_told() {
    let Setup { store, worker, .. } = start().await;
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    run_until(worker, shutdown).await.expect("left in order");
    assert!(live(&store).await.is_none());
}

#[tokio::test]
async fn wrong_settings_and_taken_ports_are_told_with_their_names() {
    let store: Arc<dyn MetaStore> = Arc::new(FlakyStore::new());
    let unused = |_: &Config, _: Gate| -> DataPath { panic!("nothing is built on wrong settings") };
    let wrong = Config {
        id: String::new(),
        retry_min: Duration::from_secs(600),
        ..config()
    };
    let error = Worker::start_with(wrong, Arc::clone(&store), None, unused).await;
    let text = error.expect_err("refused").to_string();
    assert!(
        text.contains("worker.id: ") && text.contains("worker.retry_min: "),
        "{text}"
    );

    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("bound");
    let config = Config {
        listen: address,
        ..config()
    };
    let error = Worker::start_with(config, store, None, unused).await;
    let text = error.expect_err("refused").to_string();
    assert!(text.contains(&address.to_string()), "{text}");
}

/// An engine that has broken.
#[derive(Debug)]
struct Broken;

#[async_trait::async_trait]
impl Engine for Broken {
    fn start(
        &self,
        _: crate::engine::TaskSpec,
        _: Arc<crate::engine::LinkContext>,
    ) -> Arc<dyn crate::engine::RunningTask> {
        panic!("nothing is assigned")
    }

    async fn release_link(&self, _: &kreplicator_model::ids::LinkId, _: Duration) {}

    async fn close(&self, _: Duration) {}

    async fn broken(&self) -> String {
        "a fetcher panicked: odd".to_owned()
    }
}

#[tokio::test]
async fn a_panic_on_the_data_path_ends_the_worker() {
    let store = Arc::new(FlakyStore::new());
    let worker = Worker::start_with(config(), store, None, |_, _| DataPath {
        news: News::default(),
        engine: Arc::new(Broken),
        memory_used: Arc::new(|| 0),
        kill: CancellationToken::new(),
    });
    let worker = worker.await.expect("started");
    let ended = timeout(
        Duration::from_secs(5),
        run_until(worker, CancellationToken::new()),
    );
    let error = ended.await.expect("at once").expect_err("it cannot go on");
    assert!(
        error.to_string().contains("a fetcher panicked: odd"),
        "{error}"
    );
}
