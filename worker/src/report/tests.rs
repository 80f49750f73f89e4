//! Reports against a real gRPC server on the loopback.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use kreplicator_model::{
    exact::{DeliveryMode, Reason},
    ids::{TaskId, UnixMillis},
};
use kreplicator_store::{Op, Txn};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::{build::Builder, *};
use crate::{
    engine::{self, State},
    testkit::{Rig, Script, engine::status, eventually, rig::put, task, task_on},
};

fn subject(rig: &Rig) -> Subject {
    Subject {
        worker: rig.worker.clone(),
        tasks: Arc::clone(&rig.tasks),
        health: Arc::clone(&rig.health),
        clock: WallClock::from_fn(|| UnixMillis(61_500)),
        memory_budget_bytes: 512,
        memory_used: Arc::new(|| 17),
        news: News::default(),
    }
}

fn ids(report: &v1::WorkerReport) -> Vec<i32> {
    report.tasks.iter().map(|task| task.partition).collect()
}

async fn settled(tasks: &[(TaskId, u64)]) -> Rig {
    let mut rig = Rig::start().await;
    rig.engine.script(Script {
        exactly_once: true,
        ..Script::default()
    });
    rig.assign(tasks.to_vec()).await;
    rig.settle_on(tasks).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn the_first_report_is_full_and_the_next_tells_what_changed() {
    let rig = settled(&[(task(0), 1), (task(1), 1)]).await;
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    let first = builder.reports(Instant::now());
    assert_eq!(first.len(), 1);
    assert!(first[0].full);
    assert_eq!(ids(&first[0]), [0, 1]);
    assert_eq!(
        first[0].incarnation,
        rig.health.incarnation().expect("registered")
    );
    assert_eq!(
        (first[0].memory_budget_bytes, first[0].memory_used_bytes),
        (512, 17)
    );
    let report = &first[0].tasks[0];
    assert_eq!((report.epoch, report.lag_records), (1, Some(60)));
    assert_eq!(report.state(), v1::TaskState::Running);
    assert_eq!(report.engine(), v1::Engine::Batches);
    let (delivery, path) = (&report.delivery, &report.path);
    assert_eq!(
        (delivery.as_str(), path.as_str()),
        ("exactly_once", "rewritten")
    );
    assert_eq!(report.path_reason, "holes");

    let second = builder.reports(Instant::now());
    assert!(!second[0].full);
    assert_eq!(ids(&second[0]), [0; 0], "nothing changed");

    rig.engine.task(&task(1)).say(engine::Status {
        cause: "the target is full".to_owned(),
        log_end: None,
        delivery: Some(DeliveryMode::AtLeastOnce(Reason::OldRecords).into()),
        path: None,
        ..status(State::Faulted)
    });
    let third = builder.reports(Instant::now());
    assert_eq!(ids(&third[0]), [1]);
    assert_eq!(third[0].tasks[0].cause, "the target is full");
    assert_eq!(third[0].tasks[0].lag_records, None, "unknown is not zero");
    let faulted = &third[0].tasks[0];
    assert_eq!(faulted.delivery, "at_least_once");
    assert_eq!(faulted.delivery_reason, "old_records");
    assert_eq!(
        (faulted.path.as_str(), faulted.path_reason.as_str()),
        ("", "")
    );

    builder.want_full();
    let asked = builder.reports(Instant::now());
    assert!(asked[0].full);
    assert_eq!(ids(&asked[0]), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn that_a_quiet_task_is_still_at_the_end_is_told_now_and_then() {
    let rig = settled(&[(task(0), 1)]).await;
    let at = |millis| {
        rig.engine.task(&task(0)).say(engine::Status {
            progress_at: Some(UnixMillis(millis)),
            ..status(State::Running)
        });
    };
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    at(100_000);
    assert_eq!(ids(&builder.reports(Instant::now())[0]), [0]);
    at(129_999);
    assert_eq!(ids(&builder.reports(Instant::now())[0]), [0; 0]);
    at(130_000);
    let told = builder.reports(Instant::now());
    assert_eq!(ids(&told[0]), [0]);
    assert_eq!(told[0].tasks[0].progress_at_ms, 130_000);
    // Whatever else has changed brings the time of the moment with it.
    rig.engine.task(&task(0)).say(engine::Status {
        progress_at: Some(UnixMillis(130_001)),
        records_total: 41,
        ..status(State::Running)
    });
    let told = builder.reports(Instant::now());
    assert_eq!(told[0].tasks[0].progress_at_ms, 130_001);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_left_makes_the_next_report_a_full_one() {
    let mut rig = settled(&[(task(0), 1), (task(1), 1)]).await;
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    builder.reports(Instant::now());
    rig.assign([(task(0), 1)]).await;
    rig.settle_on(&[(task(0), 1)]).await;
    let next = builder.reports(Instant::now());
    assert!(next[0].full);
    assert_eq!(ids(&next[0]), [0]);
}

#[tokio::test(start_paused = true)]
async fn rates_are_what_was_copied_since_the_last_report() {
    let mut rig = settled(&[(task(0), 1), (task(1), 1)]).await;
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    let first = &builder.reports(Instant::now())[0];
    assert!(
        first.records_per_second.abs() < 1e-9,
        "nothing to compare with"
    );
    rig.engine.task(&task(0)).say(engine::Status {
        records_total: 140,
        bytes_total: 24_000,
        ..status(State::Running)
    });
    let later = Instant::now() + Duration::from_secs(2);
    let second = &builder.reports(later)[0];
    assert!((second.records_per_second - 50.0).abs() < 1e-9);
    assert!((second.bytes_per_second - 10_000.0).abs() < 1e-9);
    // Totals of a new owner begin at zero: no jump back, no leap.
    rig.assign([(task(0), 2), (task(1), 1)]).await;
    rig.settle_on(&[(task(0), 2), (task(1), 1)]).await;
    let third = &builder.reports(later + Duration::from_secs(1))[0];
    assert!((third.records_per_second - 40.0).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn a_large_report_is_sent_in_parts_of_which_the_first_is_full() {
    let total = i32::try_from(build::TASKS_PER_MESSAGE_MAX).expect("small") + 1;
    let all: Vec<_> = (0..total)
        .map(|n| (task_on("a-b", &format!("t-{}", n / 100), n % 100), 1))
        .collect();
    let mut rig = Rig::start().await;
    rig.assign(all.clone()).await;
    eventually("all run", async || rig.tasks.len() == all.len()).await;
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    let parts = builder.reports(Instant::now());
    let sizes: Vec<_> = parts
        .iter()
        .map(|part| (part.full, part.tasks.len()))
        .collect();
    assert_eq!(sizes, [(true, build::TASKS_PER_MESSAGE_MAX), (false, 1)]);
}

/// A controller that takes reports.
struct Controller {
    reports: mpsc::Sender<v1::WorkerReport>,
    want_full: Arc<AtomicBool>,
    streams: Arc<Mutex<JoinSet<()>>>,
}

#[tonic::async_trait]
impl v1::fleet_server::Fleet for Controller {
    type ReportStream = ReceiverStream<Result<v1::ReportAck, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<v1::WorkerReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let mut reports = request.into_inner();
        let (acks, receiver) = mpsc::channel(16);
        let taken = self.reports.clone();
        let want_full = Arc::clone(&self.want_full);
        self.streams.lock().expect("no panic").spawn(async move {
            while let Ok(Some(report)) = reports.message().await {
                let want_full = want_full.swap(false, Ordering::SeqCst);
                if taken.send(report).await.is_err()
                    || acks.send(Ok(v1::ReportAck { want_full })).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

struct Running {
    address: String,
    reports: mpsc::Receiver<v1::WorkerReport>,
    want_full: Arc<AtomicBool>,
    streams: Arc<Mutex<JoinSet<()>>>,
    server: JoinSet<()>,
}

impl Running {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (sender, reports) = mpsc::channel(64);
        let want_full = Arc::new(AtomicBool::new(false));
        let streams = Arc::default();
        let controller = Controller {
            reports: sender,
            want_full: Arc::clone(&want_full),
            streams: Arc::clone(&streams),
        };
        let mut server = JoinSet::new();
        server.spawn(async move {
            Server::builder()
                .add_service(v1::fleet_server::FleetServer::new(controller))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("served");
        });
        Self {
            address,
            reports,
            want_full,
            streams,
            server,
        }
    }

    async fn next(&mut self) -> v1::WorkerReport {
        let report = timeout(Duration::from_secs(20), self.reports.recv()).await;
        report.expect("a report in time").expect("the server runs")
    }

    /// Breaks every stream, without a word.
    fn break_streams(&self) {
        self.streams.lock().expect("no panic").abort_all();
    }

    async fn stop(mut self) {
        self.break_streams();
        self.server.shutdown().await;
    }
}

async fn lead(rig: &Rig, controller: &Running, name: &str) {
    let leader = v1::Leader {
        controller: name.to_owned(),
        address: controller.address.clone(),
        elected_at_ms: 1,
    };
    put(
        &rig.store,
        keys::LEADER.to_owned(),
        prost::Message::encode_to_vec(&leader),
    )
    .await;
}

fn report_from(rig: &Rig) -> (JoinSet<()>, CancellationToken) {
    let shutdown = CancellationToken::new();
    let mut reporter = JoinSet::new();
    let store: Arc<dyn MetaStore> = Arc::clone(&rig.store) as _;
    reporter.spawn(run(
        store,
        subject(rig),
        Duration::from_millis(50),
        shutdown.clone(),
    ));
    (reporter, shutdown)
}

// Real time: sockets do not wait for a paused clock.
#[tokio::test]
async fn what_is_news_is_told_with_the_next_beat() {
    let rig = settled(&[(task(0), 1)]).await;
    let mut builder = Builder::new(subject(&rig), HEARTBEAT);
    builder.reports(Instant::now());
    assert!(!builder.has_news());
    builder.subject().news.add();
    assert!(builder.has_news());
    builder.reports(Instant::now());
    assert!(!builder.has_news(), "told twice");
}

#[tokio::test]
async fn reports_follow_the_leader() {
    let rig = settled(&[(task(0), 1)]).await;
    let (mut reporter, shutdown) = report_from(&rig);
    let mut first = Running::start().await;
    lead(&rig, &first, "c-1").await;
    let full = first.next().await;
    assert!(full.full);
    assert_eq!(full.worker, "w-1");
    assert_eq!(ids(&full), [0]);
    assert!(!first.next().await.full);

    first.want_full.store(true, Ordering::SeqCst);
    let mut asked = false;
    for _ in 0..5 {
        asked |= first.next().await.full;
    }
    assert!(asked, "what is asked for is sent");

    let mut second = Running::start().await;
    lead(&rig, &second, "c-2").await;
    let full = second.next().await;
    assert!(full.full, "a new leader knows nothing yet");

    second.break_streams();
    let mut again = false;
    for _ in 0..10 {
        again |= second.next().await.full;
    }
    assert!(again, "a broken stream is opened anew, with everything");

    shutdown.cancel();
    timeout(Duration::from_secs(5), reporter.join_next())
        .await
        .expect("ends when told")
        .expect("it ran")
        .expect("no panic");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_leader_that_is_not_there_is_tried_again_and_left_for_the_next() {
    let rig = settled(&[(task(0), 1)]).await;
    let gone = Running::start().await;
    let address = gone.address.clone();
    gone.stop().await;
    let (reporter, shutdown) = report_from(&rig);
    let dead = v1::Leader {
        controller: "c-0".to_owned(),
        address,
        elected_at_ms: 1,
    };
    put(
        &rig.store,
        keys::LEADER.to_owned(),
        prost::Message::encode_to_vec(&dead),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    put(&rig.store, keys::LEADER.to_owned(), vec![0xff]).await;
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::Delete(keys::LEADER.to_owned())],
    };
    rig.store.commit(txn).await.expect("there");
    let mut present = Running::start().await;
    lead(&rig, &present, "c-1").await;
    assert!(present.next().await.full);
    shutdown.cancel();
    reporter.join_all().await;
    present.stop().await;
}

/// A task that is busy whenever it is asked.
#[derive(Debug)]
struct Busy(engine::TaskSpec);

#[async_trait::async_trait]
impl engine::RunningTask for Busy {
    fn spec(&self) -> &engine::TaskSpec {
        &self.0
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a task that keeps its thread is what this is about"
    )]
    fn status(&self) -> engine::Status {
        std::thread::sleep(Duration::from_secs(3));
        status(State::Running)
    }

    async fn stop(&self, _: Duration) -> engine::Stopped {
        engine::Stopped::Clean
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_is_heard_while_a_task_is_too_busy_to_tell_of_itself() {
    let rig = settled(&[(task(0), 1)]).await;
    let (reporter, shutdown) = report_from(&rig);
    let mut leader = Running::start().await;
    lead(&rig, &leader, "c-1").await;
    assert!(leader.next().await.full);
    let spec = rig
        .tasks
        .get(&task(0))
        .expect("it runs")
        .task
        .spec()
        .clone();
    let busy = crate::tasks::Live {
        task: Arc::new(Busy(spec)),
        started_at: UnixMillis(0),
    };
    rig.tasks.insert(task(1), busy);
    // What was made before the task came, and one or two beats at most that were due with it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    while timeout(Duration::ZERO, leader.next()).await.is_ok() {}
    let began = Instant::now();
    for _ in 0..4 {
        leader.next().await;
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    shutdown.cancel();
    drop(reporter);
    leader.stop().await;
}
